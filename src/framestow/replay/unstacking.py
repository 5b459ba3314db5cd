"""Stacked observations in, frames out: what ``ReplayMemory.add`` does.

An ``Unstacker`` takes steps with whole observations, as libraries have them. Of each observation it stores only the
newest frame, because the older ones are stored already. It finds out how observations are stacked
(``observation_layouts``) and where episodes begin.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from framestow._core import unstack
from framestow.argument_checks import as_array
from framestow.errors import InvalidStepError
from framestow.frames.observation_spec import each_array, map_arrays
from framestow.frames.stacking import StackPadding
from framestow.replay.batch import Batch
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.observation_layouts import Arrays, ObservationLayout, possible_layouts
from framestow.replay.step_checks import check_env_ids, check_flags, check_rewards

if TYPE_CHECKING:
    from framestow.replay.memory import ReplayMemory

CONTINUES, SHIFTED = 1, 2  # bits of flags, which the native ``unstack`` clears
STEPS_AT_ONCE = 64  # read together when steps are stored again

_log = logging.getLogger(__name__)


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


class StepTarget(Protocol):
    """What an ``Unstacker`` stores steps in: a ``ReplayMemory``, or a writer whose stack and padding are given."""

    _settings: MemorySettings

    @property
    def num_envs(self) -> int:
        """Number of environments."""

    @property
    def stack(self) -> int:
        """Number of frames of an observation."""

    @property
    def _current_stacks(self) -> CurrentStacks: ...

    def begin(self, frames: Any, env_ids: Any = None) -> None:
        """Start an episode in each of ``env_ids``."""

    def append(
        self,
        actions: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        frames: Any,
        env_ids: Any = None,
        extras: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        """Store one step of each of ``env_ids``."""


class Unstacker:
    """Stores the steps of ``ReplayMemory.add``: of each observation only the frame that is not stored yet.

    *Layout*: the first step shows how observations are stacked; the most compact layout that fits is used. If a later
    step contradicts it, all stored steps are stored again under the next layout, with the same indices. The last one
    keeps whole observations and fits every step. If the stack was given, a contradiction raises instead.

    *Episodes*: a step continues its environment's episode if that is open and the observation equals the memory's
    current stack, bit for bit. Otherwise it begins an episode, with or without an end flag before.

    So only the layout is remembered between two steps. A loaded memory continues its episodes, and the next step shows
    the layout again.

    With ``restores_next``, for libraries whose next observation at the end of an episode is the first one of the next
    episode, ``to_library`` restores these. That takes a bit a step and a memory that evicts the oldest step first.
    """

    def __init__(
        self,
        stack: int | None = None,
        padding: StackPadding | None = None,
        layouts: Sequence[ObservationLayout] = (),
        least_stack: int = 1,
        restores_next: bool = False,
    ) -> None:
        """Arguments of the memory, ``None`` if not given, and what only drop-ins set.

        ``layouts``: the possible layouts, if they do not depend on the first step. ``least_stack``: the memory's stack
        if ``add`` takes single frames.
        """
        self._stack, self._padding, self._restores_next = stack, padding, restores_next
        self._least_stack = least_stack
        self._layouts = list(layouts)
        self.layout: ObservationLayout | None = None
        """How observations are stacked; ``None`` before the first step."""
        self._must_begin: npt.NDArray[np.bool_] | None = None
        self._shows_next_episode: npt.NDArray[np.uint8] | None = None
        """One bit per step: whether its next observation is the first of the next episode. ``None`` if none is."""

    def add(self, memory: StepTarget, step: Step) -> None:
        """Store ``step`` in ``memory``; raise ``InvalidStepError`` before anything is stored."""
        if isinstance(step.terminated, (bool, np.bool_)):
            step = step.with_env_axis()
        if self.layout is None:
            self._learn(memory, step)
            return
        contradiction = self._store(memory, step)
        if contradiction:
            others = self._layouts[self._layouts.index(self.layout) + 1 :]
            self._store_again(memory, step, others, contradiction)

    def begin_anew(self, num_envs: int) -> None:
        """Begin an episode with the next step of every environment, whatever its observation is."""
        self._must_begin = np.ones(num_envs, bool)

    def to_library(self, batch: Batch) -> Batch:
        """Return a batch of the memory with observations of the shape that ``add`` took."""
        assert self.layout is not None, "a memory has a layout when it has a step"
        next_observation, marks = batch.next_observation, self._shows_next_episode
        if marks is None and self.layout.is_as_stored:
            return batch
        if marks is not None:
            offsets, bits = np.divmod(batch.index % (8 * len(marks)), 8)
            shows = np.flatnonzero(marks[offsets] >> bits & 1)
            if shows.size:
                next_observation = self.layout.pad_rows(next_observation, shows)
        return replace(
            batch,
            observation=self.layout.to_library(batch.observation),
            next_observation=self.layout.to_library(next_observation),
        )

    # A step under the layout

    def _store(self, memory: StepTarget, step: Step) -> str:
        """Store ``step`` and return ``""``, or return which of its observations contradicts the layout."""
        layout = self.layout
        assert layout is not None
        env_ids, is_open, rings = memory._current_stacks
        if step.env_ids is not None:
            env_ids = check_env_ids(step.env_ids, env_ids)
        observations = layout.arrays_of(step.observation, len(env_ids), "observation")
        next_observations = layout.arrays_of(step.next_observation, len(env_ids), "next_observation")
        if self._must_begin is not None:
            is_open = is_open & ~self._must_begin
        flags = np.empty(len(env_ids), np.uint8)
        flags.fill(CONTINUES | SHIFTED)
        frames, is_usual = [], False
        for (recent, ages), before, after, pieces in zip(
            rings, observations, next_observations, layout.pieces, strict=True
        ):
            newest = np.empty((len(env_ids), *recent.shape[2:]), recent.dtype)
            padding = memory._settings.stack_padding
            is_usual = unstack(recent, ages, padding, env_ids, is_open, before, after, *pieces, newest, flags)
            frames.append(newest)
        if not is_usual:
            _check_values(memory, step, len(env_ids))
            begins, is_shifted = flags & CONTINUES == 0, flags & SHIFTED != 0
            stacks = layout.stacks_of(observations)
            contradiction = self._contradiction(step, env_ids, stacks, layout.stacks_of(next_observations), flags)
            if contradiction:
                return contradiction
            if begins.any():
                self._begin(memory, layout.newest_of([part[begins] for part in stacks]), env_ids[begins])
            if self._restores_next:
                self._mark(cast("ReplayMemory", memory), is_shifted)
        elif self._shows_next_episode is not None:
            self._mark(cast("ReplayMemory", memory), np.ones(len(env_ids), bool))
        memory.append(
            step.action,
            step.reward,
            step.terminated,
            step.truncated,
            layout.arrange(frames),
            step.env_ids,
            step.extras,
        )
        return ""

    def _contradiction(
        self,
        step: Step,
        env_ids: npt.NDArray[np.int32],
        stacks: Arrays,
        next_stacks: Arrays,
        flags: npt.NDArray[np.uint8],
    ) -> str:
        """Return which observation the layout cannot restore, and why; ``""`` if there is none."""
        layout = self.layout
        assert layout is not None
        strange = (flags & CONTINUES == 0) & ~layout.is_padded(stacks)
        if strange.any():
            return f"observation of environment {env_ids[strange][0]} neither continues nor begins an episode"
        is_shifted = flags & SHIFTED != 0
        strange = ~is_shifted & ~layout.is_padded(next_stacks)
        if not self._restores_next:  # the first observation of the next episode is no bootstrap value
            strange |= ~is_shifted & ~np.asarray(step.terminated)
        if strange.any():
            return f"next_observation of environment {env_ids[strange][0]} is not its observation shifted by one frame"
        return ""

    def _begin(self, memory: StepTarget, frames: Any, env_ids: npt.NDArray[np.int32]) -> None:
        memory.begin(frames, env_ids)
        if self._must_begin is not None:
            self._must_begin[env_ids] = False
            if not self._must_begin.any():
                self._must_begin = None

    def _mark(self, memory: ReplayMemory, is_shifted: npt.NDArray[np.bool_]) -> None:
        """Set the bits of the next steps. No stored step has these bits, so an interrupt does no harm."""
        marks, num_envs = self._shows_next_episode, len(is_shifted)
        if marks is None:
            if is_shifted.all():
                return
            marks = self._shows_next_episode = np.zeros((memory.capacity + num_envs) // 8 + 1, np.uint8)
        numbers = (_next_index(memory) + np.arange(num_envs)) % (8 * len(marks))
        bits = np.left_shift(1, numbers % 8).astype(np.uint8)
        np.bitwise_and.at(marks, numbers // 8, ~bits)
        np.bitwise_or.at(marks, numbers // 8, bits * ~is_shifted)

    # Finding the layout

    def _learn(self, memory: StepTarget, step: Step) -> None:
        """Find the possible layouts and store the first step under the first of them that fits."""
        layouts = self._layouts
        if not layouts:
            stack, padding = self._stack, self._padding
            if (stack is None or padding is None) and not _is_new(cast("ReplayMemory", memory)):
                stack, padding = memory.stack, memory._settings.stack_padding
            num_envs = len(check_env_ids(step.env_ids, memory._current_stacks.all_envs))
            found = possible_layouts(memory._settings.frame, step.observation, num_envs, stack)
            layouts = [layout for layout in found if layout.depth == 1 or padding in (None, layout.padding)]
        self._store_again(memory, step, layouts)
        self._layouts = layouts

    def _store_again(
        self, given: StepTarget, step: Step, layouts: Sequence[ObservationLayout], contradiction: str = ""
    ) -> None:
        """Store all stored steps and then ``step`` under the first of ``layouts`` that fits them."""
        memory = cast("ReplayMemory", given)  # a writer has a stack and a padding, so all layouts are for them
        for layout in layouts:
            target, unstacker = memory, copy.copy(self)
            unstacker.layout = layout
            if not self._is_for(memory, layout):
                if not _can_change(memory):
                    continue
                target = memory._make_empty(layout.frame_space, max(layout.depth, self._least_stack), layout.padding)
                unstacker._shows_next_episode = None
                if not unstacker._copy_steps(target, self, memory):
                    continue
            reason = unstacker._store(target, step)
            contradiction = contradiction or reason
            if not reason:
                if target is not memory:
                    _log_change(memory, layout)
                    memory._adopt(target)
                self.layout, self._must_begin = layout, unstacker._must_begin
                self._shows_next_episode = unstacker._shows_next_episode
                return
        way_out = (
            "build the memory with stack=1: it keeps its stack in a directory, with random retention, with damaged "
            "steps, or with steps before the first add"
            if self._stack is None
            else "leave out stack (frame_stack of a drop-in), or make it 1, so that they are stored whole"
        )
        raise InvalidStepError(
            f"{contradiction}: the observations must be stacks of {memory.stack} frames, each shifted by one frame "
            f"from the one before, or padded ({memory._settings.stack_padding}) at the start of an episode; add steps "
            'from a reset on, give the true last observation of an episode (Gymnasium: infos["final_obs"]), or '
            f"{way_out}"
        )

    def _is_for(self, memory: ReplayMemory, layout: ObservationLayout) -> bool:
        """Return whether ``memory`` stores the frames of ``layout`` in its stacks."""
        settings, stack = memory._settings, max(layout.depth, self._least_stack)
        has_padding = stack == 1 or settings.stack_padding == layout.padding
        return settings.frame == layout.frame_space and settings.stack == stack and has_padding

    def _copy_steps(self, target: ReplayMemory, old: Unstacker, memory: ReplayMemory) -> bool:
        """Store the steps of ``memory`` in ``target``; return ``False`` if the layout of ``self`` does not fit them."""
        indices = _readable_indices(memory)
        if not indices.size:
            return True
        target._steps.restore_span(int(indices[0]), int(indices[0]))  # type: ignore[attr-defined]  # of a ring
        must_begin = self._must_begin
        for first in range(0, len(indices), STEPS_AT_ONCE):
            batch, env_ids, begins = _read_steps(memory, indices[first : first + STEPS_AT_ONCE])
            batch = old.to_library(batch)
            for row, env_id in enumerate(env_ids.tolist()):
                self._must_begin = np.arange(memory.num_envs) == env_id if begins[row] else None
                if self._store(target, _step_of(batch, row, env_id)):
                    return False
        self._must_begin = must_begin
        return True


def _is_new(memory: ReplayMemory) -> bool:
    """Return whether ``memory`` has no step, and no files."""
    return memory._directory is None and not (memory._steps.newest_positions >= 0).any()


def _can_change(memory: ReplayMemory) -> bool:
    """Return whether the steps of ``memory`` can be stored again under another layout, with the same indices."""
    if _is_new(memory):
        return True
    if memory._directory is not None or memory._settings.retention != "fifo":
        return False
    indices = _readable_indices(memory)
    return indices.size == 0 or int(indices[-1]) == _next_index(memory) - 1 == indices[0] + len(indices) - 1


def _next_index(memory: ReplayMemory) -> int:
    return int(memory._steps.next_index)  # type: ignore[attr-defined]  # of a ring


def _readable_indices(memory: ReplayMemory) -> npt.NDArray[np.int64]:
    steps = memory._steps
    return np.union1d(steps.sampleable_indices(), steps.pending)


def _read_steps(
    memory: ReplayMemory, indices: npt.NDArray[np.int64]
) -> tuple[Batch, npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Return single steps for any ``n_step``, their environments, and which of them begin an episode."""
    settings, steps = memory._settings, memory._steps
    begins = steps.follow(indices, 1)[1][:, 0]
    windows, (actions, rewards, discounts, terminated, truncated, extras) = steps.resolve_steps(indices)
    frames = settings.frame.empty(len(indices), settings.stack + 1)
    memory._storage.windows(*windows, frames, settings.stack_padding)
    observation = settings.frame.rebuild(each_array(lambda part: part[:, :-1], frames))
    next_observation = settings.frame.rebuild(each_array(lambda part: part[:, 1:], frames))
    batch = Batch(
        observation,
        actions,
        rewards,
        discounts,
        next_observation,
        indices,
        np.ones(len(indices), np.float32),
        terminated,
        truncated,
        extras,
    )
    return batch, windows[0], begins


def _step_of(batch: Batch, row: int, env_id: int) -> Step:
    rows = slice(row, row + 1)
    observation, next_observation = (
        map_arrays(lambda part: part[rows], each) for each in (batch.observation, batch.next_observation)
    )
    ends = batch.terminated[rows], batch.truncated[rows]
    extras = {name: values[rows] for name, values in batch.extras.items()} or None
    return Step(observation, batch.action[rows], batch.reward[rows], next_observation, *ends, [env_id], extras)


def _check_values(memory: StepTarget, step: Step, num_steps: int) -> None:
    """Raise the errors of ``append`` for everything but frames, before an episode begins."""
    settings = memory._settings
    settings.action.check_actions(step.action, num_steps)
    check_rewards(step.reward, num_steps)
    check_flags("terminated", step.terminated, num_steps)
    check_flags("truncated", step.truncated, num_steps)
    settings.extras.check_extras(step.extras, num_steps)


def _log_change(memory: ReplayMemory, layout: ObservationLayout) -> None:
    """Log that the stored steps were stored again, as a warning if they need more bytes from now on."""
    if _readable_indices(memory).size:
        level = logging.WARNING if layout.depth < memory.stack else logging.INFO
        message = "a step is not a stack of %d frames: the memory now stores stacks of %d frames, padding %s"
        _log.log(level, message, memory.stack, layout.depth, layout.padding)
