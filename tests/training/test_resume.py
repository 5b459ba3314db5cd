"""A run stopped at a checkpoint and resumed equals the one that was not."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from framestow.errors import InvalidSettingsError
from framestow.training.loop import start_run, train
from framestow.training.recipes import RECIPES
from framestow.training.run import MakeEnv, Run, make_game
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from framestow.training.training_run import Event, StepTaken
from training.catch_runs import catch_settings, catch_settings_of, make_catch
from training.equal_runs import assert_equal_runs
from training.kills.run_contents import strangers


class Transcript:
    """All events of a run, as comparable values."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def take(self, event: Event) -> None:
        values = {
            name: float(value) if isinstance(value, torch.Tensor) else value for name, value in vars(event).items()
        }
        self.events.append((type(event).__name__, values))

    def close(self) -> None:
        """Nothing is open."""


def _trained(
    folder: RunFolder, make_env: MakeEnv, transcript: Transcript, stop_at: int | None = None, keeps_open: bool = False
) -> Run:
    run = start_run(folder, make_env)
    train(run, folder, [transcript], lambda: stop_at is not None and run.tally.agent_steps >= stop_at)
    if not keeps_open:
        run.close()
    return run


def _folder(tmp_path: Path, name: str, settings: Settings) -> RunFolder:
    return RunFolder.create(tmp_path / name, settings)


def _uninterrupted_and_resumed(
    tmp_path: Path, settings: Settings, stop_at: int, make_env: MakeEnv = make_catch, keeps_open: bool = False
) -> tuple[Run, Run]:
    """Train a run at once and the same run in two parts; assert that they are equal and return both."""
    whole, halves = Transcript(), Transcript()
    expected = _trained(_folder(tmp_path, "whole", settings), make_env, whole, keeps_open=keeps_open)
    folder = _folder(tmp_path, "halves", settings)

    stopped = _trained(folder, make_env, halves, stop_at)
    resumed = _trained(folder, make_env, halves, keeps_open=keeps_open)

    assert stop_at <= stopped.tally.agent_steps < settings.steps
    assert any(kind == StepTaken.__name__ for kind, _ in halves.events)
    assert whole.events == halves.events
    assert_equal_runs(expected, resumed)
    return expected, resumed


# Before the first update, when every episode has just ended, before the memory's wrap, in it and after it.
@pytest.mark.parametrize(
    "stop_at", [33, *(pytest.param(stop_at, marks=pytest.mark.exhaustive) for stop_at in (1, 60, 301, 450))]
)
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path: Path, stop_at: int) -> None:
    settings = catch_settings()
    _uninterrupted_and_resumed(tmp_path, settings, stop_at)


# Every schedule changes before and after step 301; a copy to the target network follows it.
SCHEDULES = {"learning_rate_falls_after": 100, "epsilon_steps": 400, "priority_beta": 0.4, "priority_beta_steps": 440}


# With these changes the recipe laptop-long is laptop.
@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe != "laptop-long"])
def test_a_run_that_gets_more_steps_equals_one_that_was_asked_for_them_at_once(tmp_path: Path, recipe: str) -> None:
    changes = SCHEDULES | ({"munchausen_after": 350} if recipe == "laptop" else {})
    settings = dataclasses.replace(catch_settings_of(recipe), steps=450, **changes)
    whole, parts = Transcript(), Transcript()
    expected = _trained(_folder(tmp_path, "whole", settings), make_catch, whole)
    folder = _folder(tmp_path, "parts", dataclasses.replace(settings, steps=301))

    shorter = _trained(folder, make_catch, parts)
    folder.change_settings(settings)
    resumed = _trained(folder, make_catch, parts)

    assert 301 <= shorter.tally.agent_steps < 310
    assert whole.events == parts.events
    assert_equal_runs(expected, resumed)


# Segments are let go from the memory, or from its files, before and after the stop.
@pytest.mark.parametrize(
    "changes",
    [
        {"memory_on_disk": True},
        {"memory_on_disk": True, "retention": "random", "memory": 400},
        {"memory_bytes": "1 MiB", "storage": "raw"},
    ],
    ids=lambda changes: ", ".join(f"{name} {value}" for name, value in changes.items()),
)
def test_a_resumed_run_with_any_kind_of_memory_equals_the_uninterrupted_one(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    settings = catch_settings(steps=900, train_every=60, **changes)

    expected, resumed = _uninterrupted_and_resumed(tmp_path, settings, stop_at=450, keeps_open=True)

    expected.close()
    resumed.close()
    folder = RunFolder.open(tmp_path / "halves")
    folder.remove_unfinished()
    assert strangers(folder.path) == []


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    transcripts = [Transcript() for _ in range(3)]
    for name, (transcript, seed) in enumerate(zip(transcripts, [5, 5, 6], strict=True)):
        _trained(_folder(tmp_path, str(name), catch_settings(seed=seed, steps=300)), make_catch, transcript)

    assert transcripts[0].events == transcripts[1].events
    assert transcripts[0].events != transcripts[2].events


def test_a_run_with_all_its_steps_is_not_resumed_and_its_settings_stay(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "run", catch_settings(steps=60))
    _trained(folder, make_catch, Transcript())

    with pytest.raises(InvalidSettingsError, match="steps is 60: the run already has 60 steps; give a larger --steps"):
        folder.change_settings(catch_settings(steps=60, learning_rate=5e-5))

    assert (folder.settings(), folder.changes()) == (catch_settings(steps=60), [])


@pytest.mark.exhaustive
def test_a_resumed_breakout_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path: Path) -> None:
    settings = Settings(
        "Breakout",
        steps=640,
        num_envs=4,
        memory=400,
        warmup=200,
        train_every=16,
        target_every=5,
        threads=1,
        device="cpu",
    )

    _uninterrupted_and_resumed(tmp_path, settings, stop_at=450, make_env=make_game)
