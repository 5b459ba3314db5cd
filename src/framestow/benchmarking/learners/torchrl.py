"""What TorchRL's buffers answer."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from framestow.benchmarking.learners.course import Course, Numbers
from framestow.benchmarking.learners.learning_system import (
    ALPHA,
    BETA,
    SEQUENCE_LENGTH,
    Drawn,
    LearningSystem,
    TemporalDifferences,
)

CHUNK = 1_000  # steps an extend


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


def _steps(course: Course, numbers: Numbers, has_stacks: bool) -> Any:
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


def _fill(buffer: Any, course: Course, *, has_stacks: bool) -> Any:
    for first in range(0, course.num_steps, CHUNK):
        buffer.extend(_steps(course, np.arange(first, min(first + CHUNK, course.num_steps)), has_stacks))
    return buffer


def _quiet() -> None:
    logging.getLogger("torchrl").setLevel(logging.WARNING)


def pairs(course: Course) -> list[LearningSystem]:
    """Fill buffers with stacks and next stacks: one storage for 1-step transitions, one for those of n steps."""
    import torchrl.data  # noqa: F401 -- sets up its logger

    _quiet()
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, ReplayBuffer
    from torchrl.envs.transforms import MultiStepTransform

    size = course.num_steps
    storage = LazyTensorStorage(size)
    by_priority = ReplayBuffer(storage=storage, sampler=PrioritizedSampler(size, alpha=ALPHA, beta=BETA), batch_size=1)
    n_step = MultiStepTransform(n_steps=course.n_step, gamma=course.discount)
    of_n_steps = ReplayBuffer(storage=LazyTensorStorage(size), transform=n_step, batch_size=1)
    return [
        TorchRLPrioritized(_fill(by_priority, course, has_stacks=True)),
        TorchRLUniform(ReplayBuffer(storage=storage, batch_size=1)),
        TorchRLNStep(_fill(of_n_steps, course, has_stacks=True)),
    ]


def frames(course: Course) -> list[LearningSystem]:
    """Fill a storage with single frames, and draw slices from it."""
    import torchrl.data  # noqa: F401 -- sets up its logger

    _quiet()
    from torchrl.data import LazyTensorStorage, ReplayBuffer, SliceSampler

    def sampler(cache_values: bool) -> Any:
        length = course.stack - 1 + SEQUENCE_LENGTH + 1
        return SliceSampler(slice_len=length, end_key=("next", "done"), cache_values=cache_values)

    storage = LazyTensorStorage(course.num_steps)
    buffer = _fill(ReplayBuffer(storage=storage, sampler=sampler(False), batch_size=1), course, has_stacks=False)
    cached = ReplayBuffer(storage=storage, sampler=sampler(True), batch_size=1)
    return [TorchRLSequences(course, buffer), TorchRLCachedSequences(course, cached)]
