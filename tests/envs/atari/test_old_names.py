"""Old names of Atari games say frame skip and sticky probability; they are played by these rules or refused."""

from __future__ import annotations

import re
from dataclasses import replace

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest

from framestow.envs import AtariEnv, find_preset, make_atari
from framestow.envs.atari.old_names import find_old_name
from framestow.errors import InvalidSettingsError, UnknownGameError

gymnasium.register_envs(ale_py)

# Each kind of name, by what Gymnasium's documentation of Atari versions says: frame skip, sticky probability.
VERSIONS = {
    "-v0": ((2, 5), 0.25),
    "-v4": ((2, 5), 0.0),
    "Deterministic-v0": (4, 0.25),
    "Deterministic-v4": (4, 0.0),
    "NoFrameskip-v0": (1, 0.25),
    "NoFrameskip-v4": (1, 0.0),
}
REGISTERED = [suffix for suffix in VERSIONS if f"Breakout{suffix}" in gymnasium.registry]


@pytest.mark.parametrize("suffix", VERSIONS)
@pytest.mark.parametrize("is_ram", [False, True])
def test_a_name_says_frame_skip_and_sticky_probability(suffix, is_ram):
    name = f"Breakout-ram{suffix}" if is_ram else f"Breakout{suffix}"

    old = find_old_name(name)

    assert ("Breakout", *VERSIONS[suffix], is_ram) == old
    assert old == find_old_name(name.lower())


def test_the_deterministic_space_invaders_skip_3_frames():
    assert find_old_name("SpaceInvadersDeterministic-v4").frame_skip == 3
    assert find_old_name("SpaceInvaders-v4").frame_skip == (2, 5)


def test_ale_py_registers_old_names():
    assert len(REGISTERED) == 4


@pytest.mark.parametrize("suffix", REGISTERED)
@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders", "MsPacman"])
def test_what_a_name_says_is_what_ale_py_registers_for_it(game, suffix):
    registered = gymnasium.spec(f"{game}{suffix}").kwargs

    old = find_old_name(f"{game}{suffix}")

    assert (registered["frameskip"], registered["repeat_action_probability"]) == (
        old.frame_skip,
        old.sticky_probability,
    )
    assert not registered["full_action_space"]


def the_call_in(error: pytest.ExceptionInfo, pattern: str) -> str:
    (found,) = re.findall(pattern, str(error.value))
    return found


@pytest.mark.each_value
@pytest.mark.parametrize("suffix", ["NoFrameskip-v4", "Deterministic-v4", "Deterministic-v0", "NoFrameskip-v0"])
@pytest.mark.parametrize("make", [AtariEnv, make_atari])
def test_a_name_whose_rules_the_preset_lacks_is_answered_with_the_preset_that_has_them(make, suffix):
    frame_skip, sticky = VERSIONS[suffix]

    with pytest.raises(InvalidSettingsError, match=f"^game 'Breakout{suffix}' has frame skip {frame_skip}") as error:
        make(f"Breakout{suffix}")

    code = the_call_in(error, r"preset=(replace\(.*\))$")
    preset = eval(code, {"replace": replace, "find_preset": find_preset})
    assert (frame_skip, sticky, "minimal") == (preset.frame_skip, preset.sticky_probability, preset.action_set)
    assert preset.max_episode_frames == 108_000
    make(f"Breakout{suffix}", preset=preset).close()


@pytest.mark.parametrize("name", ["Breakout-v0", "Breakout-v4", "Breakout-ramNoFrameskip-v4", "ALE/Breakout-ram-v5"])
def test_what_no_preset_has_is_answered_with_the_call_that_equals_it(name):
    old = find_old_name(name)

    with pytest.raises(InvalidSettingsError, match=f"^game '{name}' (draws its frame skip|observes the RAM)") as error:
        make_atari(name, preset="baselines")

    env = eval(the_call_in(error, r"lambda: (.*?)\]\)"), {"gymnasium": gymnasium})
    assert (128,) == env.observation_space.shape if old.is_ram else len(env.observation_space.shape) == 3
    assert old.frame_skip == env.spec.kwargs["frameskip"]
    assert old.sticky_probability == env.spec.kwargs["repeat_action_probability"]
    env.close()


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("BreakoutNoFrameskip-v4", "baselines"),
        ("BreakoutNoFrameskip-v4", "nature"),
        ("BreakoutDeterministic-v4", "envpool"),
        ("BreakoutNoFrameskip-v0", "dopamine"),
        ("BreakoutDeterministic-v0", "dopamine"),
        ("ALE/Breakout-v5", "nature"),
    ],
)
def test_a_name_whose_rules_the_preset_has_is_played(name, preset):
    env = make_atari(name, preset=preset)

    assert env.game == "Breakout"
    env.close()


@pytest.mark.each_value
@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders"])
@pytest.mark.parametrize("frame_skip", [1, 4])
def test_the_preset_of_the_answer_plays_as_the_old_name(game, frame_skip):
    preset = replace(
        find_preset("machado2018"),
        frame_skip=frame_skip,
        sticky_probability=0.0,
        action_set="minimal",
        max_episode_frames=108_000,
    )
    kwargs = {"frameskip": 4} if frame_skip == 4 else {}  # as Deterministic was registered
    theirs = gymnasium.make(f"{game}NoFrameskip-v4", obs_type="grayscale", **kwargs)
    ours, generator = AtariEnv(game, preset), np.random.default_rng(3)
    assert theirs.action_space.n == ours.action_space.n
    theirs.reset(seed=0)
    ours.reset(seed=0)

    for _ in range(400):
        action = int(generator.integers(ours.action_space.n))
        frame, *results, _ = ours.step(action)
        screen, *expected, _ = theirs.step(action)
        assert expected == results
        if frame_skip == 1:  # with more, ours is the maximum of two
            assert np.array_equal(cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA), frame)
        if any(results[1:]):
            theirs.reset()
            ours.reset()


def test_an_old_name_of_an_unknown_game_names_the_nearest_ones():
    with pytest.raises(UnknownGameError, match="did you mean Breakout"):
        make_atari("BreakuotNoFrameskip-v4")
