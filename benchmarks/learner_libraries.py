"""The memories of framestow and of other libraries, asked as a learner asks them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.prioritized import Prioritized
from learner_workload import (
    ALPHA,
    BETA,
    SEQUENCE_LENGTH,
    Course,
    Drawn,
    LearningSystem,
    Numbers,
    Question,
    TemporalDifferences,
)


def filled(course: Course, n_step: int) -> ReplayMemory:
    """Play the course into a packed memory of one stream."""
    memory = ReplayMemory(
        course.num_steps,
        FrameSpec(course.play.frames.shape[1:]),
        course.num_steps,
        stack=course.stack,
        n_step=n_step,
        discount=course.discount,
        seed=0,
    )
    starts_episode = True
    for numbers in course.chunks(1_000):
        first_frames = course.newest_frames(numbers)
        next_frames = course.observations(numbers, 1)[:, -1]
        columns = (course.rewards(numbers), course.terminated(numbers), course.truncated(numbers))
        for place, number in enumerate(numbers.tolist()):
            if starts_episode:
                memory.begin(first_frames[place : place + 1])
            reward, terminated, truncated = (column[place : place + 1] for column in columns)
            memory.append([number], reward, terminated, truncated, next_frames[place : place + 1])
            starts_episode = bool(terminated[0] or truncated[0])
    return memory


class OwnLearning(LearningSystem):
    """A saved memory, loaded with a number of threads and the sampler that the question wants."""

    setting = "packed"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, question: Question, path: str | PathLike[str], threads: int) -> None:
        self.library = "framestow" if threads == 1 else f"framestow, {threads} threads"
        self.question = question
        sampler = Prioritized(alpha=ALPHA, beta=BETA) if question == "prioritized" else None
        self._memory = ReplayMemory.load(path, sampler=sampler, threads=threads)
        self._errors = TemporalDifferences()
        self.num_transitions = len(self._memory)

    def draw(self, batch_size: int) -> Any:
        """Draw a batch into recycled arrays."""
        if self.question == "sequences":
            return self._memory.sample_sequences(batch_size, length=SEQUENCE_LENGTH)
        batch = self._memory.sample(batch_size)
        if self.question == "prioritized":
            self._memory.update_priorities(batch.index, self._errors.next(batch_size))
        return batch

    def set_errors(self, numbers: Numbers, errors: npt.NDArray[np.float32]) -> None:
        """Give these steps, whose indices are their numbers, the priorities of these errors."""
        self._memory.update_priorities(numbers, errors)

    def drawn(self, batch: Any) -> Drawn:
        """Give the batch's own arrays."""
        discounts = batch.discount if self.question == "n_step" else None
        mask = batch.mask if self.question == "sequences" else None
        return Drawn(
            batch.action, batch.observation, batch.next_observation, batch.reward, discounts=discounts, mask=mask
        )


CPPRB_CHUNK = 512  # steps an add


class _Cpprb(LearningSystem):
    """Fed in pieces of episodes; the stack is the last axis, as the library asks for."""

    library = "cpprb"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, course: Course) -> None:
        self.num_transitions = course.num_steps
        self._buffer = self._made(course)
        for numbers in course.chunks(CPPRB_CHUNK):
            self._buffer.add(
                obs=np.moveaxis(course.observations(numbers), 1, -1),
                next_obs=np.moveaxis(course.observations(numbers, 1), 1, -1),
                act=numbers,
                rew=course.rewards(numbers),
                done=course.terminated(numbers),
            )
            if course.has_ended(numbers[-1:])[0]:
                self._buffer.on_episode_end()

    def _made(self, course: Course) -> Any:
        raise NotImplementedError

    def draw(self, batch_size: int) -> Any:
        """Draw a batch of arrays."""
        return self._buffer.sample(batch_size)

    def drawn(self, batch: Any) -> Drawn:
        """Move the stack back to where the others have it."""
        observations, next_observations = (np.moveaxis(batch[name], -1, 1) for name in ("obs", "next_obs"))
        return Drawn(batch["act"].ravel(), observations, next_observations, batch["rew"].ravel())


def _cpprb_columns(course: Course, *observations: str) -> dict[str, Any]:
    shape = (*course.play.frames.shape[1:], course.stack)
    stacks = {name: {"shape": shape, "dtype": np.uint8} for name in observations}
    return {**stacks, "act": {"dtype": np.int64}, "rew": {"dtype": np.float32}, "done": {"dtype": np.bool_}}


class CpprbUniform(_Cpprb):
    """Shares next observations and stacks."""

    question = "uniform"
    setting = "ReplayBuffer, next_of, stack_compress"

    def _made(self, course: Course) -> Any:
        from cpprb import ReplayBuffer

        return ReplayBuffer(course.num_steps, _cpprb_columns(course, "obs"), next_of="obs", stack_compress="obs")


class CpprbPrioritized(_Cpprb):
    """The same with its priority trees."""

    question = "prioritized"
    setting = "PrioritizedReplayBuffer, next_of, stack_compress"

    def _made(self, course: Course) -> Any:
        from cpprb import PrioritizedReplayBuffer

        self._errors = TemporalDifferences()
        return PrioritizedReplayBuffer(
            course.num_steps, _cpprb_columns(course, "obs"), alpha=ALPHA, next_of="obs", stack_compress="obs"
        )

    def draw(self, batch_size: int) -> Any:
        """Draw by priority, and give what was drawn new priorities."""
        batch = self._buffer.sample(batch_size, beta=BETA)
        self._buffer.update_priorities(batch["indexes"], self._errors.next(batch_size))
        return batch

    def set_errors(self, numbers: Numbers, errors: Any) -> None:
        """Give these steps, which lie at the places of their numbers, the priorities of these errors."""
        self._buffer.update_priorities(numbers, errors)


class CpprbNStep(_Cpprb):
    """Whole stacks twice: with ``next_of`` there is no next observation, with ``stack_compress`` some are wrong.

    Of episodes of 500 steps, 0.6 % of the next observations were not the true ones with ``stack_compress``, those of
    steps five to three before the end among them, whose value counts (11.0.0).
    """

    question = "n_step"
    setting = "ReplayBuffer, Nstep, uncompressed"
    gives_up = "the observation that an episode's last n - 1 steps lead to"
    keeps_final_frames = False

    def _made(self, course: Course) -> Any:
        from cpprb import ReplayBuffer

        n_step = {"size": course.n_step, "gamma": course.discount, "rew": "rew", "next": "next_obs"}
        return ReplayBuffer(course.num_steps, _cpprb_columns(course, "obs", "next_obs"), Nstep=n_step)


CHUNK = 1_000  # steps that are written at once


class _StableBaselines3(LearningSystem):
    """Written into the buffer's own arrays, in which ``add`` would have put the same."""

    library = "Stable-Baselines3"
    uses_torch = True

    def __init__(self, course: Course) -> None:
        self.num_transitions = course.num_steps
        buffer = self._buffer = self._made(course)
        for numbers in course.chunks(CHUNK):
            buffer.observations[numbers, 0] = course.observations(numbers)
            next_observations = course.observations(numbers, 1)
            if buffer.optimize_memory_usage:
                buffer.observations[numbers + 1, 0] = next_observations
            else:
                buffer.next_observations[numbers, 0] = next_observations
            buffer.actions[numbers, 0, 0] = numbers
            buffer.rewards[numbers, 0] = course.rewards(numbers)
            buffer.dones[numbers, 0] = course.has_ended(numbers)
            if buffer.handle_timeout_termination:
                buffer.timeouts[numbers, 0] = course.truncated(numbers)
        buffer.pos = course.num_steps

    def _made(self, course: Course) -> Any:
        raise NotImplementedError

    def draw(self, batch_size: int) -> Any:
        """Draw a batch of tensors."""
        return self._buffer.sample(batch_size)


def _stable_baselines3_arguments(course: Course) -> tuple[Any, ...]:
    from gymnasium.spaces import Box, Discrete

    shape = (course.stack, *course.play.frames.shape[1:])
    # One place more than is filled: the last step's next observation lies in it where it is shared.
    return course.num_steps + 1, Box(0, 255, shape, np.uint8), Discrete(course.num_steps), "cpu"


class StableBaselines3Uniform(_StableBaselines3):
    """``optimize_memory_usage`` halves the bytes; the library forbids ``handle_timeout_termination`` beside it."""

    question = "uniform"
    setting = "ReplayBuffer, optimize_memory_usage"
    gives_up = "truncation, and the final frame of an episode"
    keeps_final_frames = False

    def _made(self, course: Course) -> Any:
        from stable_baselines3.common.buffers import ReplayBuffer

        return ReplayBuffer(
            *_stable_baselines3_arguments(course), optimize_memory_usage=True, handle_timeout_termination=False
        )

    def drawn(self, batch: Any) -> Drawn:
        """Look at the tensors as arrays."""
        return Drawn(
            batch.actions.numpy().ravel().astype(np.int64),
            batch.observations.numpy(),
            batch.next_observations.numpy(),
            batch.rewards.numpy().ravel(),
        )


class StableBaselines3NStep(_StableBaselines3):
    """Stacks and next stacks: the n-step buffer refuses to halve them."""

    question = "n_step"
    setting = "NStepReplayBuffer"
    gives_up = ""
    keeps_final_frames = True

    def _made(self, course: Course) -> Any:
        from stable_baselines3.common.buffers import NStepReplayBuffer

        return NStepReplayBuffer(*_stable_baselines3_arguments(course), n_steps=course.n_step, gamma=course.discount)

    def drawn(self, batch: Any) -> Drawn:
        """Look at the tensors as arrays."""
        return Drawn(
            batch.actions.numpy().ravel().astype(np.int64),
            batch.observations.numpy(),
            batch.next_observations.numpy(),
            batch.rewards.numpy().ravel(),
            (batch.discounts * (1 - batch.dones)).numpy().ravel(),
        )


def stored_steps(course: Course) -> Any:
    """Lay out the steps as a buffer with ``save_only_last_obs`` and ``ignore_obs_next`` keeps them: single frames."""
    from tianshou.data import Batch

    everything = np.arange(course.num_steps)
    frames = np.empty((course.num_steps, *course.play.frames.shape[1:]), np.uint8)
    for numbers in course.chunks(CHUNK):
        frames[numbers] = course.newest_frames(numbers)
    return Batch(
        obs=frames,
        act=everything,
        rew=course.rewards(everything).astype(np.float64),
        terminated=course.terminated(everything),
        truncated=course.truncated(everything),
        done=course.has_ended(everything),
    )


class _Tianshou(LearningSystem):
    """Shares its steps with the others of its kind: none of them writes any."""

    library = "Tianshou"
    gives_up = "the final frame of an episode"
    keeps_final_frames = False
    uses_torch = False

    def __init__(self, course: Course, steps: Any) -> None:
        self.num_transitions = course.num_steps
        self._buffer = self._made(course)
        # As ReplayBuffer.from_data fills a buffer, which takes no settings.
        self._buffer.set_batch(steps)
        self._buffer._size = course.num_steps
        self._buffer.last_index[0] = course.num_steps - 1

    def _made(self, course: Course) -> Any:
        from tianshou.data import ReplayBuffer

        return ReplayBuffer(course.num_steps, **_tianshou_settings(course.stack))

    def draw(self, batch_size: int) -> Any:
        """Draw a batch of arrays."""
        batch, _ = self._buffer.sample(batch_size)
        return batch

    def drawn(self, batch: Any) -> Drawn:
        """Give the batch's own arrays."""
        return Drawn(batch.act, batch.obs, batch.obs_next, batch.rew)


def _tianshou_settings(stack: int) -> dict[str, Any]:
    return {"stack_num": stack, "ignore_obs_next": True, "save_only_last_obs": True}


class TianshouUniform(_Tianshou):
    """Single frames, stacked when sampled."""

    question = "uniform"
    setting = "ReplayBuffer, stack_num, save_only_last_obs, ignore_obs_next"


class TianshouPrioritized(_Tianshou):
    """The same with a segment tree."""

    question = "prioritized"
    setting = "PrioritizedReplayBuffer, stack_num, save_only_last_obs, ignore_obs_next"

    def _made(self, course: Course) -> Any:
        from tianshou.data import PrioritizedReplayBuffer

        self._errors = TemporalDifferences()
        return PrioritizedReplayBuffer(course.num_steps, ALPHA, BETA, **_tianshou_settings(course.stack))

    def draw(self, batch_size: int) -> Any:
        """Draw by priority, and give what was drawn new priorities."""
        batch, indices = self._buffer.sample(batch_size)
        self._buffer.update_weight(indices, self._errors.next(batch_size))
        return batch

    def set_errors(self, numbers: Numbers, errors: Any) -> None:
        """Give these steps, which lie at the places of their numbers, the priorities of these errors."""
        self._buffer.update_weight(numbers, errors)


class TianshouNStep(_Tianshou):
    """The n-step return is the algorithm's affair: it is computed as ``DQN`` has it, the network left out.

    ``DQN`` draws a batch, next observations included, and fetches one more, n steps later, for its target.
    """

    question = "n_step"
    setting = "ReplayBuffer and Algorithm.compute_nstep_return, settings as for uniform"

    def __init__(self, course: Course, steps: Any) -> None:
        super().__init__(course, steps)
        self._n_step, self._discount = course.n_step, course.discount

    def draw(self, batch_size: int) -> Any:
        """Draw a batch, and what its target is made of."""
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

    def drawn(self, batch: Any) -> Drawn:
        """Take the return without a value behind it."""
        drawn, last = batch
        return Drawn(drawn.act, drawn.obs, last, drawn.returns.numpy().ravel())


class TianshouSequences(_Tianshou):
    """Windows of ``stack_num``, the library's way to recurrent networks, long enough for every stack of a sequence.

    They end at the drawn step, and at an episode's beginning its first step is repeated before it, unmarked.
    """

    question = "sequences"
    setting = "ReplayBuffer.get, stack_num = 83 for frames and 80 for the rest"
    gives_up = "the final frame of an episode; which steps are padding"

    def __init__(self, course: Course, steps: Any) -> None:
        super().__init__(course, steps)
        self._stack = course.stack

    def draw(self, batch_size: int) -> Any:
        """Draw the last steps, and fetch what leads to them."""
        buffer = self._buffer
        indices = buffer.sample_indices(batch_size)
        frames = buffer.get(indices, "obs", stack_num=SEQUENCE_LENGTH + self._stack - 1)
        return frames, *(buffer.get(indices, name, stack_num=SEQUENCE_LENGTH) for name in ("act", "rew", "terminated"))

    def drawn(self, batch: Any) -> Drawn:
        """See the frames as stacks; what is repeated before an episode's first step is masked."""
        frames, numbers, rewards, _ = batch
        stacks = np.moveaxis(np.lib.stride_tricks.sliding_window_view(frames, self._stack, axis=1), -1, 2)
        is_its_own = np.concatenate([numbers[:, 1:] != numbers[:, :-1], np.ones((len(numbers), 1), np.bool_)], axis=1)
        return Drawn(numbers, stacks, None, rewards, mask=is_its_own)


def tianshou_systems(course: Course) -> list[LearningSystem]:
    """Fill one set of arrays and give it to all four."""
    steps = stored_steps(course)
    return [kind(course, steps) for kind in (TianshouUniform, TianshouPrioritized, TianshouNStep, TianshouSequences)]


class _TorchRL(LearningSystem):
    library = "TorchRL"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = True

    def __init__(self, buffer: Any) -> None:
        self.num_transitions = len(buffer)
        self._buffer = buffer

    def draw(self, batch_size: int) -> Any:
        """Draw a TensorDict."""
        return self._buffer.sample(batch_size)

    def drawn(self, batch: Any) -> Drawn:
        """Look at the tensors as arrays."""
        following = batch["next"]
        return Drawn(
            batch["action"].numpy(),
            batch["observation"].numpy(),
            following["observation"].numpy(),
            following["reward"].squeeze(-1).numpy(),
        )


class TorchRLUniform(_TorchRL):
    """Stacks and next stacks side by side."""

    question = "uniform"
    setting = "ReplayBuffer, LazyTensorStorage of stacks and next stacks"


class TorchRLPrioritized(_TorchRL):
    """The same with a sum tree and a minimum tree in C++."""

    question = "prioritized"
    setting = "ReplayBuffer, PrioritizedSampler, LazyTensorStorage of stacks and next stacks"

    def __init__(self, buffer: Any) -> None:
        import torch

        super().__init__(buffer)
        self._errors, self._as_tensor = TemporalDifferences(), torch.from_numpy

    def draw(self, batch_size: int) -> Any:
        """Draw by priority, and give what was drawn new priorities."""
        batch, drawn = self._buffer.sample(batch_size, return_info=True)
        self._buffer.update_priority(drawn["index"], self._as_tensor(self._errors.next(batch_size)))
        return batch

    def set_errors(self, numbers: Numbers, errors: Any) -> None:
        """Give these steps, which lie at the places of their numbers, the priorities of these errors."""
        self._buffer.update_priority(self._as_tensor(numbers), self._as_tensor(errors))


class TorchRLNStep(_TorchRL):
    """Steps become n-step transitions as they are written, so a draw is as a uniform one.

    ``terminated`` stays that of the first step, so a value is counted behind a transition that terminated later.
    """

    question = "n_step"
    setting = "ReplayBuffer, MultiStepTransform, LazyTensorStorage of stacks and next stacks"
    gives_up = "that an episode terminated, but for its last transition"


class TorchRLSequences(_TorchRL):
    """Slices of single frames, stacks seen as views: a fifth of the bytes of slices of stacks and next stacks.

    A slice has three steps before the sequence, for its first stack, and one behind it, for the last next observation.
    Where anything was written since the last draw, the sampler looks for the episodes' ends anew.
    """

    question = "sequences"
    setting = "ReplayBuffer, SliceSampler, LazyTensorStorage of frames; stacks are views"
    gives_up = "final frames of episodes, sequences from their first three steps on, and shorter ones"

    def __init__(self, course: Course, buffer: Any) -> None:
        super().__init__(buffer)
        self._before = course.stack - 1
        self._stack = course.stack

    def draw(self, batch_size: int) -> Any:
        """Draw slices; stacks are seen, not made."""
        length = self._before + SEQUENCE_LENGTH + 1
        batch = self._buffer.sample(batch_size * length).view(batch_size, length)
        return batch, batch["frame"].unfold(1, self._stack, 1)

    def drawn(self, batch: Any) -> Drawn:
        """Look at the tensors as arrays."""
        steps, stacks = batch[0][:, self._before : -1], np.moveaxis(batch[1].numpy(), -1, 2)
        return Drawn(
            steps["action"].numpy(), stacks[:, :-1], stacks[:, 1:], steps["next", "reward"].squeeze(-1).numpy()
        )


class TorchRLCachedSequences(TorchRLSequences):
    """The same where nothing is written any more."""

    library = "TorchRL, nothing written"
    setting = "the same with cache_values, for a buffer that nothing is written to"


def _torchrl_steps(course: Course, numbers: Numbers, has_stacks: bool) -> Any:
    import torch
    from tensordict import TensorDict

    flags = course.terminated(numbers), course.truncated(numbers), course.has_ended(numbers)
    columns = zip(("reward", "terminated", "truncated", "done"), (course.rewards(numbers), *flags), strict=True)
    following = {name: torch.from_numpy(column)[:, None] for name, column in columns}
    step = {"action": torch.from_numpy(numbers)}
    if has_stacks:
        step["observation"] = torch.from_numpy(course.observations(numbers))
        following["observation"] = torch.from_numpy(course.observations(numbers, 1))
    else:
        step["frame"] = torch.from_numpy(course.newest_frames(numbers))
    return TensorDict({**step, "next": following}, [len(numbers)])


def _torchrl_fill(buffer: Any, course: Course, *, has_stacks: bool) -> Any:
    for first in range(0, course.num_steps, CHUNK):
        buffer.extend(_torchrl_steps(course, np.arange(first, min(first + CHUNK, course.num_steps)), has_stacks))
    return buffer


def _quiet_torchrl() -> None:
    logging.getLogger("torchrl").setLevel(logging.WARNING)


def torchrl_pairs(course: Course) -> list[LearningSystem]:
    """Fill buffers with stacks and next stacks: one storage for 1-step transitions, one for those of n steps."""
    import torchrl.data  # noqa: F401 -- sets up its logger

    _quiet_torchrl()
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, ReplayBuffer
    from torchrl.envs.transforms import MultiStepTransform

    size = course.num_steps
    storage = LazyTensorStorage(size)
    by_priority = ReplayBuffer(storage=storage, sampler=PrioritizedSampler(size, alpha=ALPHA, beta=BETA), batch_size=1)
    n_step = MultiStepTransform(n_steps=course.n_step, gamma=course.discount)
    of_n_steps = ReplayBuffer(storage=LazyTensorStorage(size), transform=n_step, batch_size=1)
    return [
        TorchRLPrioritized(_torchrl_fill(by_priority, course, has_stacks=True)),
        TorchRLUniform(ReplayBuffer(storage=storage, batch_size=1)),
        TorchRLNStep(_torchrl_fill(of_n_steps, course, has_stacks=True)),
    ]


def torchrl_frames(course: Course) -> list[LearningSystem]:
    """Fill a storage with single frames, and draw slices from it."""
    import torchrl.data  # noqa: F401 -- sets up its logger

    _quiet_torchrl()
    from torchrl.data import LazyTensorStorage, ReplayBuffer, SliceSampler

    def sampler(cache_values: bool) -> Any:
        length = course.stack - 1 + SEQUENCE_LENGTH + 1
        return SliceSampler(slice_len=length, end_key=("next", "done"), cache_values=cache_values)

    storage = LazyTensorStorage(course.num_steps)
    buffer = _torchrl_fill(
        ReplayBuffer(storage=storage, sampler=sampler(False), batch_size=1), course, has_stacks=False
    )
    cached = ReplayBuffer(storage=storage, sampler=sampler(True), batch_size=1)
    return [TorchRLSequences(course, buffer), TorchRLCachedSequences(course, cached)]


@dataclass(frozen=True)
class Group:
    """Systems that share what they keep, or fit into RAM beside each other: one process measures them."""

    requirement: str
    """The distribution that they come from."""
    build: Callable[[Course], list[LearningSystem]]
    questions: tuple[Question, ...]
    stacks_kept: int
    """Stacks that are kept of a transition, all copies together; 0 where single frames are."""
    copies: int = 1
    """How many times the same transitions are kept, for systems that cannot share them."""

    def bytes_a_transition(self, frame_bytes: int, stack: int) -> int:
        """Bytes that the group takes for a transition, somewhat more than less."""
        return (self.stacks_kept * stack or 1) * frame_bytes + 1_500


GROUPS: dict[str, Group] = {
    "cpprb-uniform": Group("cpprb", lambda course: [CpprbUniform(course)], ("uniform",), 0),
    "cpprb-prioritized": Group("cpprb", lambda course: [CpprbPrioritized(course)], ("prioritized",), 0),
    "cpprb-n-step": Group("cpprb", lambda course: [CpprbNStep(course)], ("n_step",), 2),
    "torchrl-pairs": Group("torchrl", torchrl_pairs, ("uniform", "prioritized", "n_step"), 4, copies=2),
    "torchrl-frames": Group("torchrl", torchrl_frames, ("sequences",), 0),
    "sb3-uniform": Group("stable-baselines3", lambda course: [StableBaselines3Uniform(course)], ("uniform",), 1),
    "sb3-n-step": Group("stable-baselines3", lambda course: [StableBaselines3NStep(course)], ("n_step",), 2),
    "tianshou": Group("tianshou", tianshou_systems, ("uniform", "prioritized", "n_step", "sequences"), 0),
}

LACKING: dict[str, tuple[Question, ...]] = {
    "cpprb": ("sequences",),
    "Stable-Baselines3": ("prioritized", "sequences"),
}
