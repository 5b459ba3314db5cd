"""One Atari game: actions, no-ops, lost lives, scores, stickiness, refusals."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env

from framestow.envs import AtariEnv, find_preset, make_atari
from framestow.errors import InvalidSettingsError, InvalidStepError
from oracles.raw_emulator import RawEmulator

NATURE = find_preset("nature")
PLAIN = replace(find_preset("machado2018"), name="plain", sticky_probability=0.0, action_set="minimal")


def play_until_end(env: AtariEnv, seed: int):
    """Play at random until an episode ends; return the result of the last step."""
    generator = np.random.default_rng(seed)
    while True:
        outcome = env.step(int(generator.integers(int(env.action_space.n))))
        if outcome[2] or outcome[3]:
            return outcome


def test_an_observation_is_one_grey_frame():
    env = make_atari("Breakout", seed=0)

    frame, info = env.reset()

    assert Box(0, 255, (84, 84), np.uint8) == env.observation_space
    assert env.observation_space.contains(frame)
    assert info == {"lives": 5, "episode_frame_number": 0}


def test_gymnasiums_own_checker_finds_nothing_wrong():
    check_env(AtariEnv("Pong", PLAIN), skip_render_check=True)


def test_the_action_set_is_the_presets():
    assert Discrete(18) == AtariEnv("Breakout", "machado2018").action_space
    assert AtariEnv("Breakout", "nature").action_meanings() == ["NOOP", "FIRE", "RIGHT", "LEFT"]


def test_a_new_game_begins_with_one_to_thirty_noops():
    env = AtariEnv("Pong", NATURE, seed=3)

    frames = [env.reset()[1]["episode_frame_number"] for _ in range(40)]

    assert min(frames) >= 1
    assert max(frames) <= 30
    assert len(set(frames)) > 15


def test_a_lost_life_ends_the_episode_and_the_reset_continues_the_game_without_an_emulator_frame():
    env = AtariEnv("Breakout", NATURE, seed=0)
    env.reset()
    frame, _, terminated, truncated, info = play_until_end(env, seed=0)

    next_frame, next_info = env.reset()

    assert (terminated, truncated, info["lives"], "episode" in info) == (True, False, 4, False)
    assert np.array_equal(frame, next_frame)
    assert info == next_info


def test_a_reset_in_mid_life_or_with_a_seed_starts_a_new_game():
    env = AtariEnv("Breakout", NATURE, seed=0)
    env.reset()
    play_until_end(env, seed=0)
    env.reset()

    assert env.reset()[1]["lives"] == 5

    play_until_end(env, seed=0)

    assert env.reset(seed=4)[1]["lives"] == 5


def test_without_the_life_loss_signal_a_game_is_one_episode():
    env = AtariEnv("Breakout", PLAIN, seed=0)
    env.reset()

    _, _, terminated, _, info = play_until_end(env, seed=0)

    assert terminated
    assert info["lives"] == 0
    assert "episode" in info


@pytest.mark.parametrize("game", ["MsPacman", "Skiing"])  # Skiing has only negative rewards
def test_rewards_are_clipped_and_scores_are_not(game):
    capped = replace(NATURE, max_episode_frames=800, max_noops=0, life_loss="ignored")
    env = AtariEnv(game, capped, seed=0)
    env.reset()
    oracle = RawEmulator(env, capped.max_episode_frames)
    generator, rewards, raw_rewards, truncated = np.random.default_rng(0), [], [], False
    while not truncated:
        action = int(generator.integers(int(env.action_space.n)))
        raw_rewards.append(oracle.repeat(env.action_meanings()[action], 4).reward)
        _, reward, _, truncated, info = env.step(action)
        rewards.append(reward)

    assert rewards == np.clip(raw_rewards, -1.0, 1.0).tolist()
    assert info["episode"] == {"r": sum(raw_rewards), "l": 200}
    assert abs(info["episode"]["r"]) > abs(sum(rewards)) > 0


def test_a_game_is_truncated_after_eighteen_thousand_emulator_frames():
    # A long frame skip keeps the test short; this game never ends without input.
    env = AtariEnv("MontezumaRevenge", replace(PLAIN, frame_skip=6_000), seed=0)
    _, info = env.reset()
    truncated = False
    while not truncated:
        _, _, terminated, truncated, info = env.step(0)
        assert not terminated

    assert info["episode_frame_number"] == 18_000


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.6])
def test_the_previous_action_repeats_with_the_sticky_probability_of_the_preset(probability):
    preset = replace(find_preset("machado2018"), sticky_probability=probability, frame_skip=1)
    env = AtariEnv("Freeway", preset, seed=11)
    env.reset()
    num_frames, num_stuck = 1_000, 0
    for frame_number in range(num_frames):
        chosen = frame_number % 18  # differs from the previous 17: any other executed action is an older one
        env.step(chosen)
        num_stuck += env.state()["held_action"] != chosen
    standard_deviation = np.sqrt(num_frames * probability * (1 - probability))

    assert abs(num_stuck - num_frames * probability) <= 4 * standard_deviation


def test_a_step_before_reset_after_the_end_and_after_close_is_refused():
    env = AtariEnv("Breakout", replace(PLAIN, max_episode_frames=4), seed=0)
    with pytest.raises(InvalidStepError, match=re.escape("episode of Breakout is unstarted")):
        env.step(0)
    env.reset()
    assert env.step(0)[3]
    with pytest.raises(InvalidStepError, match=re.escape("episode of Breakout is over")):
        env.step(0)
    env.close()
    env.close()
    with pytest.raises(InvalidStepError, match="closed"):
        env.step(0)
    with pytest.raises(InvalidStepError, match="closed"):
        env.reset()


@pytest.mark.parametrize("action", [-1, 4, 1.0, True, "FIRE", np.array([1]), None])
def test_an_invalid_action_is_refused_and_the_game_is_unchanged(action):
    env = AtariEnv("Breakout", PLAIN, seed=0)
    env.reset()
    before = env.state()["emulator"]

    with pytest.raises(InvalidStepError, match="takes whole numbers from 0 to 3"):
        env.step(action)

    assert before == env.state()["emulator"]


@pytest.mark.parametrize("action", [np.int64(1), np.uint8(1), np.array(1)])
def test_actions_may_be_numpys_whole_numbers(action):
    env = AtariEnv("Breakout", PLAIN, seed=0)
    env.reset()

    env.step(action)


def test_the_caller_may_write_to_a_returned_frame():
    env, untouched = AtariEnv("Breakout", NATURE, seed=0), AtariEnv("Breakout", NATURE, seed=0)
    for each in (env, untouched):
        each.reset()
    frame, *_ = play_until_end(env, seed=0)
    play_until_end(untouched, seed=0)

    frame[:] = 77

    assert np.array_equal(untouched.reset()[0], env.reset()[0])


def test_render_returns_the_screen_in_colour():
    env = make_atari("Breakout", seed=0, render_mode="rgb_array")
    env.reset()

    assert (210, 160, 3) == env.render().shape
    assert make_atari("Breakout").render() is None
    with pytest.raises(InvalidSettingsError, match="render_mode is 'human': it must be 'rgb_array' or None"):
        make_atari("Breakout", render_mode="human")


def test_without_any_seed_two_environments_differ():
    def played():
        env = AtariEnv("Breakout", "machado2018")
        env.reset()
        return np.stack([env.step(step % 18)[0] for step in range(100)])

    assert not np.array_equal(played(), played())
