"""Runs of several games beside published curves: the same mean, of the same agent steps."""

import csv
import dataclasses
import json

import pytest
from matplotlib import pyplot

import ten_games
from framestow.training.listeners import COLUMNS, PROGRESS_COLUMNS
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings


def run_of(path, game, scores_by_step, reached=500_000, **settings):
    folder = RunFolder.create(path, Settings(game, preset="dopamine", **{"steps": 500_000} | settings))
    with folder.episodes.open("w", newline="") as file:
        rows = [[n, step, 0, score, 90] for n, (step, score) in enumerate(scores_by_step.items(), 1)]
        csv.writer(file).writerows([COLUMNS, *rows])
    rows = [
        [step if name == "agent_steps" else step * 0.0024 for name in PROGRESS_COLUMNS] for step in (500_000, reached)
    ]
    with folder.progress.open("w", newline="") as file:
        csv.writer(file).writerows([PROGRESS_COLUMNS, *rows])
    return str(path)


def compare(monkeypatch, tmp_path, *runs):
    monkeypatch.setattr(ten_games, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(ten_games, "commit", lambda name: f"commit of {name}")
    monkeypatch.setattr("sys.argv", ["ten_games.py", *runs])
    ten_games.main()


def scores_of_games(tmp_path):
    games = json.loads((tmp_path / "results" / "ten_games.json").read_text())["games"]
    return {game: row["mean_of_last_point"] for game, row in games.items()}


def test_the_mean_of_the_last_part_stands_beside_the_published_ones(tmp_path, monkeypatch):
    qbert = run_of(tmp_path / "a", "Qbert", {250_000: 9_000.0, 250_001: 800.0, 500_000: 900.0, 500_001: 9_000.0})
    pong = run_of(tmp_path / "b", "Pong", {400_000: -21.0})

    compare(monkeypatch, tmp_path, qbert, pong)

    games = json.loads((tmp_path / "results" / "ten_games.json").read_text())["games"]
    assert games["Qbert"]["published"]["QR-DQN"] == 700.78
    assert [(row["mean_of_last_point"], row["is_best"]) for row in games.values()] == [(-21.0, False), (850.0, True)]
    pictures = [tmp_path / "results" / name for name in ("ten_games.png", "ten_games-dark.png")]
    light, dark = (pyplot.imread(picture)[0, 0, :3].tolist() for picture in pictures)
    assert min(light) == 1.0
    assert max(dark) < 0.1, "the colour of a dark page"


def test_of_a_longer_run_the_first_steps_are_compared(tmp_path, monkeypatch):
    run = run_of(tmp_path / "a", "Pong", {400_000: -10.0, 600_000: 20.0}, reached=900_000, steps=1_000_000)

    compare(monkeypatch, tmp_path, run)

    assert scores_of_games(tmp_path) == {"Pong": -10.0}
    curve = (tmp_path / "results" / "ten_games" / "Pong.csv").read_text()
    assert curve == "seed,agent_steps,score,mean_of_last_20\n0,400000,-10,-10.00\n"


def test_games_that_are_not_given_keep_their_figures_and_curves(tmp_path, monkeypatch):
    compare(monkeypatch, tmp_path, run_of(tmp_path / "a", "Qbert", {400_000: 800.0}))
    compare(monkeypatch, tmp_path, run_of(tmp_path / "b", "Pong", {400_000: -21.0}))

    assert scores_of_games(tmp_path) == {"Pong": -21.0, "Qbert": 800.0}
    assert {path.name for path in (tmp_path / "results" / "ten_games").iterdir()} == {"Pong.csv", "Qbert.csv"}

    compare(monkeypatch, tmp_path, run_of(tmp_path / "c", "Breakout", {400_000: 9.0}, n_step=3))

    assert scores_of_games(tmp_path) == {"Breakout": 9.0}, "figures of other settings stayed"


@pytest.mark.parametrize(
    ("games", "settings", "message"),
    [
        (("Pong", "Pong"), {}, "2 runs of 1 games"),
        (("Pong", "Boxing"), {}, "no published curve of Boxing"),
        (("Pong", "Qbert"), {"n_step": 3}, "differ only in game, seed and length"),
        (("Pong",), {"reached": 400_000}, "has 400,000 steps: resume it until 500,000"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(tmp_path, monkeypatch, capsys, games, settings, message):
    first, *others = games
    runs = [run_of(tmp_path / "0", first, {}, **settings)]
    runs += [run_of(tmp_path / str(number), game, {}) for number, game in enumerate(others, 1)]

    with pytest.raises(SystemExit):
        compare(monkeypatch, tmp_path, *runs)

    assert message in capsys.readouterr().err


def test_a_number_of_steps_without_a_published_point_is_refused(tmp_path, monkeypatch, capsys):
    run = run_of(tmp_path / "a", "Pong", {})

    with pytest.raises(SystemExit):
        compare(monkeypatch, tmp_path, run, "--steps", "400_000")

    assert "--steps is 400,000: a multiple of 250,000" in capsys.readouterr().err


def test_a_run_that_was_resumed_with_another_rate_is_refused(tmp_path, monkeypatch, capsys):
    run = run_of(tmp_path / "a", "Pong", {})
    folder = RunFolder.open(tmp_path / "a")
    folder.change_settings(dataclasses.replace(folder.settings(), learning_rate=1e-5))

    with pytest.raises(SystemExit):
        compare(monkeypatch, tmp_path, run)

    assert "was resumed with other settings before step 500,000" in capsys.readouterr().err
