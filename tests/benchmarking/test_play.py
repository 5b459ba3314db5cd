"""A play is recorded once and repeated step by step."""

import numpy as np

from framestow.benchmarking.play import record_play
from oracles.numbered_play import numbered_play


def test_an_observation_is_padded_with_its_episodes_first_frame_and_no_other():
    play = numbered_play((1, 2, 7))

    observations = play.observations(np.array([0, 1, 2, 3, 7]), 3)[:, :, 1, 1]
    led_to = play.observations(np.array([0, 2, 9]), 3, steps_later=1)[:, :, 1, 1]

    # frames 0-1 are the first episode's, 2-4 the second's, 5-12 the third's
    assert [[0, 0, 0], [2, 2, 2], [2, 2, 3], [5, 5, 5], [7, 8, 9]] == observations.tolist()
    assert [[0, 0, 1], [2, 3, 4], [10, 11, 12]] == led_to.tolist()


def test_step_numbers_continue_when_the_play_repeats():
    play = numbered_play()
    num_steps = 2 * len(play.positions) + 5

    steps = list(play.steps(num_steps, 4))

    assert list(range(num_steps)) == [step.reward for step in steps]
    numbers = np.arange(num_steps)
    assert np.array_equal(play.observations(numbers, 4), [step.observation for step in steps])
    assert np.array_equal(play.observations(numbers, 4, 1), [step.next_observation for step in steps])
    assert [True, *play.has_ended(numbers[:-1])] == [step.starts_episode for step in steps]


def test_the_same_arguments_give_the_same_play_and_its_last_episode_ends_where_the_frames_do():
    one, same, other = (record_play("pong", 60, seed=seed) for seed in (1, 1, 2))

    assert "Pong" == one.game
    assert (60, 84, 84) == one.frames.shape
    assert np.array_equal(one.frames, same.frames)
    assert np.array_equal(one.actions, same.actions)
    assert not np.array_equal(one.actions, other.actions)
    assert one.has_ended(np.array([len(one.positions) - 1]))
    assert not one.frames.flags.writeable
