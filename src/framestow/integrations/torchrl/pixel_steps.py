"""Pixels of steps in a memory, whatever order of environments they come in, given back as they came or stacked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.observation_layout import Arrays, equal_rows
from framestow.integrations.drop_in.paired_steps import memory_from_bytes, memory_to_bytes
from framestow.integrations.torchrl.steps import NONE, Indices, PixelLayout, StepBatch
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory

MakePixelMemory: TypeAlias = Callable[[int, Any, int, StackPadding, int], ReplayMemory]
"""Makes a memory, given capacity, observation space, stack, padding and number of streams."""

HISTORIES = 64  # beginnings in mid-episode that a memory has room for
PATIENCE = 1024  # steps: a stream that waits for less may still go on


class PixelStreamFeed:
    """A memory for ``num_steps`` steps of up to ``num_envs`` environments, fed in the order of their cells.

    A step goes on with the stream that showed its pixels last, or begins an episode on one that shows none. Where
    pixels come as stacks and an episode begins with other older frames than padding, these are appended before as
    *hidden* steps, which take room in the memory but are no cell's. Single frames that come from the midst of an
    episode are stacked as if it began there.
    """

    def __init__(self, layout: PixelLayout, num_steps: int, memory: ReplayMemory) -> None:
        """``memory``: what ``create`` makes, with nothing in it yet."""
        self.layout, self.num_steps, self.memory = layout, num_steps, memory
        num_envs = memory.num_envs
        self.next_index = 0
        self.hidden = np.zeros(0, np.int64)
        self.trajectories = np.full(num_envs, NONE, np.int64)
        self.fed = np.full(num_envs, NONE, np.int64)  # the newest step of each, by its index
        self.rows = np.full(num_envs, NONE, np.int64)  # the environment that each has steps of, where that is told
        self.widest_gap = 0

    @classmethod
    def create(
        cls, layout: PixelLayout, num_steps: int, num_envs: int, make_memory: MakePixelMemory
    ) -> PixelStreamFeed:
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

    def continues_from_previous(self, steps: StepBatch, seen: Arrays, seen_next: Arrays) -> npt.NDArray[np.bool_]:
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
        continues = np.zeros(len(steps), bool)
        continues[now] = True
        return continues

    def continued_streams(self, steps: StepBatch, heads: Indices, seen: Arrays, taken: set[int]) -> dict[int, int]:
        """Find the stream of each of ``heads`` that goes on with one that none took: which head, which stream."""
        found: dict[int, int] = {}
        is_open, shown = self.memory.open_episodes, self._current_stacks()
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
                stream = self._choose(np.flatnonzero(fits), steps.rows[head])
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
            return self._choose(np.flatnonzero(is_free), NONE)
        is_stale = self.next_index - self.fed > max(4 * self.widest_gap, PATIENCE)
        if self.layout.depth == 1:  # no stack would miss what a stream showed before
            is_stale[:] = True
        is_stale[list(taken)] = False
        if before != NONE and is_stale[before]:
            return int(before)
        return self._choose(np.flatnonzero(is_stale), NONE) if is_stale.any() else None

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

    def copy_names(self, old: PixelStreamFeed) -> None:
        """Know which trajectories and environments the streams are, as ``old`` knew it."""
        self.trajectories[: len(old.trajectories)] = old.trajectories
        self.rows[: len(old.rows)] = old.rows
        self.widest_gap = old.widest_gap

    def hide_from(self, first_index: int) -> None:
        """Let the steps from this index on be no cell's: those of a batch that was broken off."""
        held = self.memory.sampleable_indices()
        self.next_index = int(held[-1]) + 1 if held.size else first_index  # Ctrl-C may have come before it was counted
        self.hidden = np.union1d(self.hidden, np.arange(first_index, self.next_index))

    def record_streams(self, steps: StepBatch, group: slice, streams: Indices) -> None:
        """Take down which trajectories and environments the streams of ``group`` are."""
        self.rows[np.isin(self.rows, steps.rows[group])] = NONE  # an environment is on one stream
        self.trajectories[streams], self.rows[streams] = steps.trajectories[group], steps.rows[group]

    def _current_stacks(self) -> Arrays:
        return self.layout.parts_of(self.memory.observations())

    def _choose(self, streams: Indices, row: int) -> int:
        """Of several streams that of the row, else the one that was fed first, those that never were last."""
        own = streams[(self.rows[streams] == row) & (row != NONE)]
        if own.size:
            return int(own[0])
        fed = self.fed[streams]
        return int(streams[np.argmin(np.where(fed == NONE, self.next_index, fed))])


AT_ONCE = 64  # steps that are read together where a memory is create anew

_log = logging.getLogger(__name__)


class PixelSteps:
    """The newest ``num_steps`` steps' pixels, each frame once, under indices that ``add`` gives.

    The first of ``layouts`` that explains the first steps is taken. Where a step contradicts it later, or where more
    environments turn up than there are streams, the memory is create anew with all that it holds; ``renumber`` is told
    the old indices, ascending, and the new ones.
    """

    def __init__(
        self,
        layouts: list[PixelLayout],
        num_steps: int,
        num_envs: int,
        make_memory: MakePixelMemory,
        renumber: Callable[[Indices, Indices], None],
    ) -> None:
        self._layouts, self._make_memory, self._renumber = layouts, make_memory, renumber
        self._feed = PixelStreamFeed.create(layouts[0], num_steps, num_envs, make_memory)

    @property
    def memory(self) -> ReplayMemory:
        """What holds the frames; another one after it was create anew."""
        return self._feed.memory

    @property
    def layout(self) -> PixelLayout:
        """How the pixels are stacks of the memory's frames."""
        return self._feed.layout

    def checked(self, steps: StepBatch) -> npt.NDArray[np.bool_]:
        """Say which steps go on from the one before in the batch, ``(n,)``: ``add`` wants to know.

        Raises ``InvalidStepError`` where single frames come that leave a hole in a trajectory: stacks of them would be
        of frames that nobody saw.
        """
        seen, seen_next = self._stacks_of(steps)
        continues = self._feed.continues_from_previous(steps, seen, seen_next)
        if self.layout.taken.depth < self.layout.depth:
            _check_whole(steps, continues)
        return continues

    def add(self, steps: StepBatch, continues: npt.NDArray[np.bool_]) -> Indices:
        """Store steps and give their indices, ``(n,)``; where that is broken off, none of them is a cell's."""
        if not self._feed.has_room_for(0):  # too many were broken off
            self._rebuild(self.layout, self.memory.num_envs, None)
        while not self.layout.are_shifted(*self._stacks_of(steps)):
            self._take_next_layout()
        streams, indices = np.full((2, len(steps)), NONE, np.int64)
        try:
            for group in _groups(steps, continues):
                self._add_group(steps, group, continues, streams, indices)
        except BaseException:  # Ctrl-C, or a disk that is full
            self._feed.hide_from(self._feed.next_index if indices[0] == NONE else int(indices[0]))
            raise
        return indices

    def transitions(self, indices: Indices) -> tuple[Arrays, Arrays]:
        """Give the pixels of the steps with these indices, and what they led to, ``(n, *shape)`` of each key.

        Raises ``NothingToSampleError`` for one that is not held.
        """
        return self._in_library_layout(self.memory.get(indices))

    def no_pixels(self) -> Arrays:
        """Give the pixels of no step at all, ``(0, *shape)`` of each key."""
        shown = self.layout.given.to_library(self.memory.observations())
        return [part[:0] for part in self.layout.parts_of(shown)]

    @property
    def num_steps(self) -> int:
        """How many steps are kept."""
        return self._feed.num_steps

    def state(self) -> dict[str, Any]:
        """What is saved beside the memory, as JSON has it."""
        return {"layout": self._layouts.index(self.layout), "feed": self._feed.state()}

    def restore(self, state: dict[str, Any], memory: ReplayMemory) -> None:
        """Go on with a memory that was saved."""
        self._feed = PixelStreamFeed(self._layouts[state["layout"]], self._feed.num_steps, memory)
        self._feed.restore(state["feed"])

    def clear(self) -> None:
        """Forget all steps, and what their layout was."""
        self._feed = PixelStreamFeed.create(self._layouts[0], self.num_steps, self.memory.num_envs, self._make_memory)

    def _in_library_layout(self, batch: Batch) -> tuple[Arrays, Arrays]:
        given = self.layout.given
        both = given.to_library(batch.observation), given.to_library(batch.next_observation)
        before, after = map(self.layout.parts_of, both)
        return before, after

    def _stacks_of(self, steps: StepBatch) -> tuple[Arrays, Arrays]:
        return self.layout.taken.stacks_of(steps.pixels), self.layout.taken.stacks_of(steps.next_pixels)

    def _add_group(self, steps: StepBatch, group: slice, continues: Any, streams: Indices, indices: Indices) -> None:
        """Store steps that are of environments of their own."""
        if continues[group].all():
            streams[group] = streams[steps.previous[group]]
        else:
            self._place(steps, group, continues, streams, indices)
        own = streams[group]
        seen_next = self.layout.taken.stacks_of([part[group] for part in steps.next_pixels])
        frames = self.layout.taken.newest_of(seen_next)
        indices[group] = self._feed.append(
            steps.rewards[group], steps.terminated[group], steps.truncated[group], frames, own
        )
        self._feed.record_streams(steps, group, own)

    def _place(self, steps: StepBatch, group: slice, continues: Any, streams: Indices, indices: Indices) -> None:
        """Find a stream for each step of ``group``, and begin an episode where none goes on."""
        seen, _ = self._stacks_of(steps)
        numbers = np.arange(group.start, group.stop)
        on = numbers[continues[group]]
        streams[on] = streams[steps.previous[on]]
        taken = set(streams[on].tolist())
        heads = numbers[~continues[group]]
        for head, stream in self._feed.continued_streams(steps, heads, seen, taken).items():
            streams[head] = stream
        beginning = [int(head) for head in heads if streams[head] == NONE]
        for head in beginning:
            while (free := self._feed.stream_to_begin(steps, head, streams, taken)) is None:
                self._rebuild(self.layout, 2 * self.memory.num_envs, indices)
            streams[head] = free
            taken.add(free)
        in_midst = sum(self._feed.needs_history([part[head] for part in seen]) for head in beginning)
        while not self._feed.has_room_for(in_midst):
            self._take_next_layout(indices)
            seen, _ = self._stacks_of(steps)
            in_midst = sum(self._feed.needs_history([part[head] for part in seen]) for head in beginning)
        for head in beginning:
            self._feed.begin(int(streams[head]), [part[head] for part in seen])

    def _take_next_layout(self, indices: Indices | None = None) -> None:
        """Make the memory anew under the next layout that explains all that is held; the last one always does."""
        for layout in self._layouts[self._layouts.index(self.layout) + 1 :]:
            if self._rebuild(layout, self.memory.num_envs, indices):
                return
        raise InvalidSettingsError(f"no layout of {self._layouts} explains the pixels: the last one has to")

    def _rebuild(self, layout: PixelLayout, num_envs: int, indices: Indices | None) -> bool:
        """Feed another memory with all that is held; ``indices`` are given the new numbers where they have old ones."""
        old, feed = self._feed, PixelStreamFeed.create(layout, self._feed.num_steps, num_envs, self._make_memory)
        held, streams, begins = _stored_steps(old)
        for first in range(0, len(held), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            batch = old.memory.get(held[part])
            if not _copy_steps(old.layout, feed, batch, streams[part], begins[part]):
                return False
        moved = np.setdiff1d(np.arange(feed.next_index), feed.hidden)
        if len(moved) < len(held) or not feed.has_room_for(0):
            return False
        _log.info("memory create anew with %d steps: %d streams, %s", len(held), num_envs, layout.given)
        feed.copy_names(old)
        self._feed = feed
        self._renumber(held, moved)
        if indices is not None:
            given = indices != NONE
            indices[given] = moved[np.searchsorted(held, indices[given])]
        return True


def _groups(steps: StepBatch, continues: npt.NDArray[np.bool_]) -> Iterator[slice]:
    """Give steps that can be appended at once, in their order: each of another environment."""
    trajectories, can_wait = steps.trajectories.tolist(), ~continues & (steps.trajectories != NONE)
    start = 0
    while start < len(steps):
        stop = start + steps.width
        if steps.width == 1 and can_wait[start]:
            several = {trajectories[start]}
            while stop < min(len(steps), start + AT_ONCE) and can_wait[stop] and trajectories[stop] not in several:
                several.add(trajectories[stop])
                stop += 1
        yield slice(start, stop)
        start = stop


def _check_whole(steps: StepBatch, continues: npt.NDArray[np.bool_]) -> None:
    """Raise where a step has the trajectory of the one before, which did not end, and does not go on from it."""
    heads = np.flatnonzero(~continues & (steps.previous != NONE) & ~steps.is_first & (steps.trajectories != NONE))
    before = steps.previous[heads]
    has_hole = (steps.trajectories[heads] == steps.trajectories[before]) & ~(steps.terminated | steps.truncated)[before]
    if has_hole.any():
        at = heads[has_hole][0]
        raise InvalidStepError(
            f"step {at} of trajectory {steps.trajectories[at]}: its pixels are not what the step before led to, so "
            "their stack is not known; give all steps in order, without MultiStepTransform, or stack in the environment"
        )


def _stored_steps(feed: PixelStreamFeed) -> tuple[Indices, Indices, Indices]:
    """Give the indices of all steps that cells have, ascending, their streams, and whether an episode begins there."""
    parts = [np.zeros((3, 0), np.int64)]
    for episode in feed.memory.episodes():
        own = np.setdiff1d(episode.indices, feed.hidden)
        parts.append(np.stack([own, np.full(len(own), episode.env_id), np.arange(len(own)) == 0]))
    steps = np.concatenate(parts, axis=1)
    held, streams, begins = steps[:, np.argsort(steps[0])[-feed.num_steps :]]
    begins[np.unique(streams, return_index=True)[1]] = 1  # what came before them was not of a cell any more
    return held, streams, begins


def _copy_steps(old: PixelLayout, feed: PixelStreamFeed, batch: Batch, streams: Indices, begins: Indices) -> bool:
    """Feed steps of a memory laid out as ``old`` says; give ``False`` where the feed's layout does not explain them."""
    if feed.layout is old:
        seen, seen_next = old.parts_of(batch.observation), old.parts_of(batch.next_observation)
    else:
        came = [old.parts_of(old.given.to_library(stacks)) for stacks in (batch.observation, batch.next_observation)]
        seen, seen_next = map(feed.layout.taken.stacks_of, came)
        if not feed.layout.are_shifted(seen, seen_next):
            return False
    for number, stream in enumerate(streams.tolist()):
        if begins[number]:
            feed.begin(stream, [part[number] for part in seen])
        at = slice(number, number + 1)
        frames = feed.layout.given.newest_of([part[at] for part in seen_next])
        feed.append(batch.reward[at], batch.terminated[at], batch.truncated[at], frames, streams[at])
    return True
