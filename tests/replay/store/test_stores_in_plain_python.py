"""A reader that was written from the format pages alone finds what a saved memory has, in the less usual cases."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.observation_layout import ObservationLayout
from oracles.any_play import DISCOUNT, EXTRAS, NUM_ACTIONS, AnyPlay, assert_same
from oracles.bordered_steps import append_with_borders
from oracles.plain_reading import arrays_of, assert_a_plain_reader_finds_the_transitions_of
from oracles.plain_store import PlainStore

SIGNED = ActionSpec((), "int64", -3, 4)


def played(capacity: int, num_steps: int, shape=(6, 8), dtype=np.uint8, end_chance=0.05, **settings) -> ReplayMemory:
    """Frames of stripes and noise, two thirds of each as in the frame before; a tenth of the steps are borders."""
    random, of_borders = np.random.default_rng(0), np.random.default_rng(1)
    memory = ReplayMemory(capacity, FrameSpec(shape, dtype), SIGNED, stack=3, seed=0, **settings)
    frame = np.zeros((memory.num_envs, *shape), dtype)

    def next_frames(count: int) -> np.ndarray:
        frame[:, random.integers(shape[0])] = random.integers(0, 4)
        frame[:, random.integers(shape[0]), random.integers(shape[1]) :] = random.integers(0, 200)
        return frame[:count]

    memory.begin(next_frames(memory.num_envs))
    for _ in range(num_steps):
        ends, cuts = random.random((2, memory.num_envs)) < end_chance
        actions, rewards = random.integers(-3, 5, memory.num_envs), random.normal(size=memory.num_envs)
        step = actions, rewards, ends, cuts, next_frames(memory.num_envs)
        append_with_borders(memory, step, list(range(memory.num_envs)), of_borders.random(memory.num_envs) < 0.1)
        if (ends | cuts).any():
            memory.begin(next_frames(int((ends | cuts).sum())), np.flatnonzero(ends | cuts))
    return memory


def test_steps_in_no_sealed_block_may_be_older_than_the_first_sealed_block(tmp_path):
    memory = played(2_500, 4_000)

    memory.save(tmp_path)

    state = PlainStore(tmp_path).state
    assert ([1_500, 4_000], [2, 3]) == (state["steps.span"].tolist(), state["steps.blocks"].tolist())
    assert 548 + 928 == len(state["columns.reward"])  # 1,500 to 2,047 and 3,072 to 3,999
    assert_a_plain_reader_finds_the_transitions_of(memory, tmp_path)


def test_a_block_that_is_not_sealed_has_a_record_for_places_without_a_frame(tmp_path):
    memory = played(500, 700, num_envs=2, retention="random", frames_per_segment=16)

    memory.save(tmp_path)

    state = PlainStore(tmp_path).state
    is_open = ~state["blocks.are_sealed"]
    assert len(state["columns.reward"]) == 16 * is_open.sum()
    assert state["blocks.num_steps"][is_open].sum() < len(state["columns.reward"])
    assert_a_plain_reader_finds_the_transitions_of(memory, tmp_path)


@pytest.mark.parametrize("settings", [{}, {"retention": "random", "frames_per_segment": 16}], ids=["fifo", "random"])
def test_steps_of_a_running_episode_whose_return_is_not_complete_are_not_sampled(settings, tmp_path):
    memory = played(500, 600, num_envs=2, n_step=5, end_chance=0.01, **settings)

    memory.save(tmp_path)

    assert_a_plain_reader_finds_the_transitions_of(memory, tmp_path)


@pytest.mark.parametrize("dtype", [np.uint16, np.float32, (np.uint8, 2), (np.uint8, 4)], ids=str)
def test_pixels_of_several_bytes_are_read(dtype, tmp_path):
    element, channels = np.dtype(dtype).base, np.dtype(dtype).shape
    memory = played(300, 200, (6, 8, *channels), element, frames_per_segment=64)

    memory.save(tmp_path)

    assert_a_plain_reader_finds_the_transitions_of(memory, tmp_path)


OF_ANY_OBSERVATIONS = {
    "first axis": (FrameSpec((4, 3, 5)), 0),
    "last axis": (FrameSpec((3, 5, 4)), -1),
    "joined channels": (FrameSpec((3, 5, 6)), (-1, 3)),
    "joined channels first": (FrameSpec((6, 5, 4)), (0, 3)),
    "one frame": (FrameSpec((3, 5)), "none"),
    "scaled floats": (Box(0, 1, (4, 3, 5), np.float32), 0),
    "dict": ({"camera": FrameSpec((4, 3, 5)), "joints": FrameSpec((3,), np.float32)}, {"camera": 0}),
    "dict of stacks": ({"eye": FrameSpec((4, 3, 5)), "hand": FrameSpec((2, 6), np.float32)}, {"eye": 0, "hand": 0}),
}


@pytest.mark.each_value
@pytest.mark.parametrize(
    "options", [{}, {"retention": "random"}, {"stack_padding": "zeros", "storage": "raw"}], ids=str
)
@pytest.mark.parametrize("name", OF_ANY_OBSERVATIONS)
def test_any_observations_are_read_as_they_were_given(name, options, tmp_path):
    space, stack_axis = OF_ANY_OBSERVATIONS[name]
    given = {"num_envs": 2, "frames_per_segment": 12, "discount": DISCOUNT, "extras": EXTRAS, "seed": 0} | options
    memory = ReplayMemory(250, space, NUM_ACTIONS, stack_axis=stack_axis, **given)
    play = AnyPlay(memory, ObservationLayout.of_space(space, stack_axis), 1, mixes=True, kinds=12).play(250)

    memory.save(tmp_path)

    assert_a_plain_reader_finds_the_transitions_of(memory, tmp_path)
    for step in PlainStore(tmp_path).steps():
        listed = play.steps[int(step.extras["number"])]
        assert listed.env_id == step.env_id
        for shown, observation in (
            (step.observation, listed.observation),
            (step.next_observation, listed.next_observation),
        ):
            for found, expected in zip(shown, arrays_of(observation), strict=True):
                assert_same(expected, found)
