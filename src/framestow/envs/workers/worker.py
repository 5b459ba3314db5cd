"""One worker as its parent sees it."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from multiprocessing.context import BaseContext
from time import monotonic
from typing import Any, Protocol

from gymnasium.vector import AutoresetMode

from framestow.envs.workers.shared_arrays import SharedBlock
from framestow.envs.workers.wire import Command, Factories, Outcome, ParentEnd
from framestow.envs.workers.worker_process import WorkerArguments, keep_from_forks, process_handle, run_worker

_LONGEST_S = 86_400.0  # of one wait, which is then begun anew: the system counts it in 32 bits of milliseconds


class Waiting(Protocol):
    """Waits until one of what it watches has something to tell."""

    watches_processes: bool
    """Whether it takes what tells the end of a process, and not sockets only."""

    def watch(self, number: int, wants_to_send: bool = False) -> None:
        """Watch the file ``number``: for something to read, and for room to send where that is wanted."""

    def unwatch(self, number: int) -> None:
        """Forget the file ``number``; one that is not watched is no error."""

    def ready(self, timeout_s: float | None) -> list[int]:
        """Wait at most so long; gives the numbers of those with something to tell."""


class PollWaiting:
    """By ``poll``."""

    watches_processes = True

    def __init__(self) -> None:
        self._poll: Any = select.poll()

    def watch(self, number: int, wants_to_send: bool = False) -> None:
        """Watch a file."""
        self._poll.register(number, select.POLLIN | (select.POLLOUT if wants_to_send else 0))

    def unwatch(self, number: int) -> None:
        """Forget a file."""
        try:
            self._poll.unregister(number)
        except KeyError:
            return

    def ready(self, timeout_s: float | None) -> list[int]:
        """Wait."""
        timeout_ms = None if timeout_s is None else ceil(min(max(timeout_s, 0.0), _LONGEST_S) * 1000)
        return [number for number, _ in self._poll.poll(timeout_ms)]


class SelectWaiting:
    """By ``select``, where there is no ``poll``: on Windows, where it takes sockets only.

    The end of a process shows there by the end of its socket.
    """

    watches_processes = False

    def __init__(self) -> None:
        self._watched: dict[int, bool] = {}

    def watch(self, number: int, wants_to_send: bool = False) -> None:
        """Watch a socket."""
        self._watched[number] = wants_to_send

    def unwatch(self, number: int) -> None:
        """Forget a socket."""
        self._watched.pop(number, None)

    def ready(self, timeout_s: float | None) -> list[int]:
        """Wait."""
        senders = [number for number, wants_to_send in self._watched.items() if wants_to_send]
        at_most_s = None if timeout_s is None else min(max(timeout_s, 0.0), _LONGEST_S)
        to_read, to_send, _ = select.select(list(self._watched), senders, [], at_most_s)
        return list({*to_read, *to_send})


def make_waiting() -> Waiting:
    """Make the quickest kind that this system has."""
    return PollWaiting() if hasattr(select, "poll") else SelectWaiting()


_AFTER_KILL_S = 2.0  # SIGKILL needs no one's consent; a process that survives it waits for its disk


class Request:
    """Something a worker was asked, and what became of it: an answer, a failure, or the worker's loss."""

    __slots__ = (
        *("worker", "command", "numbers", "payload", "halves"),
        *("answer", "failed", "is_sent", "life", "lost", "sequence"),
    )

    def __init__(
        self,
        worker: Worker,
        command: Command,
        numbers: Sequence[int],
        payload: bytes,
        halves: Sequence[int] = (),
    ) -> None:
        self.worker, self.command, self.numbers, self.payload = worker, command, numbers, payload
        self.halves = halves
        """Where the observations of ``numbers`` are written to."""
        self.sequence, self.life = worker.next_sequence(), worker.life
        self.answer: bytes | None = None
        """Payload of the answer, also of one that tells a failure."""
        self.failed = False
        self.is_sent = False
        """Whether all of it has left."""
        self.lost: str | None = None
        """Why the worker was lost before it answered."""

    @property
    def is_open(self) -> bool:
        """Whether it waits for its answer."""
        return self.answer is None and self.lost is None

    @property
    def is_of_a_former_life(self) -> bool:
        """Whether the worker was replaced since: what was answered happened, and what it led to is gone."""
        return self.life != self.worker.life


class Worker:
    """Starts a process, asks it, hears it and ends it; all it knows of environments is their numbers.

    Args:
        number: which worker it is.
        numbers: its environments.
        factories: make them.
        mode: what they do at an episode's end.
        block: memory that is shared with the process.
        context: how processes start.
        daemon: as for `multiprocessing.Process`.
        waiting: told which files to watch.
    """

    def __init__(
        self,
        number: int,
        numbers: Sequence[int],
        factories: Factories,
        mode: AutoresetMode,
        block: SharedBlock,
        context: BaseContext,
        daemon: bool,
        waiting: Waiting,
    ) -> None:
        self.number, self.numbers = number, numbers
        self.lost: str | None = "it was never started"
        """Why it is lost; ``None`` while it works."""
        self.life = 0
        """How many processes it has had."""
        self.waiting_since_s = 0.0
        """When it was last heard, or asked if it had nothing to do before that; by `time.monotonic`."""
        self._factories, self._mode, self._block = factories, mode, block
        self._context, self._daemon, self._waiting = context, daemon, waiting
        self._sequence = 0
        self._asked: deque[Request] = deque()
        self._end: ParentEnd | None = None
        self.socket_number = -1
        self._waits_for_room = False  # in the socket, for what is left to send
        self._lifeline: Any = None
        self._process: Any = None
        self._handle: int | None = None

    def start(self) -> None:
        """Start a process, which has yet to be asked to make its environments."""
        self._process = None
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = self._context.Pipe(duplex=False)
        keep_from_forks(ours)
        keep_from_forks(self._lifeline)
        self._end = ParentEnd(ours)
        self.socket_number, self._waits_for_room = self._end.fileno(), False
        arguments = WorkerArguments(self.numbers, self._factories, self._mode, self._block, theirs, lifeline)
        process = self._context.Process(  # type: ignore[attr-defined]
            target=run_worker, args=(arguments,), name=f"framestow-worker-{self.number}", daemon=self._daemon
        )
        try:
            with _no_interrupts(self._context):
                process.start()
                self._process = process
        finally:
            theirs.close()
            lifeline.close()
        self.lost = None
        self.life += 1
        self._handle = process_handle(process.pid)
        for number in self.files:
            self._waiting.watch(number)

    @property
    def name(self) -> str:
        """The worker with its environments, for messages."""
        first, last = self.numbers[0], self.numbers[-1]
        envs = f"environment {first}" if first == last else f"environments {first} to {last}"
        return f"worker {self.number} ({envs})"

    @property
    def pid(self) -> int | None:
        """Number of its process; ``None`` before there is one."""
        return None if self._process is None else self._process.pid

    @property
    def files(self) -> tuple[int, ...]:
        """What to watch: the socket, and where the system can watch it the process."""
        if self._end is None or self._process is None:
            return ()
        death = int(self._process.sentinel) if self._handle is None else self._handle
        return (self.socket_number, death) if self._waiting.watches_processes else (self.socket_number,)

    def next_sequence(self) -> int:
        """Number the next request."""
        self._sequence += 1
        return self._sequence

    def post(self, request: Request) -> None:
        """Ask; once is enough, and a second time does nothing. The worker's loss stands in the request."""
        if self._end is None or self.lost:
            request.lost = self.lost
            return
        if request not in self._asked:
            if not self._asked:
                self.waiting_since_s = monotonic()
            self._asked.append(request)
        self._end.put(request.sequence, request.command, request.payload)
        self.flush()
        request.is_sent = not self._waits_for_room and not self.lost

    def flush(self) -> None:
        """Send what is left to send, as far as the socket takes it."""
        if self._end is None or self.lost:
            return
        try:
            waits_for_room = not self._end.flush()
        except OSError:
            self.note_death()
            return
        if waits_for_room != self._waits_for_room:
            self._waiting.watch(self.socket_number, wants_to_send=waits_for_room)
            self._waits_for_room = waits_for_room

    def hear(self) -> None:
        """Take in what has arrived; answers to requests that were given up are dropped."""
        if self._end is None or self.lost:
            return
        try:
            while self._end.fill():
                self._take_answers()
            self._take_answers()
        except (EOFError, OSError):
            self._take_answers()
            self.lose(self._cause_of_death())

    def take_unread(self) -> None:
        """Take answers that an interrupt left between their arrival and their being taken."""
        if self._end is not None and self._end.has_unread:
            self._take_answers()

    def note_death(self) -> None:
        """Take in what the process, which has ended, still said; then count it as lost."""
        self.hear()
        if not self.lost:
            self.lose(self._cause_of_death())

    def give_up_requests(self) -> None:
        """Want no answer to what was asked; answers that come all the same are dropped by their number."""
        self._asked = deque()

    def lose(self, why: str) -> None:
        """End the process at once; whatever was asked stays without an answer."""
        self.lost = f"{self.name} {why}"
        self.kill()
        for request in self._asked:
            request.lost = self.lost
        self._asked = deque()

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and bool(self._process.is_alive())

    def terminate(self) -> None:
        """Ask the system to end the process, which may clean up."""
        if self._process is not None:
            self._process.terminate()

    def join(self, timeout_s: float) -> None:
        """Wait for the process to end."""
        if self._process is not None:
            self._process.join(max(0.0, timeout_s))

    def kill(self) -> None:
        """End the process at once and let go of all that belongs to it; more than once does no harm."""
        self.lost = self.lost or f"{self.name} was closed"
        if self._process is not None:
            if self._process.is_alive():
                self._process.kill()
            self._process.join(_AFTER_KILL_S)
        self._let_go()
        if self._process is not None and not self._process.is_alive():
            self._process.close()
            self._process = None

    def _let_go(self) -> None:
        if self._end is None:
            return
        self._unwatch()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._end.close()
        self._lifeline.close()
        self._end = None

    def _unwatch(self) -> None:
        for number in self.files:
            self._waiting.unwatch(number)

    def _take_answers(self) -> None:
        end = self._end
        while end is not None and (frame := end.peek()) is not None:
            if self._asked and self._asked[0].sequence == frame.sequence:
                request = self._asked[0]
                request.failed = frame.kind == Outcome.FAILED
                request.answer = frame.payload
                self._asked.popleft()
                self.waiting_since_s = monotonic()
                if request.command is Command.CLOSE:
                    self._unwatch()  # its end from now on is no loss
            end.drop()

    def _cause_of_death(self) -> str:
        self._process.join(_AFTER_KILL_S)  # it has closed its end: it is ending
        code = self._process.exitcode
        if code is None:
            return "closed its end without a word"
        if code < 0:
            with suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


@contextmanager
def _no_interrupts(context: BaseContext) -> Iterator[None]:
    """Hold SIGINT back, so that it meets no process that does not yet ignore it.

    A process inherits what is held back, and a worker lets go of it. Not under forkserver: there the server, which may
    be started now, would hold it back for good, and for everybody whose processes come from it.
    """
    if not hasattr(signal, "pthread_sigmask") or context.get_start_method() == "forkserver":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
