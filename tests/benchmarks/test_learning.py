"""Learning curves as data: what is written of a run is what its folder says."""

import csv
import json

import pytest

import learning
from framestow.training.listeners import COLUMNS, PROGRESS_COLUMNS
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings


def run_of(path, seed, scores):
    folder = RunFolder.create(path, Settings("Pong", seed=seed, steps=1_000))
    with folder.episodes.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *([n, 100 * n, 0, score, 90] for n, score in enumerate(scores, 1))])
    row = dict.fromkeys(PROGRESS_COLUMNS, 0) | {"agent_steps": 1_000, "wall_s": 7_200, "cpu_s": 1_800}
    with folder.progress.open("w", newline="") as file:
        csv.writer(file).writerows([PROGRESS_COLUMNS, list(row.values())])
    return path


def test_curves_and_figures_of_each_seed_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(learning, "commit", lambda name: f"commit of {name}")
    folders = [run_of(tmp_path / f"seed-{seed}", seed, [-20.0, -10.0, seed]) for seed in (1, 0)]
    monkeypatch.setattr("sys.argv", ["learning.py", "pong", *map(str, folders)])

    learning.main()

    rows = list(csv.reader((tmp_path / "results" / "pong.csv").read_text().splitlines()))
    assert rows[:4] == [
        ["seed", "agent_steps", "score", "mean_of_last_20"],
        ["0", "100", "-20", "-20.00"],
        ["0", "200", "-10", "-15.00"],
        ["0", "300", "0", "-10.00"],
    ]
    figures = json.loads((tmp_path / "results" / "pong.json").read_text())
    command = "framestow train Pong --recipe laptop --preset baselines --steps 1_000 --seed"
    assert figures["command"] == f"{command} 0; {command} 1"
    assert figures["commit"] == "commit of HEAD"
    assert figures["seeds"]["1"]["mean_of_last_20_games"] == pytest.approx(-29 / 3)
    assert (figures["seeds"]["1"]["core_hours"], figures["seeds"]["1"]["hours_on_the_clock"]) == (0.5, 2.0)
    assert (tmp_path / "results" / "pong.png").read_bytes()[:4] == b"\x89PNG"


def test_runs_of_other_settings_are_refused(tmp_path, monkeypatch, capsys):
    run_of(tmp_path / "one", 0, [1.0])
    RunFolder.create(tmp_path / "other", Settings("Pong", seed=1, n_step=3))
    monkeypatch.setattr("sys.argv", ["learning.py", "pong", str(tmp_path / "one"), str(tmp_path / "other")])

    with pytest.raises(SystemExit):
        learning.main()

    assert "they must differ only in seed and length" in capsys.readouterr().err
