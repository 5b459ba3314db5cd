"""A memory that is fed with stacked observations, and the layout that says what it takes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError
from framestow.integrations.drop_in.memory_bytes import memory_from_bytes, memory_to_bytes
from framestow.integrations.drop_in.observation_layout import Arrays, ObservationLayout, equal_rows
from framestow.integrations.drop_in.steps_taken import num_steps_taken
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory


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
    moves_on: npt.NDArray[np.bool_]


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
        self._next_episode_shown: npt.NDArray[np.uint8] | None = None
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
        begins, moves_on = ~self._goes_on(observations), self._moves_on(stacks, next_stacks)
        if not (self._are_padded(stacks, begins) and self._are_padded(next_stacks, ~moves_on)):
            return False
        if begins.any():
            self._begin(observations, stacks, np.flatnonzero(begins))
        self._append(step, next_stacks, _Row(self.num_rows, next_observations, moves_on))
        return True

    def begin_anew(self, streams: npt.NDArray[Any] | slice = slice(None)) -> None:
        """Let the next step of these streams, all by default, begin an episode, whatever its observation is."""
        self._is_known[streams] = False

    def begin_anew_as(self, other: StackedFeed) -> None:
        """Let the next step begin an episode in the streams where it does for ``other``."""
        self._is_known &= other._is_known

    def indices(self, rows: npt.ArrayLike, streams: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Give the memory's indices of the steps in these rows and streams, which broadcast."""
        rows, streams = np.asarray(rows, np.int64), np.asarray(streams, np.int64)
        return np.asarray((rows - self.first_row) * self.memory.num_envs + streams)

    def transitions(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Give the transitions with these indices, ``(n,)``, observations as they came, ``(n, *shape)``."""
        return self.as_came(self.memory.get(indices))

    def as_came(self, batch: Batch) -> Batch:
        """Give a batch of the memory with observations as they came."""
        next_observation = batch.next_observation
        if self._next_episode_shown is not None:
            next_observation = self._with_next_episodes(next_observation, batch.index)
        return replace(
            batch,
            observation=self.layout.as_came(batch.observation),
            next_observation=self.layout.as_came(next_observation),
        )

    def _goes_on(self, observations: Arrays) -> npt.NDArray[np.bool_]:
        """Which streams' observations are the next observations of the row before."""
        goes_on = self.memory.open_episodes & self._is_known
        for part, newest in zip(observations, self._newest, strict=True):
            goes_on &= equal_rows(part, newest)
        return goes_on

    def _moves_on(self, stacks: Arrays, next_stacks: Arrays) -> npt.NDArray[np.bool_]:
        """Which next observations are the observations moved on by a frame."""
        moves_on = np.ones(self.memory.num_envs, bool)
        if self.layout.depth > 1:
            for part, after in zip(stacks, next_stacks, strict=True):
                moves_on &= equal_rows(part[:, 1:], after[:, :-1])
        return moves_on

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
            self._remember(row)
        except InvalidStepError:
            raise
        except BaseException:  # Ctrl-C: a memory finishes the step that it has begun
            if self.first_row + num_steps_taken(self.memory) // self.memory.num_envs > row.number:
                self._remember(row)
            raise

    def _remember(self, row: _Row) -> None:
        """Note what the newest row was; the same however often it is called."""
        self._is_known[:] = False
        self.num_rows = row.number + 1
        self._note_next_episodes(row)
        for newest, part in zip(self._newest, row.next_observations, strict=True):
            np.copyto(newest, part)
        np.copyto(self._is_known, row.moves_on)  # elsewhere the next episode was shown, and has to begin

    def _note_next_episodes(self, row: _Row) -> None:
        """Keep for a row which next observations are first ones of the next episode."""
        if self._next_episode_shown is None:
            if row.moves_on.all():
                return
            self._next_episode_shown = np.zeros(-(-self.memory.capacity // 8), np.uint8)
        places = self.indices(row.number, np.arange(self.memory.num_envs)) % self.memory.capacity
        if row.moves_on.all() and not self._next_episode_shown[places // 8].any():
            return
        bits = np.left_shift(1, places % 8).astype(np.uint8)
        np.bitwise_and.at(self._next_episode_shown, places // 8, ~bits)
        np.bitwise_or.at(self._next_episode_shown, places // 8, bits * ~row.moves_on)

    def _with_next_episodes(self, next_observation: Any, indices: npt.NDArray[np.int64]) -> Any:
        """Put the first observation of the next episode where that came."""
        assert self._next_episode_shown is not None
        places = indices % self.memory.capacity
        shows = np.flatnonzero(self._next_episode_shown[places // 8] >> (places % 8) & 1)
        return self.layout.padded_at(next_observation, shows) if shows.size else next_observation

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": memory_to_bytes(self.memory), "threads": self.memory._settings.threads}

    def __setstate__(self, state: dict[str, Any]) -> None:
        memory = memory_from_bytes(state["memory"], state.pop("threads"))
        self.__dict__ |= {**state, "memory": memory}
