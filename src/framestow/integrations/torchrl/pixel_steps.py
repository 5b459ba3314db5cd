"""Stores the pixels of steps from any number of environments in a memory, in any order of environments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDictBase

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import equal_rows
from framestow.integrations.drop_in.paired_steps import ContiguousCopies, num_steps_taken
from framestow.integrations.drop_in.pickled_memory import PickledMemory, close_and_remove, make_memory
from framestow.integrations.torchrl.packed_pixels import PackedPixels
from framestow.integrations.torchrl.steps import NONE, Indices, Key, PixelKeys, Pixels, StepBatch, name_of
from framestow.replay.memory import ReplayMemory
from framestow.replay.settings.observation_layout import StackLayout, stacks_on

SPARE_STEPS = 256  # of the memory, for steps that no cell has after an interrupt
MIN_ENVS = 16  # of the memory, however few environments the first batch has
MAX_OPEN = 1024  # episodes; if more are open, the one without a step for longest is over


class Episode(NamedTuple):
    """An open episode. ``pixels`` are those that its next step has, by key; empty where its trajectory is enough."""

    env_id: int  # of the memory
    newest: int  # number of its newest step
    trajectory: int
    row: int
    pixels: Pixels


class Plan(NamedTuple):
    """Where some steps are stored, and what is open afterwards."""

    env_ids: list[int]
    previous: list[int]  # number of the step that each continues; -1 if it begins an episode
    is_current: list[bool]  # whether that is the newest step of the environment
    episodes: dict[int, Episode]  # open ones, by the number of their first step; without a step for longest first
    newest: Indices  # number of each environment's newest step; -1 if there is none


class PixelSteps:
    """The pixels of the newest ``num_steps`` steps, each frame once; a step's number is its index in the memory.

    A step continues the open episode whose newest pixels are the step's pixels, or begins an episode. If more episodes
    are open than the memory has environments, some share one. That costs bytes where they take turns.

    Arguments:
        keys: the pixel keys.
        stacks: how single frames are stacked, of each key; ``None`` if samples have the pixels that were added.
        num_steps: number of storage cells.
        num_envs: number of environments of the memory.
        settings: options of the memory, and its ``stack_padding``.
        memory: a saved one, before ``restore``.
    """

    def __init__(
        self,
        keys: PixelKeys,
        stacks: list[StackLayout] | None,
        num_steps: int,
        num_envs: int,
        settings: dict[str, Any],
        memory: ReplayMemory | None = None,
    ) -> None:
        self.keys, self._stacks, self.num_steps = keys, stacks, num_steps
        self._may_be_stacked = stacks is not None and stacks[0].depth > 1  # until pixels have changed
        self._names, self._copies = list(map(name_of, keys.keys)), ContiguousCopies()
        self._arguments = {
            "capacity": max(num_steps + SPARE_STEPS, num_envs),
            "num_envs": num_envs,
            "observation_space": self._observation_of(keys.specs),
            "stack": None if stacks is None else stacks[0].depth,
            "action_space": 1,
            "seed": 0,  # unused: TorchRL draws
            **settings,
        }
        self._begin(memory or make_memory(resumes=False, **self._arguments))

    def clear(self) -> None:
        """Remove all steps, in the directory too."""
        close_and_remove(self.memory)
        self._begin(make_memory(resumes=False, **self._arguments))

    def _begin(self, memory: ReplayMemory) -> None:
        self._own(memory)
        self._episodes: dict[int, Episode] = {}
        self._newest = np.full(self.memory.num_envs, NONE, np.int64)

    def _own(self, memory: ReplayMemory) -> None:
        self.memory = memory
        """The memory with the pixels; ``clear`` replaces it."""
        memory.inner.watch.frame_stack = "frame_stack"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": PickledMemory(self.memory)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._own(state["memory"].load())

    def state(self) -> dict[str, Any]:
        """Return the state without the memory, as JSON."""
        episodes = [(number, *episode[:-1]) for number, episode in self._episodes.items()]
        newest = self._newest.tolist()
        return {"keys": self.keys.state(), "num_steps": self.num_steps, "episodes": episodes, "newest": newest}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the steps of a ``state``, whose memory it was built with."""
        self._newest = np.array(state["newest"], np.int64)
        oldest = self.next_number - len(self.memory)
        stored = [episode for episode in state["episodes"] if episode[2] >= oldest]
        if stored:
            pixels = self._parts_of(self.memory.get([episode[2] for episode in stored]).next_observation)
            if self._stacks is not None:
                pixels = tuple(part[:, -1] for part in pixels)
            self._episodes = {
                number: Episode(env_id, newest, trajectory, row, tuple(part[at].copy() for part in pixels))
                for at, (number, env_id, newest, trajectory, row) in enumerate(stored)
            }

    @property
    def next_number(self) -> int:
        """Number of the next step."""
        return num_steps_taken(self.memory)

    def read(self, numbers: torch.Tensor) -> dict[Key, torch.Tensor]:
        """Return the pixels of steps by their numbers, ``(*numbers.shape, *shape)`` per key. You may write to them.

        Raises:
            NothingToSampleError: a step is not stored.
        """
        batch = self.memory.get(numbers.reshape(-1).cpu().numpy(), shares_frames=False)
        parts = [*self._parts_of(batch.observation), *self._parts_of(batch.next_observation)]
        if self._stacks is not None:
            parts = [stacks.join(part) for stacks, part in zip(2 * self._stacks, parts, strict=True)]
        tensors = [torch.from_numpy(self._copies.of(part)) for part in parts]
        whole = [part.reshape(*numbers.shape, *part.shape[1:]).to(numbers.device) for part in tensors]
        return dict(zip(self.keys.all_keys, whole, strict=True))

    @property
    def sampled_specs(self) -> list[FrameSpec]:
        """Shape and dtype of the pixels that ``read`` returns of one step, of each key."""
        if self._stacks is None:
            return self.keys.specs
        shapes = [
            stacks.observation_shape(spec.shape) for stacks, spec in zip(self._stacks, self.keys.specs, strict=True)
        ]
        return [replace(spec, shape=shape) for spec, shape in zip(self.keys.specs, shapes, strict=True)]

    def read_packed(self, numbers: torch.Tensor) -> dict[Key, torch.Tensor]:
        """Return the same as ``PackedPixels``."""
        specs = self.sampled_specs
        nothing = [torch.from_numpy(np.empty((0, *spec.shape), spec.dtype)) for spec in specs]
        return {
            key: PackedPixels(partial(self._read_key, key), numbers, part)
            for key, part in zip(self.keys.all_keys, 2 * nothing, strict=True)
        }

    def equal_stored(self, data: TensorDictBase, numbers: torch.Tensor) -> bool:
        """Return whether ``data`` has no pixels, or the pixels of the steps with these numbers."""
        given = {key: pixels for key in self.keys.all_keys if (pixels := data.get(key, None)) is not None}
        stored = self.read(numbers) if given else {}
        return all(torch.equal(pixels.to(numbers.device), stored[key]) for key, pixels in given.items())

    def add(self, steps: StepBatch, num_together: int) -> None:
        """Store steps in order. If an exception stops it, the first ``num_together`` ones, twice as many, … are stored.

        No cell has any step behind those, which may be in the memory.

        Raises:
            InvalidStepError: single frames skip a step of their trajectory, because then stacks would be wrong; or they
                are stacks already. Nothing is stored.
        """
        if self._stacks is not None and steps.is_skipping.any():
            at = int(steps.is_skipping.argmax())
            raise InvalidStepError(
                f"step {at} of trajectory {steps.trajectories[at]}: its pixels are not the next pixels of the step "
                "before, so their stack is unknown; add all steps in order, without MultiStepTransform, or stack in "
                "the environment"
            )
        if self._may_be_stacked:
            self._check_not_stacked(steps)
        first = self.next_number
        plan = self._plan(steps, first, len(steps))
        try:
            for group in _groups(plan.env_ids):
                self._add_group(steps, plan, group)
        finally:
            stored = (self.next_number - first) // num_together * num_together
            if stored < len(steps):
                plan = self._plan(steps, first, stored)
                plan.newest[:] = NONE  # an episode may have begun without its step
            for number, episode in plan.episodes.items():
                if episode.newest >= first:  # its pixels are the caller's arrays
                    plan.episodes[number] = episode._replace(pixels=tuple(part.copy() for part in episode.pixels))
            self._episodes, self._newest = plan.episodes, plan.newest

    def _check_not_stacked(self, steps: StepBatch) -> None:
        """Raise ``InvalidStepError`` if what should be single frames are stacks, shifted by a frame with each step."""
        for spec, stacks, before, after in zip(
            self.keys.specs, self._stacks or (), steps.pixels, steps.next_pixels, strict=True
        ):
            changed = ~equal_rows(before, after)
            self._may_be_stacked &= not changed.any()
            if len(spec.shape) < 3 or spec.shape[stacks.axis] % stacks.depth or not changed.any():
                continue
            given = stacks_on(spec.shape, stacks.axis, stacks.depth)
            is_shifted = equal_rows(given.split(before)[:, 1:], given.split(after)[:, :-1])
            if (is_shifted | ~changed).all():
                raise InvalidStepError(
                    f"frame_stack is {stacks.depth}: the pixels of shape {spec.shape} are stacks of {stacks.depth} "
                    "frames already, and would be stacked again; leave frame_stack out: each frame is stored once then"
                )

    def _add_group(self, steps: StepBatch, plan: Plan, group: slice) -> None:
        """Store steps from different environments."""
        env_ids, zeros = plan.env_ids[group], np.zeros(group.stop - group.start, np.int64)
        before, after = (
            self._observation_of([part[group] for part in parts]) for parts in (steps.pixels, steps.next_pixels)
        )
        ends = steps.terminated[group], steps.truncated[group]
        if self._stacks is None:
            self.memory.add(before, zeros, zeros, after, *ends, env_ids)
            return
        for at, env_id in enumerate(env_ids, group.start):
            if plan.previous[at] == NONE:
                frame = self._observation_of([part[at : at + 1] for part in steps.pixels])
                self.memory.begin(frame, [env_id])
            elif not plan.is_current[at]:  # another episode came in between
                stack = self.memory.get([plan.previous[at]]).next_observation
                self.memory.inner.begin_whole(stack, [env_id])
        self.memory.append(zeros, zeros, *ends, after, env_ids)

    def _plan(self, steps: StepBatch, first: int, count: int) -> Plan:
        """Return how the first ``count`` steps are to be stored, the first of them with the number ``first``."""
        plan = Plan([], [], [], dict(self._episodes), self._newest.copy())
        ended, previous = (steps.terminated | steps.truncated).tolist(), steps.previous.tolist()
        trajectories, rows = steps.trajectories.tolist(), steps.rows.tolist()
        numbers: list[int] = []  # of each step's episode
        for at in range(count):
            number = numbers[previous[at]] if previous[at] != NONE else NONE
            episode = plan.episodes.get(number)
            if episode is None or episode.newest != first + previous[at]:  # two rows may have had equal pixels
                number = self._find(steps, at, plan.episodes)
            if number == NONE:
                number, env_id, newest = first + at, self._free_env(plan.episodes), NONE
            else:
                env_id, newest = plan.episodes.pop(number)[:2]
            numbers.append(number)
            plan.env_ids.append(env_id)
            plan.previous.append(newest)
            plan.is_current.append(plan.newest[env_id] == newest)
            plan.newest[env_id] = first + at
            if not ended[at]:
                is_told = self._stacks is None and trajectories[at] != NONE  # and the memory compares the pixels
                pixels = () if is_told else tuple(part[at] for part in steps.next_pixels)
                plan.episodes[number] = Episode(env_id, first + at, trajectories[at], rows[at], pixels)
        for number in list(islice(plan.episodes, max(len(plan.episodes) - MAX_OPEN, 0))):
            del plan.episodes[number]
        return plan

    def _find(self, steps: StepBatch, at: int, episodes: dict[int, Episode]) -> int:
        """Return the number of the open episode that step ``at`` continues; -1 if it begins one."""
        if steps.is_first[at]:
            return NONE
        trajectory, row = int(steps.trajectories[at]), int(steps.rows[at])
        found = [
            number
            for number, episode in episodes.items()
            if episode.trajectory == trajectory
            and all(
                equal_rows(part[at : at + 1], last[None])[0]
                for part, last in zip(steps.pixels, episode.pixels, strict=False)
            )
        ]
        return next((number for number in found if episodes[number].row == row), found[0]) if found else NONE

    def _free_env(self, episodes: dict[int, Episode]) -> int:
        """Return the environment in which an episode begins: a free one, or else the one without a step for longest."""
        used = {episode.env_id: None for episode in episodes.values()}
        free = (env_id for env_id in range(self.memory.num_envs) if env_id not in used)
        return next(free, next(iter(used), 0))

    def _read_key(self, key: Key, numbers: torch.Tensor) -> torch.Tensor:
        return self.read(numbers)[key]

    def _observation_of(self, parts: Any) -> Any:
        return parts[0] if len(self._names) == 1 else dict(zip(self._names, parts, strict=True))

    def _parts_of(self, observations: Any) -> Pixels:
        return (observations,) if len(self._names) == 1 else tuple(observations[name] for name in self._names)


def stacks_along(shape: tuple[int, ...], depth: int, dim: int) -> StackLayout:
    """Return how ``depth`` frames of ``shape`` are stacked along ``dim``, as ``CatFrames`` does.

    Raises:
        InvalidSettingsError: ``dim`` is neither the first nor the last axis of the frames.
    """
    if len(shape) == 2 and dim == -3:
        return StackLayout(0, depth)  # the frames have no axis of channels yet
    if dim not in (-1, -len(shape)):
        raise InvalidSettingsError(
            f"dim is {dim}: for frames of shape {shape} it must be {-len(shape)}, the first axis, or -1, the last; "
            "give the axis of the channels"
        )
    axis = -1 if dim == -1 else 0
    return StackLayout(axis, depth, shape[axis])


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
