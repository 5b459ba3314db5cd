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

    ``first_row``: number of the first row that comes; a row is one step of each stream.
    """

    def __init__(self, layout: ObservationLayout, memory: ReplayMemory, first_row: int) -> None:
        self.layout, self.memory = layout, memory
        self.first_row = self.num_rows = first_row
        self.shown: Arrays | None = None
        """The newest next observations; ``None`` where every stream begins an episode."""

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
        if self.layout.depth > 1 and not self._are_shown(stacks, next_stacks, goes_on):
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
        return replace(
            batch,
            observation=self.layout.as_came(batch.observation),
            next_observation=self.layout.as_came(batch.next_observation),
        )

    def _goes_on(self, stacks: Arrays) -> npt.NDArray[np.bool_]:
        """Which streams' observations are the next observations of the row before."""
        if self.shown is None:
            return np.zeros(self.memory.num_streams, bool)
        goes_on = self.memory.open_episodes
        for part, shown in zip(stacks, self.shown, strict=True):
            goes_on &= equal_rows(part, shown)
        return goes_on

    def _are_shown(self, stacks: Arrays, next_stacks: Arrays, goes_on: npt.NDArray[np.bool_]) -> bool:
        """Whether what the memory makes of the newest frames is what came."""
        moves_on = all(
            equal_rows(part[:, 1:], after[:, :-1]).all() for part, after in zip(stacks, next_stacks, strict=True)
        )
        return moves_on and bool((goes_on | self.layout.is_padded(stacks)).all())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": memory_to_bytes(self.memory)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "memory": memory_from_bytes(state["memory"])}
