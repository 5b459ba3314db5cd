"""Stores the pixels of steps from any number of environments in a memory, in any order of environments.

A *head* is a step that does not continue the previous step of its batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError
from framestow.integrations.drop_in.paired_steps import memory_from_bytes, memory_to_bytes, num_steps_taken
from framestow.integrations.torchrl.steps import NONE, Indices, PixelForm, StepBatch
from framestow.replay.added_steps import equal_rows
from framestow.replay.memory import ReplayMemory
from framestow.replay.observation_layout import Arrays

SPARE_STEPS = 256  # of interrupted batches, which no cell has
STALE_STEPS = 1024  # an environment without a step for longer may be reused
STEPS_AT_ONCE = 64

_log = logging.getLogger(__name__)


class PixelSteps:
    """The pixels of the newest ``num_steps`` steps, each frame once, by the numbers that ``add`` returns.

    A step continues the environment of the memory whose newest pixels are the step's pixels, or starts an episode in a
    free one. If more episodes are open than the memory has environments, a larger memory with the same steps replaces
    it. Single frames from the middle of an episode are stacked as if the episode started there.

    Arguments:
        form: the form of added and sampled pixels.
        num_steps: number of storage cells.
        num_envs: number of environments of the first memory.
        make_memory: creates a memory from ``capacity`` and ``num_envs``.
    """

    def __init__(
        self, form: PixelForm, num_steps: int, num_envs: int, make_memory: Callable[..., ReplayMemory]
    ) -> None:
        self.form, self.num_steps, self._make_memory = form, num_steps, make_memory
        self._begin_with(make_memory(capacity=max(num_steps + SPARE_STEPS, num_envs), num_envs=num_envs))

    def _begin_with(self, memory: ReplayMemory) -> None:
        self.memory = memory
        """The memory with the pixels; ``clear`` and more environments replace it."""
        self._first_number = 0  # number of the memory's index 0
        self._hidden = np.zeros(0, np.int64)  # numbers of steps of interrupted batches that the memory may still have
        # Of each environment: the collector's number of its episode, its newest step, and the collector's environment.
        self._trajectories, self._newest_steps, self._rows = np.full((3, memory.num_envs), NONE, np.int64)
        self._widest_gap = 0  # most steps between two of one episode

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": (memory_to_bytes(self.memory), self.memory._settings.threads)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "memory": memory_from_bytes(*state["memory"])}

    def state(self) -> dict[str, Any]:
        """Return the state without the memory, as JSON."""
        return {
            "first_number": self._first_number,
            "hidden": self._hidden.tolist(),
            "envs": [self._trajectories.tolist(), self._newest_steps.tolist(), self._rows.tolist()],
            "widest_gap": self._widest_gap,
        }

    def restore(self, state: dict[str, Any], memory: ReplayMemory) -> None:
        """Restore a ``state`` with its memory."""
        self._begin_with(memory)
        self._first_number, self._widest_gap = state["first_number"], state["widest_gap"]
        self._hidden = np.array(state["hidden"], np.int64)
        self._trajectories, self._newest_steps, self._rows = np.array(state["envs"], np.int64)

    def clear(self) -> None:
        """Remove all steps."""
        self._begin_with(self._make_memory(capacity=self.memory.capacity, num_envs=self.memory.num_envs))

    @property
    def next_number(self) -> int:
        """Number of the next step."""
        return self._first_number + num_steps_taken(self.memory)

    def check_steps(self, steps: StepBatch) -> npt.NDArray[np.bool_]:
        """Return which steps continue the previous step of their environment, ``(n,)``, for ``add``.

        Raises:
            InvalidStepError: single frames skip a step of their trajectory, because then stacks would be wrong.
        """
        continues = _continues_from_previous(steps)
        if self.form.stacks is not None and self.memory.stack > 1:
            _check_whole(steps, continues)
        return continues

    def add(self, steps: StepBatch, continues: npt.NDArray[np.bool_]) -> Indices:
        """Store steps and return their numbers, ``(n,)``; if it raises, call ``hide_from``."""
        memory = self.memory
        self._hidden = self._hidden[self._hidden >= self.next_number - memory.capacity]
        if self.num_steps + len(self._hidden) > memory.capacity:  # too many steps of interrupted batches
            self._rebuild(memory.capacity + len(self._hidden), memory.num_envs)
        env_ids, numbers = np.full((2, len(steps)), NONE, np.int64)
        for group in _groups(steps, continues):
            self._add_group(steps, group, continues, env_ids, numbers)
        return numbers

    def hide_from(self, number: int) -> None:
        """Hide the steps from this number on, which an interrupted ``add`` has stored: no cell has them."""
        self._hidden = np.union1d(self._hidden, np.arange(number, self.next_number))

    def transitions(self, numbers: Indices) -> tuple[Arrays, Arrays]:
        """Return the pixels before and after the steps with these numbers, ``(n, *shape)`` per key.

        Raises:
            NothingToSampleError: one is not stored.
        """
        batch = self.memory.get(numbers - self._first_number)
        return self.form.sampled(batch.observation), self.form.sampled(batch.next_observation)

    def _add_group(self, steps: StepBatch, group: slice, continues: Any, env_ids: Indices, numbers: Indices) -> None:
        """Store steps from different environments."""
        if continues[group].all():
            env_ids[group] = env_ids[steps.previous[group]]
        else:
            self._place(steps, group, continues, env_ids)
        own, first, arrange = env_ids[group], self.next_number, self.form.arrange
        values = np.zeros(len(own), np.int64), steps.rewards[group]
        ends = steps.terminated[group], steps.truncated[group]
        following = arrange(steps.next_pixels, group)
        if self.form.stacks is None:
            self.memory.add(arrange(steps.pixels, group), *values, following, *ends, own)
        else:
            self.memory.append(*values, *ends, following, own)
        numbers[group] = self._newest_steps[own] = np.arange(first, first + len(own))

    def _place(self, steps: StepBatch, group: slice, continues: Any, env_ids: Indices) -> None:
        """Assign an environment to each step of ``group``; start episodes for the steps that continue none."""
        numbers = np.arange(group.start, group.stop)
        on = numbers[continues[group]]
        env_ids[on] = env_ids[steps.previous[on]]
        taken = set(env_ids[on].tolist())
        heads = numbers[~continues[group]]
        for head, env_id in self._find_continued_envs(steps, heads, taken).items():
            env_ids[head] = env_id
        beginning = heads[env_ids[heads] == NONE]
        for head in beginning.tolist():
            while (free := self._env_to_begin(steps, head, env_ids, taken)) is None:
                num_envs = 2 * self.memory.num_envs
                self._rebuild(max(self.memory.capacity, num_envs), num_envs)
            env_ids[head] = free
            taken.add(free)
        if beginning.size:
            self.memory.begin(self.form.arrange(steps.pixels, beginning), env_ids[beginning])
        own = env_ids[group]
        self._rows[np.isin(self._rows, steps.rows[group])] = NONE  # each of the collector's has one of the memory's
        self._trajectories[own], self._rows[own] = steps.trajectories[group], steps.rows[group]

    def _find_continued_envs(self, steps: StepBatch, heads: Indices, taken: set[int]) -> dict[int, int]:
        """Return the env_id of each head that continues an open environment, by head; skip those in ``taken``."""
        found: dict[int, int] = {}
        is_open, newest = self.memory.open_episodes, self.form.newest(self.memory.observations())
        for head in heads.tolist():
            fits = is_open.copy() if not steps.is_first[head] else np.zeros_like(is_open)
            fits[list(taken)] = False
            number = steps.trajectories[head]
            fits &= (self._trajectories == NONE) | (number == NONE) | (self._trajectories == number)
            for part, last in zip(steps.pixels, newest, strict=True):
                at = np.flatnonzero(fits)
                if not at.size:
                    break
                fits[at] = equal_rows(last[at], part[head][None])
            if fits.any():
                env_id = self._choose(np.flatnonzero(fits), steps.rows[head])
                self._widest_gap = max(self._widest_gap, self.next_number - int(self._newest_steps[env_id]))
                found[head] = env_id
                taken.add(env_id)
        return found

    def _env_to_begin(self, steps: StepBatch, head: int, env_ids: Indices, taken: set[int]) -> int | None:
        """Return the environment in which this step starts an episode; ``None`` if none is free."""
        is_free = ~self.memory.open_episodes
        is_free[list(taken)] = False
        own = np.flatnonzero((self._rows == steps.rows[head]) & (self._rows != NONE))
        if own.size and int(own[0]) not in taken:  # same environment, reset in mid-episode if open
            return int(own[0])
        before = env_ids[steps.previous[head]] if steps.previous[head] != NONE else NONE
        if before != NONE and is_free[before]:
            return int(before)
        if is_free.any():
            return self._choose(np.flatnonzero(is_free), NONE)
        is_stale = self.next_number - self._newest_steps > max(4 * self._widest_gap, STALE_STEPS)
        if self.memory.stack == 1:  # no stack needs an environment's older frames
            is_stale[:] = True
        is_stale[list(taken)] = False
        if before != NONE and is_stale[before]:
            return int(before)
        return self._choose(np.flatnonzero(is_stale), NONE) if is_stale.any() else None

    def _choose(self, env_ids: Indices, row: int) -> int:
        """Return the env_id of TorchRL's environment ``row``, or else the least recently used one, unused ones last."""
        own = env_ids[(self._rows[env_ids] == row) & (row != NONE)]
        if own.size:
            return int(own[0])
        newest = self._newest_steps[env_ids]
        return int(env_ids[np.argmin(np.where(newest == NONE, self.next_number, newest))])

    def _rebuild(self, capacity: int, num_envs: int) -> None:
        """Replace the memory by a larger one with the same steps, which keep their numbers."""
        old, memory = self.memory, self._make_memory(capacity=capacity, num_envs=num_envs)
        stored = old.sampleable_indices()
        env_ids = np.zeros(len(stored), np.int64)
        for episode in old.episodes():
            env_ids[np.searchsorted(stored, episode.indices)] = episode.env_id
        for first in range(0, len(stored), STEPS_AT_ONCE):
            part = slice(first, first + STEPS_AT_ONCE)
            batch = old.get(stored[part])
            for at, env_id in enumerate(env_ids[part]):
                one = slice(at, at + 1)
                pixels, following = (
                    self.form.arrange(self.form.parts_of(each), one)
                    for each in (batch.observation, batch.next_observation)
                )
                memory.add(
                    pixels, [0], batch.reward[one], following, batch.terminated[one], batch.truncated[one], [env_id]
                )
        _log.info("a memory for %d environments takes over %d steps", num_envs, len(stored))
        more = np.full((3, num_envs - old.num_envs), NONE, np.int64)
        of_envs = np.concatenate([[self._trajectories, self._newest_steps, self._rows], more], axis=1)
        self._trajectories, self._newest_steps, self._rows = of_envs
        self.memory = memory
        self._first_number += int(stored[0]) if stored.size else num_steps_taken(old)


def _continues_from_previous(steps: StepBatch) -> npt.NDArray[np.bool_]:
    """Return which steps continue the previous step of their environment in the batch."""
    has_previous = np.flatnonzero((steps.previous != NONE) & ~steps.is_first)
    before = steps.previous[has_previous]
    follows = ~(steps.terminated | steps.truncated)[before]
    follows &= steps.trajectories[has_previous] == steps.trajectories[before]
    now, before = has_previous[follows], before[follows]
    for part, after in zip(steps.pixels, steps.next_pixels, strict=True):
        if now.size:
            equal = equal_rows(part[now], after[before])
            now, before = now[equal], before[equal]
    continues = np.zeros(len(steps), bool)
    continues[now] = True
    return continues


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
