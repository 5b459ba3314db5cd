"""Files with a row for each step, under the names of D4RL: HDF5 or ``.npz``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from framestow.checks import as_flags
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.interface import cached_property
from framestow.offline.array_files import ArrayFile, Column, open_arrays
from framestow.offline.file_settings import FileSettings
from framestow.offline.layouts.episode_arrays import EXTRA, Choice, Episode, EpisodeArrays, check_rows

NAMES = ("observations", "actions", "rewards", "terminals")  # what a file must have
NEXT, TIMEOUTS, EPISODE_ENDS = "next_observations", "timeouts", "episode_terminals"
FLAGS_AT_ONCE = 2**20
NO_ENDS = (
    "the file has neither timeouts nor next_observations: where an episode ran out of time, the first observation of "
    "the next one is taken for its last"
)


class _Rows:
    """``Layout``: ``observations``, ``actions``, ``rewards``, ``terminals`` and, perhaps, ``timeouts``."""

    summary = "a row for each step, with the names of D4RL"

    def fits(self, names: frozenset[str]) -> bool:
        """Return whether a file with these arrays has this layout."""
        return not self.missing(names)

    def missing(self, names: frozenset[str]) -> list[str]:
        """Return the arrays that a file of this layout has and this one lacks."""
        return [name for name in NAMES if name not in names]

    @contextmanager
    def open(self, path: Path, choice: Choice) -> Iterator[RowsFile]:  # noqa: ARG002
        """Open an HDF5 or ``.npz`` file."""
        with open_arrays(path) as file:
            if missing := self.missing(file.names):
                raise InvalidSettingsError(
                    f"{path}: it has no {' and no '.join(missing)}: a row for each step needs {', '.join(NAMES)}; "
                    "rename the arrays"
                )
            yield RowsFile(file)


ROWS = _Rows()


class RowsFile:
    """``OpenData`` of one file, which is one group. Each episode ends at a flag, or with the file."""

    def __init__(self, file: ArrayFile) -> None:
        self._file = file

    @cached_property
    def settings(self) -> FileSettings:  # noqa: D102
        return self._file.settings

    def groups(self) -> list[str]:  # noqa: D102
        return [""]

    def notes(self) -> list[str]:  # noqa: D102
        return [] if {NEXT, TIMEOUTS, EPISODE_ENDS} & self._file.names else [NO_ENDS]

    def arrays(self, group: str) -> EpisodeArrays:  # noqa: ARG002, D102
        file = self._file
        observations, actions, rewards = map(file.column, NAMES[:3])
        successors = (file.column(NEXT),) if NEXT in file.names else ()
        extras = {name: file.column(EXTRA + name) for name in self.settings.extras.names}
        action = self.settings.action
        arrays = EpisodeArrays((observations,), actions, rewards, successors, action=action, extras=extras)
        return check_rows(arrays, *self._flags())

    def episodes(self, group: str) -> Iterator[Episode]:
        """Yield the episodes, a million flags in RAM at a time."""
        terminals, *cuts = self._flags()
        if any(len(column) != len(terminals) for column in cuts) or not len(terminals):
            raise DamagedDataError(f"terminals and {TIMEOUTS} have different lengths, or none; make the file again")
        for column in (terminals, *cuts):
            if math.prod(column.shape[1:]) != 1:
                raise DamagedDataError(
                    f"{column.name} has shape {column.shape}: a row must have one flag; make the file again"
                )
        start = 0
        for first in range(0, len(terminals), FLAGS_AT_ONCE):
            stop = min(first + FLAGS_AT_ONCE, len(terminals))
            terminated, truncated = self._ends(terminals, cuts, first, stop)
            for at in np.flatnonzero(terminated | truncated).tolist():
                yield Episode(group, start, first + at + 1, bool(terminated[at]), bool(truncated[at]))
                start = first + at + 1
        if start < len(terminals):
            yield Episode(group, start, len(terminals), False, False)

    def _flags(self) -> list[Column]:
        """Return ``terminals``, and the other arrays of flags that are there."""
        names = ("terminals", *(name for name in (TIMEOUTS, EPISODE_ENDS) if name in self._file.names))
        return list(map(self._file.column, names))

    def _ends(self, terminals: Column, cuts: list[Column], first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which of these rows terminate an episode, and which truncate one."""
        terminated, *others = (
            as_flags(f"{self._file.path}: {each.name}", each.read(first, stop).reshape(-1))
            for each in (terminals, *cuts)
        )
        truncated = np.zeros_like(terminated)
        for column, flags in zip(cuts, others, strict=True):
            truncated |= flags & ~terminated if column.name == EPISODE_ENDS else flags
        return terminated, truncated
