"""Start one worker process, send it requests, receive its answers and end it."""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing.context import BaseContext
from time import monotonic
from typing import Any

from gymnasium.vector import AutoresetMode

from framestow.envs.workers.shared_arrays import SharedBlock
from framestow.envs.workers.wire import Command, Factories, Outcome, ParentEnd
from framestow.envs.workers.worker_process import WorkerArguments, close_in_forks, process_handle, run_worker
from framestow.process import block_signals

_AFTER_KILL_S = 2.0  # a process that survives SIGKILL so long waits for its disk


def make_selector() -> selectors.BaseSelector:
    """Return a selector that waits with ``poll``, or with ``select`` on Windows.

    Not ``epoll``: a forked process would share its state.
    """
    selector: selectors.BaseSelector = getattr(selectors, "PollSelector", selectors.SelectSelector)()
    return selector


class Request:
    """A request to a worker and its outcome: an answer, a failure, or the loss of the worker."""

    __slots__ = (
        *("worker", "command", "env_ids", "payload"),
        *("answer", "failed", "is_sent", "generation", "lost", "sequence"),
    )

    def __init__(self, worker: Worker, command: Command, env_ids: Sequence[int], payload: bytes) -> None:
        self.worker, self.command, self.env_ids, self.payload = worker, command, env_ids, payload
        # ``generation`` is the worker's at the request; it is another one after the worker was replaced.
        self.sequence, self.generation = worker.next_sequence(), worker.generation
        self.answer: bytes | None = None
        """Payload of the answer or failure."""
        self.failed = False  # whether the answer is the failure of an environment
        self.is_sent = False
        """Whether all its bytes are sent."""
        self.lost: str | None = None
        """Why the worker was lost before it answered; ``None`` if it was not."""

    @property
    def is_open(self) -> bool:
        """Whether the answer is still missing."""
        return self.answer is None and self.lost is None

    @property
    def is_stale(self) -> bool:
        """Whether the worker was replaced since; an answer is still valid, but its environments no longer exist."""
        return self.generation != self.worker.generation


class Worker:
    """A worker process; replaced by a new process if it is lost.

    Arguments:
        number: number of the worker.
        env_ids: numbers of its environments.
        factories: functions that make the environments.
        mode: autoreset mode.
        block: memory shared with the process.
        context: start method of processes.
        daemon: as for ``multiprocessing.Process``.
        selector: waits for the files of the process; their data is the worker.
    """

    def __init__(
        self,
        number: int,
        env_ids: Sequence[int],
        factories: Factories,
        mode: AutoresetMode,
        block: SharedBlock,
        context: BaseContext,
        daemon: bool,
        selector: selectors.BaseSelector,
    ) -> None:
        self.number, self.env_ids = number, env_ids
        self.lost: str | None = "it was never started"
        """Why the process is lost; ``None`` while it works."""
        self.generation = 0
        """Number of processes started so far."""
        self.waiting_since_s = 0.0
        """Time of its last answer, or of the request after an idle time; by ``time.monotonic``."""
        self._factories, self._mode, self._block = factories, mode, block
        self._context, self._daemon, self._selector = context, daemon, selector
        self._sequence = 0  # number of the last request; answers to dropped requests are known by it
        self._open_requests: deque[Request] = deque()  # sent and not answered, oldest first
        self._end: ParentEnd | None = None  # the socket; None while there is no process
        self.socket_number = -1  # its file descriptor, of the last process if there is none now
        self._has_unsent = False  # bytes that the socket did not accept yet
        self._parent_pipe: Any = None  # the worker ends when this end is closed
        self._process: Any = None  # of multiprocessing; None while there is none
        self._handle: int | None = None  # pidfd that tells the end of the process; None where there is none

    def start(self) -> None:
        """Start a process; a MAKE request then makes its environments."""
        self._process = None
        ours, theirs = socket.socketpair()
        parent_pipe, self._parent_pipe = self._context.Pipe(duplex=False)
        close_in_forks(ours)
        close_in_forks(self._parent_pipe)
        self._end = ParentEnd(ours)
        self.socket_number, self._has_unsent = self._end.fileno(), False
        arguments = WorkerArguments(
            self.env_ids, self._factories, self._mode, self._block, theirs, parent_pipe, gc.isenabled()
        )
        process = self._context.Process(  # type: ignore[attr-defined]
            target=run_worker, args=(arguments,), name=f"framestow-worker-{self.number}", daemon=self._daemon
        )
        try:
            with _no_interrupts(self._context), _no_collection():
                process.start()
                self._process = process
        finally:
            theirs.close()
            parent_pipe.close()
        self.lost = None
        self.generation += 1
        self._handle = process_handle(process.pid)
        for number in self.files:
            self._selector.register(number, selectors.EVENT_READ, self)

    @property
    def name(self) -> str:
        """Number of the worker and of its environments, for messages."""
        first, last = self.env_ids[0], self.env_ids[-1]
        envs = f"environment {first}" if first == last else f"environments {first} to {last}"
        return f"worker {self.number} ({envs})"

    @property
    def pid(self) -> int | None:
        """Process id; ``None`` while there is no process."""
        return None if self._process is None else self._process.pid

    @property
    def files(self) -> tuple[int, ...]:
        """File descriptors to watch: the socket, and the process handle unless ``select`` waits for sockets only."""
        if self._end is None or self._process is None:
            return ()
        if isinstance(self._selector, selectors.SelectSelector):
            return (self.socket_number,)
        death = int(self._process.sentinel) if self._handle is None else self._handle
        return (self.socket_number, death)

    def next_sequence(self) -> int:
        """Return the sequence number of the next request."""
        self._sequence += 1
        return self._sequence

    def send(self, request: Request) -> None:
        """Send a request, once; if the worker is lost, ``request.lost`` gives the reason."""
        if self._end is None or self.lost:
            request.lost = self.lost
            return
        if request not in self._open_requests:
            if not self._open_requests:
                self.waiting_since_s = monotonic()
            self._open_requests.append(request)
        self._end.put(request.sequence, request.command, request.payload)
        self.flush()
        request.is_sent = not self._has_unsent and not self.lost

    def flush(self) -> None:
        """Send unsent bytes, as many as the socket accepts."""
        if self._end is None or self.lost:
            return
        try:
            has_unsent = not self._end.flush()
        except OSError:
            self.mark_ended()
            return
        if has_unsent != self._has_unsent:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if has_unsent else 0)
            self._selector.modify(self.socket_number, events, self)
            self._has_unsent = has_unsent

    def receive(self) -> None:
        """Process the received answers; answers to dropped requests are discarded."""
        if self._end is None or self.lost:
            return
        try:
            while self._end.fill():
                self._process_answers()
            self._process_answers()
        except (EOFError, OSError):
            self._process_answers()
            self.mark_lost(self._cause_of_death())

    def process_unread(self) -> None:
        """Process answers that were received when an interrupt occurred."""
        if self._end is not None and self._end.has_unread:
            self._process_answers()

    def mark_ended(self) -> None:
        """Process the last answers of the ended process, then count it as lost."""
        self.receive()
        if not self.lost:
            self.mark_lost(self._cause_of_death())

    def drop_requests(self) -> None:
        """Drop all requests; their answers are discarded by sequence number."""
        self._open_requests = deque()

    def mark_lost(self, why: str) -> None:
        """Kill the process and mark all open requests as lost."""
        self.lost = f"{self.name} {why}"
        self.kill()
        for request in self._open_requests:
            request.lost = self.lost
        self._open_requests = deque()

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and bool(self._process.is_alive())

    def terminate(self) -> None:
        """Send SIGTERM to the process."""
        if self._process is not None:
            self._process.terminate()

    def join(self, timeout_s: float) -> None:
        """Wait for the process to end."""
        if self._process is not None:
            self._process.join(max(0.0, timeout_s))

    def kill(self) -> None:
        """Kill the process and close its files; a second call does nothing."""
        self.lost = self.lost or f"{self.name} was closed"
        if self._process is not None:
            if self._process.is_alive():
                self._process.kill()
            self._process.join(_AFTER_KILL_S)
        self._release()
        if self._process is not None and not self._process.is_alive():
            self._process.close()
            self._process = None

    def _release(self) -> None:
        if self._end is None:
            return
        self._unwatch()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._end.close()
        self._parent_pipe.close()
        self._end = None

    def _unwatch(self) -> None:
        for number in self.files:
            with suppress(KeyError):  # it is not watched any more
                self._selector.unregister(number)

    def _process_answers(self) -> None:
        end = self._end
        while end is not None and (frame := end.peek()) is not None:
            if self._open_requests and self._open_requests[0].sequence == frame.sequence:
                request = self._open_requests[0]
                request.failed = frame.kind == Outcome.FAILED
                request.answer = frame.payload
                self._open_requests.popleft()
                self.waiting_since_s = monotonic()
                if request.command is Command.CLOSE:
                    self._unwatch()  # from now on its end is expected
            end.drop()

    def _cause_of_death(self) -> str:
        self._process.join(_AFTER_KILL_S)  # the process has closed its socket, so it is ending
        code = self._process.exitcode
        if code is None:
            return "closed its connection without an exit code"
        if code < 0:
            with suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


def _no_interrupts(context: BaseContext) -> AbstractContextManager[None]:
    """Block SIGINT while a process starts, because a new worker does not ignore it yet.

    The worker inherits the blocked signal and unblocks it. Not with forkserver: a server that starts now would block
    SIGINT for ever, in all its processes.
    """
    return nullcontext() if context.get_start_method() == "forkserver" else block_signals([signal.SIGINT])


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector off while a process starts: a fork must not destroy its parent's garbage."""
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()
