"""What Tianshou's buffers answer."""

from __future__ import annotations

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

CHUNK = 1_000  # frames that are written at once


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

        return ReplayBuffer(course.num_steps, **_settings(course.stack))

    def draw(self, batch_size: int) -> Any:
        """Draw a batch of arrays."""
        batch, _ = self._buffer.sample(batch_size)
        return batch

    def drawn(self, batch: Any) -> Drawn:
        """Give the batch's own arrays."""
        return Drawn(batch.act, batch.obs, batch.obs_next, batch.rew)


def _settings(stack: int) -> dict[str, Any]:
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
        return PrioritizedReplayBuffer(course.num_steps, ALPHA, BETA, **_settings(course.stack))

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


def systems(course: Course) -> list[LearningSystem]:
    """Fill one set of arrays and give it to all four."""
    steps = stored_steps(course)
    return [kind(course, steps) for kind in (TianshouUniform, TianshouPrioritized, TianshouNStep, TianshouSequences)]
