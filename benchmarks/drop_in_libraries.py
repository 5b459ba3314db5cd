"""The libraries that have drop-ins: their own buffers and framestow's, each with its library's own calls.

Every library is a function that gives its candidates: the drop-in, the library's own buffer at the best setting that
keeps truncation, and the one that takes the fewest bytes. Observations are stacks of 4 frames, ``(4, H, W)``.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from drop_in_buffers import BATCH_SIZE, LAST_FRAME, STACK, Buffer, Candidate, Row, Size, ours, reported_by_memory
from framestow.benchmarking.libraries import BatchArrays

STEPS_OF_A_COLLECTOR = 50
SAVING = {"optimize_memory_usage": True, "handle_timeout_termination": False}


def stable_baselines3() -> list[Candidate]:
    from stable_baselines3.common import buffers

    from framestow.integrations.stable_baselines3 import ReplayBuffer

    theirs, gives_up = buffers.ReplayBuffer, f"truncation, and {LAST_FRAME}"
    return [
        ours(partial(paired_buffer, ReplayBuffer, {})),
        Candidate("ReplayBuffer", "", 2, partial(paired_buffer, theirs, {})),
        Candidate("optimize_memory_usage", gives_up, 1, partial(paired_buffer, theirs, SAVING)),
    ]


def cleanrl() -> list[Candidate]:
    """CleanRL's scripts use Stable-Baselines3's buffer, or a copy of it, with this setting."""
    from stable_baselines3.common import buffers

    from framestow.integrations.cleanrl import ReplayBuffer

    theirs, gives_up = buffers.ReplayBuffer, f"truncation, and {LAST_FRAME}"
    return [
        ours(partial(paired_buffer, ReplayBuffer, SAVING)),
        Candidate("as in dqn_atari.py", gives_up, 1, partial(paired_buffer, theirs, SAVING)),
    ]


def paired_buffer(kind: Any, settings: dict[str, Any], size: Size) -> Buffer:
    """Stable-Baselines3's calls, which CleanRL has too."""
    from gymnasium.spaces import Box, Discrete

    space, actions = Box(0, 255, (STACK, *size.frame), np.uint8), Discrete(size.num_actions)
    buffer = kind(size.transitions, space, actions, device="cpu", n_envs=size.num_envs, **settings)

    def prepared(row: Row) -> tuple[Any, ...]:
        infos = [{"TimeLimit.truncated": bool(truncated)} for truncated in row.truncated]
        return row.observations, row.next_observations, row.actions, row.rewards, row.ended, infos

    def as_arrays(batch: Any) -> BatchArrays:
        return BatchArrays(batch.observations.numpy(), batch.next_observations.numpy(), batch.rewards.numpy().ravel())

    return Buffer(
        prepared,
        lambda step: buffer.add(*step),
        partial(buffer.sample, BATCH_SIZE),
        as_arrays,
        reported_by_memory(buffer),
    )


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
    """Tianshou's calls; it stores single frames and stacks them when sampled, its setting of the fewest bytes."""
    from tianshou.data import Batch

    buffer = kind(size.transitions, size.num_envs, stack_num=STACK, save_only_last_obs=True, **settings)

    def prepared(row: Row) -> Any:
        return Batch(
            obs=row.observations,
            act=row.actions,
            rew=row.rewards,
            terminated=row.terminated,
            truncated=row.truncated,
            obs_next=row.next_observations,
            info=Batch(),
        )

    return Buffer(
        prepared,
        buffer.add,
        lambda: buffer.sample(BATCH_SIZE)[0],
        lambda batch: BatchArrays(batch.obs, batch.obs_next, batch.rew),
        reported_by_memory(buffer),
    )


def torchrl() -> list[Candidate]:
    from torchrl.data import LazyTensorStorage

    from framestow.integrations.torchrl import FramestowStorage

    logging.getLogger("torchrl").setLevel(logging.WARNING)
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
    """TorchRL's calls: TensorDicts as its collectors make them, any number of steps of one environment at a time."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import TensorDictReplayBuffer

    storage = kind(size.transitions)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=BATCH_SIZE)
    newest = np.arange(size.num_envs)  # the number of each environment's trajectory

    def prepared(row: Row) -> Any:
        nonlocal newest
        ended_before = np.cumsum(row.ended) - row.ended if size.num_envs == 1 else 0
        trajectories = newest + ended_before
        newest = np.where(row.ended, trajectories + size.num_envs, trajectories)[-size.num_envs :]
        flags = {"terminated": row.terminated, "truncated": row.truncated, "done": row.ended}
        ends = {name: torch.from_numpy(flag)[:, None] for name, flag in flags.items()}
        return TensorDict(
            {
                "pixels": torch.from_numpy(row.observations),
                "action": torch.from_numpy(row.actions),
                "collector": {"traj_ids": torch.from_numpy(trajectories)},
                **{name: torch.zeros_like(flag) for name, flag in ends.items()},
                "next": {
                    "pixels": torch.from_numpy(row.next_observations),
                    "reward": torch.from_numpy(row.rewards)[:, None],
                    **ends,
                },
            },
            [len(row.actions)],
        )

    def as_arrays(batch: Any) -> BatchArrays:
        after = batch["next"]
        return BatchArrays(batch["pixels"].numpy(), after["pixels"].numpy(), after["reward"].numpy().ravel())

    return Buffer(prepared, buffer.extend, buffer.sample, as_arrays, reported_by_memory(storage))


def gymnasium() -> list[Candidate]:
    from gymnasium.wrappers import FrameStackObservation

    from framestow.integrations.gymnasium import FrameStack

    return [
        ours(partial(kept_observations, FrameStack), most_envs=1),
        Candidate("FrameStackObservation", "", 1, partial(kept_observations, FrameStackObservation), most_envs=1),
    ]


def kept_observations(wrapper: Any, size: Size) -> Buffer:
    """A wrapper's observations in a list of transitions, each converted to an array once, as a policy does."""
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
    env, kept, before, count = wrapper(inner, STACK), [None] * size.transitions, None, 0

    def add(row: Row) -> None:
        nonlocal before, count
        if before is None:
            inner.frame = row.observations[0, -1]
            before, _ = env.reset()
        np.asarray(before)
        inner.frame = row.next_observations[0, -1]
        after, *_ = env.step(row.actions[0])
        step = before, int(row.actions[0]), float(row.rewards[0]), after, bool(row.terminated[0])
        kept[count % size.transitions] = step
        before, count = None if row.ended[0] else after, count + 1

    def as_arrays(batch: list[Any]) -> BatchArrays:
        observations, _, rewards, next_observations, _ = zip(*batch, strict=True)
        return BatchArrays(np.stack(observations), np.stack(next_observations), np.array(rewards))

    def sample() -> list[Any]:
        batch = [kept[random.randrange(min(count, len(kept)))] for _ in range(BATCH_SIZE)]
        as_arrays(batch)
        return batch

    return Buffer(lambda row: row, add, sample, as_arrays)


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
    """nnabla-rl's calls; observations are floats, k / 255."""
    buffer, generator = kind(size.transitions), np.random.default_rng(0)

    def prepared(row: Row) -> tuple[Any, ...]:
        s, s_next = row.observations[0] / np.float32(255), row.next_observations[0] / np.float32(255)
        return s, int(row.actions[0]), float(row.rewards[0]), float(not row.terminated[0]), s_next, {}

    def sample() -> Any:
        if hasattr(buffer, "sample"):
            return buffer.sample(BATCH_SIZE)[0]
        return [buffer[index] for index in generator.choice(len(buffer), BATCH_SIZE, replace=False)]

    def as_arrays(batch: list[Any]) -> BatchArrays:
        s, _, rewards, _, s_next, _ = zip(*batch, strict=True)
        observations, next_observations = (np.rint(np.stack(part) * 255).astype(np.uint8) for part in (s, s_next))
        return BatchArrays(observations, next_observations, np.array(rewards))

    return Buffer(prepared, buffer.append, sample, as_arrays, reported_by_memory(buffer))


def berkeley() -> list[Candidate]:
    plain_oracles()
    from framestow.integrations.classic import ReplayBuffer
    from oracles.plain_frame_history import PlainFrameHistory

    gives_up = f"truncation, and {LAST_FRAME}"
    return [
        ours(partial(frame_history, ReplayBuffer), most_envs=1, pads_as_played=False, gives_up=gives_up),
        Candidate("as it is published", gives_up, 0.25, partial(frame_history, PlainFrameHistory), 1, False),
    ]


def frame_history(kind: Any, size: Size) -> Buffer:
    """Berkeley's calls: a frame ``(H, W, 1)``, the policy's observation, and the effect; channels are joined last.

    They tell no truncation and no last frame; framestow's take both, as arguments that are not measured here.
    """
    buffer = kind(size.transitions, STACK)

    def add(row: Row) -> None:
        slot = buffer.store_frame(row.observations[0, -1, :, :, None])
        buffer.encode_recent_observation()
        buffer.store_effect(slot, int(row.actions[0]), float(row.rewards[0]), bool(row.ended[0]))

    def as_arrays(batch: Any) -> BatchArrays:
        observations, _, rewards, next_observations, _ = batch
        return BatchArrays(observations.transpose(0, 3, 1, 2), next_observations.transpose(0, 3, 1, 2), rewards)

    return Buffer(lambda row: row, add, partial(buffer.sample, BATCH_SIZE), as_arrays, reported_by_memory(buffer))


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
    memory = own_memory(size, as_space(shape))

    def prepared(row: Row) -> tuple[Any, ...]:
        both = row.observations, row.next_observations
        now, after = (np.ascontiguousarray(np.moveaxis(part, 1, -1)) for part in both) if is_last else both
        return now, row.actions, row.rewards, after, row.terminated, row.truncated

    return Buffer(prepared, lambda step: memory.add(*step), *sampling(memory, -1 if is_last else 1))


def memory_of_dicts(size: Size) -> Buffer:
    space = {"picture": as_space((STACK, *size.frame)), "vector": as_space((17,), np.float32)}
    memory, random = own_memory(size, space), np.random.default_rng(0)

    def prepared(row: Row) -> tuple[Any, ...]:
        now, after = (
            {"picture": part, "vector": random.random((size.num_envs, 17), np.float32)}
            for part in (row.observations, row.next_observations)
        )
        return now, row.actions, row.rewards, after, row.terminated, row.truncated

    def as_arrays(batch: Any) -> BatchArrays:
        return BatchArrays(batch.observation["picture"], batch.next_observation["picture"], batch.reward)

    sample, _, nbytes = sampling(memory)
    return Buffer(prepared, lambda step: memory.add(*step), sample, as_arrays, nbytes)


def memory_of_observations(size: Size) -> Buffer:
    return memory_of_rows(own_memory(size, as_space((STACK, *size.frame))), slice(None), size)


def memory_of_frames(size: Size) -> Buffer:
    return memory_of_rows(own_memory(size, as_space(size.frame), stack=STACK), -1, size)


def memory_of_rows(memory: Any, part: Any, size: Size) -> Buffer:
    """``begin`` and ``append`` of a part of the stacks."""
    closed = np.arange(size.num_envs)

    def prepared(row: Row) -> tuple[Any, ...]:
        nonlocal closed
        first = np.ascontiguousarray(row.observations[closed, part])
        begun, closed = closed, np.flatnonzero(row.ended)
        frames = np.ascontiguousarray(row.next_observations[:, part])
        return first, begun, (row.actions, row.rewards, row.terminated, row.truncated, frames)

    def add(step: tuple[Any, ...]) -> None:
        first, begun, rest = step
        if len(begun):
            memory.begin(first, begun)
        memory.append(*rest)

    return Buffer(prepared, add, *sampling(memory))


def as_space(shape: tuple[int, ...], dtype: Any = np.uint8) -> Any:
    from framestow import FrameSpec

    return FrameSpec(shape, dtype)


def own_memory(size: Size, space: Any, **settings: Any) -> Any:
    from framestow import ReplayMemory

    return ReplayMemory(size.transitions, space, size.num_actions, num_envs=size.num_envs, seed=0, **settings)


def sampling(
    memory: Any, stack_axis: int = 1
) -> tuple[Callable[[], Any], Callable[[Any], BatchArrays], Callable[[], int]]:
    def as_arrays(batch: Any) -> BatchArrays:
        both = batch.observation, batch.next_observation
        return BatchArrays(*(np.moveaxis(part, stack_axis, 1) for part in both), batch.reward)

    return partial(memory.sample, BATCH_SIZE), as_arrays, lambda: memory.nbytes


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
