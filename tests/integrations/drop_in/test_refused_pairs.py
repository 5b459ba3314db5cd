"""An interrupted step, and one after a refused one, are stored whole; later pairs are restored."""

import signal

import numpy as np
import pytest

from framestow import FrameSpec
from framestow.errors import InvalidStepError
from framestow.integrations.drop_in.paired_steps import PairedSteps
from oracles.ctrl_c import ctrl_c_at_line

ENVS, ROWS = 2, 12
NOBODY = np.zeros(ENVS, bool)


def fed(shape=(2, 5), dtype=np.uint8, frame_stack=None):
    space = FrameSpec(shape, dtype)
    return PairedSteps(space, frame_stack, capacity=ROWS * ENVS, action_space=5, num_envs=ENVS)


class NumberedStacks:
    """Rows of two environments with numbered frames, stacks of two; every third starts an episode of environment 0."""

    def __init__(self):
        self.stacks = np.zeros((ENVS, 2, 5), np.uint8)
        self.number = 0

    def row(self):
        self.number += 1
        begins = [0, 1] if self.number == 1 else [0] if self.number % 3 == 0 else []
        self.stacks[begins] = 100 + self.number  # both frames: padded
        before = self.stacks.copy()
        self.stacks = np.stack([before[:, 1], np.full((ENVS, 5), self.number, np.uint8)], axis=1)
        rewards = np.full(ENVS, self.number, np.float32)
        return before, np.array([1, 2]), rewards, self.stacks.copy(), NOBODY, NOBODY


def assert_holds(steps, rows):
    assert steps.num_rows == len(rows)
    assert len(steps.memory) == ENVS * min(len(rows), ROWS)
    for number in range(steps.oldest_row, len(rows)):
        batch = steps.transitions(steps.indices(number, np.arange(ENVS)))
        observations, _, rewards, next_observations, _, _ = rows[number]
        np.testing.assert_array_equal(batch.observation, observations, err_msg=f"row {number}")
        np.testing.assert_array_equal(batch.next_observation, next_observations, err_msg=f"row {number}")
        np.testing.assert_array_equal(batch.reward, rewards)


def test_after_a_refused_first_step_the_old_episode_can_continue():
    play, steps = NumberedStacks(), fed(frame_stack=1)
    rows = [play.row(), play.row()]
    for row in rows:
        steps.add(*row)
    elsewhere = np.full((ENVS, 2, 5), 77, np.uint8)
    with pytest.raises(InvalidStepError):
        steps.add(elsewhere, np.array([1, 9]), *rows[-1][2:])
    rows.append((rows[-1][3], *rows[-1][1:3], elsewhere, *rows[-1][4:]))
    steps.add(*rows[-1])
    assert_holds(steps, rows)


@pytest.mark.parametrize("frame_stack", [1, 2])
def test_ctrl_c_at_any_line_leaves_a_complete_row_or_none_and_the_next_row_continues(frame_stack):
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        outcomes, is_interrupted = [], True
        while is_interrupted:
            play, steps = NumberedStacks(), fed(frame_stack=frame_stack)
            rows = [play.row() for _ in range(2 + ROWS * (len(outcomes) % 2))]
            for row in rows:
                steps.add(*row)
            num_before, row = len(rows), play.row()
            try:
                with ctrl_c_at_line(len(outcomes) + 1):
                    steps.add(*row)
                is_interrupted = False
                rows.append(row)
            except KeyboardInterrupt:
                outcomes.append(steps.num_rows - len(rows))
                rows += [row] * outcomes[-1]
            num_episodes = len(list(steps.memory.episodes()))
            for following in [*[row] * (steps.num_rows == num_before), play.row(), play.row()]:
                steps.add(*following)
                rows.append(following)
            assert_holds(steps, rows)
            assert len(list(steps.memory.episodes())) <= num_episodes + 1  # no episode is split
            steps.memory.inner.parts.check()
    finally:
        signal.signal(signal.SIGINT, before)
    assert {0, 1} == set(outcomes)
