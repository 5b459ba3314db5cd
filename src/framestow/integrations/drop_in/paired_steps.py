"""Stores the steps of other libraries, pairs of an observation and the next one, in a memory that keeps frames once.

``PairedSteps`` detects how observations are stacked (``ObservationLayout``). A ``StackedFeed`` stores steps under one
layout. If a step contradicts the layout, ``PairedSteps`` rebuilds the memory under the next one.
"""

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
    """Return the files of ``memory.save`` by name; they are written to a temporary folder first."""
    with TemporaryDirectory(prefix="framestow-") as folder:
        memory.save(folder)
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }


def memory_from_bytes(files: dict[str, bytes], threads: int = 1) -> ReplayMemory:
    """Return the memory of ``memory_to_bytes``, with its random generator and open episodes.

    ``threads``: number of unpacking threads, which is not saved. Raises ``DamagedDataError`` if the bytes are damaged.
    """
    with TemporaryDirectory(prefix="framestow-") as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return ReplayMemory.load(folder, threads=threads)


def num_steps_taken(memory: ReplayMemory) -> int:
    """Return how many steps were ever added to a memory with ``retention="fifo"`` and ``n_step=1``.

    The newest step is always stored, and its index is its number. After Ctrl-C in ``append``, the count shows whether
    the step was stored.
    """
    indices = memory.sampleable_indices()
    return int(indices[-1]) + 1 if indices.size else 0


class PairedStep(NamedTuple):
    """One step of every stream: arguments of ``ReplayMemory.append``, with both observations ``(num_envs, *shape)``."""

    observations: Any
    actions: npt.ArrayLike
    rewards: npt.ArrayLike
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    next_observations: Any
    extras: Mapping[str, npt.ArrayLike] | None = None


class _Row(NamedTuple):
    """A row to record once the memory has stored it."""

    number: int
    next_observations: Arrays
    is_shifted: npt.NDArray[np.bool_]


class StackedFeed:
    """Stores steps whose observations match ``layout`` in ``memory``: of each observation only the newest frame.

    A next observation is one of two:

    * its observation shifted by one frame, or
    * the first observation of the next episode, if a library gives that at the end of an episode. CleanRL does for
      terminated episodes. One extra bit per step restores it.

    A *row* is one step of each stream; ``first_row`` is the number of the first one.

    A refused step changes nothing, except that the episode that it starts stays open: the next step continues it if it
    has the same observation. After an interrupt (Ctrl-C) a step is stored completely or not at all; ``num_rows`` counts
    the stored rows.
    """

    def __init__(self, layout: ObservationLayout, memory: ReplayMemory, first_row: int) -> None:
        self.layout, self.memory = layout, memory
        self.first_row = self.num_rows = first_row
        self._newest: Arrays = [leaf.frame.empty(memory.num_envs) for leaf in layout.leaves]
        """Each stream's newest observation, valid where ``_is_known``."""
        self._is_known = np.zeros(memory.num_envs, bool)
        self.episode_rows: npt.NDArray[np.int64] = np.full(memory.num_envs, first_row, np.int64)
        """First row of each stream's newest episode."""
        self._shows_next_episode: npt.NDArray[np.uint8] | None = None
        """One bit per step of the memory: 1 if its next observation starts the next episode. ``None`` if all are 0."""

    @property
    def oldest_row(self) -> int:
        """Number of the oldest stored row."""
        return max(self.first_row, self.num_rows - self.memory.capacity // self.memory.num_envs)

    def add(self, step: PairedStep) -> bool:
        """Store the step and return ``True``; return ``False`` if the layout cannot restore its observations.

        Raises ``InvalidStepError`` if the memory refuses the step.
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
        """Start a new episode with the next step of these streams, by default of all."""
        self._is_known[streams] = False

    def copy_known_streams(self, other: StackedFeed) -> None:
        """Start a new episode with the next step of each stream for which ``other`` does."""
        self._is_known &= other._is_known

    def indices(self, rows: npt.ArrayLike, streams: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the memory's indices of the steps in these rows and streams, which broadcast."""
        rows, streams = np.asarray(rows, np.int64), np.asarray(streams, np.int64)
        return np.asarray((rows - self.first_row) * self.memory.num_envs + streams)

    def transitions(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Return the transitions with these indices, ``(n,)``, with observations in the library's shape."""
        return self.to_library(self.memory.get(indices))

    def to_library(self, batch: Batch) -> Batch:
        """Return a batch of the memory with observations in the library's shape."""
        next_observation = batch.next_observation
        if self._shows_next_episode is not None:
            next_observation = self._with_next_episodes(next_observation, batch.index)
        return replace(
            batch,
            observation=self.layout.to_library(batch.observation),
            next_observation=self.layout.to_library(next_observation),
        )

    def _continues_episode(self, observations: Arrays) -> npt.NDArray[np.bool_]:
        """Return which streams' observations equal the next observations of the previous row."""
        continues = self.memory.open_episodes & self._is_known
        for part, newest in zip(observations, self._newest, strict=True):
            continues &= equal_rows(part, newest)
        return continues

    def _is_shifted(self, stacks: Arrays, next_stacks: Arrays) -> npt.NDArray[np.bool_]:
        """Return which next observations are the observations shifted by one frame."""
        is_shifted = np.ones(self.memory.num_envs, bool)
        if self.layout.depth > 1:
            for part, after in zip(stacks, next_stacks, strict=True):
                is_shifted &= equal_rows(part[:, 1:], after[:, :-1])
        return is_shifted

    def _are_padded(self, stacks: Arrays, streams: npt.NDArray[np.bool_]) -> bool:
        """Return whether the stacks of these streams are padded as an episode's first observation."""
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
        except BaseException:  # Ctrl-C: the memory may have stored the step
            if self.first_row + num_steps_taken(self.memory) // self.memory.num_envs > row.number:
                self._record_row(row)
            raise

    def _record_row(self, row: _Row) -> None:
        """Record the newest row. Repeated calls have no further effect."""
        self._is_known[:] = False
        self.num_rows = row.number + 1
        self._mark_next_episodes(row)
        for newest, part in zip(self._newest, row.next_observations, strict=True):
            np.copyto(newest, part)
        np.copyto(self._is_known, row.is_shifted)  # the other streams start their next episode

    def _mark_next_episodes(self, row: _Row) -> None:
        """Set a row's bits: which next observations start the next episode."""
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
        """Restore next observations that start the next episode."""
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
"""Creates a buffer's memory from an observation space, a stack depth and a padding.

The memory must store whole rows: ``retention="fifo"``, no budget, ``n_step=1``, and a capacity that is a multiple of
the number of streams.
"""

ROWS_AT_ONCE = 64  # rows read together when a memory is rebuilt

_log = logging.getLogger(__name__)


class PairedSteps:
    """Stores steps with an observation and a next observation in a memory, each frame once.

    Episodes: a step continues the episode if its observation equals the next observation of the previous step, bit for
    bit. Otherwise it starts a new episode, with or without an end flag. (CleanRL gives no flag for a truncation: its
    issue 460.)

    Layouts: the most compact layout is tried first. If a step contradicts it, the memory is rebuilt under the next one,
    usually at the first step or at the next start of an episode. The last layout stores whole observations and fits
    every step. So observations are always restored bit for bit.

    A *row* is one call of ``add``: one step of each stream. Rows are numbered from 0; the newest are stored.
    """

    def __init__(
        self,
        make_memory: MakeMemory,
        space: Any,
        frame_stack: int | None = None,
        layouts: Sequence[ObservationLayout] = (),
    ) -> None:
        """Create the memory.

        Arguments:
            make_memory: creates the memory, also when it is rebuilt.
            space: the observation space.
            frame_stack: frames per observation; ``None`` detects it.
            layouts: layouts to try instead, if the library defines how observations are stacked.

        Raises ``InvalidSettingsError`` if observations of ``space`` cannot be stacks of ``frame_stack`` frames.
        """
        self._make_memory, self._frame_stack = make_memory, frame_stack
        self._layouts = list(layouts) or (
            layouts_to_try(space) if frame_stack is None else layouts_of_depth(space, frame_stack)
        )
        self._feed = self._make_feed(self._layouts[0], 0)

    @property
    def memory(self) -> ReplayMemory:
        """The memory with the steps. It is replaced when a step contradicts the layout."""
        return self._feed.memory

    @property
    def layout(self) -> ObservationLayout:
        """Current layout of observations."""
        return self._feed.layout

    @property
    def num_rows(self) -> int:
        """Number of rows added so far, which is the number of the next row."""
        return self._feed.num_rows

    @property
    def oldest_row(self) -> int:
        """Number of the oldest stored row."""
        return self._feed.oldest_row

    @property
    def episode_rows(self) -> npt.NDArray[np.int64]:
        """First row of each stream's newest episode, ``(num_envs,)``."""
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

        ``observations`` and ``next_observations`` are ``(num_envs, *shape)``, of the space's dtype, and are copied.
        The other arguments are those of ``ReplayMemory.append``. Raises ``InvalidStepError`` before anything is stored.
        """
        step = PairedStep(observations, actions, rewards, terminated, truncated, next_observations, extras)
        if not self._feed.add(step):
            self._change_layout(step)

    def indices(self, rows: npt.ArrayLike, streams: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the memory's indices of the steps in these rows and streams, which broadcast."""
        return self._feed.indices(rows, streams)

    def transitions(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Return the transitions with these indices, ``(n,)``, with observations in the library's shape.

        Raises ``NothingToSampleError`` if one is not stored.
        """
        return self._feed.transitions(indices)

    def to_library(self, batch: Batch) -> Batch:
        """Return a batch of the memory with observations in the library's shape."""
        return self._feed.to_library(batch)

    def start_new_episodes(self) -> None:
        """Start a new episode with the next step of every stream."""
        self._feed.start_new_episodes()

    def _make_feed(self, layout: ObservationLayout, first_row: int) -> StackedFeed:
        return StackedFeed(layout, self._make_memory(layout.frame_space, layout.depth, layout.padding), first_row)

    def _change_layout(self, step: PairedStep) -> None:
        """Switch to the next layout that fits this step and all stored ones."""
        old = self._feed
        for layout in self._layouts[self._layouts.index(old.layout) + 1 :]:
            feed = self._make_feed(layout, old.oldest_row)
            if _copy_rows(old, feed) and feed.add(step):
                if old.num_rows:
                    _log_rebuild(old, layout)
                self._feed = feed
                return
        raise InvalidStepError(
            f"row {old.num_rows}: the observations must be stacks of {self._frame_stack} frames, each shifted by one "
            "frame from the one before or padded at the start of an episode; remove frame_stack, so that the buffer "
            "may store whole observations"
        )


def _log_rebuild(old: StackedFeed, layout: ObservationLayout) -> None:
    """Log that the memory is rebuilt, as a warning if it needs more bytes from now on."""
    level = logging.WARNING if layout.depth < old.layout.depth else logging.INFO
    message = "row %d is not a stack of %d frames: memory is rebuilt for stacks of %d frames, padding %s"
    _log.log(level, message, old.num_rows, old.layout.depth, layout.depth, layout.padding)


def _copy_rows(old: StackedFeed, new: StackedFeed) -> bool:
    """Copy all rows of ``old`` to ``new``; return ``False`` if the layout of ``new`` does not fit them."""
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
    """``B`` sequences of up to ``length`` steps. A sequence stops at the end of its episode or at the newest step.

    ====================  ===============  =======  =======================================================
    field                 shape            dtype    meaning
    ====================  ===============  =======  =======================================================
    ``observation``       ``(B, *shape)``           observation of the first step
    ``action``            ``(B, ...)``              action of the first step
    ``rewards``           ``(B, length)``  float32  rewards of all steps; 0 after the last step
    ``is_step``           ``(B, length)``  bool     false after the last step
    ``next_observation``  ``(B, *shape)``           observation after the last step
    ``terminated``        ``(B,)``         bool     whether the episode terminated at the last step
    ====================  ===============  =======  =======================================================
    """

    observation: Any
    action: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    is_step: npt.NDArray[np.bool_]
    next_observation: Any
    terminated: npt.NDArray[np.bool_]


def steps_following(steps: PairedSteps, first: npt.NDArray[np.int64], length: int) -> StepSequences:
    """Return the steps from the memory's indices ``first`` on, ``(B,)``, with observations in the library's shape."""
    if length == 1:
        one = steps.transitions(first)
        rewards = one.reward[:, None]
        return StepSequences(
            one.observation, one.action, rewards, np.ones_like(rewards, bool), one.next_observation, one.terminated
        )
    sequences, count = steps.memory.steps_from(first, length), len(first)
    is_step = sequences.index >= 0
    last = sequences.index[np.arange(count), is_step.sum(axis=1) - 1]
    both = steps.transitions(np.concatenate([first, last]))
    return StepSequences(
        map_arrays(lambda part: part[:count], both.observation),
        both.action[:count],
        sequences.reward,
        is_step,
        map_arrays(lambda part: part[count:], both.next_observation),
        both.terminated[count:],
    )
