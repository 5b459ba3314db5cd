"""Compare presets step by step with the libraries they are named after, and with an oracle.

Without sticky actions the emulator is deterministic, so both sides only need the same number of no-ops. Frames of a
step that the end of the game cuts short are not compared: the originals make them from older raw frames.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing

from framestow.envs import AtariEnv, find_preset
from oracles.baselines_wrappers import BaselinesWrappers

GAMES = {"Breakout": 500, "MsPacman": 800, "BankHeist": 700, "SpaceInvaders": 800}  # agent steps: more than one game
QUICK_GAMES = pytest.mark.parametrize(
    "game",
    ["Breakout", "MsPacman", *(pytest.param(game, marks=pytest.mark.exhaustive) for game in list(GAMES)[2:])],
)


class Original(NamedTuple):
    """Environment of another library: ``reset(num_noops)`` returns a frame, ``step(action)`` as in Gymnasium."""

    reset: Callable[[int], np.ndarray]
    step: Callable[[int], tuple[Any, ...]]
    compares_final_frames: bool = True


def play_beside(env: AtariEnv, original: Original) -> tuple[int, int]:
    """Play the same random actions in both and compare the results; return the numbers of lost lives and of games."""
    generator, num_lost_lives, num_games = np.random.default_rng(7), 0, 0
    num_frames = reset_both(env, original)
    for _ in range(GAMES[env.game]):
        action = int(generator.integers(int(env.action_space.n)))
        frame, reward, terminated, truncated, info = env.step(action)
        their_frame, their_reward, their_terminated, their_truncated, *_ = original.step(action)
        is_whole = info["episode_frame_number"] - num_frames == env.preset.frame_skip
        is_comparable = is_whole and (original.compares_final_frames or "episode" not in info)
        num_frames = info["episode_frame_number"]

        assert (reward, terminated, truncated) == (their_reward, their_terminated, their_truncated)
        assert np.array_equal(frame, their_frame) or not is_comparable
        if terminated or truncated:
            num_games += "episode" in info
            num_lost_lives += "episode" not in info
            num_frames = reset_both(env, original)
    return num_lost_lives, num_games


def reset_both(env: AtariEnv, original: Original) -> int:
    frame, info = env.reset()
    num_frames = int(info["episode_frame_number"])
    opening_frames = {"none": 0, "fire_frame": 1, "fire_steps": 8}[env.preset.opening]
    num_noops = num_frames - (opening_frames if "FIRE" in env.action_meanings() else 0)

    assert np.array_equal(frame, original.reset(num_noops))
    return num_frames


@QUICK_GAMES
def test_baselines_equals_the_documented_wrappers(game):
    env = AtariEnv(game, "baselines", seed=1)
    oracle = BaselinesWrappers(env.rom)

    num_lost_lives, num_games = play_beside(env, Original(oracle.reset, oracle.step))

    assert num_lost_lives >= 2
    assert num_games >= 1


def test_baselines_plays_its_opening_again_after_an_opening_step_that_loses_a_life_or_ends_the_game():
    # A step of 110 frames is long enough to lose the ball of Breakout.
    env = AtariEnv("Breakout", replace(find_preset("baselines"), frame_skip=110, max_noops=1), seed=0)
    oracle = BaselinesWrappers(env.rom, frame_skip=110)
    generator, lives_after_resets = np.random.default_rng(0), set()
    for _ in range(12):
        if {5, 3, 1} <= lives_after_resets:  # lives were lost in resets of new and of running games
            break
        frame, info = env.reset()
        lives_after_resets.add(info["lives"])
        assert np.array_equal(oracle.reset(num_noops=1), frame)
        terminated = False
        while not terminated:
            action = int(generator.integers(4))
            frame, reward, terminated, _, _ = env.step(action)
            expected = oracle.step(action)

            assert np.array_equal(expected.frame, frame)
            assert (expected.reward, expected.terminated) == (reward, terminated)
    assert {5, 3, 1} <= lives_after_resets


def test_baselines_truncated_at_any_skip_position_shows_the_maximum_of_the_last_two_raw_frames_of_the_step():
    positions = set()
    for cap in range(57, 61):
        env = AtariEnv("SpaceInvaders", replace(find_preset("baselines"), max_episode_frames=cap), seed=0)
        oracle = BaselinesWrappers(env.rom, max_episode_frames=cap)
        oracle.reset(env.reset()[1]["episode_frame_number"] - 8)
        truncated = False
        while not truncated:
            frame, _, _, truncated, _ = env.step(1)
            expected = oracle.step(1)

            assert np.array_equal(expected.frame, frame)
        positions.add(expected.num_raw_frames)

    assert positions == {1, 2, 3, 4}


@QUICK_GAMES
def test_baselines_equals_stable_baselines3(game):
    wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers")
    gymnasium.register_envs(ale_py)
    theirs = wrappers.AtariWrapper(gymnasium.make(f"{game}NoFrameskip-v4"))
    noop_wrapper = theirs
    while not isinstance(noop_wrapper, wrappers.NoopResetEnv):
        noop_wrapper = noop_wrapper.env

    def reset(num_noops: int) -> np.ndarray:
        noop_wrapper.override_num_noops = num_noops
        return theirs.reset()[0][..., 0]

    def step(action: int) -> tuple[Any, ...]:
        frame, *rest = theirs.step(action)
        return frame[..., 0], *rest

    num_lost_lives, num_games = play_beside(AtariEnv(game, "baselines", seed=1), Original(reset, step))

    assert num_lost_lives >= 2
    assert num_games >= 1


@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders"])
def test_dopamine_without_sticky_actions_equals_gymnasiums_preprocessing(game):
    gymnasium.register_envs(ale_py)
    theirs = AtariPreprocessing(gymnasium.make(f"{game}NoFrameskip-v4"), noop_max=0)

    def step(action: int) -> tuple[Any, ...]:
        frame, reward, *rest = theirs.step(action)
        return frame, np.sign(reward), *rest

    env = AtariEnv(game, replace(find_preset("dopamine"), sticky_probability=0.0), seed=1)
    original = Original(lambda num_noops: theirs.reset()[0], step, compares_final_frames=False)

    _, num_games = play_beside(env, original)

    assert num_games >= 1


@pytest.mark.parametrize("game", GAMES)
def test_envpool_equals_the_library_envpool(game):
    envpool = pytest.importorskip("envpool")
    theirs = envpool.make_gymnasium(f"{game}-v5", num_envs=1, noop_max=1, seed=0)

    def reset(num_noops: int) -> np.ndarray:
        stack = theirs.reset()[0][0]
        assert all(np.array_equal(frame, stack[-1]) for frame in stack)  # first_frame
        return stack[-1]

    def step(action: int) -> tuple[Any, ...]:
        stacks, *rest = theirs.step(np.array([action]))
        return stacks[0, -1], *(each[0] for each in rest[:3])

    env = AtariEnv(game, replace(find_preset("envpool"), max_noops=1), seed=1)

    _, num_games = play_beside(env, Original(reset, step))

    assert num_games >= 1
