"""Pairs of an observation and the next one, as other libraries feed their buffers, become the steps of a memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError
from framestow.frames.observation_spec import map_arrays
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.observation_layout import (
    Arrays,
    ObservationLayout,
    equal_rows,
    layouts_of_depth,
    layouts_to_try,
)
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory


def memory_to_bytes(memory: ReplayMemory) -> dict[str, bytes]:
    """Give what ``memory.save`` writes, by file name: about what the memory takes packed, and on disk for a moment."""
    with TemporaryDirectory(prefix="framestow-") as folder:
        memory.save(folder)
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }


def memory_from_bytes(files: dict[str, bytes], threads: int = 1) -> ReplayMemory:
    """Give the memory back, generator and open episodes included; every byte is checked.

    ``threads``: as for a new memory, since they are not saved. Raises ``DamagedDataError`` for bytes that are not what
    was saved.
    """
    with TemporaryDirectory(prefix="framestow-") as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return ReplayMemory.load(folder, threads=threads)


def num_steps_taken(memory: ReplayMemory) -> int:
    """Count the steps that ever came to a memory of retention ``"fifo"`` and ``n_step`` 1; takes a time as ``len``.

    Steps are numbered as they come, and the newest is always held. After Ctrl-C in ``append`` this alone tells whether
    the step is there: a memory finishes what it has begun.
    """
    indices = memory.sampleable_indices()
    return int(indices[-1]) + 1 if indices.size else 0


class PairedStep(NamedTuple):
    """One step of every stream: as ``ReplayMemory.append`` has it, with both observations ``(num_envs, *shape)``."""

    observations: Any
    actions: npt.ArrayLike
    rewards: npt.ArrayLike
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    next_observations: Any
    extras: Mapping[str, npt.ArrayLike] | None = None


class _Row(NamedTuple):
    """What is noted of a row once the memory has it."""

    number: int
    next_observations: Arrays
    is_shifted: npt.NDArray[np.bool_]


class StackedFeed:
    """Takes the steps whose observations are what ``layout`` says, and stores the newest frame of each.

    A next observation is its observation moved on by a frame, or, where a library gives that for a step that ended its
    episode, the first one of the next episode (CleanRL does, where the episode terminated). Of the latter a bit is kept
    too, so that it comes back as it came.

    ``first_row``: number of the first row that comes; a row is one step of each stream.

    A step that is refused leaves everything as it was, but for an episode that it began: the next step goes on with
    that one if it has the same observation. After an interrupt (Ctrl-C) at any moment the step is here whole or not at
    all, which ``num_rows`` tells.
    """

    def __init__(self, layout: ObservationLayout, memory: ReplayMemory, first_row: int) -> None:
        self.layout, self.memory = layout, memory
        self.first_row = self.num_rows = first_row
        self._newest: Arrays = [leaf.frame.empty(memory.num_envs) for leaf in layout.leaves]
        """The observation that each stream's newest frame ends, where ``_is_known`` says so."""
        self._is_known = np.zeros(memory.num_envs, bool)
        self.episode_rows = np.full(memory.num_envs, first_row, np.int64)
        """The row with which each stream's newest episode began, or will begin."""
        self._shows_next_episode: npt.NDArray[np.uint8] | None = None
        """A bit a step of the memory, where there was a next observation that began the next episode."""

    @property
    def oldest_row(self) -> int:
        """Number of the oldest row that is held."""
        return max(self.first_row, self.num_rows - self.memory.capacity // self.memory.num_envs)

    def add(self, step: PairedStep) -> bool:
        """Store the step, unless the memory would show other observations than these: then give ``False``.

        Raises ``InvalidStepError`` for what a memory refuses.
        """
        num_envs = self.memory.num_envs
        observations, next_observations = (
            self.layout.arrays_of(part, num_envs) for part in (step.observations, step.next_observations)
        )
        stacks, next_stacks = map(self.layout.stacks_of, (observations, next_observations))
        begins, is_shifted = ~self._continues_episode(observations), self._is_shifted(stacks, next_stacks)
        if not (self._are_padded(stacks, begins) and self._are_padded(next_stacks, ~is_shifted)):
            return False
        if begins.any():
            self._begin(observations, stacks, np.flatnonzero(begins))
        self._append(step, next_stacks, _Row(self.num_rows, next_observations, is_shifted))
        return True

    def start_new_episodes(self, streams: npt.NDArray[Any] | slice = slice(None)) -> None:
        """Let the next step of these streams, all by default, begin an episode, whatever its observation is."""
        self._is_known[streams] = False

    def copy_known_streams(self, other: StackedFeed) -> None:
        """Let the next step begin an episode in the streams where it does for ``other``."""
        self._is_known &= other._is_known

    def indices(self, rows: npt.ArrayLike, streams: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Give the memory's indices of the steps in these rows and streams, which broadcast."""
        rows, streams = np.asarray(rows, np.int64), np.asarray(streams, np.int64)
        return np.asarray((rows - self.first_row) * self.memory.num_envs + streams)

    def transitions(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Give the transitions with these indices, ``(n,)``, observations as they came, ``(n, *shape)``."""
        return self.to_library(self.memory.get(indices))

    def to_library(self, batch: Batch) -> Batch:
        """Give a batch of the memory with observations as they came."""
        next_observation = batch.next_observation
        if self._shows_next_episode is not None:
            next_observation = self._with_next_episodes(next_observation, batch.index)
        return replace(
            batch,
            observation=self.layout.to_library(batch.observation),
            next_observation=self.layout.to_library(next_observation),
        )

    def _continues_episode(self, observations: Arrays) -> npt.NDArray[np.bool_]:
        """Which streams' observations are the next observations of the row before."""
        continues = self.memory.open_episodes & self._is_known
        for part, newest in zip(observations, self._newest, strict=True):
            continues &= equal_rows(part, newest)
        return continues

    def _is_shifted(self, stacks: Arrays, next_stacks: Arrays) -> npt.NDArray[np.bool_]:
        """Which next observations are the observations moved on by a frame."""
        is_shifted = np.ones(self.memory.num_envs, bool)
        if self.layout.depth > 1:
            for part, after in zip(stacks, next_stacks, strict=True):
                is_shifted &= equal_rows(part[:, 1:], after[:, :-1])
        return is_shifted

    def _are_padded(self, stacks: Arrays, streams: npt.NDArray[np.bool_]) -> bool:
        """Whether the stacks of these streams are an episode's first observation as the memory would show it."""
        if self.layout.depth == 1 or not streams.any():
            return True
        return bool(self.layout.is_padded([part[streams] for part in stacks]).all())

    def _begin(self, observations: Arrays, stacks: Arrays, streams: npt.NDArray[Any]) -> None:
        self._is_known[streams] = False
        self.episode_rows[streams] = self.num_rows
        self.memory.begin(self.layout.newest_of([part[streams] for part in stacks]), streams)
        for newest, part in zip(self._newest, observations, strict=True):
            newest[streams] = part[streams]
        self._is_known[streams] = True

    def _append(self, step: PairedStep, next_stacks: Arrays, row: _Row) -> None:
        frames = self.layout.newest_of(next_stacks)
        try:
            self.memory.append(step.actions, step.rewards, step.terminated, step.truncated, frames, extras=step.extras)
            self._record_row(row)
        except InvalidStepError:
            raise
        except BaseException:  # Ctrl-C: a memory finishes the step that it has begun
            if self.first_row + num_steps_taken(self.memory) // self.memory.num_envs > row.number:
                self._record_row(row)
            raise

    def _record_row(self, row: _Row) -> None:
        """Note what the newest row was; the same however often it is called."""
        self._is_known[:] = False
        self.num_rows = row.number + 1
        self._mark_next_episodes(row)
        for newest, part in zip(self._newest, row.next_observations, strict=True):
            np.copyto(newest, part)
        np.copyto(self._is_known, row.is_shifted)  # elsewhere the next episode was shown, and has to begin

    def _mark_next_episodes(self, row: _Row) -> None:
        """Keep for a row which next observations are first ones of the next episode."""
        if self._shows_next_episode is None:
            if row.is_shifted.all():
                return
            self._shows_next_episode = np.zeros(-(-self.memory.capacity // 8), np.uint8)
        places = self.indices(row.number, np.arange(self.memory.num_envs)) % self.memory.capacity
        if row.is_shifted.all() and not self._shows_next_episode[places // 8].any():
            return
        bits = np.left_shift(1, places % 8).astype(np.uint8)
        np.bitwise_and.at(self._shows_next_episode, places // 8, ~bits)
        np.bitwise_or.at(self._shows_next_episode, places // 8, bits * ~row.is_shifted)

    def _with_next_episodes(self, next_observation: Any, indices: npt.NDArray[np.int64]) -> Any:
        """Put the first observation of the next episode where that came."""
        assert self._shows_next_episode is not None
        places = indices % self.memory.capacity
        shows = np.flatnonzero(self._shows_next_episode[places // 8] >> (places % 8) & 1)
        return self.layout.padded_at(next_observation, shows) if shows.size else next_observation

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": memory_to_bytes(self.memory), "threads": self.memory._settings.threads}

    def __setstate__(self, state: dict[str, Any]) -> None:
        memory = memory_from_bytes(state["memory"], state.pop("threads"))
        self.__dict__ |= {**state, "memory": memory}


MakeMemory: TypeAlias = Callable[[Any, int, StackPadding], ReplayMemory]
"""Makes a buffer's memory, given its observation space, stack and padding, with all else as the buffer has it. It must
hold whole rows: retention ``"fifo"``, no budget, ``n_step`` 1, a capacity that is a multiple of the streams."""

ROWS_AT_ONCE = 64  # are read together where a memory is made anew

_log = logging.getLogger(__name__)


class PairedSteps:
    """Feeds a memory with (observation, next observation), keeping every frame once.

    Other libraries give their buffers both observations of a step, each a whole stack. Here a step's observation is
    compared, bit for bit, with the next observation of the step before it. Where they differ an episode begins, whether
    or not the library told that the one before had ended (CleanRL does not tell a truncation: its issue 460). Of each
    next observation only the newest frame is stored.

    How observations are stacked, and what pads the first ones, shows in the steps. The layout that takes the fewest
    bytes is tried first. Where a step contradicts it, the memory is made anew under the next one, with all that it
    holds (``layouts_to_try``); the last one keeps whole observations, which fits any step. So what is given back is bit
    for bit what came. This happens at the first step, or at a beginning of an episode soon after it.

    A *row* is one call of ``add``, a step of each stream; rows are numbered from 0, and the newest are held.
    """

    def __init__(
        self,
        make_memory: MakeMemory,
        space: Any,
        frame_stack: int | None = None,
        layouts: Sequence[ObservationLayout] = (),
    ) -> None:
        """``frame_stack``: frames of an observation, ``None`` finds out; ``InvalidSettingsError`` if it cannot be.

        ``layouts`` are tried in its place, where a library settles how observations are stacked.
        """
        self._make_memory, self._frame_stack = make_memory, frame_stack
        self._layouts = list(layouts) or (
            layouts_to_try(space) if frame_stack is None else layouts_of_depth(space, frame_stack)
        )
        self._feed = self._make_feed(self._layouts[0], 0)

    @property
    def memory(self) -> ReplayMemory:
        """What holds the steps; another one after a step that contradicted the layout."""
        return self._feed.memory

    @property
    def layout(self) -> ObservationLayout:
        """How observations are stacks of the memory's frames."""
        return self._feed.layout

    @property
    def num_rows(self) -> int:
        """How many rows came, and so the number of the next one."""
        return self._feed.num_rows

    @property
    def oldest_row(self) -> int:
        """Number of the oldest row that is held."""
        return self._feed.oldest_row

    @property
    def episode_rows(self) -> npt.NDArray[np.int64]:
        """The row with which each stream's newest episode began, ``(num_envs,)``, where it is held."""
        return self._feed.episode_rows

    def add(
        self,
        observations: Any,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        next_observations: Any,
        extras: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        """Store one step of every stream.

        ``observations``, ``next_observations``: ``(num_envs, *shape)``, of the space's dtype; copied. The others are
        those of ``ReplayMemory.append``. Raises ``InvalidStepError`` before the step is stored.
        """
        step = PairedStep(observations, actions, rewards, terminated, truncated, next_observations, extras)
        if not self._feed.add(step):
            self._change_layout(step)

    def indices(self, rows: npt.ArrayLike, streams: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Give the memory's indices of the steps in these rows and streams, which broadcast."""
        return self._feed.indices(rows, streams)

    def transitions(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Give the transitions with these indices, ``(n,)``, observations as they came, ``(n, *shape)``.

        Raises ``NothingToSampleError`` for one that is not held.
        """
        return self._feed.transitions(indices)

    def to_library(self, batch: Batch) -> Batch:
        """Give a batch that the memory made with observations as they came."""
        return self._feed.to_library(batch)

    def start_new_episodes(self) -> None:
        """Let the next step of every stream begin an episode, whatever its observation is."""
        self._feed.start_new_episodes()

    def _make_feed(self, layout: ObservationLayout, first_row: int) -> StackedFeed:
        return StackedFeed(layout, self._make_memory(layout.frame_space, layout.depth, layout.padding), first_row)

    def _change_layout(self, step: PairedStep) -> None:
        """Take the first layout that explains this step and all that is held."""
        old = self._feed
        for layout in self._layouts[self._layouts.index(old.layout) + 1 :]:
            feed = self._make_feed(layout, old.oldest_row)
            if _copy_rows(old, feed) and feed.add(step):
                if old.num_rows:
                    _log_rebuild(old, layout)
                self._feed = feed
                return
        raise InvalidStepError(
            f"row {old.num_rows}: the observations are not stacks of {self._frame_stack} frames, each the one before "
            "it moved on by a frame, or the padded beginning of an episode; leave frame_stack out: then whole "
            "observations are kept if need be"
        )


def _log_rebuild(old: StackedFeed, layout: ObservationLayout) -> None:
    """Log that memory is made anew: as a warning where it takes more bytes from now on."""
    level = logging.WARNING if layout.depth < old.layout.depth else logging.INFO
    message = "row %d is no stack of %d frames as those before it: memory made anew for stacks of %d, padding %s"
    _log.log(level, message, old.num_rows, old.layout.depth, layout.depth, layout.padding)


def _copy_rows(old: StackedFeed, new: StackedFeed) -> bool:
    """Feed ``new`` with all rows of ``old``; give ``False`` where its layout does not explain them."""
    num_envs = old.memory.num_envs
    for first in range(old.oldest_row, old.num_rows, ROWS_AT_ONCE):
        rows = np.arange(first, min(first + ROWS_AT_ONCE, old.num_rows))
        batch = old.transitions(old.indices(rows[:, None], np.arange(num_envs)).ravel())
        for row in range(len(rows)):
            if not new.add(_row_of(batch, slice(row * num_envs, (row + 1) * num_envs))):
                return False
    new.copy_known_streams(old)
    return True


def _row_of(batch: Batch, at: slice) -> PairedStep:
    observation, next_observation = (
        map_arrays(lambda part: part[at], part) for part in (batch.observation, batch.next_observation)
    )
    extras = {name: column[at] for name, column in batch.extras.items()} if batch.extras else None
    return PairedStep(
        observation,
        batch.action[at],
        batch.reward[at],
        batch.terminated[at],
        batch.truncated[at],
        next_observation,
        extras,
    )


class StepSequences(NamedTuple):
    """Up to ``length`` steps from each of ``B`` on: fewer where their episode ended before, or goes on to the newest.

    ====================  ===============  =======  ==============================================
    field                 shape            dtype    meaning
    ====================  ===============  =======  ==============================================
    ``observation``       ``(B, *shape)``           what the policy saw at the first one
    ``action``            ``(B, ...)``              what it did there
    ``rewards``           ``(B, length)``  float32  what each gave; 0 where there is none
    ``is_step``           ``(B, length)``  bool     whether there is one
    ``next_observation``  ``(B, *shape)``           what the last one led to
    ``terminated``        ``(B,)``         bool     the episode ended there by its own rules
    ====================  ===============  =======  ==============================================
    """

    observation: Any
    action: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    is_step: npt.NDArray[np.bool_]
    next_observation: Any
    terminated: npt.NDArray[np.bool_]


def steps_following(steps: PairedSteps, first: npt.NDArray[np.int64], length: int) -> StepSequences:
    """Look up what follows on the memory's indices ``first``, ``(B,)``, observations as they came."""
    if length == 1:
        one = steps.transitions(first)
        rewards = one.reward[:, None]
        return StepSequences(
            one.observation, one.action, rewards, np.ones_like(rewards, bool), one.next_observation, one.terminated
        )
    held, count = steps.memory.steps_from(first, length), len(first)
    is_step = held.index >= 0
    last = held.index[np.arange(count), is_step.sum(axis=1) - 1]
    both = steps.transitions(np.concatenate([first, last]))
    return StepSequences(
        map_arrays(lambda part: part[:count], both.observation),
        both.action[:count],
        held.reward,
        is_step,
        map_arrays(lambda part: part[count:], both.next_observation),
        both.terminated[count:],
    )
