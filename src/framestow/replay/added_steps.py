"""Whole observations in, frames out: what ``ReplayMemory.add`` does.

Of an observation only the newest frame is new, as a rule, because the older ones are stored already. Where that does
not hold, a run of frames begins that brings its older frames along (its *lead-ins*), so any observation can be stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from framestow._core import unstack
from framestow.argument_checks import as_array
from framestow.errors import InvalidStepError
from framestow.frames.observation_spec import Frames, ObservationSpec, map_arrays
from framestow.frames.stacking import BY_SETTING, LEAD_INS, ZEROS, StackPadding
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.observation_layout import Arrays
from framestow.replay.step_checks import (
    GivenStep,
    check_env_ids,
    check_episodes_are_open,
    check_flags,
    check_rewards,
)

CONTINUES, SHIFTED = 1, 2  # bits of flags, which the native ``unstack`` clears


class Step(NamedTuple):
    """The arguments of ``ReplayMemory.add``."""

    observation: Any
    action: Any
    reward: Any
    next_observation: Any
    terminated: Any
    truncated: Any
    env_ids: Any = None
    extras: Mapping[str, npt.ArrayLike] | None = None

    def with_env_axis(self) -> Step:
        """Return the step of one environment, given without an axis of environments, with that axis."""
        return Step(
            map_arrays(partial(_of_one_env, "observation"), self.observation),
            [self.action],
            [self.reward],
            map_arrays(partial(_of_one_env, "next_observation"), self.next_observation),
            [self.terminated],
            [self.truncated],
            None if self.env_ids is None else [self.env_ids],
            {name: _of_one_env(f"extra {name!r}", value) for name, value in self.extras.items()}
            if isinstance(self.extras, Mapping)
            else self.extras,
        )


def _of_one_env(name: str, value: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = value if type(value) is np.ndarray else as_array(name, value, InvalidStepError)
    return array[None]


class CurrentStacks(NamedTuple):
    """The newest frames of all environments, which ``unstack`` compares with an observation."""

    all_envs: npt.NDArray[np.int32]
    is_open: npt.NDArray[np.bool_]
    rings: Sequence[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]  # of each array, as of a FrameStacker


class RunStarts(NamedTuple):
    """How the runs that begin with some frames are padded: the arguments of ``FrameStorage.append``."""

    paddings: npt.NDArray[np.uint8]  # of each row; 0 where the run goes on
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
        lead_ins = tuple(np.ascontiguousarray(part[:, :-1]) for part in stacks)
        return cls(paddings, lead_ins if len(lead_ins) > 1 else lead_ins[0])

    def of_row(self, row: int) -> RunStarts:
        """Return the same of one row, with its axis."""
        return RunStarts(self.paddings[row : row + 1], None if self.lead_ins is None else rows_of(self.lead_ins, row))


def rows_of(frames: Frames, row: int) -> Frames:
    """Return one row of frames of one or several arrays, with its axis."""
    one = slice(row, row + 1)
    return tuple(part[one] for part in frames) if isinstance(frames, tuple) else frames[one]


class StepTarget(Protocol):
    """What ``add_step`` stores steps in: a ``ReplayMemory``, or a writer of a shard."""

    _settings: MemorySettings

    @property
    def _current_stacks(self) -> CurrentStacks: ...

    def _stacks_of_envs(self) -> Arrays:
        """Return copies of the current stacks of all environments, one array per array."""

    def _begin(self, frames: Any, env_ids: Any, starts: RunStarts | None = None) -> None:
        """Start an episode in each of ``env_ids``."""

    def _append(self, step: GivenStep, starts: RunStarts | None = None) -> None:
        """Store one step of each environment; ``starts``: the runs that next observations begin."""


def add_step(target: StepTarget, step: Step) -> None:
    """Store a step given with whole observations.

    An observation that is the environment's current one, bit for bit, continues its episode if that is open. Any other
    one begins an episode. A next observation that is not the observation shifted by one frame begins a run.

    Raises:
        InvalidStepError: an argument that breaks a rule; nothing is stored.
    """
    if isinstance(step.terminated, (bool, np.bool_)):
        step = step.with_env_axis()
    settings = target._settings
    layout = settings.layout
    env_ids, is_open, rings = target._current_stacks
    if step.env_ids is not None:
        env_ids = check_env_ids(step.env_ids, env_ids)
    observations = layout.check(step.observation, len(env_ids), "observation")
    next_observations = layout.check(step.next_observation, len(env_ids), "next_observation")
    flags = np.empty(len(env_ids), np.uint8)
    flags.fill(CONTINUES | SHIFTED)
    frames, is_usual = [], False
    for (recent, ages), before, after, pieces in zip(
        rings, observations, next_observations, layout.pieces, strict=True
    ):
        newest = np.empty((len(env_ids), *recent.shape[2:]), recent.dtype)
        is_usual = unstack(
            recent, ages, settings.stack_padding, env_ids, is_open, before, after, *pieces, newest, flags
        )
        frames.append(newest)
    space = layout.frame_space
    new_frames = space.rebuild(tuple(frames)) if isinstance(space, ObservationSpec) else frames[0]
    given = env_ids, step.action, step.reward, step.terminated, step.truncated, new_frames, step.extras
    if is_usual:
        target._append(given)
        return
    _check_values(settings, step, len(env_ids))
    begins, is_border = flags & CONTINUES == 0, flags & SHIFTED == 0
    first = layout.split([part[begins] for part in observations])
    episodes = RunStarts.of_stacks(first, settings.stack_padding)
    runs = None
    if is_border.any():
        runs = RunStarts.of_stacks(layout.split(next_observations), settings.stack_padding, is_border)
    if begins.any():
        target._begin(_newest_frames(first), env_ids[begins], episodes)
    target._append(given, runs)


def begin_episodes(target: StepTarget, observations: Any, env_ids: npt.NDArray[np.int32]) -> None:
    """Start an episode in each of ``env_ids`` with a whole observation.

    Raises:
        InvalidStepError: an observation breaks a rule; nothing is stored.
    """
    settings = target._settings
    stacks = settings.layout.split(settings.layout.check(observations, len(env_ids)))
    target._begin(_newest_frames(stacks), env_ids, RunStarts.of_stacks(stacks, settings.stack_padding))


def append_observations(target: StepTarget, step: Step) -> None:
    """Store a step whose observation is the environment's current one.

    Raises:
        InvalidStepError: an argument that breaks a rule, or an environment without an open episode; nothing is stored.
    """
    env_ids, is_open, _ = target._current_stacks
    chosen = check_env_ids(step.env_ids, env_ids)
    check_episodes_are_open(is_open, chosen)
    current = target._settings.layout.join([part[chosen] for part in target._stacks_of_envs()])
    add_step(target, step._replace(observation=current))


def _newest_frames(stacks: Arrays) -> Frames:
    newest = tuple(np.ascontiguousarray(part[:, -1]) for part in stacks)
    return newest if len(newest) > 1 else newest[0]


def equal_rows(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which rows of two arrays of equal shape and dtype are equal, bit for bit.

    >>> equal_rows(np.array([[1.0, np.nan], [0.0, 2.0]]), np.array([[1.0, np.nan], [-0.0, 2.0]]))
    array([ True, False])
    """
    if some[:1].size == 0:
        return np.ones(len(some), np.bool_)
    equal: npt.NDArray[np.bool_] = (_as_words(some) == _as_words(others)).all(axis=1)
    return equal


WORD_BYTES = (8, 4, 2, 1)


def _as_words(rows: npt.NDArray[Any]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return rows as their largest possible words: comparing words takes a third of the time of bytes."""
    flat = rows.reshape(len(rows), -1)
    if flat.strides[1] != flat.itemsize:
        flat = np.ascontiguousarray(flat)
    row_bytes = flat.shape[1] * flat.itemsize
    return flat.view(f"u{next(word for word in WORD_BYTES if row_bytes % word == 0)}")


def _check_values(settings: MemorySettings, step: Step, num_steps: int) -> None:
    """Raise the errors of ``append`` for everything but frames, before an episode begins."""
    settings.action.check_actions(step.action, num_steps)
    check_rewards(step.reward, num_steps)
    check_flags("terminated", step.terminated, num_steps)
    check_flags("truncated", step.truncated, num_steps)
    settings.extras.check_extras(step.extras, num_steps)
