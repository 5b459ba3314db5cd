"""What runs in a worker: it answers one message after another until it is told to close."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.envs.vector.autoreset import POLICIES
from framestow.envs.vector.calls import EnvSpaces, error_text
from framestow.envs.vector.env_state import put_state
from framestow.envs.vector.vector_state import env_entry
from framestow.envs.workers.shared_arrays import SharedBlock, Slab
from framestow.envs.workers.wire import Command, EnvFailure, Factories, Outcome, WorkerEnd, pickled, unpacked_steps
from framestow.errors import IncompatibleError

_LOOK_EVERY_S = 1.0


class _Closable(Protocol):
    def close(self) -> None:
        """Close it."""


_parent_ends: weakref.WeakSet[Any] = weakref.WeakSet()


def keep_from_forks(end: _Closable) -> None:
    """Have any process that is forked from this one close its copy of ``end`` at once.

    A worker sees the end of its parent by the other end of a pipe being closed. A later worker, or whatever else is
    forked, would inherit that end and hold it open.
    """
    _parent_ends.add(end)


def _close_parent_ends() -> None:
    for end in list(_parent_ends):
        end.close()
    _parent_ends.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_parent_ends)


def hang_on(lifeline: Connection) -> None:
    """Have this process end when the other end of ``lifeline``, through which nothing is sent, closes.

    A thread waits for that, and for the parent process itself. It needs Python's lock, which an environment that
    hangs in C may never give back; so on Linux the kernel is told to send SIGKILL as well when the pipe closes (a
    signal of the thread that made the process, PDEATHSIG, would come too early: when that thread ends).
    """
    _ask_the_kernel(lifeline)
    threading.Thread(target=_watch, args=(lifeline,), name="framestow-lifeline", daemon=True).start()


def _ask_the_kernel(lifeline: Connection) -> None:
    try:
        import fcntl  # noqa: PLC0415  # POSIX only
        import signal  # noqa: PLC0415

        number = lifeline.fileno()
        fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(number, fcntl.F_SETSIG, signal.SIGKILL)  # Linux only
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)
    except (ImportError, AttributeError, OSError):
        return


def _watch(lifeline: Connection) -> None:
    parent = multiprocessing.parent_process()
    watched: list[Any] = [lifeline] if parent is None else [lifeline, parent.sentinel]
    process = None if parent is None or parent.pid is None else process_handle(parent.pid)
    if process is not None:
        watched.append(process)
    first_parent = os.getppid()
    while not wait(watched, _LOOK_EVERY_S) and os.getppid() == first_parent:
        pass
    os._exit(1)


def process_handle(pid: int) -> int | None:
    """File that becomes readable when the process ends; ``None`` where the system has no such thing (Linux has)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


class EnvRaisedError(Exception):
    """An environment raised; carries what the parent is to be told."""

    def __init__(self, failure: EnvFailure) -> None:
        super().__init__(failure)
        self.failure = failure


class EnvHost:
    """Makes, steps and closes environments; ``numbers`` are theirs among those of all workers."""

    def __init__(self, numbers: Sequence[int], factories: Factories, mode: AutoresetMode, block: SharedBlock) -> None:
        self._numbers, self._factories, self._policy, self._block = numbers, factories, POLICIES[mode], block
        self._envs: dict[int, gymnasium.Env[Any, Any]] = {}
        self._slab: Slab | None = None

    def answer(self, command: int, payload: bytes) -> bytes:
        """Do what a message asks; gives the payload of the answer.

        Raises:
            EnvRaisedError: an environment raised.
        """
        return _HANDLERS[Command(command)](self, payload)

    def make(self, payload: bytes) -> bytes:  # noqa: ARG002
        """Make the environments; answers with their spaces, and the first one's metadata and render mode."""
        with _telling(self._numbers[0], "the reading of its function"):
            make_each = self._factories.functions()
        for number, make in zip(self._numbers, make_each, strict=True):
            with _telling(number, "its making"):
                self._envs[number] = make()
        spaces = [EnvSpaces(env.observation_space, env.action_space) for env in self._envs.values()]
        first = self._envs[self._numbers[0]]
        return pickled((spaces, dict(first.metadata), first.render_mode))

    def map(self, payload: bytes) -> bytes:
        """Map the slab, which the parent has given its size."""
        spaces, num_envs = pickle.loads(payload)
        self._slab = Slab(self._block, spaces, num_envs)
        return b""

    def reset(self, payload: bytes) -> bytes:
        """Reset environments; answers with their infos and the parts of observations that have no place in the slab."""
        slab = self._mapped()
        asked = pickle.loads(payload)
        infos, others = [], []
        for number, seed, options, half in asked:
            with _telling(number, "its reset"):
                observation, info = self._envs[number].reset(
                    seed=seed,
                    options=None if options is None else dict(options),  # its own: it may pop from them
                )
                others.append(slab.write(half, number, observation))
            slab.rewards[number], slab.terminated[number], slab.truncated[number] = 0.0, False, False
            infos.append(info)
        return self._told([number for number, *_ in asked], infos, others)

    def step(self, payload: bytes) -> bytes:
        """Step environments; answers as `reset` does."""
        slab = self._mapped()
        steps, actions = unpacked_steps(payload)
        infos, others = [], []
        for place, (number, has_ended, half) in enumerate(steps):
            action = _action(slab, number) if actions is None else actions[place]
            try:
                outcome = self._policy.step(self._envs[number], action, has_ended)
                others.append(slab.write(half, number, outcome.observation))
            except BaseException as error:
                raise EnvRaisedError(_failure(number, f"action {action}", error)) from error
            slab.rewards[number], slab.terminated[number], slab.truncated[number] = outcome[1:4]
            infos.append(outcome.info)
        return self._told([step.number for step in steps], infos, others)

    def call(self, payload: bytes) -> bytes:
        """Call a method of each environment, or read an attribute that is no method."""
        numbers, name, arguments, keywords = pickle.loads(payload)
        answers = []
        for number in numbers:
            with _telling(number, f"{name!r}"):
                found = self._envs[number].get_wrapper_attr(name)
                answers.append(found(*arguments, **keywords) if callable(found) else found)
            with _telling(number, f"the answer to {name!r}, which has to be pickled to reach the caller,"):
                answers[-1] = pickled(answers[-1])
        return pickled(answers)

    def set(self, payload: bytes) -> bytes:
        """Set an attribute of each environment."""
        numbers, name, values = pickle.loads(payload)
        for number, value in zip(numbers, values, strict=True):
            with _telling(number, f"the setting of {name!r}"):
                self._envs[number].set_wrapper_attr(name, value)
        return b""

    def render(self, payload: bytes) -> bytes:
        """Render each environment."""
        pictures = []
        for number in pickle.loads(payload):
            with _telling(number, "render"):
                pictures.append(self._envs[number].render())
        return pickled(pictures)

    def take_states(self, payload: bytes) -> bytes:
        """Take what the state of a vector environment says of each environment."""
        entries = []
        for number in pickle.loads(payload):
            with _telling(number, "the reading of its state"):
                entries.append(env_entry(self._envs[number]))
        return pickled(entries)

    def put_states(self, payload: bytes) -> bytes:
        """Put states back; answers with what the first environment says that refuses its own, if any does."""
        for number, state in pickle.loads(payload):
            with _telling(number, "the taking of its state"):
                try:
                    put_state(self._envs[number], state)
                except IncompatibleError as refusal:
                    return pickled([str(refusal)])
        return pickled([])

    def close(self, payload: bytes) -> bytes:  # noqa: ARG002
        """Close every environment, also those after one that raises; answers with what they raised."""
        failures = []
        while self._envs:
            number, env = self._envs.popitem()
            try:
                env.close()
            except BaseException as error:
                failures.append(_failure(number, "its close", error))
        return pickled(failures)

    def _told(self, numbers: Sequence[int], infos: list[dict[str, Any]], others: list[list[Any]]) -> bytes:
        if not any(infos) and not any(others):
            return b""
        if not any(others) and (layout := self._mapped().infos.write(numbers, infos)) is not None:
            return layout
        try:
            return pickled((infos, others))
        except Exception:
            for number, info in zip(numbers, infos, strict=True):
                with _telling(number, f"its info {sorted(info)}, which has to be pickled to reach the caller,"):
                    pickled(info)
            raise

    def _mapped(self) -> Slab:
        if self._slab is None:
            raise RuntimeError("the slab is not mapped")
        return self._slab


_HANDLERS: dict[Command, Callable[[EnvHost, bytes], bytes]] = {
    Command.MAKE: EnvHost.make,
    Command.MAP: EnvHost.map,
    Command.RESET: EnvHost.reset,
    Command.STEP: EnvHost.step,
    Command.CALL: EnvHost.call,
    Command.SET: EnvHost.set,
    Command.RENDER: EnvHost.render,
    Command.TAKE_STATES: EnvHost.take_states,
    Command.PUT_STATES: EnvHost.put_states,
    Command.CLOSE: EnvHost.close,
}


def _action(slab: Slab, number: int) -> Any:
    action = slab.actions[number]  # type: ignore[index]
    return action.copy() if isinstance(action, np.ndarray) else action  # the next step writes into the same row


class _telling:  # noqa: N801
    """Turns what an environment raises into what the parent is told of it."""

    def __init__(self, number: int, doing: str) -> None:
        self._number, self._doing = number, doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None:
            raise EnvRaisedError(_failure(self._number, self._doing, error)) from error


def _failure(number: int, doing: str, error: BaseException) -> EnvFailure:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return EnvFailure(number, type(error).__name__, doing, error_text(error), text)


class WorkerArguments(NamedTuple):
    """What a worker process is started with."""

    numbers: Sequence[int]
    """Which environments are its own."""
    factories: Factories
    mode: AutoresetMode
    block: SharedBlock
    end: socket.socket
    lifeline: Connection


def run_worker(arguments: WorkerArguments) -> None:
    """Answer until CLOSE, or until the parent is gone."""
    # Under fork the parent's garbage came along. To destroy it here may end the process: ALE's vector environment, for
    # one, joins threads that only the parent has.
    gc.freeze()
    _take_no_signals()
    hang_on(arguments.lifeline)
    end = WorkerEnd(arguments.end)
    host = EnvHost(arguments.numbers, arguments.factories, arguments.mode, arguments.block)
    with suppress(EOFError, OSError):  # the parent is gone: there is nobody to tell
        while _answers_one(end, host):
            pass


def _answers_one(end: WorkerEnd, host: EnvHost) -> bool:
    """Answer one message; tells whether another may come."""
    sequence, command, payload = end.receive()
    try:
        answer, outcome = host.answer(command, payload), Outcome.DONE
    except EnvRaisedError as error:
        answer, outcome = pickled(error.failure), Outcome.FAILED
    end.send(sequence, outcome, answer)
    return command != Command.CLOSE


def _take_no_signals() -> None:
    """Leave Ctrl-C to the parent, and what the parent made of SIGTERM as well.

    A terminal sends SIGINT to the whole group of processes; under fork the parent's own handlers came along.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
