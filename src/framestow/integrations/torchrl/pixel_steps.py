"""Stores the pixels of steps from any number of environments in a memory, in any order of environments.

``PixelEnvFeed`` assigns each step to an environment of the memory: the environment whose newest pixels are the step's
pixels. ``PixelSteps`` selects the layout of the pixels. It rebuilds the memory when a step contradicts the layout or
when environments are missing.

A *head* is a step that does not continue the previous step of its batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.paired_steps import memory_from_bytes, memory_to_bytes
from framestow.integrations.torchrl.steps import NONE, Indices, PixelLayout, StepBatch
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory
from framestow.replay.observation_layouts import Arrays, equal_rows

MakePixelMemory: TypeAlias = Callable[[int, Any, int, StackPadding, int], ReplayMemory]
"""Creates a memory from capacity, observation space, stack depth, padding and number of environments."""

NUM_HISTORIES = 64  # starts in mid-episode for which a memory has spare capacity
STALE_STEPS = 1024  # an environment without a step for longer may be reused


class PixelEnvFeed:
    """A memory for ``num_steps`` steps, one per storage cell, from up to ``num_envs`` open episodes.

    A step continues the environment whose newest pixels are the step's pixels, or starts an episode in a
    free environment of the memory.

    Stacks of an episode that starts in its middle contain older frames. These are appended first, as *hidden* steps:
    they use capacity and belong to no cell. Single frames from the middle of an episode are stacked as if the episode
    started there.
    """

    def __init__(self, layout: PixelLayout, num_steps: int, memory: ReplayMemory) -> None:
        """``memory``: an empty memory, as made by ``create``."""
        self.layout, self.num_steps, self.memory = layout, num_steps, memory
        num_envs = memory.num_envs
        self.next_index = 0  # index of the next step in the memory
        self.hidden = np.zeros(0, np.int64)  # indices of hidden steps that the memory may still have
        self.trajectories = np.full(num_envs, NONE, np.int64)  # the collector's number of each environment's episode
        self.fed = np.full(num_envs, NONE, np.int64)  # index of each environment's newest step
        self.rows = np.full(num_envs, NONE, np.int64)  # the collector's environment of each, if known
        self.widest_gap = 0  # most steps between two of one episode

    @classmethod
    def create(cls, layout: PixelLayout, num_steps: int, num_envs: int, make_memory: MakePixelMemory) -> PixelEnvFeed:
        """Return a feed with a new memory."""
        spare = (NUM_HISTORIES + 2 * num_envs) * (layout.depth - 1)
        given = layout.given
        capacity = max(num_steps + spare, num_envs)
        memory = make_memory(capacity, given.frame_space, layout.depth, given.padding, num_envs)
        return cls(layout, num_steps, memory)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": memory_to_bytes(self.memory), "threads": self.memory._settings.threads}

    def __setstate__(self, state: dict[str, Any]) -> None:
        memory = memory_from_bytes(state["memory"], state.pop("threads"))
        self.__dict__ |= {**state, "memory": memory}

    def state(self) -> dict[str, Any]:
        """Return the state without the memory, as JSON."""
        return {
            "next_index": self.next_index,
            "hidden": self.hidden.tolist(),
            "trajectories": self.trajectories.tolist(),
            "fed": self.fed.tolist(),
            "rows": self.rows.tolist(),
            "widest_gap": self.widest_gap,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a ``state``; the memory must be the one saved with it."""
        self.next_index, self.widest_gap = state["next_index"], state["widest_gap"]
        self.hidden, self.trajectories, self.rows, self.fed = (
            np.array(state[name], np.int64) for name in ("hidden", "trajectories", "rows", "fed")
        )

    def has_capacity_for(self, num_histories: int) -> bool:
        """Return whether so many episodes can start in their middle without evicting steps of cells."""
        self.hidden = self.hidden[self.hidden >= self.next_index - self.memory.capacity]
        spare = self.memory.capacity - self.num_steps - len(self.hidden)
        return num_histories * (self.layout.depth - 1) <= spare

    def needs_history(self, stacks: Arrays) -> bool:
        """Return whether an episode's first stacks, ``(n, *frame)`` per key, contain older frames."""
        return max(map(len, stacks)) > 1 and not self.layout.given.is_padded([stack[None] for stack in stacks])[0]

    def continues_from_previous(self, steps: StepBatch, seen: Arrays, seen_next: Arrays) -> npt.NDArray[np.bool_]:
        """Return which steps continue the previous step of their environment in the batch."""
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

    def find_continued_envs(self, steps: StepBatch, heads: Indices, seen: Arrays, taken: set[int]) -> dict[int, int]:
        """Return the env_id of each head that continues an open environment, by head; skip those in ``taken``."""
        found: dict[int, int] = {}
        is_open, newest = self.memory.open_episodes, self._current_stacks()
        for head in heads.tolist():
            fits = is_open.copy() if not steps.is_first[head] else np.zeros_like(is_open)
            fits[list(taken)] = False
            number = steps.trajectories[head]
            fits &= (self.trajectories == NONE) | (number == NONE) | (self.trajectories == number)
            for part, last in zip(seen, newest, strict=True):
                at = np.flatnonzero(fits)
                if not at.size:
                    break
                fits[at] = equal_rows(last[at][:, -part.shape[1] :], part[head][None])
            if fits.any():
                env_id = self._choose(np.flatnonzero(fits), steps.rows[head])
                self.widest_gap = max(self.widest_gap, self.next_index - int(self.fed[env_id]))
                found[head] = env_id
                taken.add(env_id)
        return found

    def env_to_begin(self, steps: StepBatch, head: int, env_ids: Indices, taken: set[int]) -> int | None:
        """Return the environment in which this step starts an episode; ``None`` if none is free."""
        is_free = ~self.memory.open_episodes
        is_free[list(taken)] = False
        own = np.flatnonzero((self.rows == steps.rows[head]) & (self.rows != NONE))
        if own.size and int(own[0]) not in taken:  # same environment, reset in mid-episode if open
            return int(own[0])
        before = env_ids[steps.previous[head]] if steps.previous[head] != NONE else NONE
        if before != NONE and is_free[before]:
            return int(before)
        if is_free.any():
            return self._choose(np.flatnonzero(is_free), NONE)
        is_stale = self.next_index - self.fed > max(4 * self.widest_gap, STALE_STEPS)
        if self.layout.depth == 1:  # no stack needs an environment's older frames
            is_stale[:] = True
        is_stale[list(taken)] = False
        if before != NONE and is_stale[before]:
            return int(before)
        return self._choose(np.flatnonzero(is_stale), NONE) if is_stale.any() else None

    def begin(self, env_id: int, stacks: Arrays) -> None:
        """Start an episode with its first stacks, ``(depth, *frame)`` per key, or frames ``(1, *frame)``."""
        one = [stack[None] for stack in stacks]
        env_ids = [env_id]
        if not self.needs_history(stacks):
            self.memory.begin(self.layout.given.newest_of(one), env_ids)
            return
        self.memory.begin(self.layout.given.newest_of([stack[:, :1] for stack in one]), env_ids)
        no_flag = np.zeros(1, bool)
        for newest in range(2, self.layout.depth + 1):
            frames = self.layout.given.newest_of([stack[:, :newest] for stack in one])
            self.memory.append([0], [0.0], no_flag, no_flag, frames, env_ids)
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
        """Append one step of each of ``env_ids`` with its next frame; return the indices."""
        self.memory.append(np.zeros(len(env_ids), np.int64), rewards, terminated, truncated, frames, env_ids)
        indices = np.arange(self.next_index, self.next_index + len(env_ids))
        self.next_index += len(env_ids)
        self.fed[env_ids] = indices
        return indices

    def copy_names(self, old: PixelEnvFeed) -> None:
        """Copy the collector's trajectories and environments from ``old``."""
        self.trajectories[: len(old.trajectories)] = old.trajectories
        self.rows[: len(old.rows)] = old.rows
        self.widest_gap = old.widest_gap

    def hide_from(self, first_index: int) -> None:
        """Hide the steps from this index on, which an interrupted batch has stored."""
        stored = self.memory.sampleable_indices()
        self.next_index = int(stored[-1]) + 1 if stored.size else first_index  # Ctrl-C may come before the count
        self.hidden = np.union1d(self.hidden, np.arange(first_index, self.next_index))

    def record_envs(self, steps: StepBatch, group: slice, env_ids: Indices) -> None:
        """Record the collector's trajectories and environments of ``group``."""
        self.rows[np.isin(self.rows, steps.rows[group])] = NONE  # each of the collector's has one of the memory's
        self.trajectories[env_ids], self.rows[env_ids] = steps.trajectories[group], steps.rows[group]

    def _current_stacks(self) -> Arrays:
        return self.layout.parts_of(self.memory.observations())

    def _choose(self, env_ids: Indices, row: int) -> int:
        """Return the env_id of TorchRL's environment ``row``, or else the least recently used one, unused ones last."""
        own = env_ids[(self.rows[env_ids] == row) & (row != NONE)]
        if own.size:
            return int(own[0])
        fed = self.fed[env_ids]
        return int(env_ids[np.argmin(np.where(fed == NONE, self.next_index, fed))])


STEPS_AT_ONCE = 64  # steps read together when a memory is rebuilt

_log = logging.getLogger(__name__)


class PixelSteps:
    """The pixels of the newest ``num_steps`` steps, each frame once, by the indices that ``add`` returns.

    The first of ``layouts`` that fits the first steps is used. If a later step contradicts it, or if more episodes are
    open than the memory has environments, the memory is rebuilt with all its steps. Then ``renumber`` is called with
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
        # The memory with its steps under the current layout; another one replaces it when the memory is rebuilt.
        self._feed = PixelEnvFeed.create(layouts[0], num_steps, num_envs, make_memory)
        self._unfinished: Indices | None = None  # of the steps of an ``add`` under way

    @property
    def memory(self) -> ReplayMemory:
        """The memory with the frames. It is replaced when it is rebuilt."""
        return self._feed.memory

    @property
    def layout(self) -> PixelLayout:
        """Current layout of the pixels."""
        return self._feed.layout

    def check_steps(self, steps: StepBatch) -> npt.NDArray[np.bool_]:
        """Return which steps continue the previous step of their environment, ``(n,)``, for ``add``.

        Raises:
            InvalidStepError: single frames skip a step of their trajectory, because then stacks would be wrong.
        """
        seen, seen_next = self._stacks_of(steps)
        continues = self._feed.continues_from_previous(steps, seen, seen_next)
        if self.layout.taken.depth < self.layout.depth:
            _check_whole(steps, continues)
        return continues

    def add(self, steps: StepBatch, continues: npt.NDArray[np.bool_]) -> Indices:
        """Store steps and return their indices, ``(n,)``; if it raises, call ``hide_unfinished``."""
        if not self._feed.has_capacity_for(0):  # too many hidden steps of interrupted batches
            self._rebuild(self.layout, self.memory.num_envs, None)
        while not self.layout.are_shifted(*self._stacks_of(steps)):
            self._take_next_layout()
        env_ids, indices = np.full((2, len(steps)), NONE, np.int64)
        self._unfinished = indices
        for group in _groups(steps, continues):
            self._add_group(steps, group, continues, env_ids, indices)
        self._unfinished = None
        return indices

    def hide_unfinished(self) -> None:
        """Hide the steps of an ``add`` that raised."""
        if self._unfinished is not None:
            first = int(self._unfinished[0])
            self._feed.hide_from(self._feed.next_index if first == NONE else first)
            self._unfinished = None

    def transitions(self, indices: Indices) -> tuple[Arrays, Arrays]:
        """Return the pixels before and after the steps with these indices, ``(n, *shape)`` per key.

        Raises:
            NothingToSampleError: one is not stored.
        """
        return self._in_library_layout(self.memory.get(indices))

    def no_pixels(self) -> Arrays:
        """Return empty pixels, ``(0, *shape)`` per key."""
        observations = self.layout.given.to_library(self.memory.observations())
        return [part[:0] for part in self.layout.parts_of(observations)]

    @property
    def num_steps(self) -> int:
        """Maximum number of steps."""
        return self._feed.num_steps

    def state(self) -> dict[str, Any]:
        """Return the state without the memory, as JSON."""
        return {"layout": self._layouts.index(self.layout), "feed": self._feed.state()}

    def restore(self, state: dict[str, Any], memory: ReplayMemory) -> None:
        """Restore a ``state`` with its memory."""
        self._feed = PixelEnvFeed(self._layouts[state["layout"]], self._feed.num_steps, memory)
        self._feed.restore(state["feed"])

    def clear(self) -> None:
        """Remove all steps and start with the first layout again."""
        self._feed = PixelEnvFeed.create(self._layouts[0], self.num_steps, self.memory.num_envs, self._make_memory)

    def _in_library_layout(self, batch: Batch) -> tuple[Arrays, Arrays]:
        given = self.layout.given
        both = given.to_library(batch.observation), given.to_library(batch.next_observation)
        before, after = map(self.layout.parts_of, both)
        return before, after

    def _stacks_of(self, steps: StepBatch) -> tuple[Arrays, Arrays]:
        return self.layout.taken.stacks_of(steps.pixels), self.layout.taken.stacks_of(steps.next_pixels)

    def _add_group(self, steps: StepBatch, group: slice, continues: Any, env_ids: Indices, indices: Indices) -> None:
        """Store steps from different environments."""
        if continues[group].all():
            env_ids[group] = env_ids[steps.previous[group]]
        else:
            self._place(steps, group, continues, env_ids, indices)
        own = env_ids[group]
        seen_next = self.layout.taken.stacks_of([part[group] for part in steps.next_pixels])
        frames = self.layout.taken.newest_of(seen_next)
        indices[group] = self._feed.append(
            steps.rewards[group], steps.terminated[group], steps.truncated[group], frames, own
        )
        self._feed.record_envs(steps, group, own)

    def _place(self, steps: StepBatch, group: slice, continues: Any, env_ids: Indices, indices: Indices) -> None:
        """Assign an environment to each step of ``group``; start episodes for the steps that continue none."""
        seen, _ = self._stacks_of(steps)
        numbers = np.arange(group.start, group.stop)
        on = numbers[continues[group]]
        env_ids[on] = env_ids[steps.previous[on]]
        taken = set(env_ids[on].tolist())
        heads = numbers[~continues[group]]
        for head, env_id in self._feed.find_continued_envs(steps, heads, seen, taken).items():
            env_ids[head] = env_id
        beginning = [int(head) for head in heads if env_ids[head] == NONE]
        for head in beginning:
            while (free := self._feed.env_to_begin(steps, head, env_ids, taken)) is None:
                self._rebuild(self.layout, 2 * self.memory.num_envs, indices)
            env_ids[head] = free
            taken.add(free)
        in_midst = sum(self._feed.needs_history([part[head] for part in seen]) for head in beginning)
        while not self._feed.has_capacity_for(in_midst):
            self._take_next_layout(indices)
            seen, _ = self._stacks_of(steps)
            in_midst = sum(self._feed.needs_history([part[head] for part in seen]) for head in beginning)
        for head in beginning:
            self._feed.begin(int(env_ids[head]), [part[head] for part in seen])

    def _take_next_layout(self, indices: Indices | None = None) -> None:
        """Rebuild the memory under the next layout that fits all stored steps; the last one always fits."""
        for layout in self._layouts[self._layouts.index(self.layout) + 1 :]:
            if self._rebuild(layout, self.memory.num_envs, indices):
                return
        raise AssertionError(f"no layout of {self._layouts} fits the pixels: the last one must")

    def _rebuild(self, layout: PixelLayout, num_envs: int, indices: Indices | None) -> bool:
        """Copy all stored steps to a new memory, and replace old indices in ``indices``; return whether they fit."""
        old, feed = self._feed, PixelEnvFeed.create(layout, self._feed.num_steps, num_envs, self._make_memory)
        stored, env_ids, begins = _list_stored_steps(old)
        for first in range(0, len(stored), STEPS_AT_ONCE):
            part = slice(first, first + STEPS_AT_ONCE)
            batch = old.memory.get(stored[part])
            if not _copy_steps(old.layout, feed, batch, env_ids[part], begins[part]):
                return False
        moved = np.setdiff1d(np.arange(feed.next_index), feed.hidden)
        if len(moved) < len(stored) or not feed.has_capacity_for(0):
            return False
        _log.info("memory is rebuilt with %d steps: %d environments, %s", len(stored), num_envs, layout.given)
        feed.copy_names(old)
        self._feed = feed
        self._renumber(stored, moved)
        if indices is not None:
            is_set = indices != NONE
            indices[is_set] = moved[np.searchsorted(stored, indices[is_set])]
        return True


def _groups(steps: StepBatch, continues: npt.NDArray[np.bool_]) -> Iterator[slice]:
    """Yield slices of steps from different environments, in order; each can be appended in one call."""
    trajectories, can_wait = steps.trajectories.tolist(), ~continues & (steps.trajectories != NONE)
    start = 0
    while start < len(steps):
        stop = start + steps.width
        if steps.width == 1 and can_wait[start]:
            several = {trajectories[start]}
            while (
                stop < min(len(steps), start + STEPS_AT_ONCE) and can_wait[stop] and trajectories[stop] not in several
            ):
                several.add(trajectories[stop])
                stop += 1
        yield slice(start, stop)
        start = stop


def _check_whole(steps: StepBatch, continues: npt.NDArray[np.bool_]) -> None:
    """Raise if a step does not continue the previous step of the same unfinished trajectory."""
    heads = np.flatnonzero(~continues & (steps.previous != NONE) & ~steps.is_first & (steps.trajectories != NONE))
    before = steps.previous[heads]
    has_hole = (steps.trajectories[heads] == steps.trajectories[before]) & ~(steps.terminated | steps.truncated)[before]
    if has_hole.any():
        at = heads[has_hole][0]
        raise InvalidStepError(
            f"step {at} of trajectory {steps.trajectories[at]}: its pixels are not the next pixels of the step before, "
            "so their stack is unknown; add all steps in order, without MultiStepTransform, or stack in the environment"
        )


def _list_stored_steps(feed: PixelEnvFeed) -> tuple[Indices, Indices, Indices]:
    """Return the indices of all steps of cells, ascending, their environments, and whether they start an episode."""
    parts = [np.zeros((3, 0), np.int64)]
    for episode in feed.memory.episodes():
        own = np.setdiff1d(episode.indices, feed.hidden)
        parts.append(np.stack([own, np.full(len(own), episode.env_id), np.arange(len(own)) == 0]))
    steps = np.concatenate(parts, axis=1)
    stored, env_ids, begins = steps[:, np.argsort(steps[0])[-feed.num_steps :]]
    begins[np.unique(env_ids, return_index=True)[1]] = 1  # their previous steps are evicted
    return stored, env_ids, begins


def _copy_steps(old: PixelLayout, feed: PixelEnvFeed, batch: Batch, env_ids: Indices, begins: Indices) -> bool:
    """Copy steps of a memory with layout ``old`` to ``feed``; return ``False`` if its layout does not fit them."""
    if feed.layout is old:
        seen, seen_next = old.parts_of(batch.observation), old.parts_of(batch.next_observation)
    else:
        pixels = [old.parts_of(old.given.to_library(stacks)) for stacks in (batch.observation, batch.next_observation)]
        seen, seen_next = map(feed.layout.taken.stacks_of, pixels)
        if not feed.layout.are_shifted(seen, seen_next):
            return False
    for number, env_id in enumerate(env_ids.tolist()):
        if begins[number]:
            feed.begin(env_id, [part[number] for part in seen])
        at = slice(number, number + 1)
        frames = feed.layout.given.newest_of([part[at] for part in seen_next])
        feed.append(batch.reward[at], batch.terminated[at], batch.truncated[at], frames, env_ids[at])
    return True
