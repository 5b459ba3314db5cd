"""``framestow train --seeds``: runs like those of one seed alone, their averages, signals, dead children, refusals."""

import contextlib
import io
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from framestow.cli import main, train_seeds
from framestow.cli.train_seeds import closing_lines
from framestow.training.checkpoint import newest_checkpoint, read_agent_steps
from framestow.training.loop import start_run, train
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from training.catch_runs import catch_settings, make_catch
from training.equal_runs import assert_equal_runs

SHORT = ["--num-envs", "2", "--warmup", "40", "--train-every", "20", "--memory", "1_000", "--storage", "raw"]


def _saved_steps(run: Path) -> int:
    newest = newest_checkpoint(run / "checkpoints")
    return read_agent_steps(newest) if newest else 0


def _refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err


class CommandInThisProcess:
    """Stands in for a child process: runs its command here, where PyTorch is loaded, at once to its end."""

    def __init__(self, command: list[str], **_: object) -> None:
        assert command[:3] == [sys.executable, "-m", "framestow"]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            self.returncode = main(command[3:])
        self.stdout = io.StringIO(printed.getvalue())

    def poll(self) -> int:
        return self.returncode


@pytest.mark.slow
@pytest.mark.parametrize("children", ["here", pytest.param("processes", marks=pytest.mark.exhaustive)])
def test_each_seed_trains_as_it_does_alone_and_only_unfinished_seeds_are_resumed(
    children: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if children == "here":
        monkeypatch.setattr(
            train_seeds, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": CommandInThisProcess})
        )
    parent, alone = tmp_path / "seeds", tmp_path / "alone"
    game = ["train", "Pong", *SHORT, "--steps", "60"]

    assert main([*game, "--seed", "3", "--seeds", "2", "--parallel", "2", "--run-dir", str(parent)]) == 0
    trained = capsys.readouterr().out
    assert main([*game, "--seed", "4", "--threads", "1", "--run-dir", str(alone)]) == 0
    one, other = start_run(RunFolder.open(parent / "seed-4")), start_run(RunFolder.open(alone))
    assert_equal_runs(one, other)
    one.close()
    other.close()
    assert main(["train", "--resume", str(parent / "seed-3"), "--steps", "80"]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", str(parent), "--steps", "80"]) == 0
    resumed = capsys.readouterr().out

    assert trained.startswith("training 2 seeds, 2 at the same time, run folders in ")
    assert re.search(
        r"^seed-4  training on Pong .*, CPU threads 1, cores [0-9]+, run folder .*/seed-4$", trained, re.MULTILINE
    )
    assert re.search(r"^seeds +2 of 2 finished, 60 agent steps \(240 emulator frames\) each$", trained, re.MULTILINE)
    assert f"train --resume {parent} --steps 120\n" in trained
    assert resumed.startswith("training 1 seed, 1 at the same time")
    assert "seed-4  resuming Pong at step 60" in resumed
    assert "seed-3  " not in resumed
    assert [_saved_steps(parent / name) for name in ("seed-3", "seed-4")] == [80, 80]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_dead_child_is_named_and_ctrl_c_saves_the_other_seeds(tmp_path: Path) -> None:
    parent = tmp_path / "seeds"
    long = ["--steps", "20_000", "--checkpoint-every", "1_000_000"]
    command = ["train", "Pong", *SHORT, *long, "--seeds", "2", "--parallel", "2", "--run-dir", str(parent)]
    training = subprocess.Popen(
        [sys.executable, "-m", "framestow", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    children = []
    try:
        assert training.stdout is not None
        started = 0
        while started < 2:
            line = training.stdout.readline()
            assert line
            started += "  memory: about" in line
        children = psutil.Process(training.pid).children()
        [first] = [child for child in children if child.cmdline()[-1].endswith("seed-0")]
        time.sleep(1)
        first.kill()
        while "ended early" not in (line := training.stdout.readline()):
            assert line
        training.send_signal(signal.SIGINT)
        printed, _ = training.communicate(timeout=120)
    finally:
        training.kill()
        for child in children:
            child.kill() if child.is_running() else None

    assert line == (
        f"warning: seed-0 ended early (killed by SIGKILL), its run folder is {parent}/seed-0; "
        "the other seeds continue\n"
    )
    assert training.returncode == 130
    assert printed.count("seed-1  warning: stopping: saving the run") == 1
    saved = _saved_steps(parent / "seed-1")
    assert saved > 0
    assert re.search(rf"^seed-0 +killed by SIGKILL after 0 saved agent steps: {parent}/seed-0$", printed, re.MULTILINE)
    assert re.search(rf"^seed-1 +stopped after {saved:,} saved agent steps: {parent}/seed-1$", printed, re.MULTILINE)
    assert f"train --resume {parent}\n" in printed


def _finished_runs(parent: Path, scores_by_seed: dict[int, list[float]]) -> Path:
    for seed, scores in scores_by_seed.items():
        folder = RunFolder.create(parent / f"seed-{seed}", catch_settings(game="Pong", steps=30, seed=seed))
        run = start_run(folder, make_catch)
        train(run, folder)
        run.close()
        lines = [f"{number},30,0,{score},9\n" for number, score in enumerate(scores, start=1)]
        folder.episodes.write_text("".join(["episode,agent_steps,env_id,score,length\n", *lines]))
    return parent


def test_the_last_20_games_of_each_finished_seed_are_averaged(tmp_path: Path) -> None:
    scores = {8: [21.0] + 20 * [-20.7], 9: [-10.0, -11.4], 10: 20 * [14.6], 11: 20 * [3.0]}
    parent = _finished_runs(tmp_path / "seeds", scores)
    RunFolder.create(parent / "seed-12", catch_settings(game="Pong", steps=30, seed=12))

    lines = closing_lines(parent, {parent / "seed-12": "exit code 1"})

    assert lines["seeds"] == "4 of 5 finished, 30 agent steps (120 emulator frames) each"
    assert lines["seed-12"] == f"exit code 1 after 0 saved agent steps: {parent}/seed-12"
    assert lines["score"] == (
        "mean of the last 20 games: seed-8 -20.70 · seed-9 -10.70 (2 games) · seed-10 14.60 · seed-11 3.00"
    )
    assert lines["mean"].startswith("-3.45, 95 % interval -")
    assert " · human-normalised 0.489, " in lines["mean"]  # (-3.45 + 20.7) / 35.3
    assert lines["median"].startswith("-3.85, 95 % interval -")
    assert lines["interquartile mean"].startswith("-3.85, 95 % interval -")
    assert lines["beside"] == "random play -20.7, human 14.6"


def test_seeds_without_a_whole_game_have_no_average(tmp_path: Path) -> None:
    lines = closing_lines(_finished_runs(tmp_path / "seeds", {0: []}), {})

    assert lines["score"] == "no finished seed has a whole game"
    assert "mean" not in lines


def test_a_folder_of_seeds_that_are_finished_is_not_resumed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    parent = _finished_runs(tmp_path / "seeds", {0: [], 1: []})

    error = _refusal(["train", "--resume", str(parent)], capsys)

    assert "steps is 30: all 2 seeds already have these steps; give a larger --steps" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "Pong", "--seeds", "0"], "seeds is 0: there must be at least 1 run; give another --seeds"),
        (["train", "Pong", "--seeds", "2", "--parallel", "0"], "parallel is 0: at least 1 run trains at a time"),
        (["train", "Pong", "--parallel", "2"], "parallel is 2: one run trains in one process; give --seeds too"),
        (["train", "Pong", "--seeds", "2", "--run-dir", "seeds"], "run folder seeds is not empty"),
        (["train", "Pong", "--seeds", "2", "--memory", "4", "--run-dir", "new"], "--memory is 4: one transition of"),
        (["train", "--resume", "seeds/seed-3", "--seeds", "2"], "seeds/seed-3 has one run: --seeds and --parallel are"),
        (
            ["train", "--resume", "seeds", "--seeds", "5"],
            "seeds is 5: seeds has the runs of 2 seeds; leave out",
        ),
        (["train", "--resume", "seeds", "--seed", "9"], "seed: run has 3, given 9"),
        (["train", "--resume", "seeds", "--stack", "2"], "stack: run has 4, given 2"),
        (["train", "--resume", "seeds", "--run-dir", "new"], "a resumed run stays in its folder seeds"),
        (
            ["evaluate", "seeds"],
            "seeds is not a run folder: it has the runs of 2 seeds; give one of",
        ),
    ],
)
def test_options_that_do_not_fit_several_seeds_are_refused_before_anything_is_written(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (3, 4):
        RunFolder.create(Path("seeds") / f"seed-{seed}", Settings("Pong", seed=seed))

    assert message in _refusal(arguments, capsys)

    assert [path.name for path in tmp_path.iterdir()] == ["seeds"]
    for seed in (3, 4):
        assert RunFolder.open(Path("seeds") / f"seed-{seed}").settings() == Settings("Pong", seed=seed)
