"""Stores the pixels of steps from any number of environments in a memory, in any order of environments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from framestow.errors import InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.integrations.drop_in.paired_steps import memory_from_bytes, memory_to_bytes, num_steps_taken
from framestow.integrations.torchrl.steps import NONE, FrameStacking, Indices, Pixels, StepBatch
from framestow.replay.added_steps import equal_rows
from framestow.replay.memory import ReplayMemory

SPARE_STEPS = 256  # of the memory, for steps that no cell has after an interrupt
MIN_ENVS = 16  # of the memory, however few environments the first batch has
MAX_OPEN = 1024  # episodes; if more are open, the one without a step for longest is over


class Episode(NamedTuple):
    """An open episode. ``pixels`` are those that its next step has, by key: stacks, if frames are stacked."""

    env_id: int  # of the memory
    newest: int  # number of its newest step
    trajectory: int
    row: int
    pixels: Pixels


class Plan(NamedTuple):
    """Where some steps are stored, with which observations, and what is open afterwards."""

    env_ids: list[int]
    before: list[Pixels]
    after: list[Pixels]
    episodes: dict[int, Episode]  # open ones, by the number of their first step; without a step for longest first
    last_used: Indices  # by environment: number of the newest step; -1 if there is none


class PixelSteps:
    """The pixels of the newest ``num_steps`` steps, each frame once; a step's number is its index in the memory.

    A step continues the open episode whose newest pixels are the step's pixels, or begins an episode. If more episodes
    are open than the memory has environments, some share one. That costs bytes where they take turns.

    Arguments:
        specs: spec of each array of added pixels, by name.
        stacking: how frames are stacked, of each array; ``None`` if samples have the pixels that were added.
        num_steps: number of storage cells.
        num_envs: number of environments of the memory.
        settings: ``threads``, ``storage`` and ``stack_padding`` of the memory.
    """

    def __init__(
        self,
        specs: dict[str, FrameSpec],
        stacking: list[FrameStacking] | None,
        num_steps: int,
        num_envs: int,
        settings: dict[str, Any],
    ) -> None:
        self._names, self._stacking, self.num_steps = list(specs), stacking, num_steps
        self.sampled = list(specs.values())
        """Spec of each array of sampled pixels."""
        stack_axis = None
        if stacking is not None:
            self.sampled = [
                replace(spec, shape=each.begin(np.empty(spec.shape, spec.dtype)).shape)
                for spec, each in zip(self.sampled, stacking, strict=True)
            ]
            stack_axis = self._observation_of([(each.axis, each.depth) for each in stacking])
        self._arguments = {
            "capacity": max(num_steps + SPARE_STEPS, num_envs),
            "num_envs": num_envs,
            "observation_space": self._observation_of(self.sampled),
            "stack_axis": stack_axis,
            "action_space": 1,
            "seed": 0,  # unused: TorchRL draws
            **settings,
        }
        self.clear()

    def clear(self) -> None:
        """Remove all steps."""
        self.memory = ReplayMemory(**self._arguments)
        """The memory with the pixels; ``clear`` replaces it."""
        self._episodes: dict[int, Episode] = {}
        self._last_used = np.full(self.memory.num_envs, NONE, np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": memory_to_bytes(self.memory)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "memory": memory_from_bytes(state["memory"], state["_arguments"]["threads"])}

    def state(self) -> dict[str, Any]:
        """Return the state without the memory, as JSON."""
        episodes = [(number, *episode[:-1]) for number, episode in self._episodes.items()]
        return {"episodes": episodes, "last_used": self._last_used.tolist()}

    def restore(self, state: dict[str, Any], memory: ReplayMemory) -> None:
        """Restore a ``state`` with its memory."""
        self.memory, self._last_used = memory, np.array(state["last_used"], np.int64)
        oldest = self.next_number - len(memory)
        stored = [episode for episode in state["episodes"] if episode[2] >= oldest]
        if stored:
            pixels = self._parts_of(memory.get([episode[2] for episode in stored]).next_observation)
            self._episodes = {
                number: Episode(env_id, newest, trajectory, row, tuple(part[at].copy() for part in pixels))
                for at, (number, env_id, newest, trajectory, row) in enumerate(stored)
            }

    @property
    def next_number(self) -> int:
        """Number of the next step."""
        return num_steps_taken(self.memory)

    def transitions(self, numbers: Indices) -> tuple[Pixels, Pixels]:
        """Return the pixels before and after the steps with these numbers, ``(n, *shape)`` per key.

        Raises:
            NothingToSampleError: one is not stored.
        """
        batch = self.memory.get(numbers, shares_frames=False)
        return self._parts_of(batch.observation), self._parts_of(batch.next_observation)

    def plan(self, steps: StepBatch) -> Plan:
        """Return how ``steps`` are to be stored, for ``add``.

        Raises:
            InvalidStepError: single frames skip a step of their trajectory, because then stacks would be wrong.
        """
        return self._plan(steps, self.next_number, len(steps))

    def add(self, steps: StepBatch, plan: Plan, num_together: int) -> None:
        """Store steps in order. If an exception stops it, the first ``num_together`` ones, twice as many, … are stored.

        No cell has any step behind those, which may be in the memory.
        """
        first = self.next_number
        try:
            for group in _groups(plan.env_ids):
                self._add_group(steps, plan, group)
        finally:
            stored = (self.next_number - first) // num_together * num_together
            done = plan if stored == len(steps) else self._plan(steps, first, stored)
            if self._stacking is None:  # the pixels are the caller's arrays
                for number, episode in done.episodes.items():
                    if episode.newest >= first:
                        done.episodes[number] = episode._replace(pixels=tuple(part.copy() for part in episode.pixels))
            self._episodes, self._last_used = done.episodes, done.last_used

    def _add_group(self, steps: StepBatch, plan: Plan, group: slice) -> None:
        """Store steps from different environments."""
        if self._stacking is None:
            before, after = ([part[group] for part in parts] for parts in (steps.pixels, steps.next_pixels))
        else:
            before, after = (
                [np.stack(parts) for parts in zip(*stacks[group], strict=True)] for stacks in (plan.before, plan.after)
            )
        zeros = np.zeros(group.stop - group.start, np.int64)
        self.memory.add(
            self._observation_of(before),
            zeros,
            zeros,
            self._observation_of(after),
            steps.terminated[group],
            steps.truncated[group],
            plan.env_ids[group],
        )

    def _plan(self, steps: StepBatch, first: int, count: int) -> Plan:
        """Return how the first ``count`` steps are to be stored, the first of them with the number ``first``."""
        plan = Plan([], [], [], dict(self._episodes), self._last_used.copy())
        ended, previous = (steps.terminated | steps.truncated).tolist(), steps.previous.tolist()
        numbers: list[int] = []  # of each step's episode
        for at in range(count):
            number = self._find(steps, at, plan.episodes, numbers[previous[at]] if previous[at] != NONE else NONE)
            if number == NONE:
                number = first + at
                pixels = tuple(part[at] for part in steps.pixels)
                if self._stacking is not None:
                    pixels = tuple(each.begin(frame) for each, frame in zip(self._stacking, pixels, strict=True))
                env_id = self._free_env(plan)
            else:
                env_id, *_, pixels = plan.episodes.pop(number)
            after = tuple(part[at] for part in steps.next_pixels)
            if self._stacking is not None:
                stacks = zip(self._stacking, pixels, after, strict=True)
                after = tuple(each.push(stack, frame) for each, stack, frame in stacks)
            numbers.append(number)
            plan.env_ids.append(env_id)
            plan.before.append(pixels)
            plan.after.append(after)
            plan.last_used[env_id] = first + at
            if not ended[at]:
                plan.episodes[number] = Episode(
                    env_id, first + at, int(steps.trajectories[at]), int(steps.rows[at]), after
                )
        for number in list(islice(plan.episodes, max(len(plan.episodes) - MAX_OPEN, 0))):
            del plan.episodes[number]
        return plan

    def _find(self, steps: StepBatch, at: int, episodes: dict[int, Episode], previous: int) -> int:
        """Return the number of the open episode that step ``at`` continues; -1 if it begins one.

        ``previous``: number of the episode of the previous step of its environment.
        """
        if steps.is_first[at]:
            return NONE
        trajectory, row = int(steps.trajectories[at]), int(steps.rows[at])
        if previous in episodes and self._continues(steps, at, episodes[previous], trajectory):
            return previous
        if self._stacking is not None and previous in episodes and episodes[previous].trajectory == trajectory != NONE:
            raise InvalidStepError(
                f"step {at} of trajectory {trajectory}: its pixels are not the next pixels of the step before, so "
                "their stack is unknown; add all steps in order, without MultiStepTransform, or stack in the "
                "environment"
            )
        found = [number for number, episode in episodes.items() if self._continues(steps, at, episode, trajectory)]
        return next((number for number in found if episodes[number].row == row), found[0]) if found else NONE

    def _continues(self, steps: StepBatch, at: int, episode: Episode, trajectory: int) -> bool:
        if trajectory != episode.trajectory and NONE not in (trajectory, episode.trajectory):
            return False
        newest = episode.pixels
        if self._stacking is not None:
            newest = tuple(each.newest(stack) for each, stack in zip(self._stacking, newest, strict=True))
        return all(
            equal_rows(part[at : at + 1], last[None])[0] for part, last in zip(steps.pixels, newest, strict=True)
        )

    def _free_env(self, plan: Plan) -> int:
        """Return the environment in which an episode begins: a free one, or else the one without a step for longest."""
        is_free = np.ones(self.memory.num_envs, np.bool_)
        is_free[[episode.env_id for episode in plan.episodes.values()]] = False
        was_used = plan.last_used >= 0
        for choice in (is_free & was_used, is_free, was_used):  # few environments have few open segments
            if choice.any():
                break
        env_ids = np.flatnonzero(choice)
        return int(env_ids[np.argmin(plan.last_used[env_ids])])

    def _observation_of(self, parts: Any) -> Any:
        return parts[0] if len(self._names) == 1 else dict(zip(self._names, parts, strict=True))

    def _parts_of(self, observations: Any) -> Pixels:
        return (observations,) if len(self._names) == 1 else tuple(observations[name] for name in self._names)


def _groups(env_ids: list[int]) -> Iterator[slice]:
    """Yield slices of steps from different environments, in order; each can be added in one call.

    >>> list(_groups([0, 1, 0, 1, 1]))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    start, several = 0, set[int]()
    for at, env_id in enumerate(env_ids):
        if env_id in several:
            yield slice(start, at)
            start, several = at, set()
        several.add(env_id)
    if several:
        yield slice(start, len(env_ids))
