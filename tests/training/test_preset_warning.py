"""Playing with another preset than that of the training: the warning and the refusals."""

import re
from dataclasses import replace

import pytest

from framestow.envs import find_preset
from framestow.errors import IncompatibleError
from framestow.training.playing import preset_warning

MACHADO, NATURE, DOPAMINE = find_preset("machado2018"), find_preset("nature"), find_preset("dopamine")


def test_the_same_preset_needs_no_warning() -> None:
    assert preset_warning("Breakout", NATURE, NATURE) is None


def test_the_warning_names_both_presets_and_every_field_in_which_they_differ() -> None:
    warning = preset_warning("Breakout", NATURE, replace(NATURE, name="mine", max_noops=0, resize="bilinear"))

    assert warning == (
        "trained with preset nature, played with preset mine: do not compare the scores with scores of nature, or of "
        "agents trained with mine. Differences (trained against played): max_noops 30 against 0, "
        "resize 'area' against 'bilinear'"
    )


def test_a_preset_of_other_actions_is_refused_and_both_are_named() -> None:
    message = (
        "preset 'machado2018' has 18 actions in Breakout: the network was trained with 'nature', which has 4; "
        "play with nature or baselines or dopamine or envpool"
    )

    with pytest.raises(IncompatibleError, match=re.escape(message)):
        preset_warning("Breakout", NATURE, MACHADO)


def test_a_game_that_needs_all_the_actions_can_be_played_with_either_set() -> None:
    warning = preset_warning("Seaquest", MACHADO, DOPAMINE)

    assert warning is not None
    assert "action_set 'full' against 'minimal'" in warning


def test_a_preset_of_other_frames_is_refused() -> None:
    message = (
        "preset 'tall' has frames of shape (96, 84): the network was trained with 'nature', on frames of shape "
        "(84, 84); play with a preset of that frame shape"
    )

    with pytest.raises(IncompatibleError, match=re.escape(message)):
        preset_warning("Breakout", NATURE, replace(NATURE, name="tall", frame_shape=(96, 84)))
