"""Ctrl-C in a call of an older buffer stores its step completely or not at all, and changes no stored step."""

import signal

import numpy as np
import pytest

from framestow.integrations.classic import MemoryEfficientAtariBuffer, ReplayBuffer
from oracles.ctrl_c import ctrl_c_at_line

SIZE = 4


@pytest.fixture(autouse=True)
def ctrl_c_interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def numbered(number):
    return np.full((5, 6, 1), number, np.uint8)


def store(buffer, number):
    """Steps whose frame, action and reward are the step's number."""
    buffer.store_effect(buffer.store_frame(numbered(number)), number, float(number), False)


def test_berkeleys_buffer_samples_every_stored_step_after_ctrl_c_at_any_line():
    num_before, line, is_interrupted = SIZE + 1, 0, True
    while is_interrupted:
        line += 1
        buffer = ReplayBuffer(SIZE, 2, seed=0)
        for number in range(1, num_before + 1):
            store(buffer, number)
        try:
            with ctrl_c_at_line(line):
                store(buffer, num_before + 1)
            is_interrupted = False
        except KeyboardInterrupt:
            store(buffer, num_before + 1)
        for number in range(num_before + 2, num_before + 5):
            store(buffer, number)

        held = min(num_before + 3, SIZE)
        observations, actions, rewards, next_observations, _ = buffer.sample(held)
        assert sorted(actions) == list(range(num_before + 4 - held, num_before + 4))
        np.testing.assert_array_equal(observations[:, 0, 0, -1], actions)
        np.testing.assert_array_equal(next_observations[:, 0, 0, -1], actions + 1)
        np.testing.assert_array_equal(rewards, actions)
    assert line > 20


def experience(number, has_stacks=True):
    """Experiences whose frames, action, reward and info are the step's number."""
    before, now, after = (numbered(max(step, 1))[..., 0] for step in (number - 1, number, number + 1))
    pair = (np.stack([before, now]), np.stack([now, after])) if has_stacks else (now, after)
    return pair[0], number, float(number), 1.0, pair[1], {"number": number}


@pytest.mark.parametrize("has_stacks", [True, False])
def test_nnablas_buffer_returns_every_experience_with_its_info_after_ctrl_c_at_any_line(has_stacks):
    num_before, line, is_interrupted = SIZE + 1, 0, True
    while is_interrupted:
        line += 1
        buffer = MemoryEfficientAtariBuffer(SIZE, 2, seed=0)
        buffer.append_all([experience(number, has_stacks) for number in range(1, num_before + 1)])
        newest = buffer[len(buffer) - 1][1]
        try:
            with ctrl_c_at_line(line):
                buffer.append(experience(num_before + 1, has_stacks))
            is_interrupted = False
        except KeyboardInterrupt:
            if buffer[len(buffer) - 1][1] == newest:
                buffer.append(experience(num_before + 1, has_stacks))
        buffer.append_all([experience(number, has_stacks) for number in range(num_before + 2, num_before + 5)])

        assert [num_before + 5 - len(buffer) + index for index in range(len(buffer))] == [a for _, a, *_ in buffer]
        for s, a, r, _, s_next, info in buffer:
            assert (a, a) == (r, info["number"])
            assert [max(a - 1, 1), a] == np.rint(s[:, 0, 0] * 255).tolist()
            np.testing.assert_array_equal(np.rint(s[-1] * 255), np.full((5, 6), a))
            np.testing.assert_array_equal(np.rint(s_next[-1] * 255), np.full((5, 6), a + 1))
    assert line > 20
