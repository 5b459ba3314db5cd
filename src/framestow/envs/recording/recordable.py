"""What the recorder asks of a vector environment before it takes it over."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv, VectorWrapper

from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import map_arrays

try:
    # What the functions of ``signal`` call: 0.5 µs instead of 7, which go into making enums of functions.
    from _signal import getsignal  # type: ignore[import-not-found]
    from _signal import signal as set_handler
except ImportError:
    from signal import getsignal
    from signal import signal as set_handler

DEFERRED = (int(signal.SIGINT), int(signal.SIGTERM))


class DeferredInterrupts:
    """While entered, a signal whose handler is a Python function is noted; the handler runs on the way out.

    A step goes into several arrays of a memory one after the other. `KeyboardInterrupt` may be raised between any two
    lines, and a memory that was left between two of them would be wrong from then on. Signals are handled in
    the main thread only, so elsewhere nothing is done. Not to be entered twice at once.
    """

    def __init__(self) -> None:
        self._handlers: list[tuple[int, Any]] = []
        self._noted: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in DEFERRED:
            handler = getsignal(number)
            if callable(handler):  # the others are not run by Python: they end the process, or are ignored
                self._handlers.append((number, handler))
                set_handler(number, self._note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        handlers = dict(self._handlers)
        while self._handlers:
            set_handler(*self._handlers[-1])
            self._handlers.pop()
        noted, self._noted = dict(self._noted), []
        for number, frame in noted.items():
            handlers[number](number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append((number, frame))


def take_rows(frames: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Copy those rows of ``frames``, ``(n, *frame)`` or dicts and tuples of such arrays."""
    return map_arrays(lambda array: array[rows], frames)


def take_row(frames: Any, row: Any) -> Any:
    """One row of ``frames``, a view."""
    return map_arrays(lambda array: array[row], frames)


def newest_of(stacks: Any) -> Any:
    """Take the newest frame of each stack, ``(n, *frame)``, a view."""
    return map_arrays(lambda array: array[:, -1], stacks)


def put_rows(frames: Any, rows: Mapping[int, Any]) -> Any:
    """Make a copy of ``frames`` in which each of ``rows`` is replaced."""

    def replaced(array: Any, *of_rows: Any) -> Any:
        copy = np.array(array)
        for row, frame in zip(rows, of_rows, strict=True):
            copy[row] = frame
        return copy

    return map_arrays(replaced, frames, *rows.values())


def stacked_space(space: gymnasium.Space[Any], stack: int) -> gymnasium.Space[Any]:
    """Make the space of ``stack`` frames of ``space``, along a new first axis."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: stacked_space(part, stack) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([stacked_space(part, stack) for part in space.spaces])
    if isinstance(space, spaces.Box):
        low, high = (np.repeat(bound[None], stack, axis=0) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype.type)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary((stack, *space.shape))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (np.repeat(array[None], stack, axis=0) for array in (space.nvec, space.start))
        return spaces.MultiDiscrete(counts, dtype=space.dtype.type, start=starts)
    if isinstance(space, spaces.Discrete):
        return spaces.MultiDiscrete([space.n] * stack, dtype=space.dtype.type, start=[space.start] * stack)
    raise InvalidSettingsError(
        f"observation space {space}: a recorder stacks frames of a Box, MultiBinary, MultiDiscrete or Discrete, and of "
        "Dicts and Tuples of them; convert it in a wrapper"
    )


def check_env(env: Any) -> None:
    """Refuse what is no vector environment, or is one that has to be put into another first."""
    if hasattr(env, "all_env_ids") and hasattr(env, "config"):
        raise InvalidSettingsError(
            f"env is the envpool pool {type(env).__name__}: it ends the process at a wrong action and tells infos "
            "without masks; give Recorder(EnvpoolVectorEnv(pool), memory), from framestow.envs"
        )
    if not (hasattr(env, "num_envs") and hasattr(env, "single_observation_space")):
        raise InvalidSettingsError(
            f"env is {env}: a recorder records a vector environment; make one of it, SerialVectorEnv([lambda: env])"
        )


def check_memory(memory: Any) -> None:
    """Refuse what takes no steps: the `StepSink` that a recorder needs."""
    if not (hasattr(memory, "stack") and callable(getattr(memory, "append", None))):
        raise InvalidSettingsError(
            f"memory is {memory!r}: a recorder fills a ReplayMemory; give one, with num_envs=env.num_envs"
        )


def told_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode | str:
    """Ask a vector environment for its autoreset mode: its own attribute first, then its metadata.

    Some classes share one metadata dictionary among their instances; it tells about whichever was made last.
    """
    own = getattr(env.unwrapped, "autoreset_mode", None)
    told = env.metadata.get("autoreset_mode") if own is None else own
    if told is None:
        raise InvalidSettingsError(
            f"{env} does not tell its autoreset mode: without it nobody knows which steps are real; pass autoreset_mode"
        )
    return told  # type: ignore[no-any-return]


def ask_to_lend(env: VectorEnv[Any, Any, Any]) -> None:
    """Have observations lent instead of copied, if ``env`` itself can; what is behind a wrapper stays as it is."""
    if hasattr(type(env), "copies_observations") or "copies_observations" in vars(env):
        env.copies_observations = False  # type: ignore[attr-defined]


def state_method(env: VectorEnv[Any, Any, Any], name: str) -> Callable[..., Any] | None:
    """``state_dict`` or ``load_state_dict`` of ``env`` itself: Gymnasium's wrappers hand on what is not their own."""
    return getattr(env, name) if hasattr(type(env), name) else None


def steps_in_halves(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether ``env`` steps while the caller does something else, by itself.

    Gymnasium's ``AsyncVectorEnv`` does too, but a wait that was interrupted or timed out leaves its pipes out of step;
    and its wrappers hand the two calls on to what they wrap, past their own ``step``.
    """
    return (
        hasattr(env, "step_async")
        and hasattr(env, "step_wait")
        and not isinstance(env, (AsyncVectorEnv, VectorWrapper))
    )


def sends_some(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether ``env`` itself takes actions for some of its environments, and gives those that are ready."""
    return hasattr(env, "send") and hasattr(env, "recv") and not isinstance(env, VectorWrapper)


VectorStep = tuple[Any, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]
Flags = npt.NDArray[np.bool_]

NO_STATE = "the run was resumed, and the environment keeps no state"
NOT_IN_MEMORY = "the run was resumed, and its memory has lost the newest frames"


class BegunAnew:
    """Answers in place of a vector environment in the first steps of a resumed run: its episodes are lost.

    In the first step nothing is stepped: every episode is truncated, ``infos["episode_lost"]`` says why for those that
    were running, and the frames are the last ones. The environment is reset as in any step after an end: in the same
    step (SAME_STEP), in the next (NEXT_STEP), or by the caller (DISABLED). Some of the environments cannot be stepped
    without the others, so one whose episode had ended before is truncated once more, and reset one step later.

    Args:
        mode: what the vector environment does at an episode's end.
        had_ended: which episodes were already over, ``(n,)``.
        newest_frames: gives the last frame of each, ``(n, *frame)``.
        reset: resets the vector environment; gives the first frames and infos.
        why: what ``infos["episode_lost"]`` says.
    """

    def __init__(
        self,
        mode: AutoresetMode,
        had_ended: Flags,
        newest_frames: Callable[[], Any],
        reset: Callable[[], tuple[Any, dict[str, Any]]],
        why: str = NO_STATE,
    ) -> None:
        self._mode, self._newest_frames, self._reset = mode, newest_frames, reset
        self._lost, self._why = ~had_ended, why
        self._is_told = False
        self.is_over = False
        """Whether the vector environment itself answers from now on."""

    def step(self) -> VectorStep:
        """Answer one step."""
        count = len(self._lost)
        none, everyone = np.zeros(count, np.bool_), np.ones(count, np.bool_)
        if self._is_told:
            frames, infos = self._reset()
            self.is_over = True
            return frames, np.zeros(count), none, none, infos
        frames, infos = self._newest_frames(), {}
        if self._mode is AutoresetMode.SAME_STEP:
            final = np.empty(count, object)
            for row in range(count):
                final[row] = take_row(frames, row)
            frames, infos = self._reset()
            infos |= {"final_obs": final, "_final_obs": everyone, "final_info": {}, "_final_info": everyone}
        self._is_told, self.is_over = True, self._mode is not AutoresetMode.NEXT_STEP
        reasons = np.full(count, None, object)
        reasons[self._lost] = self._why
        infos |= {"episode_lost": reasons, "_episode_lost": self._lost}
        return frames, np.zeros(count), none.copy(), everyone.copy(), infos
