"""The run folder: made once, owned by one process, read by anyone."""

import os
import re
from pathlib import Path

import pytest

from framestow.errors import IncompatibleError
from framestow.storage.files.file_system import temporary_path
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings


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
