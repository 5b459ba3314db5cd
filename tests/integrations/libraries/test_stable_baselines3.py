"""Our buffers give Stable-Baselines3 the same batches as its own buffers, bit for bit."""

import copy

import numpy as np
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common import buffers

from framestow.integrations.stable_baselines3 import NStepReplayBuffer, ReplayBuffer
from integrations.libraries.sb3_play import Play, assert_equal_samples

ROWS = 7
PICTURES = {"channels_first": (4, 6, 5), "channels_last": (6, 5, 4)}
OBSERVATIONS = {
    **{name: spaces.Box(0, 255, shape, np.uint8) for name, shape in PICTURES.items()},
    "scaled pictures": spaces.Box(0, 1, (2, 6, 5), np.float32),
    "floats": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "doubles": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "Discrete": spaces.Discrete(5),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
    "MultiBinary": spaces.MultiBinary(3),
}
DICT = spaces.Dict(
    {
        "picture": OBSERVATIONS["channels_first"],
        "joints": OBSERVATIONS["floats"],
        "direction": spaces.Discrete(4),
    }
)
ACTIONS = {
    "Discrete": spaces.Discrete(4),
    "MultiDiscrete": spaces.MultiDiscrete([3, 300]),
    "MultiBinary": spaces.MultiBinary(3),
    "Box": spaces.Box(0, 9, (2,), np.float32),
    "Box of doubles": spaces.Box(-1, 1, (2, 2), np.float64),
}


def rows_drawn(buffer, batch_size):
    """As Stable-Baselines3 draws them, with ``optimize_memory_usage`` or without."""
    if buffer.optimize_memory_usage and buffer.full:
        return (np.random.randint(1, buffer.buffer_size, size=batch_size) + buffer.pos) % buffer.buffer_size
    return np.random.randint(0, buffer.size(), size=batch_size)


def assert_draws_what(plain, ours, seed, but=()):
    """``plain``: the library's buffer without ``optimize_memory_usage``, whose next observations are right."""
    np.random.seed(seed)
    theirs = plain._get_samples(rows_drawn(ours, 20))
    state = np.random.get_state()[1].copy()
    np.random.seed(seed)
    assert_equal_samples(theirs, ours.sample(20), but)
    np.testing.assert_array_equal(state, np.random.get_state()[1])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    observation=st.sampled_from([*OBSERVATIONS.values(), DICT]),
    action=st.sampled_from([*ACTIONS.values()]),
    num_envs=st.integers(1, 4),
    num_rows=st.integers(1, 3 * ROWS),
    optimizes=st.booleans(),
    handles_timeouts=st.booleans(),
    stack=st.sampled_from([1, 4]),
    end_chance=st.sampled_from([0.0, 0.2, 0.7]),
)
def test_batches_equal_those_of_the_library_bit_for_bit(
    seed, observation, action, num_envs, num_rows, optimizes, handles_timeouts, stack, end_chance
):
    is_dict = isinstance(observation, spaces.Dict)
    play = Play(seed, observation, action, num_envs, stack, end_chance)
    arguments = (ROWS * num_envs + num_envs // 2, observation, action, "cpu", num_envs)
    plain = (buffers.DictReplayBuffer if is_dict else buffers.ReplayBuffer)(
        *arguments, handle_timeout_termination=handles_timeouts
    )
    is_stack = stack > 1 and getattr(observation, "shape", None) in PICTURES.values()
    ours = ReplayBuffer(*arguments, optimizes, handles_timeouts, frame_stack=4 if is_stack else None)
    for _ in range(num_rows):
        step = play.step()
        plain.add(*copy.deepcopy(step))
        ours.add(*step)
    assert (plain.pos, plain.full, plain.size()) == (ours.pos, ours.full, ours.size())
    assert_draws_what(plain, ours, seed)
    assert not is_stack or ours.memory.stack == 4  # each frame is stored once


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num_envs=st.integers(1, 4),
    num_rows=st.integers(1, 3 * ROWS),
    num_steps=st.integers(1, 5),
    optimizes=st.booleans(),
    handles_timeouts=st.booleans(),
    end_chance=st.sampled_from([0.0, 0.2, 0.7]),
)
def test_n_step_returns_equal_those_of_the_library_bit_for_bit(
    seed, num_envs, num_rows, num_steps, optimizes, handles_timeouts, end_chance
):
    space, action = OBSERVATIONS["channels_first"], ACTIONS["Discrete"]
    play = Play(seed, space, action, num_envs, 4, end_chance)
    arguments, n_step = (ROWS * num_envs, space, action, "cpu", num_envs), {"n_steps": num_steps, "gamma": 0.97}
    plain = buffers.NStepReplayBuffer(*arguments, handle_timeout_termination=handles_timeouts, **n_step)
    ours = NStepReplayBuffer(*arguments, optimizes, handles_timeouts, **n_step)
    for _ in range(num_rows):
        step = play.step()
        plain.add(*step)
        ours.add(*step)
    assert_draws_what(plain, ours, seed)
