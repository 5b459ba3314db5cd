"""The memories that learners.py measures: framestow, an adapter for each library, and the groups of one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.buffers import (
    CpprbBuffer,
    StableBaselines3Buffer,
    TianshouBuffer,
    TorchRLBuffer,
    quiet_torchrl,
)
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.prioritized import Prioritized
from learner_workload import (
    ALPHA,
    BETA,
    SEQUENCE_LENGTH,
    LearnerArrays,
    LearnerSystem,
    Numbers,
    Question,
    SampledErrors,
    Workload,
)


def filled_memory(workload: Workload, n_step: int) -> ReplayMemory:
    """Return a packed memory of one environment that stores the workload."""
    memory = ReplayMemory(
        workload.num_steps,
        FrameSpec(workload.play.frames.shape[1:]),
        workload.num_steps,
        stack=workload.stack,
        n_step=n_step,
        discount=workload.discount,
        seed=0,
    )
    starts_episode = True
    for numbers in workload.chunks(1_000):
        first_frames = workload.newest_frames(numbers)
        next_frames = workload.observations(numbers, 1)[:, -1]
        columns = (workload.rewards(numbers), workload.terminated(numbers), workload.truncated(numbers))
        for row, number in enumerate(numbers.tolist()):
            if starts_episode:
                memory.begin(first_frames[row : row + 1])
            reward, terminated, truncated = (column[row : row + 1] for column in columns)
            memory.append([number], reward, terminated, truncated, next_frames[row : row + 1])
            starts_episode = bool(terminated[0] or truncated[0])
    return memory


class FramestowLearner(LearnerSystem):
    """A saved memory, loaded with a number of threads and the sampler that the question needs."""

    setting = "packed"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, question: Question, path: str | PathLike[str], threads: int) -> None:
        self.library = "framestow" if threads == 1 else f"framestow, {threads} threads"
        self.question = question
        sampler = Prioritized(alpha=ALPHA, beta=BETA) if question == "prioritized" else None
        self._memory = ReplayMemory.load(path, sampler=sampler, threads=threads)
        self._errors = SampledErrors()
        self.num_transitions = len(self._memory)

    def sample(self, batch_size: int) -> Any:
        if self.question == "sequences":
            return self._memory.sample_sequences(batch_size, length=SEQUENCE_LENGTH)
        batch = self._memory.sample(batch_size)
        if self.question == "prioritized":
            self._memory.update_priorities(batch.index, self._errors.next(batch_size))
        return batch

    def set_errors(self, numbers: Numbers, errors: npt.NDArray[np.float32]) -> None:
        self._memory.update_priorities(numbers, errors)

    def as_arrays(self, batch: Any) -> LearnerArrays:
        discounts = batch.discount if self.question == "n_step" else None
        mask = batch.mask if self.question == "sequences" else None
        return LearnerArrays(
            batch.action, batch.observation, batch.next_observation, batch.reward, discounts=discounts, mask=mask
        )


CPPRB_CHUNK = 512  # steps an add


class _Cpprb(LearnerSystem):
    """Filled in pieces of episodes; the stack is the last axis, as the library requires."""

    library = "cpprb"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, workload: Workload) -> None:
        self.num_transitions = workload.num_steps
        self._buffer = self._build(workload)
        self._calls = CpprbBuffer(self._buffer)
        for numbers in workload.chunks(CPPRB_CHUNK):
            self._calls.add(self._calls.prepare(workload.row(numbers)))

    def _build(self, workload: Workload) -> Any:
        raise NotImplementedError

    def sample(self, batch_size: int) -> Any:
        return self._buffer.sample(batch_size)

    def as_arrays(self, batch: Any) -> LearnerArrays:
        return LearnerArrays.of(self._calls.as_arrays(batch))


def _cpprb_columns(workload: Workload, *observations: str) -> dict[str, Any]:
    return CpprbBuffer.columns((*workload.play.frames.shape[1:], workload.stack), *observations)


class CpprbUniform(_Cpprb):
    """Shares next observations and stacks."""

    question = "uniform"
    setting = "ReplayBuffer, next_of, stack_compress"

    def _build(self, workload: Workload) -> Any:
        from cpprb import ReplayBuffer

        return ReplayBuffer(workload.num_steps, _cpprb_columns(workload, "obs"), next_of="obs", stack_compress="obs")


class CpprbPrioritized(_Cpprb):
    """Adds priority trees."""

    question = "prioritized"
    setting = "PrioritizedReplayBuffer, next_of, stack_compress"

    def _build(self, workload: Workload) -> Any:
        from cpprb import PrioritizedReplayBuffer

        self._errors = SampledErrors()
        return PrioritizedReplayBuffer(
            workload.num_steps, _cpprb_columns(workload, "obs"), alpha=ALPHA, next_of="obs", stack_compress="obs"
        )

    def sample(self, batch_size: int) -> Any:
        batch = self._buffer.sample(batch_size, beta=BETA)
        self._buffer.update_priorities(batch["indexes"], self._errors.next(batch_size))
        return batch

    def set_errors(self, numbers: Numbers, errors: Any) -> None:
        self._buffer.update_priorities(numbers, errors)


class CpprbNStep(_Cpprb):
    """Stores stacks and next stacks: ``next_of`` gives no next observation, ``stack_compress`` some wrong ones.

    With ``stack_compress`` and episodes of 500 steps, 0.6 % of the next observations were wrong, also those of the
    steps five to three before the end, whose value counts (version 11.0.0).
    """

    question = "n_step"
    setting = "ReplayBuffer, Nstep, uncompressed"
    gives_up = "the observation that an episode's last n - 1 steps lead to"
    keeps_final_frames = False

    def _build(self, workload: Workload) -> Any:
        from cpprb import ReplayBuffer

        n_step = {"size": workload.n_step, "gamma": workload.discount, "rew": "rew", "next": "next_obs"}
        return ReplayBuffer(workload.num_steps, _cpprb_columns(workload, "obs", "next_obs"), Nstep=n_step)


CHUNK = 1_000  # steps that are written at once


class _StableBaselines3(LearnerSystem):
    """Filled through the buffer's own arrays, with what ``add`` would write."""

    library = "Stable-Baselines3"
    uses_torch = True

    def __init__(self, workload: Workload) -> None:
        self.num_transitions = workload.num_steps
        buffer = self._buffer = self._build(workload)
        for numbers in workload.chunks(CHUNK):
            buffer.observations[numbers, 0] = workload.observations(numbers)
            next_observations = workload.observations(numbers, 1)
            if buffer.optimize_memory_usage:
                buffer.observations[numbers + 1, 0] = next_observations
            else:
                buffer.next_observations[numbers, 0] = next_observations
            buffer.actions[numbers, 0, 0] = numbers
            buffer.rewards[numbers, 0] = workload.rewards(numbers)
            buffer.dones[numbers, 0] = workload.has_ended(numbers)
            if buffer.handle_timeout_termination:
                buffer.timeouts[numbers, 0] = workload.truncated(numbers)
        buffer.pos = workload.num_steps

    def _build(self, workload: Workload) -> Any:
        raise NotImplementedError

    def sample(self, batch_size: int) -> Any:
        return self._buffer.sample(batch_size)

    def as_arrays(self, batch: Any) -> LearnerArrays:
        return LearnerArrays.of(StableBaselines3Buffer(self._buffer).as_arrays(batch))


def _stable_baselines3_arguments(workload: Workload) -> tuple[Any, ...]:
    from gymnasium.spaces import Box, Discrete

    shape = (workload.stack, *workload.play.frames.shape[1:])
    # One slot more than is filled: it stores the last step's next observation where stacks are shared.
    return workload.num_steps + 1, Box(0, 255, shape, np.uint8), Discrete(workload.num_steps), "cpu"


class StableBaselines3Uniform(_StableBaselines3):
    """``optimize_memory_usage`` halves the bytes; it excludes ``handle_timeout_termination``."""

    question = "uniform"
    setting = "ReplayBuffer, optimize_memory_usage"
    gives_up = "truncation, and the final frame of an episode"
    keeps_final_frames = False

    def _build(self, workload: Workload) -> Any:
        from stable_baselines3.common.buffers import ReplayBuffer

        return ReplayBuffer(
            *_stable_baselines3_arguments(workload), optimize_memory_usage=True, handle_timeout_termination=False
        )


class StableBaselines3NStep(_StableBaselines3):
    """Stores stacks and next stacks: the n-step buffer refuses ``optimize_memory_usage``."""

    question = "n_step"
    setting = "NStepReplayBuffer"
    gives_up = ""
    keeps_final_frames = True

    def _build(self, workload: Workload) -> Any:
        from stable_baselines3.common.buffers import NStepReplayBuffer

        return NStepReplayBuffer(
            *_stable_baselines3_arguments(workload), n_steps=workload.n_step, gamma=workload.discount
        )

    def as_arrays(self, batch: Any) -> LearnerArrays:
        discounts = (batch.discounts * (1 - batch.dones)).numpy().ravel()
        return replace(super().as_arrays(batch), discounts=discounts)


def _tianshou_steps(workload: Workload) -> Any:
    """Return the steps as single frames, as ``save_only_last_obs`` and ``ignore_obs_next`` store them."""
    from tianshou.data import Batch

    everything = np.arange(workload.num_steps)
    frames = np.empty((workload.num_steps, *workload.play.frames.shape[1:]), np.uint8)
    for numbers in workload.chunks(CHUNK):
        frames[numbers] = workload.newest_frames(numbers)
    return Batch(
        obs=frames,
        act=everything,
        rew=workload.rewards(everything).astype(np.float64),
        terminated=workload.terminated(everything),
        truncated=workload.truncated(everything),
        done=workload.has_ended(everything),
    )


class _Tianshou(LearnerSystem):
    """Shares its steps with the other buffers of Tianshou; none of them writes."""

    library = "Tianshou"
    gives_up = "the final frame of an episode"
    keeps_final_frames = False
    uses_torch = False

    def __init__(self, workload: Workload, steps: Any) -> None:
        self.num_transitions = workload.num_steps
        self._buffer = self._build(workload)
        # As ReplayBuffer.from_data fills a buffer, which takes no settings.
        self._buffer.set_batch(steps)
        self._buffer._size = workload.num_steps
        self._buffer.last_index[0] = workload.num_steps - 1

    def _build(self, workload: Workload) -> Any:
        from tianshou.data import ReplayBuffer

        return ReplayBuffer(workload.num_steps, **_tianshou_settings(workload.stack))

    def sample(self, batch_size: int) -> Any:
        batch, _ = self._buffer.sample(batch_size)
        return batch

    def as_arrays(self, batch: Any) -> LearnerArrays:
        return LearnerArrays.of(TianshouBuffer(self._buffer).as_arrays(batch))


def _tianshou_settings(stack: int) -> dict[str, Any]:
    return {"stack_num": stack, "ignore_obs_next": True, "save_only_last_obs": True}


class TianshouUniform(_Tianshou):
    """Stores single frames and stacks them when sampled."""

    question = "uniform"
    setting = "ReplayBuffer, stack_num, save_only_last_obs, ignore_obs_next"


class TianshouPrioritized(_Tianshou):
    """Adds a segment tree."""

    question = "prioritized"
    setting = "PrioritizedReplayBuffer, stack_num, save_only_last_obs, ignore_obs_next"

    def _build(self, workload: Workload) -> Any:
        from tianshou.data import PrioritizedReplayBuffer

        self._errors = SampledErrors()
        return PrioritizedReplayBuffer(workload.num_steps, ALPHA, BETA, **_tianshou_settings(workload.stack))

    def sample(self, batch_size: int) -> Any:
        batch, indices = self._buffer.sample(batch_size)
        self._buffer.update_weight(indices, self._errors.next(batch_size))
        return batch

    def set_errors(self, numbers: Numbers, errors: Any) -> None:
        self._buffer.update_weight(numbers, errors)


class TianshouNStep(_Tianshou):
    """Computes n-step returns as Tianshou's ``DQN`` does, without the network.

    ``DQN`` samples a batch with next observations, and gets a second one, n steps later, for its target.
    """

    question = "n_step"
    setting = "ReplayBuffer and Algorithm.compute_nstep_return, settings as for uniform"

    def __init__(self, workload: Workload, steps: Any) -> None:
        super().__init__(workload, steps)
        self._n_step, self._discount = workload.n_step, workload.discount

    def sample(self, batch_size: int) -> Any:
        import torch
        from tianshou.algorithm import Algorithm

        last: list[Any] = []
        no_value = torch.zeros(batch_size)

        def target_q(buffer: Any, indices: Any) -> Any:
            last.append(buffer[indices].obs_next)
            return no_value

        batch, indices = self._buffer.sample(batch_size)
        batch = Algorithm.compute_nstep_return(batch, self._buffer, indices, target_q, self._discount, self._n_step)
        return batch, last[0]

    def as_arrays(self, batch: Any) -> LearnerArrays:
        drawn, last = batch
        return LearnerArrays(drawn.act, drawn.obs, last, drawn.returns.numpy().ravel())


class TianshouSequences(_Tianshou):
    """Windows of ``stack_num``, as the library does for recurrent networks, long enough for all stacks of a sequence.

    They end at the sampled step. The episode's first step is repeated before its beginning, without a mask.
    """

    question = "sequences"
    setting = "ReplayBuffer.get, stack_num = 83 for frames and 80 for the rest"
    gives_up = "the final frame of an episode; which steps are padding"

    def __init__(self, workload: Workload, steps: Any) -> None:
        super().__init__(workload, steps)
        self._stack = workload.stack

    def sample(self, batch_size: int) -> Any:
        buffer = self._buffer
        indices = buffer.sample_indices(batch_size)
        frames = buffer.get(indices, "obs", stack_num=SEQUENCE_LENGTH + self._stack - 1)
        return frames, *(buffer.get(indices, name, stack_num=SEQUENCE_LENGTH) for name in ("act", "rew", "terminated"))

    def as_arrays(self, batch: Any) -> LearnerArrays:
        frames, numbers, rewards, _ = batch
        stacks = np.moveaxis(np.lib.stride_tricks.sliding_window_view(frames, self._stack, axis=1), -1, 2)
        is_its_own = np.concatenate([numbers[:, 1:] != numbers[:, :-1], np.ones((len(numbers), 1), np.bool_)], axis=1)
        return LearnerArrays(numbers, stacks, None, rewards, mask=is_its_own)


def tianshou_systems(workload: Workload) -> list[LearnerSystem]:
    """Return all four systems on one set of arrays."""
    steps = _tianshou_steps(workload)
    return [kind(workload, steps) for kind in (TianshouUniform, TianshouPrioritized, TianshouNStep, TianshouSequences)]


class _TorchRL(LearnerSystem):
    library = "TorchRL"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = True

    def __init__(self, buffer: Any) -> None:
        self.num_transitions = len(buffer)
        self._buffer = buffer

    def sample(self, batch_size: int) -> Any:
        return self._buffer.sample(batch_size)

    def as_arrays(self, batch: Any) -> LearnerArrays:
        return LearnerArrays.of(TorchRLBuffer(self._buffer).as_arrays(batch))


class TorchRLUniform(_TorchRL):
    """Stores stacks and next stacks."""

    question = "uniform"
    setting = "ReplayBuffer, LazyTensorStorage of stacks and next stacks"


class TorchRLPrioritized(_TorchRL):
    """Adds a sum tree and a minimum tree in C++."""

    question = "prioritized"
    setting = "ReplayBuffer, PrioritizedSampler, LazyTensorStorage of stacks and next stacks"

    def __init__(self, buffer: Any) -> None:
        import torch

        super().__init__(buffer)
        self._errors, self._as_tensor = SampledErrors(), torch.from_numpy

    def sample(self, batch_size: int) -> Any:
        batch, drawn = self._buffer.sample(batch_size, return_info=True)
        self._buffer.update_priority(drawn["index"], self._as_tensor(self._errors.next(batch_size)))
        return batch

    def set_errors(self, numbers: Numbers, errors: Any) -> None:
        self._buffer.update_priority(self._as_tensor(numbers), self._as_tensor(errors))


class TorchRLNStep(_TorchRL):
    """Turns steps into n-step transitions when they are written, so sampling costs the same as uniform.

    ``terminated`` is that of the first step, so the value after a transition counts even if it terminated later.
    """

    question = "n_step"
    setting = "ReplayBuffer, MultiStepTransform, LazyTensorStorage of stacks and next stacks"
    gives_up = "that an episode terminated, but for its last transition"


class TorchRLSequences(_TorchRL):
    """Slices of single frames, with stacks as views: a fifth of the bytes of slices of stacks and next stacks.

    A slice has three steps before the sequence, for its first stack, and one after it, for the last next observation.
    After any write the sampler searches for the episodes' ends again.
    """

    question = "sequences"
    setting = "ReplayBuffer, SliceSampler, LazyTensorStorage of frames; stacks are views"
    gives_up = "final frames of episodes, sequences from their first three steps on, and shorter ones"

    def __init__(self, workload: Workload, buffer: Any) -> None:
        super().__init__(buffer)
        self._before = workload.stack - 1
        self._stack = workload.stack

    def sample(self, batch_size: int) -> Any:
        length = self._before + SEQUENCE_LENGTH + 1
        batch = self._buffer.sample(batch_size * length).view(batch_size, length)
        return batch, batch["observation"].unfold(1, self._stack, 1)

    def as_arrays(self, batch: Any) -> LearnerArrays:
        steps, stacks = batch[0][:, self._before : -1], np.moveaxis(batch[1].numpy(), -1, 2)
        return LearnerArrays(
            steps["action"].numpy(), stacks[:, :-1], stacks[:, 1:], steps["next", "reward"].squeeze(-1).numpy()
        )


class TorchRLCachedSequences(TorchRLSequences):
    """Caches the episodes' ends, for a buffer that is no longer written."""

    library = "TorchRL, nothing written"
    setting = "the same with cache_values, for a buffer that nothing is written to"


def _torchrl_fill(buffer: Any, workload: Workload, *, has_stacks: bool) -> Any:
    calls = TorchRLBuffer(buffer)
    for first in range(0, workload.num_steps, CHUNK):
        numbers = np.arange(first, min(first + CHUNK, workload.num_steps))
        steps = calls.prepare(workload.row(numbers, has_stacks))
        calls.add(steps if has_stacks else steps.exclude(("next", "observation")))
    return buffer


def torchrl_pairs(workload: Workload) -> list[LearnerSystem]:
    """Return buffers of stacks and next stacks: one storage for 1-step transitions, one for n-step transitions."""
    quiet_torchrl()
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, ReplayBuffer
    from torchrl.envs.transforms import MultiStepTransform

    size = workload.num_steps
    storage = LazyTensorStorage(size)
    by_priority = ReplayBuffer(storage=storage, sampler=PrioritizedSampler(size, alpha=ALPHA, beta=BETA), batch_size=1)
    n_step = MultiStepTransform(n_steps=workload.n_step, gamma=workload.discount)
    of_n_steps = ReplayBuffer(storage=LazyTensorStorage(size), transform=n_step, batch_size=1)
    return [
        TorchRLPrioritized(_torchrl_fill(by_priority, workload, has_stacks=True)),
        TorchRLUniform(ReplayBuffer(storage=storage, batch_size=1)),
        TorchRLNStep(_torchrl_fill(of_n_steps, workload, has_stacks=True)),
    ]


def torchrl_frames(workload: Workload) -> list[LearnerSystem]:
    """Return buffers of single frames that sample slices, one without and one with a cache."""
    quiet_torchrl()
    from torchrl.data import LazyTensorStorage, ReplayBuffer, SliceSampler

    def sampler(cache_values: bool) -> Any:
        length = workload.stack - 1 + SEQUENCE_LENGTH + 1
        return SliceSampler(slice_len=length, end_key=("next", "done"), cache_values=cache_values)

    storage = LazyTensorStorage(workload.num_steps)
    buffer = _torchrl_fill(
        ReplayBuffer(storage=storage, sampler=sampler(False), batch_size=1), workload, has_stacks=False
    )
    cached = ReplayBuffer(storage=storage, sampler=sampler(True), batch_size=1)
    return [TorchRLSequences(workload, buffer), TorchRLCachedSequences(workload, cached)]


@dataclass(frozen=True)
class Group:
    """Systems that share their storage, or fit into RAM together: one process measures them."""

    library: str
    """Key of the library in framestow.benchmarking.libraries."""
    build: Callable[[Workload], list[LearnerSystem]]
    questions: tuple[Question, ...]
    stacks_kept: int
    """Stacks stored for a transition, all copies together; 0 where single frames are stored."""
    copies: int = 1
    """How many times the same transitions are stored, for systems that cannot share them."""

    def bytes_a_transition(self, frame_bytes: int, stack: int) -> int:
        """Return an upper estimate of the bytes that the group takes for a transition."""
        return (self.stacks_kept * stack or 1) * frame_bytes + 1_500


GROUPS: dict[str, Group] = {
    "cpprb-uniform": Group("cpprb", lambda workload: [CpprbUniform(workload)], ("uniform",), 0),
    "cpprb-prioritized": Group("cpprb", lambda workload: [CpprbPrioritized(workload)], ("prioritized",), 0),
    "cpprb-n-step": Group("cpprb", lambda workload: [CpprbNStep(workload)], ("n_step",), 2),
    "torchrl-pairs": Group("torchrl", torchrl_pairs, ("uniform", "prioritized", "n_step"), 4, copies=2),
    "torchrl-frames": Group("torchrl", torchrl_frames, ("sequences",), 0),
    "sb3-uniform": Group("stable-baselines3", lambda workload: [StableBaselines3Uniform(workload)], ("uniform",), 1),
    "sb3-n-step": Group("stable-baselines3", lambda workload: [StableBaselines3NStep(workload)], ("n_step",), 2),
    "tianshou": Group("tianshou", tianshou_systems, ("uniform", "prioritized", "n_step", "sequences"), 0),
}

LACKING: dict[str, tuple[Question, ...]] = {
    "cpprb": ("sequences",),
    "Stable-Baselines3": ("prioritized", "sequences"),
}
