"""The libraries that have drop-ins: framestow's drop-in, and the library's own buffers that it replaces.

Every library is a function that returns its systems: the drop-in, the library's own buffer at the best setting that
keeps truncation, and the one that takes the fewest bytes. The calls are those of framestow.benchmarking.buffers, and
for wrappers and older buffers those below.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from framestow.benchmarking.buffers import (
    BatchArrays,
    Buffer,
    LibraryBuffer,
    TianshouBuffer,
    TorchRLBuffer,
    quiet_torchrl,
)
from framestow.benchmarking.libraries import (
    WITHOUT_TRUNCATION,
    System,
    Task,
    reserve_stacks,
    stable_baselines3,
    tianshou_settings,
)
from framestow.benchmarking.play import Row

OURS = "framestow"


def ours(build: Callable[[Task], Buffer], **facts: Any) -> System:
    return System(OURS, lambda _: 12, build, **facts)


def of_stable_baselines3() -> list[System]:
    from stable_baselines3.common import buffers

    from framestow.integrations.stable_baselines3 import ReplayBuffer

    theirs = partial(stable_baselines3, buffers.ReplayBuffer)
    return [
        ours(partial(stable_baselines3, ReplayBuffer, True)),
        System("ReplayBuffer", reserve_stacks(2), partial(theirs, True)),
        without_truncation("optimize_memory_usage", partial(theirs, False)),
    ]


def without_truncation(name: str, build: Callable[[Task], Buffer]) -> System:
    return System(name, reserve_stacks(1), build, gives_up=WITHOUT_TRUNCATION, keeps_final_frames=False)


def cleanrl() -> list[System]:
    """CleanRL's scripts use Stable-Baselines3's buffer, or a copy of it, with this setting."""
    from stable_baselines3.common import buffers

    from framestow.integrations.cleanrl import ReplayBuffer

    theirs = partial(stable_baselines3, buffers.ReplayBuffer, False)
    return [ours(partial(stable_baselines3, ReplayBuffer, False)), without_truncation("as in dqn_atari.py", theirs)]


def tianshou() -> list[System]:
    from tianshou.data import VectorReplayBuffer as Theirs

    from framestow.integrations.tianshou import VectorReplayBuffer

    def buffer(kind: Any, ignores_next: bool, task: Task) -> Buffer:
        settings = tianshou_settings(task) | {"ignore_obs_next": ignores_next}
        return TianshouBuffer(kind(task.capacity, task.num_envs, **settings))

    lost = {"gives_up": "the first frame of an episode, in its first next observations", "pads_as_played": False}
    final = {"gives_up": "the final frame of an episode", "keeps_final_frames": False}
    return [
        ours(partial(buffer, VectorReplayBuffer, False)),
        System("save_only_last_obs", lambda task: 2 * task.frame_bytes, partial(buffer, Theirs, False), **lost),
        System("and ignore_obs_next", lambda task: task.frame_bytes, partial(buffer, Theirs, True), **final),
    ]


def torchrl() -> list[System]:
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    from framestow.integrations.torchrl import FramestowStorage

    quiet_torchrl()

    def buffer(kind: Any, task: Task) -> Buffer:
        storage = kind(task.capacity)
        replay = TensorDictReplayBuffer(storage=storage, batch_size=task.batch_size)
        return CollectedBuffer(replay, storage, task.num_envs)

    theirs = System("LazyTensorStorage", reserve_stacks(2), partial(buffer, LazyTensorStorage))
    return [ours(partial(buffer, FramestowStorage)), theirs]


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


def gymnasium() -> list[System]:
    from gymnasium.wrappers import FrameStackObservation

    from framestow.integrations.gymnasium import FrameStack

    theirs = System("FrameStackObservation", reserve_stacks(1), partial(KeptObservations, FrameStackObservation))
    return [ours(partial(KeptObservations, FrameStack)), theirs]


class KeptObservations(Buffer):
    """A wrapper's observations in a list of transitions, each converted to an array once, as a policy does."""

    def __init__(self, wrapper: Any, task: Task) -> None:
        self._inner = shown_frames(task)
        self._env, self._count = wrapper(self._inner, task.stack), 0
        self._kept: list[Any] = [None] * task.capacity
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


def shown_frames(task: Task) -> Any:
    """Return an environment that shows the frame that it was given."""
    import gymnasium

    class Shown(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 255, task.frame_shape, np.uint8)
        action_space = gymnasium.spaces.Discrete(task.num_actions)
        frame = np.zeros(task.frame_shape, np.uint8)

        def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
            return self.frame, {}

        def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return self.frame, 0.0, False, False, {}

    return Shown()


def plain_oracles() -> None:
    """Make the tests' re-implementations importable: neither of the buffers below is on PyPI."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))


def nnabla_rl() -> list[System]:
    plain_oracles()
    from framestow.integrations.classic import MemoryEfficientAtariBuffer
    from oracles.plain_atari_buffer import PlainAtariBuffer

    theirs = partial(Experiences, PlainAtariBuffer)
    return [
        ours(partial(Experiences, MemoryEfficientAtariBuffer)),
        System("as it is documented", lambda task: 2 * task.frame_bytes, theirs, gives_up="truncation"),
    ]


class Experiences(LibraryBuffer):
    """nnabla-rl's calls, of one environment; observations are floats, k / 255."""

    def __init__(self, kind: Any, task: Task) -> None:
        super().__init__(kind(task.capacity))
        self._generator = np.random.default_rng(0)

    def prepare(self, row: Row) -> Any:
        s, s_next = row.observations[0] / np.float32(255), row.next_observations[0] / np.float32(255)
        return s, int(row.actions[0]), float(row.rewards[0]), float(not row.terminated[0]), s_next, {}

    def add(self, prepared: Any) -> object:
        return self.buffer.append(prepared)

    def sample(self, batch_size: int) -> Any:
        if hasattr(self.buffer, "sample"):
            return self.buffer.sample(batch_size)[0]
        indices = self._generator.choice(len(self.buffer), batch_size, replace=False)
        return [self.buffer[index] for index in indices]

    def as_arrays(self, batch: list[Any]) -> BatchArrays:
        s, a, rewards, _, s_next, _ = zip(*batch, strict=True)
        observations, next_observations = (np.rint(np.stack(part) * 255).astype(np.uint8) for part in (s, s_next))
        return BatchArrays(observations, next_observations, np.array(rewards), np.array(a).ravel())


def berkeley() -> list[System]:
    plain_oracles()
    from framestow.integrations.classic import ReplayBuffer
    from oracles.plain_frame_history import PlainFrameHistory

    lost = {"gives_up": WITHOUT_TRUNCATION, "keeps_final_frames": False, "pads_as_played": False}
    theirs = partial(FrameHistory, PlainFrameHistory)
    return [
        ours(partial(FrameHistory, ReplayBuffer), **lost),
        System("as it is published", lambda task: task.frame_bytes, theirs, **lost),
    ]


class FrameHistory(LibraryBuffer):
    """Berkeley's calls: a frame ``(H, W, 1)``, the policy's observation, and the effect; channels are joined last.

    They tell no truncation and no last frame; framestow's take both, as arguments that are not measured here.
    """

    def __init__(self, kind: Any, task: Task) -> None:
        super().__init__(kind(task.capacity, task.stack))

    def prepare(self, row: Row) -> Row:
        return row

    def add(self, row: Row) -> None:
        slot = self.buffer.store_frame(row.observations[0, -1, :, :, None])
        self.buffer.encode_recent_observation()
        self.buffer.store_effect(slot, int(row.actions[0]), float(row.rewards[0]), bool(row.ended[0]))

    def as_arrays(self, batch: Any) -> BatchArrays:
        observations, actions, rewards, next_observations, _ = batch
        both = (part.transpose(0, 3, 1, 2) for part in (observations, next_observations))
        return BatchArrays(*both, rewards, actions)


DROP_INS: dict[str, Callable[[], list[System]]] = {
    "stable-baselines3": of_stable_baselines3,
    "cleanrl": cleanrl,
    "tianshou": tianshou,
    "torchrl": torchrl,
    "gymnasium": gymnasium,
    "nnabla-rl": nnabla_rl,
    "berkeley": berkeley,
}
