"""What CleanRL's scripts get of our buffer is bit for bit what they get of theirs, but where an episode is truncated.

Theirs is Stable-Baselines3's: the scripts imported it, and ``cleanrl_utils.buffers`` is made of it.
"""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common import buffers

from framestow.errors import NothingToSampleError
from framestow.integrations.cleanrl import ReplayBuffer, ReplayBufferSamples
from integrations.libraries.cleanrl_play import Play
from integrations.libraries.sb3_play import Play as PlayOfSpaces

STACKS, FOUR = spaces.Box(0, 255, (4, 5, 6), np.uint8), spaces.Discrete(4)
SPACES = {
    "dqn_atari.py": (STACKS, FOUR),
    "dqn.py": (spaces.Box(-np.inf, np.inf, (3,), np.float32), FOUR),
    "sac_continuous_action.py": (spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Box(-1, 1, (2,), np.float32)),
    "numbers": (spaces.Discrete(5), spaces.MultiDiscrete([3, 300])),
}
AS_DQN_ATARI = {"optimize_memory_usage": True, "handle_timeout_termination": False}


def assert_same_samples(theirs, ours):
    assert isinstance(ours, ReplayBufferSamples)
    for name, actual in zip(ours._fields, ours, strict=True):
        expected = getattr(theirs, name)
        assert (expected.dtype, expected.shape, expected.stride()) == (actual.dtype, actual.shape, actual.stride()), (
            name
        )
        assert torch.equal(expected, actual), name


def assert_draw_the_same(theirs, ours, seed, batch_size=20):
    states = []
    for buffer in (theirs, ours):
        np.random.seed(seed)
        states.append((buffer.sample(batch_size), np.random.get_state()[1]))
    assert_same_samples(states[0][0], states[1][0])
    np.testing.assert_array_equal(states[0][1], states[1][1])


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    script=st.sampled_from([*SPACES]),
    num_envs=st.integers(1, 3),
    num_rows=st.integers(1, 20),
    handles_timeouts=st.booleans(),
)
def test_batches_of_all_scripts_equal_cleanrls_bit_for_bit(seed, script, num_envs, num_rows, handles_timeouts):
    play = PlayOfSpaces(seed, *SPACES[script], num_envs, stack=4)
    arguments = (7 * num_envs + num_envs // 2, *SPACES[script], "cpu", num_envs, False, handles_timeouts)
    theirs, ours = buffers.ReplayBuffer(*arguments), ReplayBuffer(*arguments)
    with pytest.raises(NothingToSampleError, match="the buffer is empty"):
        ours.sample(1)
    for _ in range(num_rows):
        step = play.step()
        theirs.add(*step)
        ours.add(*step)
    assert (theirs.pos, theirs.full, theirs.size()) == (ours.pos, ours.full, ours.size())
    assert (theirs.buffer_size, theirs.obs_shape, theirs.action_dim) == (
        ours.buffer_size,
        ours.obs_shape,
        ours.action_dim,
    )
    assert_draw_the_same(theirs, ours, seed)


def as_dqn_atari(step):
    """The arguments of ``rb.add``: rows of a Gymnasium vector environment, whose infos are a dict."""
    return step.obs, step.next_obs, step.actions, step.rewards, step.terminations, {"final_info": None}


def fed_with(play, num_rows, capacity=16):
    theirs = buffers.ReplayBuffer(capacity, STACKS, FOUR, "cpu", **AS_DQN_ATARI)
    ours = ReplayBuffer(capacity, STACKS, FOUR, "cpu", **AS_DQN_ATARI, frame_stack=4)
    for _ in range(num_rows):
        step = as_dqn_atari(play.step())
        theirs.add(*step)
        ours.add(*step)
    return theirs, ours


@pytest.mark.parametrize("num_rows", [5, 15, 16, 17, 40, 53])
def test_dqn_atari_gets_the_same_batches_after_the_ring_is_full(num_rows):
    theirs, ours = fed_with(Play(21, terminated=0.2), num_rows)
    for seed in range(5):
        assert_draw_the_same(theirs, ours, seed)
    assert ours.memory.stack == 4  # each frame is stored once, also at the end of episodes


def test_a_truncated_step_has_its_true_last_frame_unlike_in_cleanrl():
    play = Play(22)
    for row in range(9):
        play.chances = (0.0, float(row == 5))
        play.step()
    theirs = buffers.ReplayBuffer(16, STACKS, FOUR, "cpu", **AS_DQN_ATARI)
    ours = ReplayBuffer(16, STACKS, FOUR, "cpu", **AS_DQN_ATARI)
    for step in play.steps:
        theirs.add(*as_dqn_atari(step))
        ours.add(*as_dqn_atari(step))

    np.random.seed(0)
    batch, wrong = ours.sample(60), theirs._get_samples(np.full(1, 5))
    np.testing.assert_array_equal(wrong.next_observations[0], play.steps[6].obs[0])  # CleanRL's issue 460
    of_the_end = [row for row in range(60) if (batch.observations[row].numpy() == play.steps[5].obs[0]).all()]
    assert of_the_end
    for row in of_the_end:
        np.testing.assert_array_equal(batch.next_observations[row], play.steps[5].next_obs[0])
        assert (play.steps[5].next_obs[0, :-1] == play.steps[5].obs[0, 1:]).all()
        assert batch.dones[row] == 0.0  # the target bootstraps


def test_other_attributes_used_by_scripts_exist():
    ours, play = ReplayBuffer(40, STACKS, FOUR, **AS_DQN_ATARI), Play(23, terminated=0.1)
    assert ours.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    rows = [as_dqn_atari(play.step()) for _ in range(6)]
    ours.extend(*zip(*rows, strict=True))
    assert (ours.size(), ours.pos, ours.full) == (6, 6, False)
    np.testing.assert_array_equal(ours.observations[2], rows[2][0])
    np.testing.assert_array_equal(ours.rewards[:6, 0], [row[3][0] for row in rows])
    array = np.arange(3.0)
    assert ours.to_torch(array).data_ptr() != ours.to_torch(array, copy=False).data_ptr() == array.ctypes.data
    assert ours.memory.report().transitions == 6
    ours.reset()
    assert ours.size() == 0
