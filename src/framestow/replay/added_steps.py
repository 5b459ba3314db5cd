"""Whole observations in, frames out: what ``ReplayMemory.add`` does.

Of an observation only the newest frame is new, as a rule, because the older ones are stored already. Where that does
not hold, a run of frames begins that brings its older frames along (its *lead-ins*), so any observation can be stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from framestow._core import Unstacker
from framestow.checks import as_array, as_flags
from framestow.errors import InvalidStepError
from framestow.frames.observation_spec import Frames
from framestow.frames.stacking import BY_SETTING, LEAD_INS, ZEROS, FrameStacker, StackPadding
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.observation_layout import ONE_ENVIRONMENT_S, Arrays, ObservationLayout
from framestow.replay.step_checks import Step, check_env_ids, check_episodes_are_open, check_values, step_of

# Bits of a row's flags, which the native ``Unstacker`` clears where a comparison fails: the observation is the current
# one; the next observation is the observation, shifted by one frame.
CONTINUES, SHIFTED = 1, 2


class CurrentStacks:
    """The newest frames of all environments, which whole observations are compared with."""

    def __init__(
        self,
        layout: ObservationLayout,
        stacker: FrameStacker,
        all_envs: npt.NDArray[np.int32],
        is_open: npt.NDArray[np.bool_],
    ) -> None:
        self.stacker, self.all_envs, self.is_open = stacker, all_envs, is_open
        self.unstack = Unstacker(stacker.native, is_open, layout.unstacked_arrays).unstack


class RunStarts(NamedTuple):
    """How the runs that begin with some frames are padded: the arguments of ``FrameStorage.append``."""

    paddings: npt.NDArray[np.uint8] | None  # of each row; 0 where the run goes on, None if all do
    lead_ins: Frames | None  # the older frames of each row, ``(n, depth - 1, *frame)``, if any row needs them

    @classmethod
    def of_stacks(cls, stacks: Arrays, padding: StackPadding, begins: npt.NDArray[np.bool_] | bool = True) -> RunStarts:
        """Return how the stacks ``(n, depth, *frame)`` of the rows in ``begins`` are padded, in all arrays."""
        is_padded = {by: np.ones(len(stacks[0]), np.bool_) for by in ("first_frame", "zeros")}
        for part in stacks:
            older = part[:, :-1]
            is_padded["zeros"] &= equal_rows(older, np.broadcast_to(np.zeros_like(part[:1, :1]), older.shape))
            is_padded["first_frame"] &= equal_rows(older, np.broadcast_to(part[:, -1:], older.shape))
        paddings = np.where(is_padded[padding], BY_SETTING, np.where(is_padded["zeros"], ZEROS, LEAD_INS))
        paddings = np.where(begins, paddings, 0).astype(np.uint8)
        if not (paddings == LEAD_INS).any():
            return cls(paddings, None)
        return cls(paddings, tuple(np.ascontiguousarray(part[:, :-1]) for part in stacks))

    @property
    def num_whole(self) -> int:
        """Number of rows that need their older frames."""
        return 0 if self.paddings is None else int((self.paddings == LEAD_INS).sum())

    def of_row(self, row: int) -> RunStarts:
        """Return the same of one row, with its axis."""
        if self.paddings is None:
            return self
        return RunStarts(self.paddings[row : row + 1], None if self.lead_ins is None else rows_of(self.lead_ins, row))


def rows_of(frames: Frames, row: int) -> Frames:
    """Return one row of the frames of all arrays, with its axis."""
    return tuple(part[row : row + 1] for part in frames)


NO_RUN = RunStarts(None, None)
"""Of a step all of whose runs go on; of episodes: the usual padding."""


class UnusualStep(NamedTuple):
    """A step of which an observation begins an episode, or a next observation begins a run."""

    env_ids: npt.NDArray[np.int32]
    observations: Arrays | None
    """``None`` if they are the current ones, so that no episode begins."""
    next_observations: Arrays
    begins: npt.NDArray[np.bool_]
    is_border: npt.NDArray[np.bool_]
    episodes: RunStarts
    runs: RunStarts
    are_one: tuple[bool, ...]
    """Of each array, whether the observation and the next observation are one place in memory."""


class StepTarget(Protocol):
    """What ``add_step`` stores steps in: an ``InnerMemory``, or a writer of a shard."""

    settings: MemorySettings
    current_stacks: CurrentStacks

    def look_at(self, step: UnusualStep) -> None:
        """Count a step that is about to be stored, and warn if it is one of many."""

    def start_episodes(self, frames: Any, env_ids: Any, starts: RunStarts = NO_RUN) -> None:
        """Start an episode in each of ``env_ids``."""

    def store_step(self, step: Step, starts: RunStarts = NO_RUN) -> None:
        """Store one step of each environment; ``starts``: the runs that next observations begin."""


def add_step(target: StepTarget, observation: Any, step: Step) -> None:
    """Store a step given with whole observations; its ``frames`` are the next one.

    An observation that is the environment's current one, bit for bit, continues its episode if that is open. Any other
    one begins an episode. A next observation that is not the observation shifted by one frame begins a run.

    Raises:
        InvalidStepError: an argument that breaks a rule; nothing is stored.
    """
    layout = target.settings.layout
    env_ids, action, reward, terminated, truncated, next_observation, extras = step
    observations: Sequence[Any] = layout.spec.flatten(observation, "observation")
    next_observations: Sequence[Any] = layout.spec.flatten(next_observation, "next_observation")
    observations, next_observations, is_one = layout.as_rows(observations, next_observations)
    all_envs = target.current_stacks.all_envs
    if env_ids is not None:
        is_number = type(env_ids) is int or getattr(env_ids, "ndim", 1) == 0
        env_ids = check_env_ids([env_ids] if is_number else env_ids, all_envs)
    num_envs = len(all_envs if env_ids is None else env_ids)
    if is_one and num_envs != 1:
        _refuse_one(layout, observations[0].shape[1:], env_ids, num_envs)
    if num_envs == 1:
        shape = target.settings.action.shape
        action = [action] if type(action) is int and not shape else _as_row(layout, "action", action, shape)
        reward = [reward] if isinstance(reward, float) else _as_row(layout, "reward", reward)
        terminated = [terminated] if type(terminated) is bool else _as_flag(layout, "terminated", terminated)
        truncated = [truncated] if type(truncated) is bool else _as_flag(layout, "truncated", truncated)
        if extras is not None and isinstance(extras, Mapping):
            shapes = {spec.name: spec.shape for spec in target.settings.extras.extras}
            extras = {
                name: _as_row(layout, f"extra {name!r}", value, shapes[name]) if name in shapes else value
                for name, value in extras.items()
            }
    else:
        terminated, truncated = as_flags("terminated", terminated), as_flags("truncated", truncated)
    step = step_of((env_ids, action, reward, terminated, truncated, next_observations, extras))
    _store_observations(target, observations, step, has_env_axis=not is_one)


def _as_row(layout: ObservationLayout, name: str, value: Any, shape: tuple[int, ...] = ()) -> npt.NDArray[Any]:
    """Return a value of one environment, given with the axis of environments or without, as a row ``(1, *shape)``."""
    array: npt.NDArray[Any] = value if type(value) is np.ndarray else as_array(name, value, InvalidStepError)
    if array.shape == shape:
        return array[None]
    if array.shape == (1, *shape):
        return array
    way_out = ONE_ENVIRONMENT_S if array.ndim and layout.has_axis_of(len(array)) else "give that of one environment"
    raise InvalidStepError(
        f"{name} has shape {array.shape}: the observation is of one environment, which takes {shape} or {(1, *shape)}; "
        f"{way_out}"
    )


def _as_flag(layout: ObservationLayout, name: str, value: Any) -> Any:
    """Return a boolean, or a number equal to 0 or 1, as a row."""
    return _as_row(layout, name, as_flags(name, value))


def _refuse_one(layout: ObservationLayout, shape: tuple[int, ...], env_ids: Any, num_envs: int) -> NoReturn:
    """Raise the error about an observation of one environment in a step of several, or of none."""
    subscript = layout.arrays[0].subscript
    if env_ids is not None:
        raise InvalidStepError(
            f"env_ids is {env_ids.tolist()}: the observation{subscript} of shape {shape} is of one environment; give "
            "its number alone, or the observations of all these along a first axis"
        )
    way_out = "give env_ids=i, the number of that environment, or the observations of all along a first axis"
    raise InvalidStepError(
        f"observation{subscript} has shape {shape}: it is of one environment, and this memory has {num_envs}; "
        f"{ONE_ENVIRONMENT_S if layout.has_axis_of(num_envs) else way_out}"
    )


def append_observations(target: StepTarget, step: Step) -> None:
    """Store a step that has whole next observations as its frames; its observations are the current ones.

    Raises:
        InvalidStepError: an argument that breaks a rule, or an environment without an open episode; nothing is stored.
    """
    stacks = target.current_stacks
    env_ids, actions, rewards, terminated, truncated, next_observation, extras = step
    chosen = check_env_ids(env_ids, stacks.all_envs)
    check_episodes_are_open(stacks.is_open, chosen)
    observed = target.settings.layout.flatten(next_observation, "next_observation")
    _store_observations(target, None, step_of((chosen, actions, rewards, terminated, truncated, observed, extras)))


def _store_observations(
    target: StepTarget, observations: Sequence[Any] | None, step: Step, has_env_axis: bool = True
) -> None:
    """Store a step whose frames are whole next observations; ``None`` for the observations: the current ones.

    The native comparison gives the new frames of the usual forms. It returns ``None`` for other forms, which are then
    checked and converted, and compared again. A step that begins an episode or a run has all its values checked first,
    because ``start_episodes`` and ``store_step`` store it in two calls.
    """
    settings, stacks = target.settings, target.current_stacks
    layout = settings.layout
    env_ids, actions, rewards, terminated, truncated, next_observations, extras = step
    unstacked = stacks.unstack(env_ids, observations, next_observations)
    if unstacked is not None and unstacked[1] is None:  # the usual step: only its newest frames are new
        target.store_step(step_of((env_ids, actions, rewards, terminated, truncated, unstacked[0], extras)))
        return
    env_ids = stacks.all_envs if env_ids is None else env_ids
    are_one: tuple[bool, ...] = ()
    if observations is not None:
        are_one = tuple(map(_lie_in_one_place, observations, next_observations))
        observations = layout.check(observations, len(env_ids), "observation", has_env_axis=has_env_axis)
    next_observations = layout.check(next_observations, len(env_ids), "next_observation", has_env_axis=has_env_axis)
    unstacked = stacks.unstack(env_ids, observations, next_observations)
    assert unstacked is not None, "observations are checked"
    frames, flags = unstacked
    step = step._replace(env_ids=env_ids, frames=frames)
    if flags is None:
        target.store_step(step)
        return
    step = check_values(settings, step)
    begins, is_border = flags & CONTINUES == 0, flags & SHIFTED == 0
    episodes = runs = NO_RUN
    first: Arrays = []
    if observations is not None and begins.any():
        first = layout.split([part[begins] for part in observations])
        episodes = RunStarts.of_stacks(first, settings.stack_padding)
    if is_border.any():
        runs = RunStarts.of_stacks(layout.split(next_observations), settings.stack_padding, is_border)
    target.look_at(UnusualStep(env_ids, observations, next_observations, begins, is_border, episodes, runs, are_one))
    if first:
        target.start_episodes(_newest_frames(first), env_ids[begins], episodes)
    target.store_step(step, runs)


def begin_episodes(target: StepTarget, observations: Any, env_ids: npt.NDArray[np.int32]) -> None:
    """Start an episode in each of ``env_ids`` with a whole observation.

    Raises:
        InvalidStepError: an observation breaks a rule; nothing is stored.
    """
    layout, padding = target.settings.layout, target.settings.stack_padding
    stacks = layout.split(layout.check(layout.flatten(observations), len(env_ids)))
    target.start_episodes(_newest_frames(stacks), env_ids, RunStarts.of_stacks(stacks, padding))


def _newest_frames(stacks: Arrays) -> Frames:
    return tuple(np.ascontiguousarray(part[:, -1]) for part in stacks)


def _lie_in_one_place(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether two arrays have the same elements in memory; those that only overlap do not."""
    starts = (array.__array_interface__["data"][0] for array in (one, other))
    return one.shape == other.shape and one.strides == other.strides and next(starts) == next(starts)


def equal_rows(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which rows of two arrays of equal shape and dtype are equal, bit for bit.

    >>> equal_rows(np.array([[1.0, np.nan], [0.0, 2.0]]), np.array([[1.0, np.nan], [-0.0, 2.0]]))
    array([ True, False])
    """
    if some[:1].size == 0:
        return np.ones(len(some), np.bool_)
    equal: npt.NDArray[np.bool_] = (_as_words(some) == _as_words(others)).all(axis=1)
    return equal


def _as_words(rows: npt.NDArray[Any]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return rows as their largest possible words: comparing words is quicker than comparing bytes."""
    flat = rows.reshape(len(rows), -1)
    if flat.strides[1] != flat.itemsize:
        flat = np.ascontiguousarray(flat)
    return flat.view(f"u{math.gcd(flat.shape[1] * flat.itemsize, 8)}")
