"""Steps are looked up without their frames."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory


def played(n_step=1):
    """Two environments: the first has episodes of three steps, the second goes on; rewards are 10 * env_id + step."""
    memory = ReplayMemory(
        16, FrameSpec((2, 2)), 32, stack=2, num_envs=2, n_step=n_step, seed=0, extras={"twice": np.float32}
    )
    frames = np.zeros((2, 2, 2), np.uint8)
    memory.begin(frames)
    for step in range(10):
        rewards = np.array([step, 10 + step], np.float32)
        ends = np.array([step % 3 == 2, False])
        memory.append(rewards.astype(int), rewards, ends, ~ends & False, frames, extras={"twice": 2 * rewards})
        if ends[0]:
            memory.begin(frames[:1], [0])
    return memory


@pytest.mark.parametrize("n_step", [1, 3])
def test_steps_are_followed_to_the_end_of_their_episode_or_the_newest(n_step):
    steps = played(n_step).steps_from([6, 8, 9, 17], 3)

    np.testing.assert_array_equal([[6, 8, 10], [8, 10, -1], [9, 11, 13], [17, 19, -1]], steps.index)
    np.testing.assert_array_equal([[3, 4, 5], [4, 5, 0], [14, 15, 16], [18, 19, 0]], steps.reward)
    np.testing.assert_array_equal(steps.reward, steps.action)
    np.testing.assert_array_equal(2 * steps.reward, steps.extras["twice"])
    np.testing.assert_array_equal([[0, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0]], steps.terminated)
    assert not steps.truncated.any()


def test_an_evicted_or_future_step_is_refused_by_its_index():
    for index in (3, 20):
        with pytest.raises(
            NothingToSampleError, match=f"^step {index} is not stored: it was evicted or never appended; "
        ):
            played().steps_from([8, index])
