"""The libraries that have drop-ins, and the settings of their own buffers and of framestow's.

Every library is a function that gives its candidates: the drop-in, the library's own buffer at the best setting that
keeps truncation, and the one that takes the fewest bytes. The calls are those of framestow.benchmarking.buffers, of
classic_calls.py, and of this file. Observations are stacks of 4 frames, ``(4, H, W)``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from classic_calls import Experiences, FrameHistory
from drop_in_buffers import BATCH_SIZE, LAST_FRAME, STACK, Candidate, Size, ours
from framestow import FrameSpec, ReplayMemory
from framestow.benchmarking.buffers import (
    BatchArrays,
    Buffer,
    FramestowBuffer,
    LibraryBuffer,
    StableBaselines3Buffer,
    TianshouBuffer,
    TorchRLBuffer,
    quiet_torchrl,
)
from framestow.benchmarking.play import Frames, Row

STEPS_OF_A_COLLECTOR = 50
WITHOUT_TRUNCATION = f"truncation, and {LAST_FRAME}"
SAVING = {"optimize_memory_usage": True, "handle_timeout_termination": False}


def stable_baselines3() -> list[Candidate]:
    from stable_baselines3.common import buffers

    from framestow.integrations.stable_baselines3 import ReplayBuffer

    theirs = buffers.ReplayBuffer
    return [
        ours(partial(paired_buffer, ReplayBuffer, {})),
        Candidate("ReplayBuffer", "", 2, partial(paired_buffer, theirs, {})),
        Candidate("optimize_memory_usage", WITHOUT_TRUNCATION, 1, partial(paired_buffer, theirs, SAVING)),
    ]


def cleanrl() -> list[Candidate]:
    """CleanRL's scripts use Stable-Baselines3's buffer, or a copy of it, with this setting."""
    from stable_baselines3.common import buffers

    from framestow.integrations.cleanrl import ReplayBuffer

    theirs = buffers.ReplayBuffer
    return [
        ours(partial(paired_buffer, ReplayBuffer, SAVING)),
        Candidate("as in dqn_atari.py", WITHOUT_TRUNCATION, 1, partial(paired_buffer, theirs, SAVING)),
    ]


def paired_buffer(kind: Any, settings: dict[str, Any], size: Size) -> Buffer:
    from gymnasium.spaces import Box, Discrete

    space, actions = Box(0, 255, (STACK, *size.frame), np.uint8), Discrete(size.num_actions)
    buffer = kind(size.transitions, space, actions, device="cpu", n_envs=size.num_envs, **settings)
    return StableBaselines3Buffer(buffer)


def tianshou() -> list[Candidate]:
    from tianshou.data import VectorReplayBuffer as Theirs

    from framestow.integrations.tianshou import VectorReplayBuffer

    return [
        ours(partial(collected_buffer, VectorReplayBuffer, {})),
        Candidate(
            "save_only_last_obs",
            "the first frame of an episode, in its first next observations",
            0.5,
            partial(collected_buffer, Theirs, {}),
            pads_as_played=False,
        ),
        Candidate(
            "and ignore_obs_next", LAST_FRAME, 0.25, partial(collected_buffer, Theirs, {"ignore_obs_next": True})
        ),
    ]


def collected_buffer(kind: Any, settings: dict[str, Any], size: Size) -> Buffer:
    """It stores single frames and stacks them when sampled, its setting of the fewest bytes."""
    return TianshouBuffer(kind(size.transitions, size.num_envs, stack_num=STACK, save_only_last_obs=True, **settings))


def torchrl() -> list[Candidate]:
    from torchrl.data import LazyTensorStorage

    from framestow.integrations.torchrl import FramestowStorage

    quiet_torchrl()
    return [
        ours(partial(extended_buffer, FramestowStorage), steps_at_once=STEPS_OF_A_COLLECTOR),
        Candidate(
            "LazyTensorStorage",
            "",
            2,
            partial(extended_buffer, LazyTensorStorage),
            steps_at_once=STEPS_OF_A_COLLECTOR,
        ),
    ]


def extended_buffer(kind: Any, size: Size) -> Buffer:
    from torchrl.data import TensorDictReplayBuffer

    storage = kind(size.transitions)
    return CollectedBuffer(TensorDictReplayBuffer(storage=storage, batch_size=BATCH_SIZE), storage, size.num_envs)


class CollectedBuffer(TorchRLBuffer):
    """Takes TensorDicts with what TorchRL's collectors add: trajectories, and the flags before each step."""

    def __init__(self, buffer: Any, storage: Any, num_envs: int) -> None:
        super().__init__(buffer)
        self.read_reported_bytes = LibraryBuffer(storage).read_reported_bytes
        self._newest = np.arange(num_envs)  # the number of each environment's trajectory

    def prepare(self, row: Row) -> Any:
        import torch

        num_envs = len(self._newest)
        ended_before = np.cumsum(row.ended) - row.ended if num_envs == 1 else 0
        trajectories = self._newest + ended_before
        self._newest = np.where(row.ended, trajectories + num_envs, trajectories)[-num_envs:]
        steps = super().prepare(row)
        steps["collector"] = {"traj_ids": torch.from_numpy(trajectories)}
        for name in ("terminated", "truncated", "done"):
            steps[name] = torch.zeros_like(steps["next", name])
        return steps


def gymnasium() -> list[Candidate]:
    from gymnasium.wrappers import FrameStackObservation

    from framestow.integrations.gymnasium import FrameStack

    return [
        ours(partial(kept_observations, FrameStack), most_envs=1),
        Candidate("FrameStackObservation", "", 1, partial(kept_observations, FrameStackObservation), most_envs=1),
    ]


def kept_observations(wrapper: Any, size: Size) -> Buffer:
    import gymnasium

    class Shown(gymnasium.Env[Any, Any]):
        """Returns the frame that it was given."""

        observation_space = gymnasium.spaces.Box(0, 255, size.frame, np.uint8)
        action_space = gymnasium.spaces.Discrete(size.num_actions)
        frame = np.zeros(size.frame, np.uint8)

        def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
            return self.frame, {}

        def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return self.frame, 0.0, False, False, {}

    inner = Shown()
    return KeptObservations(inner, wrapper(inner, STACK), size.transitions)


class KeptObservations(Buffer):
    """A wrapper's observations in a list of transitions, each converted to an array once, as a policy does."""

    def __init__(self, inner: Any, env: Any, num_transitions: int) -> None:
        self._inner, self._env, self._count = inner, env, 0
        self._kept: list[Any] = [None] * num_transitions
        self._before: Any = None  # the current observation; None before an episode

    def prepare(self, row: Row) -> Row:
        return row

    def add(self, row: Row) -> None:
        if self._before is None:
            self._inner.frame = row.observations[0, -1]
            self._before, _ = self._env.reset()
        np.asarray(self._before)
        self._inner.frame = row.next_observations[0, -1]
        after, *_ = self._env.step(row.actions[0])
        step = self._before, int(row.actions[0]), float(row.rewards[0]), after, bool(row.terminated[0])
        self._kept[self._count % len(self._kept)] = step
        self._before, self._count = None if row.ended[0] else after, self._count + 1

    def sample(self, batch_size: int) -> list[Any]:
        num = min(self._count, len(self._kept))
        batch = [self._kept[random.randrange(num)] for _ in range(batch_size)]
        self.as_arrays(batch)
        return batch

    def as_arrays(self, batch: list[Any]) -> BatchArrays:
        observations, actions, rewards, next_observations, _ = zip(*batch, strict=True)
        return BatchArrays(np.stack(observations), np.stack(next_observations), np.array(rewards), np.array(actions))


def plain_oracles() -> None:
    """Make the tests' re-implementations importable: neither of these buffers is on PyPI."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))


def nnabla_rl() -> list[Candidate]:
    plain_oracles()
    from framestow.integrations.classic import MemoryEfficientAtariBuffer
    from oracles.plain_atari_buffer import PlainAtariBuffer

    return [
        ours(partial(experiences, MemoryEfficientAtariBuffer), most_envs=1),
        Candidate("as it is documented", "truncation", 0.5, partial(experiences, PlainAtariBuffer), most_envs=1),
    ]


def experiences(kind: Any, size: Size) -> Buffer:
    return Experiences(kind(size.transitions))


def berkeley() -> list[Candidate]:
    plain_oracles()
    from framestow.integrations.classic import ReplayBuffer
    from oracles.plain_frame_history import PlainFrameHistory

    return [
        ours(partial(frame_history, ReplayBuffer), WITHOUT_TRUNCATION, most_envs=1, pads_as_played=False),
        Candidate("as it is published", WITHOUT_TRUNCATION, 0.25, partial(frame_history, PlainFrameHistory), 1, False),
    ]


def frame_history(kind: Any, size: Size) -> Buffer:
    return FrameHistory(kind(size.transitions, STACK))


def own_loop() -> list[Candidate]:
    """``memory.add`` of stacks on either axis, alone and in a ``Dict``, and ``append`` of single frames beside it."""
    return [
        ours(partial(memory_of_stacks, False)),
        Candidate("add, stacks on the last axis", "", 0.02, partial(memory_of_stacks, True)),
        Candidate("add, a Dict with a vector", "", 0.02, memory_of_dicts),
        Candidate("append, whole observations", "", 0.02, memory_of_observations),
        Candidate("append, single frames", "", 0.02, memory_of_frames),
    ]


def memory_of_stacks(is_last: bool, size: Size) -> Buffer:
    shape = (*size.frame, STACK) if is_last else (STACK, *size.frame)
    return AddedStacks(own_memory(size, FrameSpec(shape)), -1 if is_last else 1)


class AddedObservations(FramestowBuffer):
    """``memory.add`` of whole observations, which ``convert`` makes of stacks."""

    def convert(self, stacks: Frames) -> Any:
        raise NotImplementedError

    def prepare(self, row: Row) -> Any:
        now, after = self.convert(row.observations), self.convert(row.next_observations)
        return now, row.actions, row.rewards, after, row.terminated, row.truncated

    def add(self, prepared: Any) -> None:
        self._memory.add(*prepared)


class AddedStacks(AddedObservations):
    """``memory.add`` of stacks, on the first or the last axis."""

    def __init__(self, memory: ReplayMemory, stack_axis: int) -> None:
        super().__init__(memory)
        self._stack_axis = stack_axis

    def convert(self, stacks: Frames) -> Any:
        return np.ascontiguousarray(np.moveaxis(stacks, 1, self._stack_axis))

    def as_arrays(self, batch: Any) -> BatchArrays:
        arrays = super().as_arrays(batch)
        both = (np.moveaxis(part, self._stack_axis, 1) for part in arrays[:2])
        return BatchArrays(*both, *arrays[2:])


def memory_of_dicts(size: Size) -> Buffer:
    space = {"picture": FrameSpec((STACK, *size.frame)), "vector": FrameSpec((17,), np.float32)}
    return AddedDicts(own_memory(size, space))


class AddedDicts(AddedObservations):
    """``memory.add`` of stacks beside a vector of 17 floats, which are drawn from the newest frame."""

    def convert(self, stacks: Frames) -> Any:
        vectors = [np.random.default_rng(crc32(stack[-1])).random(17, np.float32) for stack in stacks]
        return {"picture": stacks, "vector": np.array(vectors)}

    def as_arrays(self, batch: Any) -> BatchArrays:
        pictures = batch.observation["picture"], batch.next_observation["picture"]
        return BatchArrays(*pictures, batch.reward, batch.action)


def memory_of_observations(size: Size) -> Buffer:
    return AppendedRows(own_memory(size, FrameSpec((STACK, *size.frame))), slice(None))


def memory_of_frames(size: Size) -> Buffer:
    return AppendedRows(own_memory(size, FrameSpec(size.frame), stack=STACK), -1)


class AppendedRows(FramestowBuffer):
    """``begin`` and ``append`` of a part of the stacks, in contiguous arrays."""

    def __init__(self, memory: ReplayMemory, part: Any) -> None:
        super().__init__(memory)
        self._part = part

    def prepare(self, row: Row) -> Any:
        first = np.ascontiguousarray(row.observations[row.starting, self._part])
        frames = np.ascontiguousarray(row.next_observations[:, self._part])
        return first, row.starting, (row.actions, row.rewards, row.terminated, row.truncated, frames)

    def add(self, prepared: Any) -> None:
        first, starting, step = prepared
        if starting:
            self._memory.begin(first, starting)
        self._memory.append(*step)


def own_memory(size: Size, space: Any, **settings: Any) -> ReplayMemory:
    return ReplayMemory(size.transitions, space, size.num_actions, num_envs=size.num_envs, seed=0, **settings)


LIBRARIES: dict[str, Callable[[], list[Candidate]]] = {
    "own loop": own_loop,
    "stable-baselines3": stable_baselines3,
    "cleanrl": cleanrl,
    "tianshou": tianshou,
    "torchrl": torchrl,
    "gymnasium": gymnasium,
    "nnabla-rl": nnabla_rl,
    "berkeley": berkeley,
}
