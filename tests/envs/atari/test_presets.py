"""Presets: their fields, refused values, and the frames recorded in the golden file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from framestow.envs import PRESETS, AtariEnv, Preset, find_preset, make_atari
from framestow.envs.atari.presets import differing_fields
from framestow.errors import InvalidSettingsError
from golden.preset_frames import GOLDEN_FILE, fingerprint

GOLDEN = json.loads(GOLDEN_FILE.read_text())
PAGE = Path(__file__).parents[3] / "docs" / "environments.md"
WORDS = {
    "action_set": {"full": "full (18)"},
    "maximum_of": {"grey": "grey values", "rgb": "colours, then grey"},
    "reset_frame": {"maximum": "maximum of two"},
    "reward_limit": {None: "none", 1.0: "±1"},
}


@pytest.mark.parametrize("name", PRESETS)
def test_the_documents_table_of_presets_has_every_value(name):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    header = next(line for line in lines if line.startswith("| field |"))
    column = [cell.strip() for cell in header.split("|")].index(f"`{name}`")
    rows = [line.split("|") for line in lines[lines.index(header) + 3 :] if line.startswith("| `")]
    fields = find_preset(name).to_dict()

    for row in rows[: len(fields) - 3]:  # without name and source; resize and frame_shape share a row
        field, shown = re.findall(r"`(\w+)`", row[1])[0], row[column].strip()
        value = WORDS.get(field, {}).get(fields[field], fields[field])
        expected = f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
        expected = f"{expected}, 84x84" if field == "resize" else expected.replace("_", " ")
        assert shown in (expected, "-"), field


def test_stacks_of_nature_and_dopamine_are_padded_with_zeros_and_the_others_with_the_first_frame():
    zeros = {name for name, preset in PRESETS.items() if preset.stack_padding == "zeros"}

    assert zeros == {"nature", "dopamine"}


def test_differing_fields_lists_both_values_of_each_field():
    nature = find_preset("nature")
    old = {key: value for key, value in nature.to_dict().items() if key not in ("opening", "reset_frame")}

    assert differing_fields(nature.to_dict(), nature) == []
    assert differing_fields(old, nature) == []  # saved before these fields existed
    assert differing_fields({**old, "frame_shape": [96, 84], "name": "tall"}, nature) == [
        "frame_shape (96, 84) against (84, 84)"
    ]
    assert differing_fields({**old, "resize": "bilinear"}, nature, ignored=("resize",)) == []


def test_an_unknown_preset_names_the_nearest_one():
    message = "preset is 'machado': no preset has this name; did you mean 'machado2018'?"

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        make_atari("Pong", preset="machado")


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("sticky_probability", 1.0),
        ("frame_shape", (0, 84)),
        ("reward_limit", 0.0),
        ("evaluation_epsilon", 1.5),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(field, wrong):
    with pytest.raises(InvalidSettingsError, match=f"preset's {field} is {re.escape(repr(wrong))}"):
        replace(find_preset("nature"), **{field: wrong})


def test_a_preset_survives_being_written_as_json():
    for preset in PRESETS.values():
        assert preset == Preset(**json.loads(json.dumps(preset.to_dict())))


def test_a_variant_of_a_preset_can_be_played():
    tall = replace(find_preset("nature"), name="tall", frame_shape=(96, 80), resize="bilinear")

    env = AtariEnv("Pong", tall, seed=0)
    frame, _ = env.reset()

    assert frame.shape == (96, 80) == env.observation_space.shape


@pytest.mark.parametrize("game", ["Breakout", "Pong", "MsPacman"])
@pytest.mark.parametrize("preset", PRESETS)
def test_frames_rewards_and_flags_are_those_of_the_golden_file(preset, game):
    made_with = f"golden file was written with {GOLDEN['made_with']}; after a deliberate change run `make golden`"

    assert GOLDEN["fingerprints"][preset][game] == fingerprint(preset, game), made_with
