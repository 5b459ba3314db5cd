"""Run environments in a worker process: answer the parent's messages until it sends CLOSE or ends."""

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.envs.vector.arguments import EnvSpaces, error_text, identity_of
from framestow.envs.vector.one_env import EnvCalls
from framestow.envs.workers.messages import (
    Command,
    EnvFailure,
    Factories,
    Message,
    MessageSocket,
    Outcome,
    StepPayload,
    pickle_value,
)
from framestow.envs.workers.shared_arrays import SharedArrays, SharedBlock
from framestow.errors import InvalidSettingsError

_PARENT_CHECK_INTERVAL_S = 1.0  # how often a worker looks whether it has another parent process


class _Closable(Protocol):
    def close(self) -> None:
        """Close it."""


# Ends of pipes and sockets of the parent, which every forked process closes.
_parent_ends: weakref.WeakSet[Any] = weakref.WeakSet()


def close_in_forks(end: _Closable) -> None:
    """Close ``end`` in every process that is forked from this one.

    A worker notices the end of its parent by a closed pipe. A forked process would inherit the pipe and keep it open.
    """
    _parent_ends.add(end)


def _close_parent_ends() -> None:
    for end in list(_parent_ends):
        end.close()
    _parent_ends.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_parent_ends)


def die_with_parent(parent_pipe: Connection) -> None:
    """End this process when the parent ends, which closes the other end of ``parent_pipe``.

    A thread waits for the pipe and for the parent process. It needs the GIL, which an environment that hangs in C may
    never release. So on Linux the kernel also sends SIGKILL when the pipe closes. PDEATHSIG would be too early: it is
    sent when the thread that made the process ends.
    """
    _kill_on_close(parent_pipe)
    threading.Thread(target=_watch_parent, args=(parent_pipe,), name="framestow-parent-watch", daemon=True).start()


def _kill_on_close(parent_pipe: Connection) -> None:
    try:
        import fcntl  # noqa: PLC0415  # POSIX only
        import signal  # noqa: PLC0415

        number = parent_pipe.fileno()
        fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(number, fcntl.F_SETSIG, signal.SIGKILL)  # Linux only
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)
    except (ImportError, AttributeError, OSError):
        return


def _watch_parent(parent_pipe: Connection) -> None:
    parent = multiprocessing.parent_process()
    watched: list[Any] = [parent_pipe] if parent is None else [parent_pipe, parent.sentinel]
    process = None if parent is None or parent.pid is None else process_handle(parent.pid)
    if process is not None:
        watched.append(process)
    first_parent = os.getppid()
    while not wait(watched, _PARENT_CHECK_INTERVAL_S) and os.getppid() == first_parent:
        pass
    os._exit(1)


def process_handle(pid: int) -> int | None:
    """Return a file descriptor that becomes readable when the process ends; ``None`` if the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


class EnvRaisedError(Exception):
    """An environment raised; ``failure`` is the report for the parent."""

    def __init__(self, failure: EnvFailure) -> None:
        super().__init__(failure)
        self.failure = failure


class EnvHost:
    """The environments of a worker, an argument of its process; they are made there, by MAKE.

    Arguments:
        env_ids: their numbers among those of all workers.
        factories: functions that make them.
        mode: autoreset mode.
        calls: how they are made, reset and stepped.
        block: memory shared with the parent.
    """

    def __init__(
        self, env_ids: Sequence[int], factories: Factories, mode: AutoresetMode, calls: EnvCalls, block: SharedBlock
    ) -> None:
        self._env_ids, self._factories, self._mode, self._block = env_ids, factories, mode, block
        self._calls = calls
        # The usual step: of all environments, none of which has ended.
        self._usual_steps = StepPayload(env_ids, [False] * len(env_ids), None, ())
        self._envs: dict[int, gymnasium.Env[Any, Any]] = {}  # by their number; empty before MAKE
        self._shared: SharedArrays | None = None  # None before MAP

    def answer(self, command: int, payload: bytes) -> bytes:
        """Execute a command and return the payload of the answer.

        Raises:
            EnvRaisedError: an environment raised.
        """
        return _HANDLERS[Command(command)](self, payload)

    def make(self, payload: bytes) -> bytes:
        """Make the environments; return their spaces and identities, and metadata and render mode of the first.

        A replacement maps the shared arrays too: ``payload`` is that of MAP.
        """
        with _reporting_errors(self._env_ids[0], "the reading of its function"):
            make_each = self._factories.functions()
        for env_id, make in zip(self._env_ids, make_each, strict=True):
            with _reporting_errors(env_id, "its construction"):
                self._envs[env_id] = self._calls.make(make, env_id)
        spaces = [EnvSpaces(env.observation_space, env.action_space) for env in self._envs.values()]
        if payload:
            expected, _ = pickle.loads(payload)
            for env_id, own in zip(self._env_ids, spaces, strict=True):
                with _reporting_errors(env_id, "its construction"):
                    if own != expected:
                        raise InvalidSettingsError(
                            f"its spaces are {own}: the lost one's were {expected}; make all environments alike"
                        )
            self.map(payload)
        first = self._envs[self._env_ids[0]]
        identities = [identity_of(env) for env in self._envs.values()]
        return pickle_value((spaces, identities, dict(first.metadata), first.render_mode))

    def map(self, payload: bytes) -> bytes:
        """Map the shared arrays, whose size the parent has set."""
        spaces, num_envs = pickle.loads(payload)
        self._shared = SharedArrays(self._block, spaces, num_envs)
        return b""

    def reset(self, payload: bytes) -> bytes:
        """Reset environments; return their infos, and the parts of observations that are no arrays."""
        resets = pickle.loads(payload)
        infos, others = zip(*(self._reset_one(*each) for each in resets), strict=True)
        return self._pack([env_id for env_id, *_ in resets], infos, others)

    def step(self, payload: bytes) -> bytes:
        """Step environments, and reset some instead; return the same as ``reset``, in this order."""
        shared = self._require_mapped()
        env_ids, has_ended, actions, resets = pickle.loads(payload) if payload else self._usual_steps
        infos, others = [], []
        for row, env_id in enumerate(env_ids):
            action = _action(shared, env_id) if actions is None else actions[row]
            try:
                outcome = self._calls.step(self._mode, self._envs[env_id], action, has_ended[row])
                others.append(shared.write(env_id, outcome.observation))
            except BaseException as error:
                raise EnvRaisedError(_failure(env_id, f"action {action}", error)) from error
            shared.rewards[env_id], shared.terminated[env_id], shared.truncated[env_id] = outcome[1:4]
            infos.append(outcome.info)
        for env_id, seed in resets:
            info, parts = self._reset_one(env_id, seed, None)
            infos.append(info)
            others.append(parts)
        return self._pack([*env_ids, *(env_id for env_id, _ in resets)], infos, others)

    def apply(self, payload: bytes) -> bytes:
        """Call a function with each environment and its arguments; return the results, pickled one by one."""
        operation, doing, arguments = pickle.loads(payload)
        answers = []
        for env_id, own in arguments.items():
            with _reporting_errors(env_id, doing):
                result = operation(self._envs[env_id], *own)
            with _reporting_errors(env_id, f"the pickling of the result of {doing}"):
                answers.append(pickle_value(result))
        return pickle_value(answers)

    def close(self, payload: bytes) -> bytes:  # noqa: ARG002
        """Close every environment; return the errors."""
        failures = []
        while self._envs:
            env_id, env = self._envs.popitem()
            try:
                env.close()
            except BaseException as error:
                failures.append(_failure(env_id, "its close", error))
        return pickle_value(failures)

    def _reset_one(
        self, env_id: int, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[dict[str, Any], list[Any]]:
        """Reset an environment; return its info, and the parts of its observation that are no arrays."""
        shared = self._require_mapped()
        with _reporting_errors(env_id, "its reset"):
            observation, info = self._calls.reset(self._envs[env_id], seed, options)
            others = shared.write(env_id, observation)
        shared.rewards[env_id], shared.terminated[env_id], shared.truncated[env_id] = 0.0, False, False
        return info, others

    def _pack(self, env_ids: Sequence[int], infos: Sequence[dict[str, Any]], others: Sequence[list[Any]]) -> bytes:
        has_others = any(others)
        if not has_others and not any(infos):
            return b""
        try:
            return pickle_value((infos, others if has_others else ()))
        except Exception:
            for env_id, info in zip(env_ids, infos, strict=True):
                with _reporting_errors(env_id, f"the pickling of its info {sorted(info)}"):
                    pickle_value(info)
            raise

    def _require_mapped(self) -> SharedArrays:
        if self._shared is None:
            raise RuntimeError("the shared arrays are not mapped")
        return self._shared


_HANDLERS: dict[Command, Callable[[EnvHost, bytes], bytes]] = {
    Command.MAKE: EnvHost.make,
    Command.MAP: EnvHost.map,
    Command.RESET: EnvHost.reset,
    Command.STEP: EnvHost.step,
    Command.APPLY: EnvHost.apply,
    Command.CLOSE: EnvHost.close,
}


def _action(shared: SharedArrays, env_id: int) -> Any:
    action = shared.actions[env_id]  # type: ignore[index]
    return action.copy() if isinstance(action, np.ndarray) else action  # the next step overwrites the row


@contextmanager
def _reporting_errors(env_id: int, doing: str) -> Iterator[None]:
    """Raise ``EnvRaisedError`` for an exception of an environment."""
    try:
        yield
    except BaseException as error:
        raise EnvRaisedError(_failure(env_id, doing, error)) from error


def _failure(env_id: int, doing: str, error: BaseException) -> EnvFailure:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return EnvFailure(env_id, type(error).__name__, doing, error_text(error), text)


def run_worker(host: EnvHost, end: socket.socket, parent_pipe: Connection, collects: bool) -> None:
    """Answer messages until CLOSE, or until the parent ends.

    Arguments:
        host: The environments, which are not made yet.
        end: The worker's end of the socket.
        parent_pipe: The worker ends once the parent has closed the other end.
        collects: Whether the parent's garbage collector runs.
    """
    # With fork the worker inherits the parent's garbage, whose destruction may end the process: ALE's vector
    # environment joins threads that only the parent has. `Worker.start` has kept the collector off until here.
    gc.freeze()
    if collects:
        gc.enable()
    _reset_signals()
    die_with_parent(parent_pipe)
    messages = MessageSocket(end, blocks=True)
    with suppress(EOFError, OSError):  # the parent has ended
        while _answer_one(messages, host):
            pass


def _answer_one(messages: MessageSocket, host: EnvHost) -> bool:
    """Answer one message; return False after CLOSE."""
    while (message := messages.next_message()) is None:
        messages.receive()
    sequence, command, payload = message
    try:
        answer, outcome = host.answer(command, payload), Outcome.DONE
    except EnvRaisedError as error:
        answer, outcome = pickle_value(error.failure), Outcome.FAILED
    messages.send(Message(sequence, outcome, answer))
    return command != Command.CLOSE


def _reset_signals() -> None:
    """Ignore SIGINT, which a terminal sends to all processes of a group, and remove handlers inherited by fork."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
