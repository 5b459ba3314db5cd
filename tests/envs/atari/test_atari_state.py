"""An AtariEnv resumes bit for bit from its saved state."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from framestow.envs import AtariEnv, find_preset, make_atari
from framestow.errors import IncompatibleError

MACHADO, NATURE = find_preset("machado2018"), find_preset("nature")
PLAIN_TYPES = (int, float, str, bytes, bool, type(None))


def play(env, num_steps: int, seed: int) -> list[tuple]:
    """Play at random, reset after each end, and return all results."""
    generator, seen = np.random.default_rng(seed), []
    for _ in range(num_steps):
        frame, reward, terminated, truncated, info = env.step(int(generator.integers(int(env.action_space.n))))
        seen.append((frame.tobytes(), reward, terminated, truncated, info))
        if terminated or truncated:
            frame, info = env.reset()
            seen.append((frame.tobytes(), info))
    return seen


@pytest.mark.each_value
@pytest.mark.parametrize("preset", ["machado2018", "nature", "baselines"])
@pytest.mark.parametrize("game", ["Breakout", "Pong"])
def test_another_environment_resumes_a_saved_game_bit_for_bit(game, preset):
    env = AtariEnv(game, preset, seed=1)
    env.reset()
    play(env, 60, seed=1)
    state = env.state()
    expected = play(env, 150, seed=2)

    fresh = AtariEnv(game, preset, seed=99)
    fresh.restore(state)

    assert expected == play(fresh, 150, seed=2)


@pytest.mark.parametrize("game", ["Pong", "MsPacman"])
def test_the_last_action_is_part_of_the_state_of_a_sticky_game(game):
    very_sticky = replace(MACHADO, sticky_probability=0.9)
    env = AtariEnv(game, very_sticky, seed=1)
    env.reset()
    for num_steps in range(4):
        play(env, 10 + num_steps, seed=num_steps)
        state = env.state()
        expected = play(env, 40, seed=7)
        fresh = AtariEnv(game, very_sticky, seed=2)
        fresh.restore(state)

        assert expected == play(fresh, 40, seed=7)


def test_a_resumed_game_keeps_its_score_and_its_number_of_steps():
    preset = replace(MACHADO, max_episode_frames=1_200)
    env, fresh = AtariEnv("MsPacman", preset, seed=1), AtariEnv("MsPacman", preset, seed=2)
    env.reset()
    play(env, 80, seed=1)
    fresh.restore(env.state())

    infos = [play(each, 220, seed=3)[219][4] for each in (env, fresh)]

    assert infos[0] == infos[1]
    assert infos[0]["episode"]["l"] == 300
    assert infos[0]["episode"]["r"] > 0


def test_a_state_can_be_saved_before_the_first_reset_and_after_the_last_step():
    preset = replace(MACHADO, max_episode_frames=40)
    unstarted, over = AtariEnv("Breakout", preset, seed=3), AtariEnv("Breakout", preset, seed=4)
    over.reset()
    for _ in range(10):
        over.step(1)
    for env in (unstarted, over):
        fresh = AtariEnv("Breakout", preset, seed=5)
        fresh.restore(env.state())

        assert np.array_equal(env.reset()[0], fresh.reset()[0])
        assert play(env, 30, seed=0) == play(fresh, 30, seed=0)


def test_a_state_is_made_of_plain_values_and_arrays_only():
    def check(value):
        if isinstance(value, dict):
            assert all(type(key) is str for key in value)
            for each in value.values():
                check(each)
        elif isinstance(value, (list, tuple)):
            for each in value:
                check(each)
        else:
            assert type(value) in PLAIN_TYPES or (type(value) is np.ndarray and value.dtype != object)

    vector, env = make_atari("Breakout", 2, seed=0), make_atari("Breakout", seed=0)
    for each, state in ((vector, vector.state_dict), (env, env.state)):
        check(state())
        each.reset()
        check(state())


def test_a_saved_state_does_not_change_when_its_environment_steps():
    env = AtariEnv("Breakout", MACHADO, seed=1)
    env.reset()
    state = env.state()
    frame = state["frame"].copy()
    expected = play(env, 50, seed=1)
    assert np.array_equal(frame, state["frame"])

    env.restore(state)

    assert expected == play(env, 50, seed=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rom": "pong"}, "state is of the game 'pong': this is 'breakout'"),
        ({"preset": NATURE.to_dict()}, "preset 'nature': it differs in sticky_probability 0.0 against 0.25"),
        (
            {"frame": np.zeros((80, 80), np.uint8)},
            "state has a frame of shape (80, 80): it must be (84, 84); give what state() returned",
        ),
        ({"emulator": b"nonsense"}, "state has an emulator part that ale-py cannot read"),
    ],
)
def test_a_state_of_another_game_or_preset_is_refused_and_changes_nothing(change, message):
    env = AtariEnv("Breakout", MACHADO, seed=1)
    env.reset()
    before = env.state()

    with pytest.raises(IncompatibleError, match=re.escape(message)):
        env.restore({**before, **change})

    assert before["emulator"] == env.state()["emulator"]


def test_an_incomplete_state_is_refused():
    env = AtariEnv("Breakout", MACHADO, seed=1)
    state = env.state()
    del state["held_action"]

    with pytest.raises(IncompatibleError, match=re.escape("state has no ['held_action']: it is not of an AtariEnv")):
        env.restore(state)


def test_a_state_saved_after_a_lost_life_resumes_with_the_steps_of_the_reset():
    env, fresh = AtariEnv("Breakout", "baselines", seed=1), AtariEnv("Breakout", "baselines", seed=2)
    env.reset()
    while not env.step(1)[2]:
        pass
    fresh.restore(env.state())

    (expected, expected_info), (frame, info) = env.reset(), fresh.reset()

    assert np.array_equal(expected, frame)
    assert expected_info == info
    assert play(env, 30, seed=1) == play(fresh, 30, seed=1)


def test_a_state_older_than_a_preset_field_loads_if_the_field_has_its_default():
    env = AtariEnv("Breakout", NATURE, seed=1)
    state = env.state()
    for field in ("opening", "reset_frame", "noop_steps_after_life_loss", "stack_padding", "evaluation_epsilon"):
        del state["preset"][field]

    env.restore(state)

    with pytest.raises(IncompatibleError, match="opening 'none' against 'fire_frame'"):
        AtariEnv("Breakout", replace(NATURE, opening="fire_frame")).restore(state)


def test_a_game_that_the_emulator_cannot_restore_exactly_warns_on_load():
    env = AtariEnv("Qbert", NATURE, seed=1)
    env.reset()

    with pytest.warns(UserWarning, match="Qbert is not restored exactly by ale-py"):
        env.restore(env.state())
