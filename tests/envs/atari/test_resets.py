"""A reset starts or continues a game: no-ops, FIRE, steps after a lost life, and games that end in a reset."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ale_py import roms
from gymnasium.vector import AutoresetMode

from framestow.envs import AtariEnv, find_preset, finished_games, make_atari
from framestow.envs.atari.games import list_games
from oracles.raw_emulator import RawEmulator, frame_in_colour, frame_in_grey

BASELINES, ENVPOOL, NATURE = find_preset("baselines"), find_preset("envpool"), find_preset("nature")


def lose_a_life(env: AtariEnv) -> tuple[int, int]:
    """Play FIRE until the episode ends; return the emulator frames of the game and the lives left."""
    terminated = False
    while not terminated:
        _, _, terminated, _, info = env.step(1)
    return info["episode_frame_number"], info["lives"]


def state_of(env: AtariEnv) -> bytes:
    """Return the state of the emulator without its random generator."""
    return RawEmulator(env, env.preset.max_episode_frames).ale.cloneState().serialize()


def state_after(env: AtariEnv, actions: dict[str, int]) -> bytes:
    """Return `state_of` a new game after each action was repeated for its number of raw frames."""
    emulator = RawEmulator(env, env.preset.max_episode_frames)
    emulator.ale.loadROM(roms.get_rom_path(env.rom))
    emulator.ale.reset_game()
    for name, num_frames in actions.items():
        emulator.repeat(name, num_frames)
    return emulator.ale.cloneState().serialize()


def test_a_fire_frame_takes_the_place_of_the_last_noop():
    env = AtariEnv("Breakout", replace(ENVPOOL, max_noops=1), seed=1)

    _, info = env.reset()

    assert info["episode_frame_number"] == 1
    assert state_after(env, {"FIRE": 1}) == state_of(env)


@pytest.mark.parametrize("game", ["Breakout", "Freeway"])
def test_a_new_game_of_envpool_begins_after_one_to_thirty_raw_frames_with_or_without_fire(game):
    env = AtariEnv(game, ENVPOOL, seed=3)

    frames = {env.reset()[1]["episode_frame_number"] for _ in range(120)}

    assert (min(frames), max(frames)) == (1, 30)


def test_fire_steps_play_fire_and_the_third_action_for_an_agent_step_each():
    env = AtariEnv("Breakout", replace(BASELINES, max_noops=0), seed=1)

    _, info = env.reset()

    assert info["episode_frame_number"] == 8
    assert state_after(env, {"FIRE": 4, "RIGHT": 4}) == state_of(env)


def test_a_game_without_fire_opens_with_noops_alone():
    env = AtariEnv("MsPacman", replace(BASELINES, max_noops=1), seed=1)

    _, info = env.reset()

    assert info["episode_frame_number"] == 1
    assert state_after(env, {"NOOP": 1}) == state_of(env)


@pytest.mark.exhaustive
def test_every_game_with_fire_has_a_third_action():
    for game in list_games():
        actions = AtariEnv(game, "baselines").action_meanings()
        assert "FIRE" not in actions or len(actions) >= 3


@pytest.mark.parametrize(
    ("preset", "frame_of"), [(NATURE, frame_in_colour), (ENVPOOL, frame_in_grey)], ids=["maximum", "last"]
)
@pytest.mark.parametrize(("cap", "num_frames_seen"), [(18_000, {1, 2, 3, 4}), (3, {0, 1, 2})], ids=["whole", "ended"])
def test_a_reset_shows_the_last_raw_frames_of_the_new_game_even_if_the_noops_end_a_game(
    preset, frame_of, cap, num_frames_seen
):
    # Asterix draws some of its sprites only in every other raw frame, from the first one.
    env = AtariEnv("Asterix", replace(preset, max_noops=4, opening="none", max_episode_frames=cap), seed=0)
    emulator = RawEmulator(env, 18_000)
    seen = set()
    for _ in range(16):
        frame, info = env.reset()
        emulator.ale.reset_game()
        raw_frames = [(emulator.ale.getScreenGrayscale(), emulator.ale.getScreenRGB())]
        raw_frames += emulator.repeat("NOOP", info["episode_frame_number"]).raw_frames
        seen.add(info["episode_frame_number"])

        assert np.array_equal(frame_of(raw_frames if preset is NATURE else raw_frames[-1:]), frame)
        env.step(0)  # the episode is running
    assert num_frames_seen == seen


@pytest.mark.parametrize(("game", "num_frames"), [("MsPacman", 4), ("Breakout", 12)])
def test_the_reset_after_a_lost_life_plays_a_noop_step_and_the_opening_in_the_running_game(game, num_frames):
    env = AtariEnv(game, BASELINES, seed=0)
    env.reset()
    frames_before, lives = lose_a_life(env)

    _, info = env.reset()

    assert (frames_before + num_frames, lives) == (info["episode_frame_number"], info["lives"])
    assert "episode" not in info


def test_a_lost_life_ends_the_episode_after_the_whole_step_and_the_last_life_ends_with_the_game():
    env = AtariEnv("Breakout", BASELINES, seed=0)
    first_frame = env.reset()[1]["episode_frame_number"]
    lives = []
    while lives[-1:] != [0]:
        num_frames, lives_left = lose_a_life(env)
        lives.append(lives_left)
        if lives_left:
            assert (num_frames - first_frame) % 4 == 0
            env.reset()

    assert lives == [4, 3, 2, 1, 0]
    assert env.reset()[1]["lives"] == 5


@pytest.fixture
def frames_at_first_life_lost() -> int:
    env = AtariEnv("Breakout", BASELINES, seed=0)
    env.reset()
    return lose_a_life(env)[0]


@pytest.mark.parametrize("num_frames_later", [1, 4, 6, 12])
def test_a_game_that_ends_in_the_steps_of_a_reset_is_reported_and_a_new_one_begins(
    num_frames_later, frames_at_first_life_lost
):
    capped = replace(BASELINES, max_episode_frames=frames_at_first_life_lost + num_frames_later)
    env = AtariEnv("Breakout", capped, seed=0)
    env.reset()
    steps_before = 1
    while not env.step(1)[2]:
        steps_before += 1

    _, info = env.reset()

    assert info["episode"] == {"r": 0.0, "l": steps_before}
    assert info["lives"] == 5
    assert "episode" not in env.reset()[1]


def test_the_noop_steps_of_a_reset_stop_when_one_of_them_ends_the_game():
    preset = replace(BASELINES, max_noops=1, noop_steps_after_life_loss=3)
    env = AtariEnv("Breakout", preset, seed=0)
    env.reset()
    capped = AtariEnv("Breakout", replace(preset, max_episode_frames=lose_a_life(env)[0] + 2), seed=0)
    capped.reset()
    lose_a_life(capped)

    _, info = capped.reset()

    assert info["episode_frame_number"] == 1 + 8  # one no-op and the opening of a new game


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_game_that_ends_in_a_reset_is_counted_once_in_a_vector_environment(mode):
    alone = make_atari("Breakout", 1, BASELINES, seed=4)
    alone.reset()
    while not (outcome := alone.step(np.array([1])))[2][0]:
        pass
    cap = int(outcome[4]["episode_frame_number"][0]) + 2
    env = make_atari("Breakout", 1, replace(BASELINES, max_episode_frames=cap), seed=4, autoreset_mode=mode)
    env.reset()
    games = []
    while not games:
        *_, infos = env.step(np.array([1]))
        games = finished_games(infos)

    assert [game.env_id for game in games] == [0]
    assert finished_games(env.step(np.array([1]))[4]) == []
