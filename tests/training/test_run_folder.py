"""The run folder: made once, owned by one process, read by anyone."""

import os
import re
import shutil
from pathlib import Path

import pytest

from framestow.errors import IncompatibleError
from framestow.storage.files.file_system import temporary_path
from framestow.training.checkpoint import write_checkpoint
from framestow.training.listeners import EpisodeTable
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from framestow.training.training_run import EpisodeEnded
from oracles.replaced_folders import contents
from training.checkpoint_states import grown, run_state


def test_a_new_run_is_refused_in_the_folder_of_a_run(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", Settings("Pong"))

    with pytest.raises(IncompatibleError, match=re.escape(f"resume that run with --resume {tmp_path / 'run'}")):
        RunFolder.create(tmp_path / "run", Settings("Pong"))


def test_a_new_run_is_refused_in_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")

    with pytest.raises(IncompatibleError, match="is not empty"):
        RunFolder.create(tmp_path, Settings("Pong"))

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_one_process_trains_in_a_folder_at_a_time(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", Settings("Pong"))

    is_refused = pytest.raises(IncompatibleError, match=r"run folder .* is being written by process \d+")
    with folder.lock(), is_refused, folder.lock():
        pass
    with folder.lock():
        pass


def test_a_new_run_starts_in_a_folder_whose_creation_was_killed(tmp_path: Path) -> None:
    temporary_path(tmp_path / "settings.json").write_text('{"format": "fram')

    RunFolder.create(tmp_path, Settings("Pong"))

    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_half_written_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, Settings("Pong"))
    for name in ("settings.json", "episodes.csv", "progress.csv"):
        temporary_path(tmp_path / name).write_text("hal")
    of_others = [temporary_path(tmp_path / name) for name in ("evaluation.json", "report.html", "Pong-7.mp4", "thesis")]
    for path in of_others:
        path.write_text("hal")
    os.utime(of_others[0], (0, 0))  # of an evaluation that was killed; the others may still be written

    folder.remove_unfinished()

    assert {path.name for path in tmp_path.iterdir()} == {"settings.json", *(path.name for path in of_others[1:])}


def test_nothing_of_a_run_is_written_or_removed_in_another_folder_at_its_path(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", Settings("Pong"))
    other = RunFolder.create(tmp_path / "other", Settings("Pong"))
    for number in (20, 40):
        write_checkpoint(other.checkpoints, run_state(number))
    (other.path / "step-1.partial").mkdir()
    with folder.lock():
        state = run_state(60)
        write_checkpoint(folder.checkpoints, state)
        table = EpisodeTable(folder.episodes, 0, pytest.fail)
        shutil.rmtree(folder.path)
        shutil.copytree(other.path, folder.path)
        found = contents(folder.path)

        for change in (
            lambda: write_checkpoint(folder.checkpoints, grown(state, 80)),
            lambda: table.take(EpisodeEnded(1, 80, 0, 1.0, 11)),
            lambda: folder.change_settings(Settings("Pong")),
            folder.remove_unfinished,
            folder.remove_unstarted,
        ):
            with pytest.raises(IncompatibleError, match=r"^run folder .*: its folder was moved or removed"):
                change()

        assert found == contents(folder.path)
        table.close()
