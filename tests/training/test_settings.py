"""Settings: each one explained, checked, and the same after a trip through the run folder."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.uniform import Uniform
from framestow.training.recipes import RECIPES
from framestow.training.settings import FROM_RECIPE, Change, Settings, changes_on_resume, read_settings

NAMES = [field.name for field in dataclasses.fields(Settings)]
CHANGE = [field.name for field in dataclasses.fields(Change)]
DEEP = "deep"  # in its place a list nested 10,000 deep is written
DOCS = Path(__file__).parents[2] / "docs" / "training.md"


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda field: field.name)
def test_every_setting_has_a_help_line(field: dataclasses.Field[Any]) -> None:
    assert re.fullmatch(r"[A-Z].{15,}\.|Name of the Atari game.*…", field.metadata["help"])


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("steps", 0, "it must be from 1 to 1,000,000,000,000"),
        ("epsilon_end", 1.5, "it must be a probability from 0 to 1"),
        ("learning_rate", 0.0, "it must be above 0 and at most 1,000,000,000,000,000"),
        ("storage", "zip", "it must be one of packed, raw"),
        ("game", "../../keys", "it must be at most 64 letters, digits, spaces, - and _, perhaps after ALE/"),
        ("seed", -1, "it must be from 0 to 9,223,372,036,854,775,807"),
        ("memory", 1e6, "it must be of type int"),
        ("batch_size", True, "it must be of type int"),
        ("clip_rewards", 1, "it must be of type bool"),
        ("preset", None, "it must be of type str"),
        ("memory_bytes", 1.5, "it must be of type str | None"),
    ],
)
def test_an_invalid_value_is_refused_with_its_rule(name: str, value: Any, rule: str) -> None:
    expected = f"{name} is {value!r}: {rule}; give another --{name.replace('_', '-')}"

    with pytest.raises(InvalidSettingsError, match=re.escape(expected)):
        Settings(**{"game": "Pong", name: value})


@pytest.mark.parametrize(("num_envs", "n_step", "least"), [(8, 5, 32), (64, 1, 56)])
def test_a_warmup_without_a_whole_return_is_refused_with_the_least_one(num_envs: int, n_step: int, least: int) -> None:
    assert Settings("Pong", num_envs=num_envs, n_step=n_step, warmup=least).warmup == least
    with pytest.raises(InvalidSettingsError, match=f"^warmup is {least - 1}: .* give --warmup {least} or more"):
        Settings("Pong", num_envs=num_envs, n_step=n_step, warmup=least - 1)


NUMBERS = [field.name for field in dataclasses.fields(Settings) if re.match("int|float", str(field.type))]


@pytest.mark.parametrize("value", [10**19, -(10**19), 10**400, 1e300, float("inf"), float("nan")])
@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_has_an_upper_bound(name: str, value: float) -> None:
    with pytest.raises(InvalidSettingsError, match=rf"^{name} is .{{1,82}}: it must be .*; give another --"):
        Settings("Pong", **{name: value})


def test_memory_bytes_that_is_no_number_of_bytes_is_refused_with_the_accepted_forms() -> None:
    with pytest.raises(InvalidSettingsError, match="memory_bytes is '1 pound': it must be a number of bytes; give "):
        Settings("Pong", memory_bytes="1 pound")


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Settings) if "None" in str(field.type)])
def test_the_number_of_steps_decides_no_other_setting(name: str) -> None:
    short, long = (Settings("Pong", steps=steps, **{name: None}) for steps in (20_000, 10_000_000))

    assert dataclasses.replace(short, steps=long.steps) == long


def test_settings_are_equal_after_writing_and_reading(tmp_path: Path) -> None:
    settings = Settings("Pong", seed=3, learning_rate=3e-4, clip_rewards=False, epsilon_steps=12)
    changes = [Change(2_000, "learning_rate", 1e-3, 3e-4), Change(2_000, "memory_bytes", None, "2 GB")]
    (tmp_path / "settings.json").write_text(settings.to_json(changes))

    assert read_settings(tmp_path / "settings.json") == (settings, changes)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda document: document["settings"].update(colour="red"),
            IncompatibleError,
            "the setting 'colour' is unknown",
        ),
        (lambda document: document["settings"].pop("stack"), IncompatibleError, "the setting 'stack' is missing"),
        (lambda document: document["settings"].update(stack="4"), InvalidSettingsError, "stack is '4'"),
        (lambda document: document.update(version=9), IncompatibleError, "'framestow run' version 9"),
        (lambda document: document.clear(), IncompatibleError, "is not a settings.json file"),
        (
            lambda document: document.update(changes=[{"step": 3}]),
            InvalidSettingsError,
            "changes has a dict: a change has ",
        ),
    ],
)
def test_an_invalid_settings_file_is_refused(tmp_path: Path, change: Any, error: type[Exception], message: str) -> None:
    path = tmp_path / "settings.json"
    document = json.loads(Settings("Pong").to_json())
    change(document)
    path.write_text(json.dumps(document))

    with pytest.raises(error, match=re.escape(message)):
        read_settings(path)


@pytest.mark.parametrize("path", ["", "format", "version", "settings", "changes", "change", *CHANGE, *NAMES, "unknown"])
def test_any_value_in_a_settings_file_is_taken_or_refused(tmp_path: Path, path: str) -> None:
    file = tmp_path / "settings.json"
    for value in (None, True, -1, 10**400, 0.5, "x" * 10**5, "\x1b]0;", [1] * 9, {"a": 1}, DEEP):
        document = json.loads(Settings("Pong").to_json([Change(0, "steps", 1, 2)]))
        places = {"change": document["changes"], **dict.fromkeys(CHANGE, document["changes"][0])}
        place = places.get(path, document if path in document else document["settings"])
        place[0 if path == "change" else path] = value
        file.write_text(json.dumps(document if path else value).replace(json.dumps(DEEP), "[" * 10_000 + "]" * 10_000))

        try:
            read_settings(file)
        except (InvalidSettingsError, IncompatibleError) as error:
            message = str(error)
            assert message.startswith(str(file))
            named = {"change": "changes", "before": "steps", "after": "steps"}.get(path, path)  # by the message
            assert named in message or "is not a settings.json" in message or path in ("format", "version")
            assert len(message) < 1_000
            assert message.isprintable()


def test_a_settings_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    text = Settings("Pong").to_json()

    for end in range(0, len(text) - 2, 97):
        file.write_text(text[:end])
        with pytest.raises(IncompatibleError, match=r"is not a settings\.json file"):
            read_settings(file)


def test_a_resumed_run_may_change_how_long_and_where_it_runs() -> None:
    asked = Settings("Pong", steps=50_000, device="cpu", threads=2, checkpoint_every=7)

    assert changes_on_resume(Settings("Pong", steps=20_000), asked, agent_steps=300) == [
        Change(300, "steps", 20_000, 50_000),
        Change(300, "checkpoint_every", 10_000, 7),
        Change(300, "device", "auto", "cpu"),
        Change(300, "threads", 1, 2),
    ]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_names_its_source_and_decides_every_setting_that_has_no_default(recipe: str) -> None:
    undecided = {field.name for field in dataclasses.fields(Settings) if field.default is FROM_RECIPE}

    assert set(RECIPES[recipe].values) == undecided
    assert len(RECIPES[recipe].source) > 20
    assert Settings("Pong", recipe=recipe).agent()


@pytest.mark.parametrize("recipe", sorted(RECIPES.keys() - {"laptop-long"}))
def test_the_documents_table_of_recipes_has_every_value(recipe: str) -> None:
    lines = DOCS.read_text().splitlines()
    header = next(line for line in lines if line.startswith("| setting |"))
    column = [cell.strip() for cell in header.split("|")].index(f"`{recipe}`")
    rows = {line.split("|")[1].strip(): line.split("|") for line in lines[lines.index(header) + 2 :] if "|" in line}

    documented = {name: rows[f"`{name}`"][column].strip() for name in RECIPES[recipe].values}

    values = {name: str(value) for name, value in RECIPES[recipe].values.items()}
    by_the_cores = {"workers": "1, on one core 0"} if recipe == "laptop" else {}
    assert documented == values | by_the_cores


def test_the_sampler_is_uniform_unless_a_priority_exponent_is_given() -> None:
    assert isinstance(Settings("Pong", recipe="dqn").sampler(), Uniform)

    sampler = Settings("Pong", recipe="rainbow").sampler()

    assert isinstance(sampler, Prioritized)
    assert (sampler.alpha, sampler.beta, sampler.final_beta, sampler.annealed_over) == (0.5, 0.4, 1.0, 12_500_000)


@pytest.mark.parametrize(("cores", "workers"), [(1, 0), (2, 1), (4, 1)])
def test_laptop_has_a_worker_if_there_is_a_core_for_it(
    cores: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("framestow.training.settings.num_cores", lambda: cores)

    assert workers == Settings("Pong").workers
    assert 3 == Settings("Pong", workers=3).workers
    assert 0 == Settings("Pong", recipe="dqn").workers
