"""Start one worker process, send it requests, receive its answers and end it."""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import signal
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing.context import BaseContext
from time import monotonic
from typing import Any

from framestow.envs.interrupts import DeferredInterrupts
from framestow.envs.workers.messages import Command, EnvFailure, Message, MessageSocket, Outcome
from framestow.envs.workers.worker_process import EnvHost, close_in_forks, process_handle, run_worker
from framestow.process import block_signals

_AFTER_KILL_S = 2.0  # a process that survives SIGKILL so long waits for its disk
START_TIMEOUT_S = 10.0  # minimum: a new process imports its modules, and an environment may load large files


class Request:
    """A request to a worker and its outcome: an answer, a failure, or the loss of the worker."""

    __slots__ = ("answer", "command", "env_ids", "failed", "is_done", "lost", "payload", "sequence", "worker")

    def __init__(self, worker: Worker, command: Command, env_ids: Sequence[int], payload: bytes = b"") -> None:
        self.worker, self.command, self.env_ids, self.payload = worker, command, env_ids, payload
        self.sequence = 0  # number among the requests to this worker, once it is sent
        self.is_done = False
        """Whether it has an answer, or its worker is lost."""
        self.answer = b""
        """Payload of the answer or failure."""
        self.failed = False  # whether the answer is the failure of an environment
        self.lost: str | None = None
        """Why the worker was lost before it answered; ``None`` if it was not."""

    def mark_lost(self, why: str) -> None:
        """Mark that its worker is lost; there will be no answer."""
        self.lost, self.is_done = why, True


class Worker:
    """A worker process; replaced by a new process if it is lost.

    Arguments:
        number: number of the worker.
        env_ids: numbers of its environments.
        host: the environments, which the process makes.
        context: start method of processes.
        daemon: as for ``multiprocessing.Process``.
        step_timeout_s: seconds without an answer after which the process counts as hung.
        selector: waits for the files of the process; their data is the worker.
        interrupts: defers signals while bytes are sent or received.
    """

    def __init__(
        self,
        number: int,
        env_ids: Sequence[int],
        host: EnvHost,
        context: BaseContext,
        daemon: bool,
        step_timeout_s: float,
        selector: selectors.BaseSelector,
        interrupts: DeferredInterrupts,
    ) -> None:
        self.number, self.env_ids = number, env_ids
        self.lost: str | None = "it was never started"
        """Why the process is lost; ``None`` while it works."""
        self.num_losses = 0
        """Number of losses since it last completed a step."""
        self.deadline_s = 0.0
        """Time by which the oldest open request needs an answer; by ``time.monotonic``."""
        self.limit_s = step_timeout_s
        """Seconds that this request has."""
        self._host, self._context, self._daemon, self._step_timeout_s = host, context, daemon, step_timeout_s
        self._selector, self._interrupts = selector, interrupts
        self._sequence = 0  # number of the last request; answers to discarded requests are known by it
        self._open_requests: deque[Request] = deque()  # sent and not answered, oldest first
        self._connection: MessageSocket | None = None  # None while there is no process
        self.socket_number = -1  # its file descriptor, of the last process if there is none now
        self._why_unmade: str | None = None  # that it could not make its environments again; None as a rule
        self._parent_pipe: Any = None  # the worker ends when this end is closed
        self._process: Any = None  # of multiprocessing; None while there is none
        self._handle: int | None = None  # pidfd that tells the end of the process; None where there is none

    def start(self, spaces: bytes = b"") -> Request:
        """Start a process, and return the request that makes its environments, which is sent.

        Arguments:
            spaces: For a replacement the payload of MAP; the process is lost if it cannot make its environments.
        """
        self.kill()  # what is left of the last process, or of a start that was interrupted
        ours, theirs = socket.socketpair()
        self._connection = MessageSocket(ours, blocks=False)
        self.socket_number = self._connection.fileno()
        parent_pipe, self._parent_pipe = self._context.Pipe(duplex=False)
        close_in_forks(ours)
        close_in_forks(self._parent_pipe)
        process = self._context.Process(  # type: ignore[attr-defined]
            target=run_worker,
            args=(self._host, theirs, parent_pipe, gc.isenabled()),
            name=f"framestow-worker-{self.number}",
            daemon=self._daemon,
        )
        with theirs, parent_pipe, _no_interrupts(self._context), _no_collection():
            process.start()
            self._process = process
        request = Request(self, Command.MAKE, self.env_ids, spaces)
        with self._interrupts:
            self.lost = self._why_unmade = None
            self._handle = process_handle(process.pid)
            for number in self.files:
                self._selector.register(number, selectors.EVENT_READ, self)
            self.send(request)
        return request

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
        if self._connection is None or self._process is None:
            return ()
        if isinstance(self._selector, selectors.SelectSelector):
            return (self.socket_number,)
        death = int(self._process.sentinel) if self._handle is None else self._handle
        return (self.socket_number, death)

    def send(self, request: Request) -> None:
        """Send a request; if the worker is lost, ``request.lost`` gives the reason. The caller defers signals."""
        if self._connection is None or self.lost is not None:
            request.mark_lost(self.lost or "")
            return
        self._sequence += 1
        request.sequence = self._sequence
        self._open_requests.append(request)
        if len(self._open_requests) == 1:
            self._set_deadline()
        try:
            if not self._connection.send(Message(request.sequence, request.command, request.payload)):
                self._watch_socket(selectors.EVENT_READ | selectors.EVENT_WRITE)
        except OSError:
            pass  # the process has ended, which is noticed where its answers are received

    def flush(self) -> None:
        """Send unsent bytes, as many as the socket takes."""
        if self._connection is not None:
            with self._interrupts, suppress(OSError):  # as above
                if self._connection.flush():
                    self._watch_socket(selectors.EVENT_READ)

    def receive(self) -> bool:
        """Receive bytes and settle the requests that they answer; return whether there were any."""
        if self._connection is None:
            return False
        has_received = has_ended = False
        with self._interrupts:
            try:
                has_received = self._connection.receive()
            except (EOFError, OSError):
                has_ended = True
            while (message := self._connection.next_message()) is not None:
                self._settle(message)
        if self._why_unmade is not None:
            self.mark_lost(self._why_unmade)
        elif has_ended:
            self.mark_lost(self._cause_of_death())
        return has_received

    def mark_ended(self) -> None:
        """Settle the last answers of the ended process, then mark it as lost."""
        while self.receive():
            pass
        if self.lost is None:
            self.mark_lost(self._cause_of_death())

    def discard_requests(self) -> None:
        """Discard all requests but that of a start; their answers are known by their sequence numbers."""
        if self._open_requests:
            self._open_requests = deque(each for each in self._open_requests if each.command is Command.MAKE)

    def mark_lost(self, why: str) -> None:
        """Mark the process and all open requests as lost, and kill it."""
        with self._interrupts:
            self.lost = f"{self.name} {why}"
            while self._open_requests:
                self._open_requests.popleft().mark_lost(self.lost)
        self.kill()

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
        """Kill the process and close its files; a second call does nothing, or ends what an interrupt broke off."""
        self.lost = self.lost or f"{self.name} was closed"
        process = self._process
        if process is not None:
            if process.is_alive():
                process.kill()
            process.join(_AFTER_KILL_S)
        with self._interrupts:
            self._release()
            if process is not None and not process.is_alive():
                process.close()
                self._process = None

    def _release(self) -> None:
        if self._connection is None:
            return
        self._unwatch()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._connection.close()
        self._connection = None
        if self._parent_pipe is not None:
            self._parent_pipe.close()

    def _watch_socket(self, events: int) -> None:
        with suppress(KeyError):  # it is not watched any more
            self._selector.modify(self.socket_number, events, self)

    def _unwatch(self) -> None:
        for number in self.files:
            with suppress(KeyError):  # it is not watched any more
                self._selector.unregister(number)

    def _settle(self, message: Message) -> None:
        """Give an answer to its request; discard that to a discarded request."""
        if not self._open_requests or self._open_requests[0].sequence != message.sequence:
            return
        request = self._open_requests.popleft()
        request.answer, request.failed, request.is_done = message.payload, message.kind == Outcome.FAILED, True
        if self._open_requests:
            self._set_deadline()
        if request.command is Command.CLOSE:
            self._unwatch()  # from now on its end is expected
        if request.command is Command.MAKE and request.failed and request.payload:
            failure = EnvFailure(*pickle.loads(request.answer))
            self._why_unmade = f"could not make its environments again: {failure.text}"

    def _set_deadline(self) -> None:
        """Give the oldest open request its time from now on."""
        is_starting = self._open_requests[0].command in (Command.MAKE, Command.MAP)
        self.limit_s = max(self._step_timeout_s, START_TIMEOUT_S) if is_starting else self._step_timeout_s
        self.deadline_s = monotonic() + self.limit_s

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
