"""Start, ask, replace and close the worker processes of a vector environment."""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.util  # registers its exit handler before ours, so it runs after ours
import os
import pickle
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.checks import one_of, real_number, whole_number
from framestow.envs.vector.calls import EnvSpaces, batch_spaces, check_equal_spaces
from framestow.envs.workers.shared_arrays import SharedArrays, SharedBlock, count_shared_bytes
from framestow.envs.workers.wire import Command, EnvFactory, EnvFailure, Factories, pickle_value
from framestow.envs.workers.worker import Request, Worker, make_selector
from framestow.errors import EnvironmentFailedError, InvalidSettingsError, StepTimeoutError, WorkerLostError
from framestow.process import num_cores

OnWorkerLost: TypeAlias = Literal["raise", "restart"]
StartMethod: TypeAlias = Literal["fork", "forkserver", "spawn"]


_START_TIMEOUT_S = 10.0  # minimum: a new process imports its modules, and an environment may load large files
_GRACE_S = 1.0  # minimum wait before a worker counts as hung, if the parent was busy since its request
_CLOSE_AT_EXIT_S = 2.0  # for each pool that is open when the interpreter exits
_LONGEST_WAIT_S = 86_400.0  # the system counts milliseconds in 32 bits


class MadeEnvs(NamedTuple):
    """Properties of the environments that the workers made."""

    spaces: EnvSpaces
    """Spaces of one environment."""
    batched: EnvSpaces  # spaces of all environments together
    metadata: dict[str, Any]
    render_mode: str | None


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
        InvalidSettingsError: invalid settings, or environments of different spaces.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        mode: AutoresetMode,
        *,
        num_workers: int | None,
        start_method: StartMethod | None,
        step_timeout_s: float,
        daemon: bool,
    ) -> None:
        self.num_envs = len(env_fns)
        context = multiprocessing.get_context(check_start_method(start_method))
        split = np.array_split(np.arange(self.num_envs), check_num_workers(num_workers, self.num_envs))
        self.step_timeout_s = step_timeout_s
        # A forked child must not end the workers of its parent.
        self._owner_pid = os.getpid()
        # Waits for messages and ends of all workers.
        self._selector = make_selector()
        # Memory of ``shared``; its size is known once the workers have made their environments.
        self._block = block = SharedBlock()
        factories = [Factories([env_fns[env_id] for env_id in env_ids]) for env_ids in split]
        self.workers = [
            Worker(each, env_ids.tolist(), factories[each], mode, block, context, daemon, self._selector)
            for each, env_ids in enumerate(split)
        ]
        self.worker_of = [worker for worker in self.workers for _ in worker.env_ids]
        """Worker of each environment."""
        _pools.add(self)
        try:
            self.made = self._make(self.workers)
            self._block.grow(count_shared_bytes(self.made.spaces, self.num_envs))
            # The arrays that workers write observations to, mapped in this process.
            self.shared = SharedArrays(self._block, self.made.spaces, self.num_envs)
            self._map_shared(self.workers)
        except BaseException:
            self.close(0.0)
            raise

    @property
    def is_in_owner_process(self) -> bool:
        """Whether this process made the pool; False in a process forked from it."""
        return os.getpid() == self._owner_pid

    def send(self, requests: Iterable[Request]) -> None:
        """Send each request that was not sent yet to its worker."""
        for request in requests:
            if request.is_open and not request.is_sent:
                request.worker.send(request)

    def wait_for(self, requests: Sequence[Request], timeout_s: float | None = None) -> None:
        """Send the requests and wait until each has an answer or a lost worker.

        A worker that sends nothing for ``step_timeout_s`` is killed and counts as lost.

        Raises:
            StepTimeoutError: some requests are not done after ``timeout_s``; the workers continue.
        """
        began_s = monotonic()
        self.send(requests)
        for worker in self.workers:
            worker.process_unread()
        while still_open := [request for request in requests if request.is_open]:
            hang_s = self._next_hang_s(still_open, began_s)
            now_s = monotonic()
            if now_s >= hang_s:
                self._lose_silent(still_open, began_s)
                continue
            if timeout_s is not None and now_s >= began_s + timeout_s:
                if self._receive(0.0):
                    continue
                raise StepTimeoutError(
                    f"step is not done after {timeout_s} s: {len(still_open)} answers are missing, and it continues; "
                    "wait for it again, or reset to discard it"
                )
            self._receive(min(hang_s, np.inf if timeout_s is None else began_s + timeout_s) - now_s)

    def replace(self, worker: Worker, why: str) -> None:
        """Replace a lost worker by a new process, which makes the same environments.

        Raises:
            EnvironmentFailedError: an environment could not be made again.
            WorkerLostError: the new worker was lost too.
        """
        worker.mark_lost(why)
        self._make([worker])
        self._map_shared([worker])

    def drop_requests(self) -> None:
        """Discard all requests without an answer."""
        for worker in self.workers:
            worker.drop_requests()

    def close(self, timeout_s: float) -> list[EnvFailure]:
        """End all workers within about ``timeout_s``: by a CLOSE request, then SIGTERM, then SIGKILL.

        Returns the errors that environments raised in ``close``.
        """
        if not self.is_in_owner_process:
            return []
        _pools.discard(self)
        deadline_s = monotonic() + timeout_s
        failures: list[EnvFailure] = []
        try:
            # Six tenths of the time for the answers, two for the ends of these workers, the rest after SIGTERM.
            requests = self._ask_to_close(deadline_s - 0.4 * timeout_s)
            failures = [EnvFailure(*each) for request in requests for each in pickle.loads(request.answer or b"")]
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

    def _make(self, workers: Sequence[Worker]) -> MadeEnvs:
        for worker in workers:
            worker.start()
        answers = [pickle.loads(answer) for answer in self._ask_at_start(workers, Command.MAKE, b"")]
        spaces = [EnvSpaces(*each) for spaces_of_worker, _, _ in answers for each in spaces_of_worker]
        if len(workers) < len(self.workers):
            spaces.insert(0, self.made.spaces)
        check_equal_spaces(spaces)
        _, metadata, render_mode = answers[0]
        return MadeEnvs(spaces[0], batch_spaces(spaces[0], self.num_envs), metadata, render_mode)

    def _map_shared(self, workers: Sequence[Worker]) -> None:
        self._ask_at_start(workers, Command.MAP, pickle_value((self.made.spaces, self.num_envs)))

    def _ask_at_start(self, workers: Sequence[Worker], command: Command, payload: bytes) -> list[bytes]:
        requests = [Request(worker, command, worker.env_ids, payload) for worker in workers]
        usual_s, self.step_timeout_s = self.step_timeout_s, max(self.step_timeout_s, _START_TIMEOUT_S)
        try:
            self.wait_for(requests)
        finally:
            self.step_timeout_s = usual_s
        for request in requests:
            if request.lost is not None:
                raise WorkerLostError(
                    f"{request.lost} before it had made its environments: see its output above; "
                    "with spawn and forkserver a script needs: if __name__ == '__main__':"
                )
            if request.failed:
                raise failure_as_error(failure_of(request), "correct the function that makes it")
        return [request.answer or b"" for request in requests]

    def _ask_to_close(self, deadline_s: float) -> list[Request]:
        """Ask every working worker to close; return the answered requests."""
        self.drop_requests()
        requests = [Request(each, Command.CLOSE, each.env_ids, b"") for each in self.workers if each.lost is None]
        for request in requests:
            request.worker.send(request)
        while any(request.is_open for request in requests) and (left_s := deadline_s - monotonic()) > 0:
            self._receive(left_s)
        return [request for request in requests if request.answer is not None]

    def _receive(self, timeout_s: float) -> bool:
        """Wait for messages and ended processes, and process them; return whether there were any."""
        ready = self._selector.select(min(timeout_s, _LONGEST_WAIT_S))
        for file, _ in ready:
            worker: Worker = file.data
            if worker.lost is not None:
                continue
            if file.fd == worker.socket_number:
                worker.flush()
                worker.receive()
            else:
                worker.mark_ended()
        return bool(ready)

    def _next_hang_s(self, requests: Iterable[Request], began_s: float) -> float:
        since_s = min(request.worker.waiting_since_s for request in requests)
        return max(since_s + self.step_timeout_s, began_s + min(_GRACE_S, self.step_timeout_s))

    def _lose_silent(self, requests: Iterable[Request], began_s: float) -> None:
        while self._receive(0.0):
            pass
        for request in requests:
            if request.is_open and monotonic() >= self._next_hang_s([request], began_s):
                request.worker.mark_lost(f"gave no answer within {self.step_timeout_s} s")


# Open pools, which the interpreter closes at exit.
_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close(_CLOSE_AT_EXIT_S)


atexit.register(_close_all)


def failure_as_error(failure: EnvFailure, way_out: str) -> EnvironmentFailedError:
    """Return the error for an exception of an environment in a worker, with the worker's traceback as its cause."""
    error = EnvironmentFailedError(
        f"environment {failure.environment} raised {failure.kind} at {failure.doing}: {failure.message}; {way_out}",
        failure.environment,
        failure.traceback,
    )
    error.__cause__ = RemoteTraceback(failure.traceback)
    return error


def failure_of(request: Request) -> EnvFailure:
    """Return the failure in the answer of a request."""
    return EnvFailure(*pickle.loads(request.answer or b""))


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
