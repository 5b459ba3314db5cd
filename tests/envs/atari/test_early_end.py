"""Wherever in the frame skip a game ends, the frame is the maximum of the last two raw frames of that step."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import cache

import ale_py
import numpy as np
import pytest

from framestow.envs import AtariEnv, find_preset
from oracles.raw_emulator import RawEmulator, RawStep, frame_in_colour, frame_in_grey

GREY = replace(find_preset("machado2018"), name="grey", sticky_probability=0.0, action_set="minimal")
COLOUR = replace(find_preset("nature"), name="colour", max_noops=0)
FRAME_OF = {"grey": frame_in_grey, "colour": frame_in_colour}
SKIP_POSITIONS = (1, 2, 3, 4)


def play_beside_the_oracle(preset, seed: int) -> RawStep:
    """Play a game at random, compare every step with the oracle and return the oracle's last step."""
    env = AtariEnv("Breakout", preset, seed=seed)
    env.reset()
    oracle = RawEmulator(env, preset.max_episode_frames)
    actions, generator = env.action_meanings(), np.random.default_rng(seed)
    terminated = truncated = False
    while not (terminated or truncated):
        action = int(generator.integers(len(actions)))
        expected = oracle.repeat(actions[action], 4, until_life_lost=preset.life_loss == "terminates")

        frame, _, terminated, truncated, info = env.step(action)

        assert np.array_equal(FRAME_OF[preset.name](expected.raw_frames), frame)
        assert (expected.lives, expected.truncated) == (info["lives"], truncated)
        if terminated and not expected.terminated:
            assert preset.life_loss == "terminates"
            env.reset()
            terminated = False
    env.close()
    return expected


@pytest.mark.each_value
@pytest.mark.parametrize("preset", [GREY, COLOUR], ids=lambda preset: preset.name)
@pytest.mark.parametrize("position", SKIP_POSITIONS)
def test_a_game_truncated_at_any_skip_position_shows_its_true_last_frame(preset, position):
    # After 30 emulator frames the ball moves, so any two raw frames differ.
    capped = replace(preset, max_episode_frames=60 + position)

    last = play_beside_the_oracle(capped, seed=5)

    assert last.truncated
    assert position == len(last.raw_frames)


@cache
def states_before_game_over() -> list[bytes]:
    """Return the emulator states 4, 3, 2 and 1 raw frames before a game of Breakout ends under FIRE."""
    ale = RawEmulator(AtariEnv("Breakout", GREY, seed=0), GREY.max_episode_frames).ale
    ale.reset_game()
    states: deque[bytes] = deque(maxlen=4)
    while not ale.game_over():
        states.append(ale.cloneState(include_rng=True).serialize())
        ale.act(ale_py.Action.FIRE)
    return list(states)


@pytest.mark.each_value
@pytest.mark.parametrize("preset", [GREY, COLOUR], ids=lambda preset: preset.name)
@pytest.mark.parametrize("position", SKIP_POSITIONS)
def test_a_game_over_at_any_skip_position_shows_its_true_last_frame(preset, position):
    env = AtariEnv("Breakout", preset, seed=0)
    env.reset()
    env.step(0)  # fills the raw frames with older ones, which must not show
    env.restore({**env.state(), "emulator": states_before_game_over()[-position]})
    expected = RawEmulator(env, preset.max_episode_frames).repeat("FIRE", 4)

    frame, _, terminated, truncated, _ = env.step(env.action_meanings().index("FIRE"))

    assert (terminated, truncated) == (True, False)
    assert position == len(expected.raw_frames)
    assert np.array_equal(FRAME_OF[preset.name](expected.raw_frames), frame)


@pytest.mark.parametrize("preset", [GREY, COLOUR], ids=lambda preset: preset.name)
def test_every_frame_of_a_whole_game_is_the_maximum_of_the_last_two_raw_frames(preset):
    assert play_beside_the_oracle(preset, seed=1).terminated
