"""Files of d3rlpy 2.1: HDF5 with arrays for each episode, such as ``observations_0``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from framestow.checks import whole_number
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.interface import cached_property
from framestow.offline.array_files import ArrayFile, Column, open_arrays
from framestow.offline.file_settings import FileSettings
from framestow.offline.layouts.episode_arrays import EXTRA, Choice, Episode, EpisodeArrays, check_rows
from framestow.offline.layouts.rows import NEXT

COUNT = "num_episodes"


class _D3rlpy:
    """``Layout``: ``num_episodes``, and ``observations_N``, ``actions_N``, ``rewards_N``, ``terminated_N`` of each.

    Parts of a tuple are ``observations_0_0``, ``observations_0_1``.
    """

    summary = "arrays for each episode, as d3rlpy 2.1 names them"

    def fits(self, names: frozenset[str]) -> bool:
        """Return whether a file with these arrays has this layout."""
        return COUNT in names

    @contextmanager
    def open(self, path: Path, choice: Choice) -> Iterator[D3rlpyFile]:  # noqa: ARG002
        """Open an HDF5 file."""
        with open_arrays(path) as file:
            if COUNT not in file.names:
                raise InvalidSettingsError(f"{path}: it has no {COUNT}: d3rlpy 2.1 writes it; give another layout")
            yield D3rlpyFile(file)


D3RLPY = _D3rlpy()


class D3rlpyFile:
    """``OpenData`` of one file; a group is an episode, named by its number."""

    def __init__(self, file: ArrayFile) -> None:
        self._file = file

    @cached_property
    def settings(self) -> FileSettings:  # noqa: D102
        return self._file.settings

    def groups(self) -> Iterator[str]:  # noqa: D102
        rule = "it is the number of episodes; make the file again"
        count = whole_number(f"{self._file.path}: {COUNT}", self._file.column(COUNT).value(), 0, rule=rule)
        for number in range(count):
            if f"terminated_{number}" not in self._file.names:
                raise DamagedDataError(
                    f"{self._file.path}: there is no terminated_{number}: the file was cut; make it again"
                )
            yield str(number)

    def notes(self) -> list[str]:  # noqa: D102
        return []

    def episodes(self, group: str) -> Iterator[Episode]:  # noqa: D102
        terminated = bool(self._file.column(f"terminated_{group}").value())
        is_noted = f"truncated_{group}" in self._file.names
        truncated = bool(self._file.column(f"truncated_{group}").value()) if is_noted else not terminated
        yield Episode(group, 0, len(self._file.column(f"actions_{group}")), terminated, truncated)

    def arrays(self, group: str) -> EpisodeArrays:  # noqa: D102
        file = self._file
        has_next = {f"{NEXT}_{group}", f"{NEXT}_{group}_0"} & file.names
        extras = {name: file.column(f"{EXTRA}{name}_{group}") for name in self.settings.extras.names}
        return check_rows(
            EpisodeArrays(
                self._parts("observations", group),
                file.column(f"actions_{group}"),
                file.column(f"rewards_{group}"),
                self._parts(NEXT, group) if has_next else (),
                is_tuple=f"observations_{group}" not in file.names,
                action=self.settings.action,
                extras=extras,
            )
        )

    def _parts(self, key: str, group: str) -> tuple[Column, ...]:
        numbered = (f"{key}_{group}_{number}" for number in itertools.count())
        names = list(itertools.takewhile(self._file.names.__contains__, numbered))
        return tuple(map(self._file.column, names)) or (self._file.column(f"{key}_{group}"),)
