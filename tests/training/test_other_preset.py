"""Playing with another preset than the one trained with: what is warned of, and what is refused."""

import re
from dataclasses import replace

import pytest

from framestow.envs import find_preset
from framestow.errors import IncompatibleError
from framestow.training.playing import warning_of_other_preset

MACHADO, NATURE, DOPAMINE = find_preset("machado2018"), find_preset("nature"), find_preset("dopamine")


def test_the_same_preset_needs_no_warning() -> None:
    assert warning_of_other_preset("Breakout", NATURE, NATURE) is None


def test_the_warning_names_both_presets_and_every_field_in_which_they_differ() -> None:
    warning = warning_of_other_preset("Breakout", NATURE, replace(NATURE, name="mine", max_noops=0, resize="bilinear"))

    assert warning == (
        "trained with the preset nature, played with mine: the scores are not comparable with others of nature, nor "
        "with those of agents trained with mine. They differ (trained against played) in max_noops 30 against 0, "
        "resize 'area' against 'bilinear'"
    )


def test_a_preset_of_other_actions_is_refused_and_both_are_named() -> None:
    message = (
        "preset 'machado2018' has 18 actions in Breakout: the run was trained with 'nature', of 4, and its network has "
        "an output for each of these; play with nature or baselines or dopamine or envpool"
    )

    with pytest.raises(IncompatibleError, match=re.escape(message)):
        warning_of_other_preset("Breakout", NATURE, MACHADO)


def test_a_game_that_needs_all_the_actions_can_be_played_with_either_set() -> None:
    warning = warning_of_other_preset("Seaquest", MACHADO, DOPAMINE)

    assert warning is not None
    assert "action_set 'full' against 'minimal'" in warning


def test_a_preset_of_other_frames_is_refused() -> None:
    with pytest.raises(IncompatibleError, match=re.escape("frames of (96, 84): the run was trained with 'nature'")):
        warning_of_other_preset("Breakout", NATURE, replace(NATURE, name="tall", frame_shape=(96, 84)))
