"""A memory that is fed with stacked observations, and the layout that says what it takes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.integrations.drop_in.memory_bytes import memory_from_bytes, memory_to_bytes
from framestow.integrations.drop_in.observation_layout import Arrays, ObservationLayout, equal_rows
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory


class PairedStep(NamedTuple):
    """One step of every stream: as ``ReplayMemory.append`` has it, with both observations ``(num_streams, *shape)``."""

    observations: Any
    actions: npt.ArrayLike
    rewards: npt.ArrayLike
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    next_observations: Any
    columns: Mapping[str, npt.ArrayLike] | None = None


class StackedFeed:
    """Takes the steps whose observations are what ``layout`` says, and stores the newest frame of each.

    A next observation is its observation moved on by a frame, or, where a library gives that for a step that ended its
    episode, the first one of the next episode (CleanRL does, where the episode terminated). Of the latter a bit is kept
    too, so that it comes back as it came.

    ``first_row``: number of the first row that comes; a row is one step of each stream.
    """

    def __init__(self, layout: ObservationLayout, memory: ReplayMemory, first_row: int) -> None:
        self.layout, self.memory = layout, memory
        self.first_row = self.num_rows = first_row
        self.shown: Arrays | None = None
        """The newest next observations; ``None`` where every stream begins an episode."""
        self.begins = np.ones(memory.num_streams, bool)
        """Which streams began an episode with the newest row."""
        self._shows_next_episode = np.zeros(memory.num_streams, bool)  # the newest row's next observations
        self._next_episode_shown: npt.NDArray[np.uint8] | None = None  # a bit a step of the memory, where there was one

    @property
    def oldest_row(self) -> int:
        """Number of the oldest row that is held."""
        return max(self.first_row, self.num_rows - self.memory.capacity // self.memory.num_streams)

    def add(self, step: PairedStep) -> bool:
        """Store the step, unless the memory would show other observations than these: then give ``False``.

        Raises ``InvalidStepError`` for what a memory refuses.
        """
        stacks, next_stacks = map(self.layout.stacks_of, (step.observations, step.next_observations))
        goes_on = self._goes_on(stacks)
        moves_on = self._moves_on(stacks, next_stacks)
        if not self._are_shown(stacks, next_stacks, goes_on, moves_on):
            return False
        begins = np.flatnonzero(~goes_on)
        if begins.size:
            self.memory.begin(self.layout.newest_of([part[begins] for part in stacks]), begins)
        self.memory.append(
            step.actions,
            step.rewards,
            step.terminated,
            step.truncated,
            self.layout.newest_of(next_stacks),
            columns=step.columns,
        )
        self.shown = [part.copy() for part in next_stacks]
        self.begins = ~goes_on
        self._note_shown(~moves_on)
        self.num_rows += 1
        return True

    def indices(self, rows: npt.ArrayLike, streams: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Give the memory's indices of the steps in these rows and streams, which broadcast."""
        rows, streams = np.asarray(rows, np.int64), np.asarray(streams, np.int64)
        return np.asarray((rows - self.first_row) * self.memory.num_streams + streams)

    def transitions(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Give the transitions with these indices, ``(n,)``, observations as they came, ``(n, *shape)``."""
        return self.as_came(self.memory.transitions(indices))

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

    def _goes_on(self, stacks: Arrays) -> npt.NDArray[np.bool_]:
        """Which streams' observations are the next observations of the row before, in the episode of that."""
        if self.shown is None:
            return np.zeros(self.memory.num_streams, bool)
        goes_on = self.memory.open_episodes & ~self._shows_next_episode
        for part, shown in zip(stacks, self.shown, strict=True):
            goes_on &= equal_rows(part, shown)
        return goes_on

    def _moves_on(self, stacks: Arrays, next_stacks: Arrays) -> npt.NDArray[np.bool_]:
        """Which next observations are the observations moved on by a frame."""
        moves_on = np.ones(self.memory.num_streams, bool)
        if self.layout.depth == 1:
            return moves_on
        for part, after in zip(stacks, next_stacks, strict=True):
            moves_on &= equal_rows(part[:, 1:], after[:, :-1])
        return moves_on

    def _are_shown(
        self, stacks: Arrays, next_stacks: Arrays, goes_on: npt.NDArray[np.bool_], moves_on: npt.NDArray[np.bool_]
    ) -> bool:
        """Whether what the memory makes of the newest frames is what came."""
        return self.layout.depth == 1 or bool(
            (moves_on.all() or (moves_on | self.layout.is_padded(next_stacks)).all())
            and (goes_on.all() or (goes_on | self.layout.is_padded(stacks)).all())
        )

    def _note_shown(self, shows_next_episode: npt.NDArray[np.bool_]) -> None:
        """Keep for the newest row which next observations are first ones of the next episode."""
        self._shows_next_episode = shows_next_episode
        if self._next_episode_shown is None:
            if not shows_next_episode.any():
                return
            self._next_episode_shown = np.zeros(-(-self.memory.capacity // 8), np.uint8)
        places = self.indices(self.num_rows, np.arange(self.memory.num_streams)) % self.memory.capacity
        bits = np.left_shift(1, places % 8).astype(np.uint8)
        np.bitwise_and.at(self._next_episode_shown, places // 8, ~bits)
        np.bitwise_or.at(self._next_episode_shown, places // 8, bits * shows_next_episode)

    def _with_next_episodes(self, next_observation: Any, indices: npt.NDArray[np.int64]) -> Any:
        """Put the first observation of the next episode where that came."""
        assert self._next_episode_shown is not None
        places = indices % self.memory.capacity
        shows = np.flatnonzero(self._next_episode_shown[places // 8] >> (places % 8) & 1)
        return self.layout.padded_at(next_observation, shows) if shows.size else next_observation

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": memory_to_bytes(self.memory)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "memory": memory_from_bytes(state["memory"])}
