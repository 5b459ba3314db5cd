"""Figures of learning are of seeds that chose nothing."""

from __future__ import annotations

import argparse
import json
import runpy
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PUBLISHED_RECIPE = "gpu_rainbow_lite"  # Dopamine's own, which no seed of ours chose: its figures have seed 0
SEEDS = runpy.run_path(str(BENCHMARKS / "seeds.py"))


def refuse(seeds, **options):
    SEEDS["refuse_chosen"](argparse.ArgumentParser(), seeds, **options)


def test_seeds_from_100_on_are_reported():
    refuse([100, 109])


@pytest.mark.parametrize("seed", [0, 9, 42, 99])
def test_a_seed_that_chooses_is_not_reported(seed, capsys):
    with pytest.raises(SystemExit):
        refuse([100, seed])

    assert f"seeds [{seed}] cannot be reported" in capsys.readouterr().err


def test_a_figure_of_seeds_that_chose_says_so():
    refuse([0, 1], chose=True)


def test_a_reported_seed_is_not_called_one_that_chose(capsys):
    with pytest.raises(SystemExit):
        refuse([0, 100], chose=True)

    assert "seeds [100] are not of 0 to 9" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", sorted((BENCHMARKS / "results" / "learning").glob("*.json")), ids=lambda path: path.stem
)
def test_a_committed_figure_is_of_reported_seeds_or_says_that_they_chose(path):
    figure = json.loads(path.read_text(encoding="utf-8"))
    if path.name.startswith(PUBLISHED_RECIPE):
        return
    rows = figure["games"].values() if "games" in figure else [figure]
    seeds = {int(seed) for row in rows for seed in row["seeds"]}

    assert figure.get("seeds_chose_the_recipe") or min(seeds) >= SEEDS["FIRST_REPORTED"], f"{path.name}: {seeds}"
