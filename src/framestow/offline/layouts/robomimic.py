"""Demonstrations in robomimic's HDF5: ``data/demo_K/obs/KEY``, ``actions``, ``rewards``, ``dones``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from framestow.checks import as_flags
from framestow.errors import InvalidSettingsError
from framestow.interface import listed
from framestow.offline.array_files import ArrayFile, open_arrays
from framestow.offline.file_settings import FileSettings
from framestow.offline.layouts.episode_arrays import Choice, Episode, EpisodeArrays, check_rows
from framestow.offline.transfer import MOST_NAMED

DATA, MASK = "data", "mask"
DEMO = re.compile(r"demo_(\d+)")


class _Robomimic:
    """``Layout``: a group ``data/demo_K`` for each demonstration, whose observations are dicts."""

    summary = "robomimic's HDF5, data/demo_0/obs/KEY"

    @contextmanager
    def open(self, path: Path, choice: Choice) -> Iterator[RobomimicFile]:
        """Open an HDF5 file."""
        with open_arrays(path) as file:
            if DATA not in file.names or path.suffix == ".npz":
                raise InvalidSettingsError(
                    f"{path}: it has no group {DATA!r}: robomimic's files do; give another layout"
                )
            yield RobomimicFile(file, choice)


ROBOMIMIC = _Robomimic()


class RobomimicFile:
    """``OpenData`` of one file; a group is a demonstration. Each entry of ``dones`` that is set is a termination."""

    def __init__(self, file: ArrayFile, choice: Choice) -> None:
        self._file, self._choice = file, choice
        self._num_terminated = 0
        self._others: set[str] = set()

    @property
    def settings(self) -> FileSettings:  # noqa: D102
        return FileSettings()

    def groups(self) -> list[str]:
        """Return the demonstrations in the order of their numbers, of the filter key if one was chosen."""
        key = self._choice.filter_key
        if key is None:
            names = self._file.names_in(DATA)
        else:
            known = self._file.names_in(MASK) if MASK in self._file.names else []
            if key not in known:
                raise InvalidSettingsError(
                    f"filter_key is {key!r}: the file has {listed(known) or 'none'}; give one of these, or leave it out"
                )
            names = self._file.texts(f"{MASK}/{key}")
        found = [(int(match[1]), name) for name in names if (match := DEMO.fullmatch(name))]
        if not found:
            raise InvalidSettingsError(f"{self._file.path}: it has no demo_0 in {DATA}; give a file of robomimic")
        return [name for _, name in sorted(found)]

    def notes(self) -> list[str]:  # noqa: D102
        notes = []
        if self._num_terminated:
            notes.append(
                f"each of the {self._num_terminated:,} flags in dones is imported as a termination, as "
                "robomimic takes it; a demonstration goes on after it as another episode"
            )
        if self._others:
            named = listed(sorted(self._others)[:MOST_NAMED])
            notes.append(f"keys of the observations that are not imported: {named}")
        return notes

    def episodes(self, group: str) -> Iterator[Episode]:  # noqa: D102
        dones = self._file.column(f"{DATA}/{group}/dones")
        flags = as_flags(f"{DATA}/{group}/dones", dones.read(0, len(dones)).reshape(-1))
        start = 0
        for at in np.flatnonzero(flags).tolist():
            yield Episode(group, start, at + 1, True, False)
            start = at + 1
            self._num_terminated += 1
        if start < len(dones):
            yield Episode(group, start, len(dones), False, True)

    def arrays(self, group: str) -> EpisodeArrays:  # noqa: D102
        there = self._file.names_in(f"{DATA}/{group}")
        found = self._file.names_in(f"{DATA}/{group}/obs")
        keys = self._choice.keys or tuple(sorted(found))
        unknown = [key for key in keys if key not in found]
        if unknown:
            raise InvalidSettingsError(
                f"keys has {unknown[0]!r}: the observations have {listed(sorted(found))}; use these"
            )
        self._others |= set(found) - set(keys)
        where = f"{DATA}/{group}"
        observations, successors = (
            tuple(self._file.column(f"{where}/{name}/{key}") for key in keys) if name in there else ()
            for name in ("obs", "next_obs")
        )
        actions, rewards, dones = (self._file.column(f"{where}/{name}") for name in ("actions", "rewards", "dones"))
        return check_rows(EpisodeArrays(observations, actions, rewards, successors, names=keys), dones)
