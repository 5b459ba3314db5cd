"""Environments that fail as planned, with the numbers (environment, replacement, episode, step) in their frames.

The number of replacements tells the frames of a replaced environment from those before. Each environment writes its
process id into a folder, by which a test finds processes that must end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from oracles.process_watch import Identity, log_process, logged_processes

SHAPE = (2, 4)
NUM_ACTIONS = 5
ENDINGS = {"terminated": (True, False), "truncated": (False, True), "both": (True, True)}
FOR_EVER = 3_600  # seconds: longer than any bound
CUT = "the wire is cut"


class FrameNumbers(NamedTuple):
    """Where a frame belongs."""

    environment: int
    replacement: int
    episode: int
    step: int


def frame_of(numbers: FrameNumbers) -> np.ndarray:
    """Return the frame ``(2, 4)`` with these numbers; episodes and replacements are at most 65,535."""
    environment, replacement, episode, step = numbers
    return np.array(
        [
            [environment, replacement % 256, episode % 256, step],
            [environment + 10, replacement // 256, episode // 256, step + 10],
        ],
        np.uint8,
    )


def numbers_of(frame: np.ndarray) -> FrameNumbers:
    """Return the numbers in a frame, and check that the frame is intact."""
    (environment, replacement, episode, step), (again, replacements, episodes, also) = (
        np.asarray(frame).astype(int).tolist()
    )
    assert (environment + 10, step + 10) == (again, also), f"a torn frame: {frame.tolist()}"
    return FrameNumbers(environment, replacement + 256 * replacements, episode + 256 * episodes, step)


@dataclass(frozen=True)
class Failure:
    """A kind of failure, and the call, method and replacement at which it occurs."""

    kind: str
    where: str = "step"
    at: int = 3  # the first call is 1
    replacements: tuple[int, ...] = (0,)
    seconds: float = 0.3  # duration of "slow"


@dataclass(frozen=True)
class Plan:
    """How one environment plays, and how it fails."""

    environment: int
    process_folder: Path
    failure: Failure | None = None
    lengths: tuple[int, ...] = (4, 2, 7)
    endings: tuple[str, ...] = ("terminated", "truncated", "both")
    seconds_a_step: float = 0.0
    home: int = field(default_factory=os.getpid)  # the test process, which must not be killed

    def make(self) -> Callable[[], FailingEnv]:
        """Return a picklable function that makes the environment."""
        return partial(FailingEnv, self)


class FailingEnv(gymnasium.Env):
    """Play episodes of given lengths and endings in turn, until the planned failure."""

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def __init__(self, plan: Plan) -> None:
        self.observation_space, self.action_space = Box(0, 255, SHAPE, np.uint8), Discrete(NUM_ACTIONS)
        self.plan, self.calls = plan, dict.fromkeys(("construct", "reset", "step", "render", "call", "close"), 0)
        self.replacement = self._log_process()
        self.episode, self.step_number, self.is_over = -1, 0, True
        self.seeds: list[int | None] = []
        self.tone = 0
        self._fail("construct")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode, self.step_number, self.is_over = self.episode + 1, 0, False
        self._fail("reset")
        return self._shown("reset"), {"replacement": self.replacement, "draw": float(self.np_random.random())}

    def step(self, action):
        assert not self.is_over, "stepped after its end"
        if self.plan.seconds_a_step:
            time.sleep(self.plan.seconds_a_step)
        self.step_number += 1
        terminated = truncated = False
        if self.step_number == self.plan.lengths[self.episode % len(self.plan.lengths)]:
            terminated, truncated = ENDINGS[self.plan.endings[self.episode % len(self.plan.endings)]]
            self.is_over = True
        wrong = self._fail("step")
        reward = {"nan_reward": float("nan"), "no_reward": None}.get(wrong, float(action))
        info = {"replacement": self.replacement, "draw": float(self.np_random.random())}
        if wrong == "four_answers":
            return self._shown("step"), reward, terminated, info
        return self._shown("step"), reward, terminated, truncated, info

    def render(self):
        self._fail("render")
        return np.full((4, 6, 3), self.plan.environment, np.uint8)

    def close(self):
        self._fail("close")

    def touch(self, number: int) -> int:
        """Return a number, for tests of ``call``."""
        self._fail("call")
        return number + self.plan.environment

    def _log_process(self) -> int:
        if os.getpid() == self.plan.home:
            return 0
        for replacement in range(65_536):
            with contextlib.suppress(FileExistsError):
                log_process(self.plan.process_folder / f"{self.plan.environment}-{replacement}", os.getpid())
                return replacement
        raise AssertionError("too many replacements")

    def _shown(self, where: str) -> Any:
        frame = frame_of(FrameNumbers(self.plan.environment, self.replacement, self.episode, self.step_number))
        failure = self.plan.failure
        if failure is not None and failure.kind == "aliased":
            self._array = getattr(self, "_array", np.zeros(SHAPE, np.uint8))
            self._array[:] = frame
            return self._array
        if not self._is_due(where):
            return frame
        wrong: dict[str, Callable[[], Any]] = {
            "wrong_shape": lambda: np.zeros((3, 4), np.uint8),
            "wrong_dtype": lambda: frame.astype(np.float64) + 0.5,
            "none": lambda: None,
        }
        return wrong.get(failure.kind, lambda: frame)()

    def _is_due(self, where: str) -> bool:
        failure = self.plan.failure
        return (
            failure is not None
            and where == failure.where
            and self.calls[where] == failure.at
            and self.replacement in failure.replacements
        )

    def _fail(self, where: str) -> str:
        """Fail as planned; return the kind if the result itself must be wrong."""
        self.calls[where] += 1
        if not self._is_due(where):
            return ""
        kind = self.plan.failure.kind
        if kind in LETHAL and os.getpid() == self.plan.home:
            raise AssertionError(f"{kind} in the process of the tests")
        if kind in ACTS:
            ACTS[kind](self.plan)
        return kind


class UnpicklableError(Exception):
    """An error that cannot be pickled, because of a lock."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


class TwoArgumentsError(Exception):
    """An error that can be pickled but not unpickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}{second}")


class SpeechlessError(Exception):
    """An error whose ``__str__`` raises."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


def _raise(error: BaseException) -> None:
    raise error


def _hang(plan: Plan) -> None:
    time.sleep(FOR_EVER)


def _hang_stubbornly(plan: Plan) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(FOR_EVER)


def _hang_in_c(plan: Plan) -> None:
    ctypes.PyDLL(None).sleep(FOR_EVER)  # PyDLL keeps the GIL, so no other thread runs


def _stop(plan: Plan) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _die_and_leave_a_child(plan: Plan) -> None:
    """Leave a child that keeps every pipe of its parent open, so that the death does not close them."""
    pid = os.fork()
    if pid == 0:
        time.sleep(FOR_EVER)
        os._exit(0)
    log_process(plan.process_folder / f"child-{pid}", pid)
    os.kill(os.getpid(), signal.SIGKILL)


def _talk(plan: Plan) -> None:
    for stream in (sys.__stdout__, sys.__stderr__):
        stream.write("words " * 200_000)
        stream.flush()


def _die_by(number: int) -> Callable[[Plan], None]:
    def act(plan: Plan) -> None:
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)

    return act


ACTS: dict[str, Callable[[Plan], None]] = {
    "raise": lambda plan: _raise(RuntimeError(CUT)),
    "raise_unpicklable": lambda plan: _raise(UnpicklableError(CUT)),
    "raise_two_arguments": lambda plan: _raise(TwoArgumentsError(CUT, "")),
    "raise_speechless": lambda plan: _raise(SpeechlessError()),
    "raise_huge": lambda plan: _raise(RuntimeError(CUT + "x" * 5_000_000)),
    "system_exit": lambda plan: sys.exit(CUT),
    "keyboard_interrupt": lambda plan: _raise(KeyboardInterrupt(CUT)),
    "sigkill": _die_by(signal.SIGKILL),
    "sigsegv": _die_by(signal.SIGSEGV),
    "sigterm": _die_by(signal.SIGTERM),
    "exit": lambda plan: os._exit(7),
    "exit_in_peace": lambda plan: os._exit(0),
    "hang": _hang,
    "hang_stubbornly": _hang_stubbornly,
    "hang_in_c": _hang_in_c,
    "stopped": _stop,
    "die_and_leave_a_child": _die_and_leave_a_child,
    "slow": lambda plan: time.sleep(plan.failure.seconds),
    "talk": _talk,
}
RAISING = (
    "raise",
    "raise_unpicklable",
    "raise_two_arguments",
    "raise_speechless",
    "raise_huge",
    "system_exit",
    "keyboard_interrupt",
)
WRONG_ANSWERS = ("wrong_shape", "wrong_dtype", "none", "no_reward", "four_answers")
DYING = ("sigkill", "sigsegv", "sigterm", "exit", "exit_in_peace", "die_and_leave_a_child")
HANGING = ("hang", "hang_stubbornly", "hang_in_c", "stopped")
LETHAL = (*DYING, *HANGING)


def plans(folder: Path, num_envs: int, failing: dict[int, Failure] | None = None, **settings: Any) -> list[Plan]:
    """Return a plan for each environment; ``failing`` has the failures."""
    failing = failing or {}
    return [Plan(environment, folder, failing.get(environment), **settings) for environment in range(num_envs)]


def makers(folder: Path, num_envs: int, failing: dict[int, Failure] | None = None, **settings: Any) -> list[Callable]:
    """Return the functions that make the environments of a vector environment."""
    return [plan.make() for plan in plans(folder, num_envs, failing, **settings)]


def processes_of(folder: Path, num_envs: int, replacement: int = 0) -> list[Identity]:
    """Return the process of each environment after that many replacements."""
    return [logged_processes(folder, f"{environment}-{replacement}").pop() for environment in range(num_envs)]
