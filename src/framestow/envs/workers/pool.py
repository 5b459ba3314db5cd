"""Start, ask, replace and close the worker processes of a vector environment."""

from __future__ import annotations

import atexit
import math
import multiprocessing
import multiprocessing.util  # registers its exit handler before ours, so it runs after ours
import os
import pickle
import selectors
import sys
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.checks import one_of, real_number, whole_number
from framestow.envs.interrupts import DeferredInterrupts
from framestow.envs.vector.arguments import EnvFactory, EnvSpaces, batch_spaces, check_distinct, check_equal_spaces
from framestow.envs.vector.checked_vector_env import MadeEnvs
from framestow.envs.vector.one_env import EnvCalls
from framestow.envs.workers.messages import Command, EnvFailure, Factories, pickle_value
from framestow.envs.workers.shared_arrays import SharedArrays, SharedBlock, count_shared_bytes
from framestow.envs.workers.worker import Request, Worker
from framestow.envs.workers.worker_process import EnvHost
from framestow.errors import EnvironmentFailedError, InvalidSettingsError, WorkerLostError
from framestow.process import num_cores

OnWorkerLost: TypeAlias = Literal["raise", "restart"]
StartMethod: TypeAlias = Literal["fork", "forkserver", "spawn"]


_NO_CHILDREN = "daemonic processes are not allowed to have children"  # as multiprocessing says it
_MAKE_NO_DAEMON = (
    "give daemon=False to the WorkerVectorEnv, make_atari or AsyncVectorEnv that started the process; in a worker of a "
    "DataLoader, which has no such argument, use SerialVectorEnv"
)
_GRACE_S = 1.0  # minimum wait before a worker counts as hung, if the parent was busy since its request
_CLOSE_AT_EXIT_S = 2.0  # for each pool that is open when the interpreter exits
_LONGEST_WAIT_S = 86_400.0  # the system counts milliseconds in 32 bits


class RemoteTraceback(Exception):  # noqa: N818  # the cause of an error, not an error
    """Traceback of a worker process, printed as the cause of an error in this process."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class WorkerPool:
    """Worker processes, each with about the same number of environments, in order.

    Raises:
        EnvironmentFailedError: an environment could not be made; no process is left.
        WorkerLostError: a worker died or timed out before it made its environments.
        InvalidSettingsError: invalid settings, environments of different spaces, or a daemonic process, which may not
            start workers.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        mode: AutoresetMode,
        calls: EnvCalls,
        *,
        num_workers: int | None,
        start_method: StartMethod | None,
        step_timeout_s: float,
        daemon: bool,
    ) -> None:
        if multiprocessing.current_process().daemon:
            raise InvalidSettingsError(
                f"this process cannot start workers: it is a daemon, and {_NO_CHILDREN}; {_MAKE_NO_DAEMON}"
            )
        self.num_envs = len(env_fns)
        context = multiprocessing.get_context(check_start_method(start_method))
        split = np.array_split(np.arange(self.num_envs), check_num_workers(num_workers, self.num_envs))
        self._step_timeout_s = step_timeout_s
        # A forked child must not end the workers of its parent.
        self._owner_pid = os.getpid()
        # Waits for messages and ends of all workers: with ``poll``, since a forked process would share an ``epoll``,
        # or with ``select`` on Windows.
        self._selector: selectors.BaseSelector = getattr(selectors, "PollSelector", selectors.SelectSelector)()
        self.interrupts = DeferredInterrupts()
        """Defers signals while bytes are sent or received, and while answers are settled."""
        # Memory of ``shared``; its size is known once the workers have made their environments.
        self._block = SharedBlock()
        self.workers = [
            Worker(
                number,
                env_ids.tolist(),
                EnvHost(env_ids.tolist(), Factories([env_fns[env_id] for env_id in env_ids]), mode, calls, self._block),
                context,
                daemon,
                step_timeout_s,
                self._selector,
                self.interrupts,
            )
            for number, env_ids in enumerate(split)
        ]
        _pools.add(self)
        try:
            self.made = self._make()
            self._block.grow(count_shared_bytes(self.made.spaces, self.num_envs))
            # The arrays that workers write observations to, mapped in this process.
            self.shared = SharedArrays(self._block, self.made.spaces, self.num_envs)
            self.spaces = pickle_value((self.made.spaces, self.num_envs))
            """Payload of MAP, with which a lost worker starts again."""
            requests = [Request(worker, Command.MAP, worker.env_ids, self.spaces) for worker in self.workers]
            self.send(requests)
            self._wait_at_start(requests)
        except BaseException:
            self.close(0.0)
            raise

    @property
    def is_in_owner_process(self) -> bool:
        """Whether this process made the pool; False in a process forked from it."""
        return os.getpid() == self._owner_pid

    def send(self, requests: Iterable[Request]) -> None:
        """Send requests to their workers."""
        with self.interrupts:
            for request in requests:
                request.worker.send(request)

    def wait_for(self, requests: Sequence[Request], end_s: float = math.inf) -> bool:
        """Wait until each of the sent requests has an answer or a lost worker; return False if not by ``end_s``.

        A worker without an answer for ``step_timeout_s`` is killed and counts as lost.
        """
        first_hang_s = monotonic() + min(_GRACE_S, self._step_timeout_s)
        while waiting := [request for request in requests if not request.is_done]:
            hang_s = max(first_hang_s, min([request.worker.deadline_s for request in waiting]))
            until_s, now_s = min(hang_s, end_s), monotonic()
            if now_s < until_s:
                self._receive(until_s - now_s)
                continue
            self._receive(0.0)  # what came while this process was busy
            for request in waiting if now_s >= hang_s else ():
                if not request.is_done and now_s >= request.worker.deadline_s:
                    request.worker.mark_lost(f"gave no answer within {request.worker.limit_s} s")
            if now_s >= end_s:
                return all(request.is_done for request in requests)
        return True

    def discard_requests(self) -> None:
        """Discard all requests without an answer."""
        for worker in self.workers:
            worker.discard_requests()

    def close(self, timeout_s: float) -> list[EnvFailure]:
        """End all workers within about ``timeout_s``: by a CLOSE request, then SIGTERM, then SIGKILL.

        Returns the errors that environments raised in ``close``.
        """
        if not self.is_in_owner_process:
            return []
        _pools.discard(self)
        timeout_s = min(timeout_s, _LONGEST_WAIT_S)
        deadline_s = monotonic() + timeout_s
        failures: list[EnvFailure] = []
        try:
            # Six tenths of the time for the answers, two for the ends of these workers, the rest after SIGTERM.
            requests = self._ask_to_close(deadline_s - 0.4 * timeout_s)
            failures = [EnvFailure(*each) for request in requests for each in pickle.loads(request.answer)]
            for worker in self.workers:
                worker.join(deadline_s - 0.2 * timeout_s - monotonic() if worker.lost is None else 0.0)
            stubborn = [worker for worker in self.workers if worker.is_alive()]
            for worker in stubborn:
                worker.terminate()
            for worker in stubborn:
                worker.join(deadline_s - monotonic())
        finally:
            for worker in self.workers:
                worker.kill()
            self._block.close()
            with suppress(AttributeError):
                del self.shared  # the mapping keeps a file open
        return failures

    def _make(self) -> MadeEnvs:
        requests = [worker.start() for worker in self.workers]
        self._wait_at_start(requests)
        answers = [pickle.loads(request.answer) for request in requests]
        for worker, (_, identities, _, _) in zip(self.workers, answers, strict=True):
            check_distinct(worker.env_ids, identities)
        spaces = [EnvSpaces(*each) for spaces_of_worker, *_ in answers for each in spaces_of_worker]
        check_equal_spaces(spaces)
        *_, metadata, render_mode = answers[0]
        return MadeEnvs(self.num_envs, spaces[0], batch_spaces(spaces[0], self.num_envs), metadata, render_mode)

    def _wait_at_start(self, requests: Sequence[Request]) -> None:
        self.wait_for(requests)
        for request in requests:
            if request.lost is not None:
                way_out = (
                    "a script on stdin cannot be read again by a worker: save it to a file, or give start_method='fork'"
                    if _is_script_on_stdin()
                    else "with spawn and forkserver a script needs: if __name__ == '__main__':"
                )
                raise WorkerLostError(
                    f"{request.lost} before it had made its environments: see its output above; {way_out}"
                )
            if request.failed:
                raise failure_as_error(failure_of(request), "correct the function that makes it")

    def _ask_to_close(self, deadline_s: float) -> list[Request]:
        """Ask every working worker to close; return the answered requests."""
        self.discard_requests()
        requests = [Request(worker, Command.CLOSE, worker.env_ids) for worker in self.workers if worker.lost is None]
        self.send(requests)
        while any(not request.is_done for request in requests) and (left_s := deadline_s - monotonic()) > 0:
            self._receive(left_s)
        return [request for request in requests if request.is_done and request.lost is None]

    def _receive(self, timeout_s: float) -> None:
        """Wait for messages and ended processes, and process what is there."""
        for file, events in self._selector.select(min(timeout_s, _LONGEST_WAIT_S)):
            worker: Worker = file.data
            if worker.lost is not None:
                worker.kill()  # again, if an interrupt broke it off
            elif file.fd == worker.socket_number:
                if events & selectors.EVENT_WRITE:
                    worker.flush()
                worker.receive()
            else:
                worker.mark_ended()


# Open pools, which the interpreter closes at exit.
_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close(_CLOSE_AT_EXIT_S)


atexit.register(_close_all)


def _is_script_on_stdin() -> bool:
    return getattr(sys.modules["__main__"], "__file__", None) == "<stdin>"


def failure_as_error(failure: EnvFailure, way_out: str) -> EnvironmentFailedError:
    """Return the error for an exception of an environment in a worker, with the worker's traceback as its cause."""
    if _NO_CHILDREN in failure.message:
        is_nested = _MAKE_NO_DAEMON in failure.message
        way_out = "make all environments again" if is_nested else f"it starts a process: {_MAKE_NO_DAEMON}"
    error = EnvironmentFailedError(f"{failure.text}; {way_out}", failure.environment, failure.traceback)
    error.__cause__ = RemoteTraceback(failure.traceback)
    return error


def failure_of(request: Request) -> EnvFailure:
    """Return the failure in the answer of a request."""
    return EnvFailure(*pickle.loads(request.answer))


def check_worker_settings(start_method: Any, step_timeout: Any, on_worker_lost: Any) -> None:
    """Raise ``InvalidSettingsError`` for arguments of a ``WorkerVectorEnv`` that cannot work."""
    check_start_method(start_method)
    rule = "it must be a number of seconds above 0; math.inf for no limit"
    real_number("step_timeout", step_timeout, 0, rule=rule, is_least_excluded=True, may_be_infinite=True)
    one_of("on_worker_lost", on_worker_lost, get_args(OnWorkerLost))


def check_start_method(start_method: StartMethod | None) -> str:
    """Return the start method of that name, or the default: ``forkserver`` if the system has it, else ``spawn``."""
    methods = multiprocessing.get_all_start_methods()
    if start_method is None:
        return "forkserver" if "forkserver" in methods else "spawn"
    if not isinstance(start_method, str) or start_method not in methods:
        raise InvalidSettingsError(
            f"start_method is {start_method!r}: it must be one of this system's methods, {', '.join(methods)}"
        )
    return start_method


def check_num_workers(num_workers: int | None, num_envs: int) -> int:
    """Return the number of workers; the default is one for each usable core, and no more than environments."""
    if num_workers is None:
        return min(num_cores(), num_envs)
    rule = f"it must be from 1 to the number of environments, {num_envs}; None takes one for each usable core"
    return whole_number("num_workers", num_workers, 1, num_envs, rule=rule)
