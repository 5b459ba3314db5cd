"""Pairs of observations from a library are stored in a memory and restored bit for bit."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow import FrameSpec
from framestow.errors import InvalidSettingsError
from framestow.integrations.drop_in.paired_steps import PairedSteps

ROWS = 12


def fed(space, num_envs=2, frame_stack=None, rows=ROWS, **arguments):
    return PairedSteps(space, frame_stack, capacity=rows * num_envs, action_space=5, num_envs=num_envs, **arguments)


class StackedPlay:
    """Environments of random (5, 6) frames, stacked and padded as by a wrapper, with a list of all rows."""

    def __init__(self, generator, num_envs, depth, padding, axis):
        self.generator, self.depth, self.padding, self.axis = generator, depth, padding, axis
        self.stacks = [self.first() for _ in range(num_envs)]
        self.rows = []

    def frame(self):
        return self.generator.integers(0, 3, (5, 6), dtype=np.uint8)  # few values: frames are often equal

    def first(self):
        frame = self.frame()
        return [frame if self.padding == "first_frame" else np.zeros_like(frame)] * (self.depth - 1) + [frame]

    def shown(self, stacks):
        return np.stack([np.stack(stack, self.axis) for stack in stacks])

    def step(self, steps, is_end_told=True, shows_next_episode=False):
        n = len(self.stacks)
        ends = self.generator.random(n) < 0.2
        terminated = ends & (self.generator.random(n) < 0.5)
        after = [[*stack[1:], self.frame()] for stack in self.stacks]
        following = [self.first() if end else stack for end, stack in zip(ends, after, strict=True)]
        if shows_next_episode:
            after = [new if end else stack for end, new, stack in zip(terminated, following, after, strict=True)]
        row = (
            self.shown(self.stacks),
            self.generator.integers(0, 5, n),
            self.generator.normal(size=n).astype(np.float32),
            self.shown(after),
            terminated,
            ends & ~terminated if is_end_told else np.zeros(n, bool),
        )
        steps.add(*row)
        self.rows.append(row)
        self.stacks = following


def assert_gives_back(steps, rows):
    assert steps.num_rows == len(rows)
    assert len(steps.memory) == min(len(rows), ROWS) * steps.memory.num_envs
    for number in range(steps.oldest_row, len(rows)):
        batch = steps.transitions(steps.indices(number, np.arange(steps.memory.num_envs)))
        came = (
            batch.observation,
            batch.action,
            batch.reward,
            batch.next_observation,
            batch.terminated,
            batch.truncated,
        )
        for given_part, part in zip(rows[number], came, strict=True):
            np.testing.assert_array_equal(part, given_part, err_msg=f"row {number}")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    depth=st.sampled_from([1, 2, 4]),
    padding=st.sampled_from(["first_frame", "zeros"]),
    axis=st.sampled_from([0, -1]),
    is_stack_said=st.booleans(),
    is_end_told=st.booleans(),
    shows_next_episode=st.booleans(),
    num_rows=st.integers(1, 3 * ROWS),
)
def test_every_stored_row_is_restored_for_any_stacks(
    seed, depth, padding, axis, is_stack_said, is_end_told, shows_next_episode, num_rows
):
    play = StackedPlay(np.random.default_rng(seed), 2, depth, padding, axis)
    steps = fed(FrameSpec(play.shown(play.stacks).shape[1:]), frame_stack=depth if is_stack_said else None)
    for _ in range(num_rows):
        play.step(steps, is_end_told, shows_next_episode)
    assert_gives_back(steps, play.rows)


def distinct_play(num_envs=2, depth=4, padding="first_frame", axis=0):
    play = StackedPlay(np.random.default_rng(7), num_envs, depth, padding, axis)
    numbers = iter(range(1, 1000))
    play.frame = lambda: np.full((32, 33), next(numbers) % 256, np.uint8)
    play.stacks = [play.first() for _ in range(num_envs)]
    return play


@pytest.mark.parametrize("padding", ["first_frame", "zeros"])
@pytest.mark.parametrize(("axis", "shape"), [(0, (4, 32, 33)), (-1, (32, 33, 4))])
def test_stacks_are_stored_as_single_frames(padding, axis, shape):
    play, steps = distinct_play(padding=padding, axis=axis), fed(FrameSpec(shape))
    for _ in range(3 * ROWS):
        play.step(steps)
    assert steps.memory.inner.settings.frame.frame_specs[0].shape == (32, 33)
    assert_gives_back(steps, play.rows)


def test_an_end_without_a_flag_is_detected_and_no_stack_crosses_it():
    play, steps = distinct_play(), fed(FrameSpec((4, 32, 33)))
    for _ in range(ROWS):
        play.step(steps, is_end_told=False)
    ends = sum(
        int((after[env_id, -1] != now[env_id, -1]).any())
        for _, now, after in transitions_between(play.rows)
        for env_id in (0, 1)
    )
    assert ends > 0
    assert len(list(steps.memory.episodes())) == ends + 2
    assert_gives_back(steps, play.rows)


def transitions_between(rows):
    return [(number, rows[number + 1][0], rows[number][3]) for number in range(len(rows) - 1)]


@pytest.mark.parametrize("frame_stack", [None, 4])
def test_observations_that_are_no_stacks_of_consecutive_frames_are_stored_beside_those_that_are(frame_stack):
    play, steps = distinct_play(), fed(FrameSpec((4, 32, 33)), frame_stack=frame_stack)
    for number in range(3 * ROWS):
        if number % 5 == 4:
            play.stacks[1] = [play.frame() for _ in range(4)]  # a stack that no padding matches
        play.step(steps)
    assert steps.memory.stack == 4
    assert_gives_back(steps, play.rows)


def test_a_stack_that_does_not_divide_the_channels_is_refused():
    with pytest.raises(
        InvalidSettingsError, match=r"frame_stack is 3: observations of shape \(4, 32, 33\) have 4 channels"
    ):
        fed(FrameSpec((4, 32, 33)), frame_stack=3)


def test_floats_are_compared_bit_for_bit():
    steps = fed(FrameSpec((3,), np.float32), num_envs=1)
    rows = []
    observation = np.array([[np.nan, 0.0, 1.0]], np.float32)
    for values in ([np.nan, -0.0, 1.0], [np.nan, 0.0, 1.0]):
        after = np.array([values], np.float32)
        row = (observation, [1], [0.5], after, np.array([False]), np.array([False]))
        steps.add(*row)
        rows.append(row)
        observation = np.abs(after)  # -0.0 becomes 0.0: another observation, so a new episode
    assert len(list(steps.memory.episodes())) == 2
    batch = steps.transitions(steps.indices([0, 1], 0))
    assert batch.next_observation.tobytes() == np.concatenate([row[3] for row in rows]).tobytes()


@pytest.mark.parametrize("shows_next_episode", [False, True])
@pytest.mark.parametrize("speed_shape", [(3,), (4,)])
def test_images_of_a_dict_are_stored_as_single_frames_and_all_keys_are_restored(speed_shape, shows_next_episode):
    space = {
        "camera": FrameSpec((4, 32, 33)),
        "speed": FrameSpec(speed_shape, np.float32),
        "item": FrameSpec((1,), np.int64),
    }
    play, steps = distinct_play(), fed(space)
    speeds = iter(np.random.default_rng(3).normal(size=(1000, 2, *speed_shape)).astype(np.float32))
    speed, rows = next(speeds), []
    for number in range(2 * ROWS):
        recorded = Recorded()
        play.step(recorded, shows_next_episode=shows_next_episode)
        camera, action, reward, after, *ends = recorded.row
        observation = {"camera": camera, "speed": speed, "item": np.array([[number], [1]])}
        speed = next(speeds)
        following = {"camera": after, "speed": speed, "item": np.array([[number + 1], [1]])}
        steps.add(observation, action, reward, following, *ends)
        rows.append((observation, following))
    kept = {array.key: array.frame.shape for array in steps.memory.inner.settings.frame.arrays}
    assert kept == {"camera": (32, 33), "speed": speed_shape, "item": (1,)}
    for number in range(steps.oldest_row, len(rows)):
        batch = steps.transitions(steps.indices(number, [0, 1]))
        for came, part in zip(rows[number], (batch.observation, batch.next_observation), strict=True):
            assert came.keys() == part.keys()
            for key in came:
                np.testing.assert_array_equal(part[key], came[key])


@pytest.mark.parametrize("frame_stack", [None, 1, 3])
def test_colours_are_restored_whatever_frame_stack_takes_them_for(frame_stack):
    steps, nobody = fed(FrameSpec((32, 33, 3)), num_envs=1, frame_stack=frame_stack), np.zeros(1, bool)
    black, red = np.zeros((1, 32, 33, 3), np.uint8), np.full((1, 32, 33, 3), [200, 1, 2], np.uint8)
    rows = [(now, [0], [0.0], after, nobody, nobody) for now, after in pairwise([black, black, black, red, black])]
    for row in rows:
        steps.add(*row)
    assert_gives_back(steps, rows)


class Recorded:
    def add(self, *row):
        self.row = row


@pytest.mark.parametrize("is_end_told", [True, False])
def test_single_frames_are_stacked_by_a_memory_with_stack(is_end_told):
    play, steps, rows = distinct_play(), fed(FrameSpec((32, 33)), stack=4), []
    for number in range(3 * ROWS):
        recorded = Recorded()
        play.step(recorded, is_end_told)
        rows.append(recorded.row)
        before, action, reward, after, *ends = recorded.row
        steps.add(before[:, -1], action, reward, after[:, -1], *ends)
        if number == ROWS:
            steps = pickle.loads(pickle.dumps(steps))
    assert_gives_back(steps, rows)
