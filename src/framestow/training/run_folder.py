"""The folder of a run on disk: settings, checkpoints, memory and logs, with a lock for one writer."""

from __future__ import annotations

import contextlib
import datetime
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.interface import one_line
from framestow.storage.files.file_system import DISK, finished_name, write_atomically
from framestow.storage.files.writer_lock import WriterLock, check_lock
from framestow.training.checkpoint import (
    RUN_LOCK,
    memory_store,
    newest_checkpoint,
    read_agent_steps,
    remove_unfinished,
)
from framestow.training.settings import FILE_NAME, Change, Settings, changes_on_resume, read_settings

VIDEO_FORMATS = {
    ".avi": "avi",
    ".flv": "flv",
    ".gif": "gif",
    ".m4v": "mp4",
    ".mkv": "matroska",
    ".mov": "mov",
    ".mp4": "mp4",
    ".mpg": "mpeg",
    ".ts": "mpegts",
    ".wmv": "asf",
}
"""By the ending of a file: the format that ffmpeg calls so."""
IN_USE_S = 3_600.0  # a temporary file of evaluate, watch or report that was written to meanwhile may still be in use


class RunFolder:
    """The folder of a run and the paths in it.

    ::

        runs/Breakout-machado2018-s0-20260131-174500/
            settings.json          the settings of the run, and how resuming it changed them
            checkpoints/, memory/  the last checkpoint, and its transitions
            episodes.csv           one line per finished game
            progress.csv           one line per 10 s: loss, rate, bytes, time
            events.out.tfevents.*  curves for TensorBoard
            evaluation.json, *.mp4 results of framestow evaluate and watch
            report.html            the page of framestow report

    Anyone may have made it: files are opened by ``DISK`` only, and ``open`` refuses subfolders that are links.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.memory = memory_store(self.checkpoints)
        self.episodes = path / "episodes.csv"
        self.progress = path / "progress.csv"
        self.evaluation = path / "evaluation.json"
        self._lock = path / RUN_LOCK
        self._created: list[Path] = []  # folders that `create` made, innermost first

    def __repr__(self) -> str:
        return one_line(self, lambda: [repr(str(self.path))])

    @classmethod
    def create(cls, path: Path, settings: Settings) -> RunFolder:
        """Create the folder of a new run, write its settings and return it.

        Raises the errors of ``check_new`` before it creates anything.
        """
        cls.check_new(path)
        folder = cls(path)
        folder._created = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for name in DISK.names(path):  # temporary files of a killed process: check_new allows no others
            DISK.remove(path / name)
        write_atomically(path / FILE_NAME, settings.to_json().encode(), is_durable=False)
        return folder

    @classmethod
    def check_new(cls, path: Path) -> None:
        """Check that a new run can start in ``path``.

        Raises:
            IncompatibleError: the folder is not empty.
            InvalidSettingsError: ``path`` or a folder above it is a file.
        """
        existing = next((each for each in (path, *path.parents) if each.exists()), path)
        if existing.is_file():
            raise InvalidSettingsError(
                f"run folder {path} cannot be created: {existing} is a file; give another --run-dir"
            )
        if path.is_dir() and any(finished_name(name) != FILE_NAME for name in DISK.names(path)):
            if (path / FILE_NAME).exists():
                raise IncompatibleError(
                    f"run folder {path} already has a run: a new run needs an empty folder; resume that run with "
                    f"--resume {shlex.quote(str(path))} or give another --run-dir"
                )
            raise IncompatibleError(
                f"run folder {path} is not empty: a new run needs an empty folder; give another --run-dir"
            )

    def remove_unstarted(self) -> None:
        """Remove the files and folders of a run that ``create`` made and that could not start."""
        check_lock(self._lock)
        shutil.rmtree(self.memory, ignore_errors=True)
        for file in (self.path / FILE_NAME, self._lock):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another process has put a file there
            for folder in self._created:
                folder.rmdir()

    @classmethod
    def open(cls, path: Path, *, follow_links: bool = False) -> RunFolder:
        """Return the folder of an existing run.

        Raises:
            InvalidSettingsError: ``path`` has no run.
            DamagedDataError: ``checkpoints`` or ``memory`` is a link and ``follow_links`` is off, or no folder.
        """
        try:
            DISK.status(path / FILE_NAME)
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidSettingsError(f"{path} is not a run folder: it has no {FILE_NAME}; check the path") from None
        folder = cls(path)
        for part in (folder.checkpoints, folder.memory):
            DISK.is_folder(part, follow_links=follow_links, way_out="give --follow-links if you trust this run")
        return folder

    def settings(self) -> Settings:
        """Read the run's settings."""
        return read_settings(self.path / FILE_NAME)[0]

    def changes(self) -> list[Change]:
        """Read which settings were changed when the run was resumed, in order."""
        return read_settings(self.path / FILE_NAME)[1]

    def change_settings(self, asked: Settings) -> None:
        """Write the settings of a resumed run, and what they change from which step on. Call it inside ``lock``.

        Nothing is written if an error is raised.

        Raises:
            IncompatibleError: a setting differs that a resumed run must keep.
            InvalidSettingsError: the run already has as many steps as it should have.
        """
        settings, changes = read_settings(self.path / FILE_NAME)
        newest = newest_checkpoint(self.checkpoints)
        agent_steps = read_agent_steps(newest) if newest else 0
        changes += changes_on_resume(settings, asked, agent_steps)
        if agent_steps >= asked.steps:
            raise InvalidSettingsError(
                f"steps is {asked.steps:,}: the run already has {agent_steps:,} steps; give a larger --steps"
            )
        check_lock(self._lock)
        write_atomically(self.path / FILE_NAME, asked.to_json(changes).encode(), is_durable=False)

    def remove_unfinished(self) -> None:
        """Remove unfinished and outdated files that a killed process left. Call it inside ``lock``."""
        check_lock(self._lock)
        only_of_training = (FILE_NAME, self.episodes.name, self.progress.name)
        for name in DISK.names(self.path):
            finished, path = finished_name(name), self.path / name
            if finished in only_of_training or (
                finished
                and finished.endswith((self.evaluation.name, ".html", *VIDEO_FORMATS))
                and time.time() - DISK.status(path).st_mtime > IN_USE_S
            ):
                DISK.remove(path)
        remove_unfinished(self.checkpoints)

    def newest_checkpoint(self) -> Path:
        """Return the newest checkpoint; raises ``InvalidSettingsError`` if there is none."""
        newest = newest_checkpoint(self.checkpoints)
        if newest is None:
            raise InvalidSettingsError(
                f"run {self.path} has no checkpoint yet: it has not saved an agent; train it first"
            )
        return newest

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process while the ``with`` block runs. A dead process keeps no lock.

        Until then, checkpoints and tables of the run are refused once another folder is in its place (``check_lock``).

        Raises:
            IncompatibleError: another process trains in this folder.
        """
        with WriterLock(self._lock, f"run folder {self.path}", "stop that process or give another --run-dir"):
            yield


def default_run_path(settings: Settings, now: datetime.datetime) -> Path:
    """Return the default run folder: game, preset, seed and the start time ``now``.

    >>> default_run_path(
    ...     Settings("Pong", seed=3), datetime.datetime(2026, 1, 31, 17, 45)
    ... ).as_posix()
    'runs/Pong-baselines-s3-20260131-174500'
    """
    return Path("runs") / f"{settings.file_stem}-{settings.preset}-s{settings.seed}-{now:%Y%m%d-%H%M%S}"
