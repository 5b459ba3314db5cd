"""Feeds a memory with steps whose streams are not told: each is found by what it showed last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.memory_bytes import memory_from_bytes, memory_to_bytes
from framestow.integrations.drop_in.observation_layout import Arrays, equal_rows
from framestow.integrations.torchrl.pixel_layout import PixelLayout
from framestow.integrations.torchrl.step_batch import NONE, Indices, StepBatch
from framestow.replay.memory import ReplayMemory

MakeMemory: TypeAlias = Callable[[int, Any, int, StackPadding, int], ReplayMemory]
"""Makes a memory, given capacity, observation space, stack, padding and number of streams."""

HISTORIES = 64  # beginnings in mid-episode that a memory has room for
PATIENCE = 1024  # steps: a stream that waits for less may still go on


class StreamFeed:
    """A memory for ``num_steps`` steps of up to ``num_envs`` environments, fed in the order of their cells.

    A step goes on with the stream that showed its pixels last, or begins an episode on one that shows none. Where
    pixels come as stacks and an episode begins with other older frames than padding, these are appended before as
    *hidden* steps, which take room in the memory but are no cell's. Single frames that come from the midst of an
    episode are stacked as if it began there.
    """

    def __init__(self, layout: PixelLayout, num_steps: int, memory: ReplayMemory) -> None:
        """``memory``: what ``made`` makes, with nothing in it yet."""
        self.layout, self.num_steps, self.memory = layout, num_steps, memory
        num_envs = memory.num_envs
        self.next_index = 0
        self.hidden = np.zeros(0, np.int64)
        self.trajectories = np.full(num_envs, NONE, np.int64)
        self.fed = np.full(num_envs, NONE, np.int64)  # the newest step of each, by its index
        self.rows = np.full(num_envs, NONE, np.int64)  # the environment that each has steps of, where that is told
        self.widest_gap = 0

    @classmethod
    def made(cls, layout: PixelLayout, num_steps: int, num_envs: int, make_memory: MakeMemory) -> StreamFeed:
        """Make the memory and what feeds it."""
        room = (HISTORIES + 2 * num_envs) * (layout.depth - 1)
        given = layout.given
        capacity = max(num_steps + room, num_envs)
        memory = make_memory(capacity, given.frame_space, layout.depth, given.padding, num_envs)
        return cls(layout, num_steps, memory)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": memory_to_bytes(self.memory), "threads": self.memory._settings.threads}

    def __setstate__(self, state: dict[str, Any]) -> None:
        memory = memory_from_bytes(state["memory"], state.pop("threads"))
        self.__dict__ |= {**state, "memory": memory}

    def state(self) -> dict[str, Any]:
        """What is saved beside the memory, as JSON has it."""
        return {
            "next_index": self.next_index,
            "hidden": self.hidden.tolist(),
            "trajectories": self.trajectories.tolist(),
            "fed": self.fed.tolist(),
            "rows": self.rows.tolist(),
            "widest_gap": self.widest_gap,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` gave, with the memory of that time."""
        self.next_index, self.widest_gap = state["next_index"], state["widest_gap"]
        self.hidden, self.trajectories, self.rows, self.fed = (
            np.array(state[name], np.int64) for name in ("hidden", "trajectories", "rows", "fed")
        )

    def has_room_for(self, num_beginnings: int) -> bool:
        """Whether so many episodes can begin in their midst, and no step of a cell leaves too early."""
        self.hidden = self.hidden[self.hidden >= self.next_index - self.memory.capacity]
        room = self.memory.capacity - self.num_steps - len(self.hidden)
        return num_beginnings * (self.layout.depth - 1) <= room

    def needs_history(self, stacks: Arrays) -> bool:
        """Whether what an episode begins with, ``(n, *frame)`` of each key, has older frames than padding."""
        return max(map(len, stacks)) > 1 and not self.layout.given.is_padded([stack[None] for stack in stacks])[0]

    def goes_on(self, steps: StepBatch, seen: Arrays, seen_next: Arrays) -> npt.NDArray[np.bool_]:
        """Which steps go on from the one before in the batch."""
        has_previous = np.flatnonzero((steps.previous != NONE) & ~steps.is_first)
        before = steps.previous[has_previous]
        follows = ~(steps.terminated | steps.truncated)[before]
        follows &= steps.trajectories[has_previous] == steps.trajectories[before]
        now, before = has_previous[follows], before[follows]
        for part, after in zip(seen, seen_next, strict=True):
            if now.size:
                equal = equal_rows(part[now], after[before])
                now, before = now[equal], before[equal]
        going = np.zeros(len(steps), bool)
        going[now] = True
        return going

    def streams_that_go_on(self, steps: StepBatch, heads: Indices, seen: Arrays, taken: set[int]) -> dict[int, int]:
        """Find the stream of each of ``heads`` that goes on with one that none took: which head, which stream."""
        found: dict[int, int] = {}
        is_open, shown = self.memory.open_episodes, self._shown()
        for head in heads.tolist():
            fits = is_open.copy() if not steps.is_first[head] else np.zeros_like(is_open)
            fits[list(taken)] = False
            number = steps.trajectories[head]
            fits &= (self.trajectories == NONE) | (number == NONE) | (self.trajectories == number)
            for part, last in zip(seen, shown, strict=True):
                at = np.flatnonzero(fits)
                if not at.size:
                    break
                fits[at] = equal_rows(last[at][:, -part.shape[1] :], part[head][None])
            if fits.any():
                stream = self._chosen(np.flatnonzero(fits), steps.rows[head])
                self.widest_gap = max(self.widest_gap, self.next_index - int(self.fed[stream]))
                found[head] = stream
                taken.add(stream)
        return found

    def stream_to_begin(self, steps: StepBatch, head: int, streams: Indices, taken: set[int]) -> int | None:
        """Find the stream on which this step begins an episode; ``None`` where none is free."""
        is_free = ~self.memory.open_episodes
        is_free[list(taken)] = False
        own = np.flatnonzero((self.rows == steps.rows[head]) & (self.rows != NONE))
        if own.size and int(own[0]) not in taken:  # of this environment, which was reset in mid-episode if it is open
            return int(own[0])
        before = streams[steps.previous[head]] if steps.previous[head] != NONE else NONE
        if before != NONE and is_free[before]:
            return int(before)
        if is_free.any():
            return self._chosen(np.flatnonzero(is_free), NONE)
        is_stale = self.next_index - self.fed > max(4 * self.widest_gap, PATIENCE)
        if self.layout.depth == 1:  # no stack would miss what a stream showed before
            is_stale[:] = True
        is_stale[list(taken)] = False
        if before != NONE and is_stale[before]:
            return int(before)
        return self._chosen(np.flatnonzero(is_stale), NONE) if is_stale.any() else None

    def begin(self, stream: int, stacks: Arrays) -> None:
        """Begin an episode with what it shows, ``(depth, *frame)`` of each key, or with its frame ``(1, *frame)``."""
        one = [stack[None] for stack in stacks]
        streams = [stream]
        if not self.needs_history(stacks):
            self.memory.begin(self.layout.given.newest_of(one), streams)
            return
        self.memory.begin(self.layout.given.newest_of([stack[:, :1] for stack in one]), streams)
        no_flag = np.zeros(1, bool)
        for newest in range(2, self.layout.depth + 1):
            frames = self.layout.given.newest_of([stack[:, :newest] for stack in one])
            self.memory.append([0], [0.0], no_flag, no_flag, frames, streams)
            self.hidden = np.append(self.hidden, self.next_index)
            self.next_index += 1

    def append(
        self,
        rewards: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        frames: Any,
        env_ids: Indices,
    ) -> Indices:
        """Append a step of each of ``env_ids`` and the frames that they led to; give their indices."""
        self.memory.append(np.zeros(len(env_ids), np.int64), rewards, terminated, truncated, frames, env_ids)
        indices = np.arange(self.next_index, self.next_index + len(env_ids))
        self.next_index += len(env_ids)
        self.fed[env_ids] = indices
        return indices

    def take_over_names(self, old: StreamFeed) -> None:
        """Know which trajectories and environments the streams are, as ``old`` knew it."""
        self.trajectories[: len(old.trajectories)] = old.trajectories
        self.rows[: len(old.rows)] = old.rows
        self.widest_gap = old.widest_gap

    def abandon(self, first_index: int) -> None:
        """Let the steps from this index on be no cell's: those of a batch that was broken off."""
        held = self.memory.sampleable_indices()
        self.next_index = int(held[-1]) + 1 if held.size else first_index  # Ctrl-C may have come before it was counted
        self.hidden = np.union1d(self.hidden, np.arange(first_index, self.next_index))

    def remember(self, steps: StepBatch, group: slice, streams: Indices) -> None:
        """Take down which trajectories and environments the streams of ``group`` are."""
        self.rows[np.isin(self.rows, steps.rows[group])] = NONE  # an environment is on one stream
        self.trajectories[streams], self.rows[streams] = steps.trajectories[group], steps.rows[group]

    def _shown(self) -> Arrays:
        return self.layout.parts_of(self.memory.observations())

    def _chosen(self, streams: Indices, row: int) -> int:
        """Of several streams that of the row, else the one that was fed first, those that never were last."""
        own = streams[(self.rows[streams] == row) & (row != NONE)]
        if own.size:
            return int(own[0])
        fed = self.fed[streams]
        return int(streams[np.argmin(np.where(fed == NONE, self.next_index, fed))])
