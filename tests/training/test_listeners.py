"""Listeners: the output and the files of a running training."""

import csv
import io
import re
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from framestow.training import loop as trainer
from framestow.training.checkpoint import newest_checkpoint
from framestow.training.listeners import (
    COLUMNS,
    PROGRESS_COLUMNS,
    Checkpointing,
    Curves,
    EpisodeTable,
    EventFile,
    LostEpisodeWarnings,
    Progress,
    ProgressTable,
    WandbPoints,
    read_rows,
)
from framestow.training.run import Run
from framestow.training.run_folder import RunFolder
from framestow.training.training_run import EpisodeEnded, EpisodesLost, Learned, StepTaken
from training.catch_runs import catch_settings, make_catch
from training.full_disk import no_file_larger_than


def _run(tmp_path: Path, **changes: object) -> tuple[Run, RunFolder]:
    folder = RunFolder.create(tmp_path / "run", catch_settings(**changes))
    return trainer.start_run(folder, make_catch), folder


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_every_finished_game_is_a_line_of_episodes_csv(tmp_path: Path) -> None:
    run, folder = _run(tmp_path, steps=200)

    trainer.train(run, folder, [EpisodeTable(folder.episodes, 0, pytest.fail)])

    rows = _rows(folder.episodes)
    assert rows[0] == COLUMNS
    assert [int(row[0]) for row in rows[1:]] == list(range(1, run.tally.episodes + 1))
    assert {row[3] for row in rows[1:]} <= {"1.0", "-1.0"}
    assert {row[4] for row in rows[1:]} == {"11"}


def test_a_line_is_on_the_disk_before_the_next_event(tmp_path: Path) -> None:
    table = EpisodeTable(tmp_path / "episodes.csv", 0, pytest.fail)

    table.take(EpisodeEnded(1, 30, 2, 5.0, 10))

    assert _rows(tmp_path / "episodes.csv") == [COLUMNS, ["1", "30", "2", "5.0", "10"]]
    table.close()


def test_lines_after_the_checkpoint_of_a_resumed_run_and_half_lines_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "episodes.csv"
    path.write_text("episode,agent_steps,env_id,score,length\n1,30,2,5.0,10\n2,60,0,1.0,9\n3,90,1,2.0,8\n4,9")

    EpisodeTable(path, 60, pytest.fail).close()

    assert _rows(path) == [COLUMNS, ["1", "30", "2", "5.0", "10"], ["2", "60", "0", "1.0", "9"]]


@pytest.mark.parametrize("cell", ["", "nan", "inf", "1e999", "1 2", "x"])
def test_lines_without_a_number_where_one_is_needed_are_not_read(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "of others.csv"
    rows = [["1", "30", "2", "5.0", "10"], ["2", cell, "0", "1.0", "9"], ["3", "90", "1", cell, "8"]]
    path.write_text("\n".join(",".join(row) for row in [COLUMNS, *rows]) + "\n")

    assert [row["episode"] for row in read_rows(path, COLUMNS)] == ["1"]

    complete = dict.fromkeys(PROGRESS_COLUMNS, "1")
    rows = [list((complete | {column: cell}).values()) for column in PROGRESS_COLUMNS]
    path.write_text("\n".join(",".join(row) for row in [PROGRESS_COLUMNS, *rows]) + "\n")

    kept = [name for row in read_rows(path, PROGRESS_COLUMNS) for name in row if row[name] != "1"]
    assert kept == ([] if cell == "x" else ["loss", "mean_value", "dormant_units"])


def test_progress_csv_has_the_state_of_the_run_at_its_end(tmp_path: Path) -> None:
    run, folder = _run(tmp_path, steps=200)

    trainer.train(run, folder, [ProgressTable(run, folder.progress, pytest.fail)])

    (row,) = read_rows(folder.progress, PROGRESS_COLUMNS)
    assert int(row["agent_steps"]) == run.tally.agent_steps
    assert int(row["updates"]) == run.agent.num_updates
    assert float(row["epsilon"]) == pytest.approx(run.agent.epsilon(run.tally.agent_steps), rel=1e-5)
    assert float(row["learning_rate"]) == pytest.approx(run.agent.learning_rate, rel=1e-5)
    shares = [float(share) for share in row["dormant_units"].split()]
    assert shares == pytest.approx(run.dormant_units(), abs=1e-3)
    assert len(shares) == 3  # two convolutions, one hidden layer
    assert (int(row["transitions"]), int(row["memory_bytes"])) == (len(run.memory), run.memory.nbytes)
    assert float(row["loss"]) >= 0.0
    assert float(row["mean_value"]) != 0.0
    assert 10 * 2**20 < int(row["process_bytes"]) < 4 * 2**30
    assert float(row["wall_s"]) > 0.0
    assert float(row["cpu_s"]) > 0.0
    assert float(row["steps_per_s"]) == pytest.approx(run.tally.agent_steps / float(row["wall_s"]), rel=0.3)


def test_progress_csv_gets_a_line_every_ten_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, folder = _run(tmp_path)
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    table = ProgressTable(run, folder.progress, pytest.fail)

    for _ in range(25):
        clock[0] += 1.0
        run.tally.agent_steps += 3
        table.take(StepTaken(run.tally.agent_steps))
    table.close()

    rows = list(read_rows(folder.progress, PROGRESS_COLUMNS))
    assert [row["wall_s"] for row in rows] == ["10.000", "20.000", "25.000"]
    assert [row["steps_per_s"] for row in rows] == ["3", "3", "3"]
    assert [row["loss"] for row in rows] == ["", "", ""]  # no update yet


def test_a_resumed_run_continues_wall_and_processor_time_from_its_checkpoint(tmp_path: Path) -> None:
    run, folder = _run(tmp_path, steps=100)
    trainer.train(run, folder)
    stored = [[60, 500.0, 900.0], [run.tally.agent_steps, 1_000.0, 1_800.0], [9_999, 2_000.0, 3_600.0]]
    rows = [",".join(map(str, [*row, *[0] * (len(PROGRESS_COLUMNS) - 3)])) for row in stored]
    folder.progress.write_text("\n".join([",".join(PROGRESS_COLUMNS), *rows, "10020,20"]))
    folder.change_settings(catch_settings(steps=200))

    resumed = trainer.start_run(folder, make_catch)
    trainer.train(resumed, folder, [ProgressTable(resumed, folder.progress, pytest.fail)])

    kept = list(read_rows(folder.progress, PROGRESS_COLUMNS))
    assert [int(row["agent_steps"]) for row in kept] == [60, run.tally.agent_steps, resumed.tally.agent_steps]
    assert 1_000.0 < float(kept[-1]["wall_s"]) < 1_100.0
    assert 1_800.0 < float(kept[-1]["cpu_s"]) < 1_900.0


def test_curves_are_tensorboard_events_over_agent_steps(tmp_path: Path) -> None:
    run, folder = _run(tmp_path, train_every=2)

    trainer.train(run, folder, [Curves(run, folder.path, pytest.fail)])

    stored = EventAccumulator(str(folder.path)).Reload()
    assert set(stored.Tags()["scalars"]) == {
        "agent/epsilon",
        "episode/length",
        "episode/score",
        "learner/loss",
        "learner/mean_value",
        "memory/bytes",
        "memory/transitions",
        "process/resident_bytes",
        "rate/agent_steps_per_second",
    }
    assert len(stored.Scalars("episode/score")) == run.tally.episodes
    assert stored.Scalars("memory/transitions")[-1].value == len(run.memory)
    assert stored.Scalars("memory/transitions")[-1].step == run.tally.agent_steps


class FakeWandb:
    """Stands for the module wandb and for its run; records all calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def init(self, **arguments: Any) -> "FakeWandb":
        self.calls.append(("init", arguments))
        return self

    def define_metric(self, name: str, step_metric: str) -> None:
        self.calls.append(("define_metric", (name, step_metric)))

    def log(self, points: dict[str, float]) -> None:
        self.calls.append(("log", points))

    def finish(self) -> None:
        self.calls.append(("finish", None))


def test_weights_and_biases_gets_the_curves_over_agent_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    run, folder = _run(tmp_path, steps=200)

    trainer.train(run, folder, [Curves(run, folder.path, pytest.fail, WandbPoints(run, folder.path))])

    (_, started), *calls, last = wandb.calls
    assert (started["project"], started["name"], started["dir"]) == ("framestow", "run", str(folder.path))
    assert started["config"]["learning_rate"] == run.settings.learning_rate
    assert calls.pop(0) == ("define_metric", ("*", "agent_steps"))
    assert last == ("finish", None)
    points = [points for _, points in calls]
    assert sum("episode/score" in point for point in points) == run.tally.episodes
    assert points[-1] == {"process/resident_bytes": ANY, "agent_steps": run.tally.agent_steps}


@pytest.mark.parametrize(("resumed_at", "kept"), [(20, [(10, 1.0), (30, 4.0)]), (0, [(30, 4.0)])])
def test_a_resumed_runs_curves_hide_what_is_trained_again(tmp_path: Path, resumed_at: int, kept: list) -> None:
    for agent_steps, values in ((0, {10: 1.0, 30: 3.0}), (resumed_at, {30: 4.0})):
        curves = EventFile(tmp_path, agent_steps)
        for step, value in values.items():
            curves.add("score", value, step)
        curves.close()

    points = EventAccumulator(str(tmp_path)).Reload().Scalars("score")

    assert [(point.step, point.value) for point in points] == kept


def test_lines_of_episodes_csv_wait_for_free_space_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "episodes.csv"
    warnings: list[str] = []
    table = EpisodeTable(path, 0, warnings.append)

    with no_file_larger_than(60):
        for episode in range(1, 6):
            table.take(EpisodeEnded(episode, 10 * episode, 0, 1.0, 10))
    table.take(EpisodeEnded(6, 60, 0, 1.0, 10))
    table.close()

    assert warnings == [f"{path} could not be written (File too large): new lines wait for free space"]
    assert [row[0] for row in _rows(path)] == ["episode", "1", "2", "3", "4", "5", "6"]


def test_curves_stop_on_a_full_disk_and_training_continues(tmp_path: Path) -> None:
    run, folder = _run(tmp_path, steps=150)
    warnings: list[str] = []
    curves = Curves(run, folder.path, warnings.append)

    with no_file_larger_than(100):
        for _ in range(200):
            curves.take(EpisodeEnded(1, 10, 0, 1.0, 10))
    trainer.train(run, folder, [curves])

    assert warnings == ["the TensorBoard curves could not be written (File too large): the run writes no more points"]
    assert run.tally.agent_steps >= 150


def test_a_checkpoint_is_written_at_every_multiple(tmp_path: Path) -> None:
    run, folder = _run(tmp_path, steps=250, checkpoint_every=100)
    seen: list[tuple[int, str]] = []

    class Watcher:
        def take(self, event: object) -> None:
            newest = newest_checkpoint(folder.checkpoints)
            if isinstance(event, StepTaken) and newest and (not seen or seen[-1][1] != newest.name):
                seen.append((event.agent_steps, newest.name))

        def close(self) -> None:
            """Nothing is open."""

    trainer.train(run, folder, [Checkpointing(run, folder.checkpoints, pytest.fail), Watcher()])

    assert [steps // 100 for steps, _ in seen] == [1, 2]
    assert [name for _, name in seen] == [f"step-{steps:012d}" for steps, _ in seen]


def test_a_checkpoint_that_cannot_be_written_warns_and_training_continues(tmp_path: Path) -> None:
    run, folder = _run(tmp_path, steps=120, checkpoint_every=50)
    warnings: list[str] = []

    class FullDisk(Checkpointing):
        def take(self, event: Any) -> None:
            with no_file_larger_than(1_000 if run.tally.agent_steps < 62 else 2**30):
                super().take(event)

    trainer.train(run, folder, [FullDisk(run, folder.checkpoints, warnings.append)])

    assert len(warnings) == 1
    assert re.match(r"the checkpoint of step 5\d could not be written .* training continues$", warnings[0])
    newest = newest_checkpoint(folder.checkpoints)
    assert newest is not None
    assert newest.name == f"step-{run.tally.agent_steps:012d}"


def _shown(tmp_path: Path, is_terminal: bool) -> str:
    run, folder = _run(tmp_path, steps=150)
    output = io.StringIO()
    console = Console(file=output, force_terminal=is_terminal, width=80, height=24)
    trainer.train(run, folder, [Progress(run, console)])
    return output.getvalue()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_shows_steps_rate_scores_memory_and_time_left(tmp_path: Path, is_terminal: bool) -> None:
    written = _shown(tmp_path, is_terminal)

    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.replace("\r", "\n"))
    assert re.search(r"memory [\d,]+ in [\d.]+ [KM]iB, of which [\d.]+ [KM]iB work space", shown)
    for name in ("steps", "rate", "games", "score of last 20", "loss", "epsilon", "memory", "process", "time left"):
        assert name in shown
    assert re.search(r"steps 15\d/150", shown)
    assert re.search(r"15\d in [\d.]+ [KM]iB", shown)
    if is_terminal:  # a bar and whole fields in 80 columns
        lines = shown.splitlines()
        assert max(map(len, lines)) == 80
        assert re.fullmatch(r"━+ steps 15\d/150 time left \S+( s)?", lines[-3])
        assert all(re.fullmatch(r"[a-z][^·]* [^·]+( · [a-z][^·]* [^·]+)*", line.strip()) for line in lines[-2:])
    else:
        assert not any(unicodedata.category(character) == "Cc" for character in written.removesuffix("\n"))


def test_the_time_left_begins_after_the_warm_up_at_the_rate_of_steps_with_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = _run(tmp_path, steps=10_000, warmup=3_000)
    clock, output = [100.0], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = Progress(run, Console(file=output, width=200))

    def play(seconds: int, rate: int) -> None:
        for _ in range(seconds):
            clock[0] += 1.0
            run.tally.agent_steps += rate
            progress.take(StepTaken(run.tally.agent_steps))

    play(30, rate=100)
    progress.take(Learned(1, 0.5, 0.0))
    play(30, rate=10)

    times = [line.rpartition(" · ")[2] for line in output.getvalue().splitlines()]
    assert times == ["warm-up to 3,000"] * 3 + ["time left 11:30 min", "time left 11:20 min", "time left 11:10 min"]


def test_a_warning_names_lost_episodes_and_the_reason() -> None:
    warnings: list[str] = []

    LostEpisodeWarnings(warnings.append).take(EpisodesLost(12_000, (2, 3), "worker 1 was killed by SIGKILL"))

    assert warnings == [
        "step 12,000: worker 1 was killed by SIGKILL; the episodes of environments 2, 3 end there; their stored "
        "steps stay, training continues"
    ]
