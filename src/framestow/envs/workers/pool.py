"""The pool of workers behind a vector environment: started, asked, awaited, replaced and closed together."""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.util  # its own end of the process is registered before ours, and so comes after it
import os
import pickle
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.argument_checks import real_number, whole_number
from framestow.envs.vector.calls import EnvSpaces, batched_spaces, check_equal_spaces
from framestow.envs.workers.shared_arrays import SharedBlock, Slab, slab_nbytes
from framestow.envs.workers.wire import Command, EnvFactory, EnvFailure, Factories, pickled
from framestow.envs.workers.worker import Request, Worker, make_waiting
from framestow.errors import EnvironmentFailedError, InvalidSettingsError, StepTimeoutError, WorkerLostError

OnWorkerLost = Literal["raise", "restart"]


def check_on_worker_lost(on_worker_lost: str) -> None:
    """Refuse anything but ``"raise"`` and ``"restart"``."""
    if on_worker_lost not in ("raise", "restart"):
        raise InvalidSettingsError(
            f"on_worker_lost is {on_worker_lost!r}: a lost worker is an error or replaced; choose 'raise' or 'restart'"
        )


def check_step_timeout(step_timeout: object) -> None:
    """Refuse anything but a number of seconds."""
    rule = "it must be a number of seconds above 0; math.inf waits for ever"
    real_number("step_timeout", step_timeout, 0, rule=rule, is_least_excluded=True, may_be_infinite=True)


def checked_start_method(start_method: str | None) -> str:
    """Give the start method of that name, or the default: ``forkserver`` where there is one, else ``spawn``."""
    methods = multiprocessing.get_all_start_methods()
    if start_method is None:
        return "forkserver" if "forkserver" in methods else "spawn"
    if start_method not in methods:
        raise InvalidSettingsError(
            f"start_method is {start_method!r}: this system starts processes by {', '.join(methods)}; choose one"
        )
    return start_method


def checked_num_workers(num_workers: int | None, num_envs: int) -> int:
    """Give the number of workers, by default one a core that this process may use, and no more than environments."""
    if num_workers is None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(usable, num_envs)
    rule = f"{num_envs} environments take 1 to {num_envs}; None takes as many as this process may use cores"
    return whole_number("num_workers", num_workers, 1, num_envs, rule=rule)


_START_TIMEOUT_S = 10.0  # at least: a new process imports everything, and an environment may load a lot
_GRACE_S = 1.0  # of waiting before a worker counts as hung, however long nobody asked for its answer
_CLOSE_AT_EXIT_S = 2.0


class MadeEnvs(NamedTuple):
    """What the workers told of their environments."""

    spaces: EnvSpaces
    """Of one environment."""
    batched: EnvSpaces
    metadata: dict[str, Any]
    render_mode: str | None


class RemoteTraceback(Exception):  # noqa: N818  # it shows a traceback of another process as a cause
    """The traceback of a worker, printed above the error that it caused here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class Crew:
    """Workers with about the same number of environments each, in order.

    Raises, when it is made:
        EnvironmentFailedError: an environment could not be made; nothing is left running.
        WorkerLostError: a worker died or was silent before it had made its environments.
        InvalidSettingsError: settings that cannot work, or environments of different spaces.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        mode: AutoresetMode,
        *,
        num_workers: int | None,
        start_method: str | None,
        step_timeout_s: float,
        daemon: bool,
    ) -> None:
        self.num_envs = len(env_fns)
        if not env_fns:
            check_equal_spaces([])
        context = multiprocessing.get_context(checked_start_method(start_method))
        split = np.array_split(np.arange(self.num_envs), checked_num_workers(num_workers, self.num_envs))
        self.step_timeout_s = step_timeout_s
        self._owner_pid = os.getpid()
        self._waiting = make_waiting()
        self._block = block = SharedBlock()
        factories = [Factories([env_fns[number] for number in numbers]) for numbers in split]
        self.workers = [
            Worker(each, numbers.tolist(), factories[each], mode, block, context, daemon, self._waiting)
            for each, numbers in enumerate(split)
        ]
        self.worker_of = [worker for worker in self.workers for _ in worker.numbers]
        """The worker of each environment."""
        self._worker_of_file: dict[int, Worker] = {}
        _crews.add(self)
        try:
            self.made = self._make(self.workers)
            self._block.grow(slab_nbytes(self.made.spaces, self.num_envs))
            self.slab = Slab(self._block, self.made.spaces, self.num_envs)
            self._share_slab(self.workers)
        except BaseException:
            self.close(0.0)
            raise

    @property
    def is_ours(self) -> bool:
        """Whether this process made it, and not one that this process was forked from."""
        return os.getpid() == self._owner_pid

    def ask(self, requests: Iterable[Request]) -> None:
        """Send requests, each to its worker; those that were sent before are not sent again."""
        for request in requests:
            if request.is_open and not request.is_sent:
                request.worker.post(request)

    def hear_all(self) -> None:
        """Take in everything that has arrived."""
        while self._hear(0.0):
            pass

    def gather(self, requests: Sequence[Request], enough: int | None = None, timeout_s: float | None = None) -> None:
        """Ask what was not asked yet, and wait until ``enough`` of the requests (all where ``None``) are settled.

        A worker that says nothing for too long is ended, and lost.

        Raises:
            StepTimeoutError: not enough are settled after ``timeout_s``; they go on.
        """
        began_s = monotonic()
        self.ask(requests)
        for worker in self.workers:
            worker.take_unread()
        allowed_open = 0 if enough is None else len(requests) - enough
        while len(still_open := [request for request in requests if request.is_open]) > allowed_open:
            hang_s = self._next_hang_s(still_open, began_s)
            now_s = monotonic()
            if now_s >= hang_s:
                self._lose_silent(still_open, began_s)
                continue
            if timeout_s is not None and now_s >= began_s + timeout_s:
                if self._hear(0.0):
                    continue
                raise StepTimeoutError(
                    f"step is not done after {timeout_s} s: {len(still_open)} answers are missing, and it goes on; "
                    "wait for it again, or reset to give it up"
                )
            self._hear(min(hang_s, np.inf if timeout_s is None else began_s + timeout_s) - now_s)

    def replace(self, worker: Worker, why: str) -> None:
        """Start a worker anew and have it make its environments, which nobody has reset yet.

        Raises:
            EnvironmentFailedError: an environment could not be made again.
            WorkerLostError: the new one was lost as well.
        """
        worker.lose(why)
        self._make([worker])
        self._share_slab([worker])

    def give_up(self) -> None:
        """Want no answer to anything that was asked."""
        for worker in self.workers:
            worker.give_up_requests()

    def close(self, timeout_s: float) -> list[EnvFailure]:
        """End all workers within about ``timeout_s``: asked first, then told, then killed.

        Gives what environments raised as they were closed.
        """
        if not self.is_ours:
            return []
        _crews.discard(self)
        deadline_s = monotonic() + timeout_s
        failures: list[EnvFailure] = []
        try:
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
                del self.slab  # each mapping holds a file
        return failures

    def _make(self, workers: Sequence[Worker]) -> MadeEnvs:
        for worker in workers:
            worker.start()
            self._worker_of_file.update(dict.fromkeys(worker.files, worker))
        answers = [pickle.loads(answer) for answer in self._asked_at_start(workers, Command.MAKE, b"")]
        spaces = [EnvSpaces(*each) for told, _, _ in answers for each in told]
        if len(workers) < len(self.workers):
            spaces.insert(0, self.made.spaces)
        check_equal_spaces(spaces)
        _, metadata, render_mode = answers[0]
        return MadeEnvs(spaces[0], batched_spaces(spaces[0], self.num_envs), metadata, render_mode)

    def _share_slab(self, workers: Sequence[Worker]) -> None:
        self._asked_at_start(workers, Command.MAP, pickled((self.made.spaces, self.num_envs)))

    def _asked_at_start(self, workers: Sequence[Worker], command: Command, payload: bytes) -> list[bytes]:
        requests = [Request(worker, command, worker.numbers, payload) for worker in workers]
        usual_s, self.step_timeout_s = self.step_timeout_s, max(self.step_timeout_s, _START_TIMEOUT_S)
        try:
            self.gather(requests)
        finally:
            self.step_timeout_s = usual_s
        for request in requests:
            if request.lost is not None:
                raise WorkerLostError(
                    f"{request.lost} before it had made its environments: what it printed stands above; "
                    "under spawn and forkserver a script starts with: if __name__ == '__main__'"
                )
            if request.failed:
                raise failure_as_error(failure_of(request), "mend what makes it")
        return [request.answer or b"" for request in requests]

    def _ask_to_close(self, deadline_s: float) -> list[Request]:
        """Ask every worker that works; gives what was answered."""
        self.give_up()
        requests = [Request(each, Command.CLOSE, each.numbers, b"") for each in self.workers if each.lost is None]
        for request in requests:
            request.worker.post(request)
        while any(request.is_open for request in requests) and (left_s := deadline_s - monotonic()) > 0:
            self._hear(left_s)
        return [request for request in requests if request.answer is not None]

    def _hear(self, timeout_s: float) -> bool:
        """Wait for something to happen and take it in; tells whether anything did."""
        numbers = self._waiting.ready(timeout_s)
        for number in numbers:
            worker = self._worker_of_file[number]
            if worker.lost is not None:
                continue
            if number == worker.socket_number:
                worker.flush()
                worker.hear()
            else:
                worker.note_death()
        return bool(numbers)

    def _next_hang_s(self, requests: Iterable[Request], began_s: float) -> float:
        since_s = min(request.worker.waiting_since_s for request in requests)
        return max(since_s + self.step_timeout_s, began_s + min(_GRACE_S, self.step_timeout_s))

    def _lose_silent(self, requests: Iterable[Request], began_s: float) -> None:
        self.hear_all()
        for request in requests:
            if request.is_open and monotonic() >= self._next_hang_s([request], began_s):
                request.worker.lose(f"gave no answer within {self.step_timeout_s} s")


_crews: weakref.WeakSet[Crew] = weakref.WeakSet()


def _close_all() -> None:
    for crew in list(_crews):
        crew.close(_CLOSE_AT_EXIT_S)


atexit.register(_close_all)


def failure_as_error(failure: EnvFailure, way_out: str) -> EnvironmentFailedError:
    """Turn what an environment of a worker raised into an error, with the worker's traceback as its cause."""
    error = EnvironmentFailedError(
        f"environment {failure.environment} raised {failure.kind} at {failure.doing}: {failure.message}; {way_out}",
        failure.environment,
        failure.traceback,
    )
    error.__cause__ = RemoteTraceback(failure.traceback)
    return error


def failure_of(request: Request) -> EnvFailure:
    """Read what went wrong with a request that failed."""
    return EnvFailure(*pickle.loads(request.answer or b""))
