"""Whatever stands in a run folder in place of a file, nothing outside is changed, and no command hangs or breaks."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from framestow.cli import main
from framestow.cli.saved_memory import find_memory
from framestow.envs import SerialVectorEnv
from framestow.errors import FramestowError
from framestow.storage.files.file_system import temporary_path
from framestow.training.listeners import EpisodeTable, ProgressTable
from framestow.training.loop import start_run, train
from framestow.training.playing import Player, record_game, summarize
from framestow.training.report.page import write_report
from framestow.training.run_folder import RunFolder
from framestow.viewer.agent_values import AgentValues
from framestow.viewer.memory_view import MemoryView
from framestow.viewer.page import write_page
from oracles.catch import Catch
from oracles.hostile_folders import KINDS, Outside, bounded
from training.catch_runs import catch_settings, make_catch

CHECKPOINT = "checkpoints/step-000000000030"
FILES = [
    *("settings.json", ".lock", "episodes.csv", "progress.csv", "evaluation.json", "report.html", "memory.html"),
    *("Catch-30.mp4", f"{CHECKPOINT}/MANIFEST", f"{CHECKPOINT}/agent.safetensors", f"{CHECKPOINT}/state.safetensors"),
    *(CHECKPOINT, "checkpoints", "memory"),
]
UNUSED = [".lock", "memory.html", f"{CHECKPOINT}/agent.safetensors", f"{CHECKPOINT}/state.safetensors"]  # by a report


def _resume(path: Path) -> None:
    folder = RunFolder.open(path)
    with folder.lock():
        folder.change_settings(catch_settings(steps=60))
        run = start_run(folder, make_catch)
        with contextlib.closing(run), contextlib.ExitStack() as unless_trained:
            listeners: list[Any] = [ProgressTable(run, folder.progress, print)]
            unless_trained.callback(listeners[0].close)
            listeners.append(EpisodeTable(folder.episodes, 30, print))
            unless_trained.pop_all()
            train(run, folder, listeners)


def _evaluate(path: Path) -> None:
    folder = RunFolder.open(path)
    player = Player(folder, make_catch(catch_settings(num_envs=1)), 0.0, 0, "cpu")
    games = [game for games in islice(player.steps(), 60) for game in games]
    summarize(games, catch_settings(), catch_settings(), player.agent_steps, 0.0).write(folder.evaluation)


class Drawn(Catch):
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 15}
    render_mode = "rgb_array"

    def render(self) -> NDArray[np.uint8]:
        return np.zeros((32, 32, 3), np.uint8)


def _watch(path: Path) -> None:
    player = Player(RunFolder.open(path), SerialVectorEnv([Drawn], seed=0), 0.0, 0, "cpu")
    record_game(player, path / "Catch-30.mp4", 1, 2, lambda _: None)


def _report(path: Path) -> None:
    write_report([path], path / "report.html", with_clip=(path / "Catch-30.mp4").exists())


def _view(path: Path) -> None:
    def find_agent(memory: object) -> AgentValues:
        return AgentValues(RunFolder.open(path), memory)

    view = MemoryView.open(*find_memory(path), find_agent=find_agent)
    write_page(view, path / "memory.html", 10**8)


COMMANDS = [_resume, _evaluate, _watch, _report, _view]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every file that a run can have."""
    path = tmp_path_factory.mktemp("trained") / "run"
    folder = RunFolder.create(path, catch_settings(steps=30))
    with folder.lock():
        run = start_run(folder, make_catch)
        train(run, folder, [EpisodeTable(folder.episodes, 0, print), ProgressTable(run, folder.progress, print)])
        run.close()
    for command in COMMANDS[1:]:
        command(path)
    assert all((path / name).exists() for name in FILES)
    return path


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_outside_a_run_is_changed(
    trained: Path, tmp_path: Path, kind: str, command: Callable[[Path], None], every: int
) -> None:
    outside, refusals = Outside(tmp_path / "outside"), {}
    first = (KINDS.index(kind) + COMMANDS.index(command)) % every  # each kind and each command meets each file
    for number, name in enumerate(FILES[first::every]):
        is_slow = command is _report and (name in UNUSED or (kind == "second name" and name != "report.html"))
        if is_slow or (kind == "second name" and (trained / name).is_dir()):
            continue
        run = tmp_path / f"run-{number}"
        shutil.copytree(trained, run)
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        outside.plant(kind, run / name)

        try:
            with bounded():
                command(run)
        except (FramestowError, OSError) as error:
            refusals[name] = str(error)

        outside.check()
    for name, refusal in refusals.items():
        assert str(tmp_path) in refusal, name
        assert ".new" not in refusal, name


@pytest.mark.parametrize("folder", ["memory", "checkpoints"])
@pytest.mark.parametrize("command", ["evaluate", "watch", "report", "view", "train"])
def test_a_memory_or_checkpoints_elsewhere_are_read_with_follow_links_only(
    trained: Path, tmp_path: Path, command: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (run / folder).rename(tmp_path / "elsewhere")
    (run / folder).symlink_to(tmp_path / "elsewhere")
    if command == "train":  # it asks for a known game first
        (run / "settings.json").write_text((run / "settings.json").read_text().replace("Catch", "Pong"))
    arguments = ["train", "--resume", str(run)] if command == "train" else [command, str(run)]

    code = main(arguments)

    if (command, folder) == ("view", "checkpoints"):  # the memory alone is shown
        assert code == 0
        return
    message = capsys.readouterr().err
    assert code != 0
    assert f"{run / folder}: it is a link to '{tmp_path / 'elsewhere'}', where a folder belongs" in message
    assert "--follow-links" in message
    main([*arguments, "--follow-links"])
    assert "it is a link" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "verify", "repair", "view"])
def test_a_link_in_place_of_a_checkpoint_leads_no_command_out_of_a_run(
    trained: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    shutil.copytree(trained, victim)
    (run / "checkpoints").mkdir(parents=True)
    checkpoint = max((victim / "checkpoints").iterdir())
    (run / "checkpoints" / checkpoint.name).symlink_to(checkpoint)
    (victim / "memory.html").unlink(missing_ok=True)

    assert main([command, str(run)]) != 0
    assert f"{checkpoint.name}: it is a link to '{checkpoint}'" in capsys.readouterr().err
    assert not (victim / "memory.html").exists()


def test_leftovers_of_a_killed_training_are_removed_and_links_among_them_stay(trained: Path, tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "step-000000000020"
    shutil.copytree(trained, run)
    outside.mkdir()
    (outside / "agent.safetensors").write_bytes(b"of someone")
    for name in ("step-000000000020", "step-000000000020.0123456789abcdef.partial"):
        (run / "checkpoints" / name).symlink_to(outside)
    temporary_path(run / "episodes.csv").symlink_to(outside / "agent.safetensors")

    RunFolder(run).remove_unfinished()

    assert [path.name for path in outside.iterdir()] == ["agent.safetensors"]
    assert not list(run.glob("*.new"))
