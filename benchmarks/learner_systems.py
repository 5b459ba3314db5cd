"""The memories that learners.py measures: framestow, each library for each question, and the groups of one process.

The calls are those of framestow.benchmarking.buffers; for a uniform sample the settings of its libraries.py too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.buffers import (
    BatchArrays,
    Buffer,
    CpprbBuffer,
    FramestowBuffer,
    StableBaselines3Buffer,
    TianshouBuffer,
    TorchRLBuffer,
    quiet_torchrl,
)
from framestow.benchmarking.libraries import (
    CPPRB,
    STABLE_BASELINES3,
    TIANSHOU,
    System,
    Task,
    stable_baselines3,
    tianshou_settings,
)
from framestow.benchmarking.play import Row
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.prioritized import Prioritized
from learner_workload import ALPHA, BETA, SEQUENCE_LENGTH, Learner, Question, SampledErrors, Workload

CHUNK = 512  # steps of one environment that a library takes at once, if it can


def task_of(workload: Workload) -> Task:
    shape = workload.play.frames.shape[1:]
    # One slot more than is filled: with shared stacks, Stable-Baselines3 stores the last next observation there.
    return Task(workload.num_steps + 1, shape, workload.stack, workload.num_steps, batch_size=1, threads=1, seed=0)


def filled(buffer: Any, workload: Workload, at_once: int = 1) -> Any:
    """Store the workload by the library's own calls."""
    for row in workload.rows(at_once):
        buffer.add(buffer.prepare(row))
    return buffer


def uniform(system: System, workload: Workload, buffer: Buffer) -> Learner:
    """Return a system that ``framestow bench`` measures too, filled."""
    facts = {"keeps_final_frames": system.keeps_final_frames, "uses_torch": system.uses_torch}
    arguments = buffer, workload.num_steps, system.setting, system.gives_up
    return Learner(system.name.partition(",")[0], "uniform", *arguments, **facts)


class ByPriority(Buffer):
    """A buffer whose draws return where they are from, and that gets new priorities for them with each batch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._errors = SampledErrors()

    def draw(self, batch_size: int) -> tuple[Any, Any]:
        """Return a batch, and what ``set_errors`` takes to say which transitions it has."""
        raise NotImplementedError

    def set_errors(self, indices: Any, errors: npt.NDArray[np.float32]) -> None:
        """Set the priorities of these transitions from these errors, as an update does."""
        raise NotImplementedError

    def sample(self, batch_size: int) -> Any:
        batch, indices = self.draw(batch_size)
        self.set_errors(indices, self._errors.next(batch_size))
        return batch


def saved_memory(workload: Workload, n_step: int, path: str | PathLike[str]) -> float:
    """Save a packed memory of one environment with the workload; return its bytes a transition."""
    task = task_of(workload)
    settings = {"stack": task.stack, "n_step": n_step, "discount": workload.discount, "seed": task.seed}
    memory = ReplayMemory(workload.num_steps, FrameSpec(task.frame_shape), task.num_actions, **settings)
    filled(FramestowBuffer(memory), workload)
    memory.save(path)
    return memory.nbytes / len(memory)


def framestow(question: Question, path: str | PathLike[str], threads: int) -> Learner:
    """Load a saved memory with a number of threads and the sampler that the question needs."""
    sampler = Prioritized(alpha=ALPHA, beta=BETA) if question == "prioritized" else None
    memory = ReplayMemory.load(path, sampler=sampler, threads=threads)
    kinds = {"prioritized": FramestowByPriority, "sequences": FramestowSequences}
    name = "framestow" if threads == 1 else f"framestow, {threads} threads"
    return Learner(name, question, kinds.get(question, FramestowBuffer)(memory), len(memory), "packed")


class FramestowByPriority(ByPriority, FramestowBuffer):
    """framestow's calls for sampling by priority."""

    def draw(self, batch_size: int) -> tuple[Any, Any]:
        batch = self.memory.sample(batch_size)
        return batch, batch.index

    def set_errors(self, indices: Any, errors: npt.NDArray[np.float32]) -> None:
        self.memory.update_priorities(indices, errors)


class FramestowSequences(FramestowBuffer):
    """framestow's call for sequences."""

    def sample(self, batch_size: int) -> Any:
        return self.memory.sample_sequences(batch_size, length=SEQUENCE_LENGTH)


def cpprb_uniform(workload: Workload) -> list[Learner]:
    return [uniform(CPPRB, workload, filled(CPPRB.build(task_of(workload)), workload, CHUNK))]


def cpprb_prioritized(workload: Workload) -> list[Learner]:
    from cpprb import PrioritizedReplayBuffer

    shared = {"next_of": "obs", "stack_compress": "obs"}
    buffer = PrioritizedReplayBuffer(workload.num_steps, _columns(workload, "obs"), alpha=ALPHA, **shared)
    by_priority = filled(CpprbByPriority(buffer), workload, CHUNK)
    setting = "PrioritizedReplayBuffer, next_of, stack_compress"
    return [Learner("cpprb", "prioritized", by_priority, workload.num_steps, setting)]


def _columns(workload: Workload, *observations: str) -> dict[str, Any]:
    return CpprbBuffer.columns((*workload.play.frames.shape[1:], workload.stack), *observations)


class CpprbByPriority(ByPriority, CpprbBuffer):
    """cpprb's calls for sampling by priority."""

    def draw(self, batch_size: int) -> tuple[Any, Any]:
        batch = self.buffer.sample(batch_size, beta=BETA)
        return batch, batch["indexes"]

    def set_errors(self, indices: Any, errors: npt.NDArray[np.float32]) -> None:
        self.buffer.update_priorities(indices, errors)


def cpprb_n_step(workload: Workload) -> list[Learner]:
    """Store stacks and next stacks: ``next_of`` gives no next observation, ``stack_compress`` some wrong ones.

    With ``stack_compress`` and episodes of 500 steps, 0.6 % of the next observations were wrong, also those of the
    steps five to three before the end, whose value counts (version 11.0.0).
    """
    from cpprb import ReplayBuffer

    n_step = {"size": workload.n_step, "gamma": workload.discount, "rew": "rew", "next": "next_obs"}
    buffer = CpprbBuffer(ReplayBuffer(workload.num_steps, _columns(workload, "obs", "next_obs"), Nstep=n_step))
    lost = {"gives_up": "the observation that an episode's last n - 1 steps lead to", "keeps_final_frames": False}
    setting = "ReplayBuffer, Nstep, uncompressed"
    return [Learner("cpprb", "n_step", filled(buffer, workload, CHUNK), workload.num_steps, setting, **lost)]


def stable_baselines3_uniform(workload: Workload) -> list[Learner]:
    """``optimize_memory_usage`` takes half the bytes."""
    system = STABLE_BASELINES3[1]
    return [uniform(system, workload, filled(system.build(task_of(workload)), workload))]


def stable_baselines3_n_step(workload: Workload) -> list[Learner]:
    """Store stacks and next stacks: the n-step buffer refuses ``optimize_memory_usage``."""
    from stable_baselines3.common.buffers import NStepReplayBuffer

    settings = {"n_steps": workload.n_step, "gamma": workload.discount}
    built = stable_baselines3(NStepReplayBuffer, True, task_of(workload), **settings)
    buffer = filled(StableBaselines3NStep(built.buffer), workload)
    facts = {"setting": "NStepReplayBuffer", "uses_torch": True}
    return [Learner("Stable-Baselines3", "n_step", buffer, workload.num_steps, **facts)]


class StableBaselines3NStep(StableBaselines3Buffer):
    """Stable-Baselines3's calls, for batches that have discounts."""

    def as_arrays(self, batch: Any) -> BatchArrays:
        discounts = (batch.discounts * (1 - batch.dones)).numpy().ravel()
        return super().as_arrays(batch)._replace(discounts=discounts)


def tianshou(workload: Workload) -> list[Learner]:
    """Return a buffer with a segment tree, and one without, which shares its arrays and answers the other questions."""
    from tianshou.data import PrioritizedReplayBuffer, ReplayBuffer

    task, setting = task_of(workload), f"ReplayBuffer, {TIANSHOU.setting}"
    tree = PrioritizedReplayBuffer(task.capacity, ALPHA, BETA, **tianshou_settings(task))
    by_priority = filled(TianshouByPriority(tree, [0]), workload)
    plain = ReplayBuffer(task.capacity, **tianshou_settings(task))
    plain.set_batch(tree._meta)
    plain._size, plain.last_index = len(tree), tree.last_index
    shared, n_step, sequences = (
        TianshouBuffer(plain),
        TianshouNStep(plain, workload),
        TianshouSequences(plain, workload),
    )
    lost = {"gives_up": TIANSHOU.gives_up, "keeps_final_frames": False}
    of_n_step = f"{setting}, and Algorithm.compute_nstep_return"
    of_sequences = f"ReplayBuffer.get, stack_num = {SEQUENCE_LENGTH + workload.stack - 1}"
    padding = lost | {"gives_up": f"{TIANSHOU.gives_up}; which steps are padding"}
    return [
        uniform(TIANSHOU, workload, shared),
        Learner("Tianshou", "prioritized", by_priority, workload.num_steps, f"Prioritized{setting}", **lost),
        Learner("Tianshou", "n_step", n_step, workload.num_steps, of_n_step, **lost),
        Learner("Tianshou", "sequences", sequences, workload.num_steps, of_sequences, **padding),
    ]


class TianshouByPriority(ByPriority, TianshouBuffer):
    """Tianshou's calls for sampling by priority."""

    def draw(self, batch_size: int) -> tuple[Any, Any]:
        drawn: tuple[Any, Any] = self.buffer.sample(batch_size)
        return drawn

    def set_errors(self, indices: Any, errors: npt.NDArray[np.float32]) -> None:
        self.buffer.update_weight(indices, errors)


class TianshouNStep(TianshouBuffer):
    """Computes n-step returns as Tianshou's ``DQN`` does, without the network.

    ``DQN`` samples a batch with next observations, and gets a second one, n steps later, for its target.
    """

    def __init__(self, buffer: Any, workload: Workload) -> None:
        super().__init__(buffer)
        self._n_step, self._discount = workload.n_step, workload.discount

    def sample(self, batch_size: int) -> Any:
        import torch
        from tianshou.algorithm import Algorithm

        last: list[Any] = []
        no_value = torch.zeros(batch_size)

        def target_q(buffer: Any, indices: Any) -> Any:
            last.append(buffer[indices].obs_next)
            return no_value

        batch, indices = self.buffer.sample(batch_size)
        batch = Algorithm.compute_nstep_return(batch, self.buffer, indices, target_q, self._discount, self._n_step)
        return batch, last[0]

    def as_arrays(self, batch: Any) -> BatchArrays:
        drawn, last = batch
        return BatchArrays(drawn.obs, last, drawn.returns.numpy().ravel(), drawn.act)


class TianshouSequences(TianshouBuffer):
    """Windows of ``stack_num``, as the library does for recurrent networks, long enough for all stacks of a sequence.

    They end at the sampled step. The episode's first step is repeated before its beginning, without a mask.
    """

    def __init__(self, buffer: Any, workload: Workload) -> None:
        super().__init__(buffer)
        self._stack = workload.stack

    def sample(self, batch_size: int) -> Any:
        indices, get = self.buffer.sample_indices(batch_size), self.buffer.get
        frames = get(indices, "obs", stack_num=SEQUENCE_LENGTH + self._stack - 1)
        return frames, *(get(indices, name, stack_num=SEQUENCE_LENGTH) for name in ("act", "rew", "terminated"))

    def as_arrays(self, batch: Any) -> BatchArrays:
        frames, numbers, rewards, _ = batch
        stacks = np.moveaxis(np.lib.stride_tricks.sliding_window_view(frames, self._stack, axis=1), -1, 2)
        is_its_own = np.concatenate([numbers[:, 1:] != numbers[:, :-1], np.ones((len(numbers), 1), np.bool_)], axis=1)
        return BatchArrays(stacks, None, rewards, numbers, mask=is_its_own)


def torchrl_pairs(workload: Workload) -> list[Learner]:
    """Return buffers of stacks and next stacks: one storage for 1-step transitions, one for n-step transitions.

    Steps become n-step transitions when they are written. ``terminated`` is then that of the first step, so the value
    after a transition counts even if it terminated later.
    """
    quiet_torchrl()
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, ReplayBuffer
    from torchrl.envs.transforms import MultiStepTransform

    size = workload.num_steps
    storage, sampler = LazyTensorStorage(size), PrioritizedSampler(size, alpha=ALPHA, beta=BETA)
    n_steps = MultiStepTransform(n_steps=workload.n_step, gamma=workload.discount)
    tree = TorchRLByPriority(ReplayBuffer(storage=storage, sampler=sampler, batch_size=1))
    of_n_steps = TorchRLBuffer(ReplayBuffer(storage=LazyTensorStorage(size), transform=n_steps, batch_size=1))
    buffers: dict[Question, tuple[TorchRLBuffer, str]] = {
        "prioritized": (filled(tree, workload, CHUNK), ", PrioritizedSampler"),
        "uniform": (TorchRLBuffer(ReplayBuffer(storage=storage, batch_size=1)), ""),
        "n_step": (filled(of_n_steps, workload, CHUNK), ", MultiStepTransform"),
    }
    lost = {"n_step": "that an episode terminated, but for its last transition"}
    return [
        Learner(
            "TorchRL",
            question,
            buffer,
            len(buffer.buffer),
            f"ReplayBuffer{by}, LazyTensorStorage of stacks and next stacks",
            lost.get(question, ""),
            uses_torch=True,
        )
        for question, (buffer, by) in buffers.items()
    ]


class TorchRLByPriority(ByPriority, TorchRLBuffer):
    """TorchRL's calls for sampling by priority."""

    def draw(self, batch_size: int) -> tuple[Any, Any]:
        batch, drawn = self.buffer.sample(batch_size, return_info=True)
        return batch, drawn["index"]

    def set_errors(self, indices: Any, errors: npt.NDArray[np.float32]) -> None:
        import torch

        self.buffer.update_priority(torch.as_tensor(indices), torch.from_numpy(errors))


def torchrl_frames(workload: Workload) -> list[Learner]:
    """Return buffers of single frames that sample slices; the second caches the ends of episodes."""
    quiet_torchrl()
    from torchrl.data import LazyTensorStorage, ReplayBuffer, SliceSampler

    length = workload.stack - 1 + SEQUENCE_LENGTH + 1
    storage, buffers = LazyTensorStorage(workload.num_steps), []
    for caches in (False, True):
        sampler = SliceSampler(slice_len=length, end_key=("next", "done"), cache_values=caches)
        replay = ReplayBuffer(storage=storage, sampler=sampler, batch_size=1)
        buffers.append(TorchRLSlices(replay, workload.stack))
    filled(buffers[0], workload, CHUNK)
    slices = "ReplayBuffer, SliceSampler, LazyTensorStorage of frames; stacks are views"
    names = {"TorchRL": slices, "TorchRL, nothing written": f"{slices}; cache_values"}
    lost = {"gives_up": "final frames of episodes, sequences from their first three steps on, and shorter ones"}
    return [
        Learner(name, "sequences", buffer, workload.num_steps, setting, uses_torch=True, **lost)
        for (name, setting), buffer in zip(names.items(), buffers, strict=True)
    ]


class TorchRLSlices(TorchRLBuffer):
    """Slices of single frames, with stacks as views: a fifth of the bytes of slices of stacks and next stacks.

    A slice has three steps before the sequence, for its first stack, and one after it, for the last next observation.
    After any write the sampler searches for the episodes' ends again.
    """

    def __init__(self, buffer: Any, stack: int) -> None:
        super().__init__(buffer)
        self._stack = stack

    def prepare(self, row: Row) -> Any:
        newest = np.ascontiguousarray(row.observations[:, -1])
        return super().prepare(row._replace(observations=newest)).exclude(("next", "observation"))

    def sample(self, batch_size: int) -> Any:
        length = self._stack + SEQUENCE_LENGTH
        batch = self.buffer.sample(batch_size * length).view(batch_size, length)
        return batch, batch["observation"].unfold(1, self._stack, 1)

    def as_arrays(self, batch: Any) -> BatchArrays:
        steps, stacks = batch[0][:, self._stack - 1 : -1], np.moveaxis(batch[1].numpy(), -1, 2)
        rewards = steps["next", "reward"].squeeze(-1).numpy()
        return BatchArrays(stacks[:, :-1], stacks[:, 1:], rewards, steps["action"].numpy())


@dataclass(frozen=True)
class Group:
    """Systems that share their storage, or fit into RAM together: one process measures them."""

    library: str
    """Key of the library in framestow.benchmarking.libraries."""
    build: Callable[[Workload], list[Learner]]
    questions: tuple[Question, ...]
    stacks_kept: int
    """Stacks stored for a transition, all copies together; 0 where single frames are stored."""
    copies: int = 1
    """How many times the same transitions are stored, for systems that cannot share them."""

    def bytes_a_transition(self, frame_bytes: int, stack: int) -> int:
        """Return an upper estimate of the bytes that the group takes for a transition."""
        return (self.stacks_kept * stack or 1) * frame_bytes + 1_500


GROUPS: dict[str, Group] = {
    "cpprb-uniform": Group("cpprb", cpprb_uniform, ("uniform",), 0),
    "cpprb-prioritized": Group("cpprb", cpprb_prioritized, ("prioritized",), 0),
    "cpprb-n-step": Group("cpprb", cpprb_n_step, ("n_step",), 2),
    "torchrl-pairs": Group("torchrl", torchrl_pairs, ("uniform", "prioritized", "n_step"), 4, copies=2),
    "torchrl-frames": Group("torchrl", torchrl_frames, ("sequences",), 0),
    "sb3-uniform": Group("stable-baselines3", stable_baselines3_uniform, ("uniform",), 1),
    "sb3-n-step": Group("stable-baselines3", stable_baselines3_n_step, ("n_step",), 2),
    "tianshou": Group("tianshou", tianshou, ("uniform", "prioritized", "n_step", "sequences"), 0),
}
