"""Check a vector environment and a memory before recording, and copy rows of observations.

Also here: interrupts deferred while a step is stored, and the first steps of a run resumed without a saved state.
"""

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
    # The C functions behind ``signal`` take 0.5 µs; the wrappers take 7 µs, because they convert handlers to enums.
    from _signal import getsignal  # type: ignore[import-not-found]
    from _signal import signal as set_handler
except ImportError:
    from signal import getsignal
    from signal import signal as set_handler

DEFERRED_SIGNALS = (int(signal.SIGINT), int(signal.SIGTERM))


class DeferredInterrupts:
    """Context manager that defers the Python handlers of SIGINT and SIGTERM until it exits.

    A memory stores a step in several arrays. A ``KeyboardInterrupt`` between two of them would leave the memory
    inconsistent. Python handles signals in the main thread only, so other threads need no protection. Not reentrant.
    """

    def __init__(self) -> None:
        self._handlers: list[tuple[int, Any]] = []  # signal number and usual handler, while they are deferred
        self._noted: list[tuple[int, FrameType | None]] = []  # signals that arrived meanwhile, with their frames

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in DEFERRED_SIGNALS:
            handler = getsignal(number)
            if callable(handler):  # Python does not run the other handlers, SIG_DFL and SIG_IGN
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
    """Return a copy of some rows of ``frames``, ``(n, *frame)`` or dicts and tuples of such arrays."""
    return map_arrays(lambda array: array[rows], frames)


def take_row(frames: Any, row: Any) -> Any:
    """Return one row of ``frames``, a view."""
    return map_arrays(lambda array: array[row], frames)


def newest_frames(stacks: Any) -> Any:
    """Return the newest frame of each stack, ``(n, *frame)``, a view."""
    return map_arrays(lambda array: array[:, -1], stacks)


def replace_rows(frames: Any, rows: Mapping[int, Any]) -> Any:
    """Return a copy of ``frames`` with the ``rows`` replaced."""

    def replace_in_array(array: Any, *of_rows: Any) -> Any:
        copy = np.array(array)
        for row, frame in zip(rows, of_rows, strict=True):
            copy[row] = frame
        return copy

    return map_arrays(replace_in_array, frames, *rows.values())


def stack_space(space: gymnasium.Space[Any], stack: int) -> gymnasium.Space[Any]:
    """Return the space of ``stack`` observations of ``space``, along a new first axis."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: stack_space(part, stack) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([stack_space(part, stack) for part in space.spaces])
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
        f"observation space is {space}: a recorder stacks Box, MultiBinary, MultiDiscrete and Discrete, and Dicts and "
        "Tuples of them; convert it in a wrapper"
    )


def check_env(env: Any) -> None:
    """Raise ``InvalidSettingsError`` unless ``env`` is a vector environment that a recorder can step."""
    if hasattr(env, "all_env_ids") and hasattr(env, "config"):
        raise InvalidSettingsError(
            f"env is the envpool pool {type(env).__name__}: a recorder needs a vector environment of Gymnasium; store "
            "its steps by memory.add (docs/environments.md)"
        )
    if not (hasattr(env, "num_envs") and hasattr(env, "single_observation_space")):
        raise InvalidSettingsError(
            f"env is {env}: a recorder needs a vector environment; use SerialVectorEnv([lambda: env])"
        )


def check_memory(memory: Any) -> None:
    """Raise ``InvalidSettingsError`` unless ``memory`` is a ``StepSink``."""
    if not (hasattr(memory, "stack") and callable(getattr(memory, "append", None))):
        raise InvalidSettingsError(
            f"memory is {memory!r}: a recorder needs a ReplayMemory; make one with num_envs=env.num_envs"
        )


def find_autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode | str:
    """Return the autoreset mode of a vector environment: its attribute ``autoreset_mode``, else its metadata.

    The attribute takes precedence, because some classes share one metadata dictionary among all instances.
    """
    mode = getattr(env.unwrapped, "autoreset_mode", None)
    if mode is None:
        mode = env.metadata.get("autoreset_mode")
    if mode is None:
        raise InvalidSettingsError(
            f"{env} has no autoreset mode: the recorder needs it to know which steps are resets; pass autoreset_mode"
        )
    return mode  # type: ignore[no-any-return]


def disable_observation_copies(env: VectorEnv[Any, Any, Any]) -> None:
    """Set ``env.copies_observations = False`` if ``env`` itself, not one that it wraps, has that attribute."""
    if hasattr(type(env), "copies_observations") or "copies_observations" in vars(env):
        env.copies_observations = False  # type: ignore[attr-defined]


def state_method(env: VectorEnv[Any, Any, Any], name: str) -> Callable[..., Any] | None:
    """Return ``state_dict`` or ``load_state_dict`` of ``env`` itself, not of an environment that it wraps."""
    return getattr(env, name) if hasattr(type(env), name) else None


def has_async_step(env: VectorEnv[Any, Any, Any]) -> bool:
    """Return whether ``env`` itself has a usable ``step_async`` and ``step_wait``.

    Not used: Gymnasium's ``AsyncVectorEnv``, whose pipes are out of sync after an interrupted or timed-out wait, and
    Gymnasium's wrappers, which pass both calls to the wrapped environment without their own ``step``.
    """
    return (
        hasattr(env, "step_async")
        and hasattr(env, "step_wait")
        and not isinstance(env, (AsyncVectorEnv, VectorWrapper))
    )


VectorStep = tuple[Any, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]
Flags = npt.NDArray[np.bool_]

# Reasons in ``infos["episode_lost"]``.
NO_STATE = "the run was resumed, and the environment has no saved state"
NOT_IN_MEMORY = "the run was resumed, and its memory has lost the newest frames"


class RestartedEpisodes:
    """Replace the first steps of a resumed run whose environments have no saved state: all episodes restart.

    The first step truncates every episode at its last frame, and ``infos["episode_lost"]`` gives the reason for those
    that were running. The reset follows in the same step (SAME_STEP), in the next one (NEXT_STEP) or by the caller
    (DISABLED). The environments step only together, so an episode that had already ended is truncated once more.

    Arguments:
        mode: autoreset mode of the vector environment.
        had_ended: episodes that had already ended, ``(n,)``.
        newest_frames: returns the last frame of each environment, ``(n, *frame)``.
        reset: resets the vector environment and returns the first frames and infos.
        why: reason in ``infos["episode_lost"]``.
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
        # Episodes that were running, and are reported as lost; and the reason.
        self._lost, self._why = ~had_ended, why
        self._has_truncated = False  # whether the first step was made
        self.is_over = False
        """True once all environments are reset; from then on the vector environment itself steps."""

    def step(self) -> VectorStep:
        """Return the five values of a vector environment's ``step``."""
        count = len(self._lost)
        none, everyone = np.zeros(count, np.bool_), np.ones(count, np.bool_)
        if self._has_truncated:
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
        self._has_truncated, self.is_over = True, self._mode is not AutoresetMode.NEXT_STEP
        reasons = np.full(count, None, object)
        reasons[self._lost] = self._why
        infos |= {"episode_lost": reasons, "_episode_lost": self._lost}
        return frames, np.zeros(count), none.copy(), everyone.copy(), infos
