"""Where a run lives on the disk: settings, checkpoints, logs, and who may write there."""

from __future__ import annotations

import contextlib
import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path

from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.storage.files.writer_lock import WriterLock
from framestow.training.checkpoint import memory_store, newest_checkpoint, remove_unfinished
from framestow.training.settings import FILE_NAME, Settings, read_settings


class RunFolder:
    """The paths of a run.

    ::

        runs/Breakout-machado2018-s0-20260131-174500/
            settings.json          what was asked for
            checkpoints/, memory/  the last good one, and the transitions (checkpoint.py draws both)
            episodes.csv           a line a finished game
            events.out.tfevents.*  curves for TensorBoard
            evaluation.json, *.mp4 what evaluate and watch made
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.memory = memory_store(self.checkpoints)
        self.episodes = path / "episodes.csv"
        self.evaluation = path / "evaluation.json"
        self._lock = path / ".lock"
        self._made: list[Path] = []  # folders that `create` made, the innermost first

    @classmethod
    def create(cls, path: Path, settings: Settings) -> RunFolder:
        """Make the folder for a new run and write its settings.

        Raises as :meth:`check_new` does, before anything is made.
        """
        cls.check_new(path)
        folder = cls(path)
        folder._made = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        folder.write_settings(settings)
        return folder

    @classmethod
    def check_new(cls, path: Path) -> None:
        """Refuse a path where no new run can begin.

        Raises :class:`~framestow.errors.IncompatibleError` when something is in the folder already, and
        :class:`~framestow.errors.InvalidSettingsError` when it could not be a folder.
        """
        there = next((each for each in (path, *path.parents) if each.exists()), path)
        if there.is_file():
            raise InvalidSettingsError(f"run folder {path} cannot be made: {there} is a file; give another --run-dir")
        if path.is_dir() and any(file != cls._new(path / FILE_NAME) for file in path.iterdir()):
            if (path / FILE_NAME).exists():
                raise IncompatibleError(
                    f"run folder {path} holds a run already: a new run needs an empty folder; go on with "
                    f"--resume {path} or give another --run-dir"
                )
            raise IncompatibleError(
                f"run folder {path} is not empty: a new run needs one that is; give another --run-dir"
            )

    def discard(self) -> None:
        """Remove what is there of a run that :meth:`create` began and that could not start."""
        shutil.rmtree(self.memory, ignore_errors=True)
        for file in (self.path / FILE_NAME, self._lock):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else has put something there
            for folder in self._made:
                folder.rmdir()

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of a run that exists; raises :class:`~framestow.errors.InvalidSettingsError` if none does."""
        if not (path / FILE_NAME).is_file():
            raise InvalidSettingsError(f"{path} is no run folder: there is no {FILE_NAME} in it; check the path")
        return cls(path)

    def settings(self) -> Settings:
        """Read the run's settings."""
        return read_settings(self.path / FILE_NAME)

    def write_settings(self, settings: Settings) -> None:
        """Replace settings.json in one step."""
        path = self.path / FILE_NAME
        new = self._new(path)
        new.write_text(settings.to_json(), encoding="utf-8")
        new.replace(path)

    def remove_unfinished(self) -> None:
        """Remove what a killed process did not get to finish, or to remove; the caller holds :meth:`locked`."""
        for path in (self.path / FILE_NAME, self.episodes):
            self._new(path).unlink(missing_ok=True)
        remove_unfinished(self.checkpoints)

    def newest_checkpoint(self) -> Path:
        """Return the last good checkpoint; raises :class:`~framestow.errors.InvalidSettingsError` without one."""
        newest = newest_checkpoint(self.checkpoints)
        if newest is None:
            raise InvalidSettingsError(
                f"run {self.path} has no checkpoint yet: there is nothing to go on from; train first"
            )
        return newest

    def saved_bytes(self) -> int:
        """Return the bytes on the disk of the memory and the checkpoints."""
        files = (file for part in (self.checkpoints, self.memory) for file in part.rglob("*"))
        return sum(file.stat().st_size for file in files if file.is_file())

    @staticmethod
    def _new(path: Path) -> Path:
        """Name what is to replace ``path``, while it is being written."""
        return path.with_name(path.name + ".new")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that trains in this folder; a lock that a dead process does not keep.

        Raises :class:`~framestow.errors.IncompatibleError` when another process does.
        """
        with WriterLock(self._lock, f"run folder {self.path}", "stop that one or give another --run-dir"):
            yield


def default_run_path(settings: Settings, now: datetime.datetime) -> Path:
    """Name a run folder by what is in it and when it began.

    >>> default_run_path(Settings("Pong", seed=3), datetime.datetime(2026, 1, 31, 17, 45)).as_posix()
    'runs/Pong-machado2018-s3-20260131-174500'
    """
    return Path("runs") / f"{settings.game}-{settings.preset}-s{settings.seed}-{now:%Y%m%d-%H%M%S}"
