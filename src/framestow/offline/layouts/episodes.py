"""Episodes whose row t has the action and reward that led to observation t: DrQ-v2, DreamerV1 and V2, v-d4rl.

The first row of an episode has the observation of the reset, and an action and a reward of zeros. DreamerV3 writes the
same names and means another thing, the action that was taken at the observation, so each episode is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.interface import listed, plural
from framestow.offline.array_files import ArrayFile, Column, open_arrays
from framestow.offline.file_settings import FileSettings
from framestow.offline.layouts.episode_arrays import Choice, Episode, EpisodeArrays, choose_keys
from framestow.offline.transfer import MOST_NAMED
from framestow.replay.settings.observation_layout import find_stack

ACTION, REWARD, DISCOUNT = "action", "reward", "discount"
IS_FIRST, IS_LAST, IS_TERMINAL, STEP_TYPE = "is_first", "is_last", "is_terminal", "step_type"
OBSERVATIONS = "observation", "image"  # the first that is there is the observation
FIRST, LAST = 0, 2  # values of ``step_type``
ENDINGS = ".npz", ".hdf5", ".h5"
# Names of DreamerV3's files, and arrays that only it writes.
CHUNK = re.compile(r".*-[0-9A-Za-z]{22}-[0-9A-Za-z]{22}-\d+")
OF_DREAMER_V3 = {"stepid", "consec"}

LED_TO = "row t has the action and reward that led to observation t, and row 0 zeros (DrQ-v2, DreamerV1 and V2, v-d4rl)"
TAKEN_AT = "row t has the action taken at observation t (DreamerV3)"
WAY_OUT = (
    "if the data has the second, write it with the names of D4RL: row t with observation t, the action taken at it, "
    "and the reward that followed"
)


class _Episodes:
    """``Layout``: ``observation`` or ``image``, ``action`` and ``reward``, and perhaps ``discount`` and flags.

    One episode in each ``.npz`` file, or many one after the other in HDF5.
    """

    summary = f"a folder of .npz or HDF5 files, where {LED_TO}"

    @contextmanager
    def open(self, path: Path, choice: Choice) -> Iterator[EpisodeFiles]:
        """Open a folder, or one file."""
        files = _files_in(path) if path.is_dir() else [path]
        with ExitStack() as opened:
            yield EpisodeFiles(files, choice, opened)


EPISODES = _Episodes()


def _files_in(folder: Path) -> list[Path]:
    """Return the files of a folder in the order of the numbers in their names."""
    files = [path for path in folder.iterdir() if path.suffix in ENDINGS]
    if not files:
        raise InvalidSettingsError(
            f"{folder}: it has no file whose name ends with {', '.join(ENDINGS)}; give the folder of the episodes"
        )
    return sorted(files, key=lambda path: ([int(digits) for digits in re.findall(r"\d+", path.name)], path.name))


class EpisodeFiles:
    """``OpenData`` of some files; a group is a file, named by its name."""

    def __init__(self, files: list[Path], choice: Choice, opened: ExitStack) -> None:
        self._files, self._choice, self._opened = {path.name: path for path in files}, choice, opened
        self._current: tuple[str, ArrayFile] | None = None
        self._num_episodes = self._num_terminated = self._num_between = 0
        self._others: set[str] = set()
        self._shape: tuple[int, ...] = ()

    @property
    def settings(self) -> FileSettings:  # noqa: D102
        return FileSettings()

    def groups(self) -> list[str]:  # noqa: D102
        return list(self._files)

    def notes(self) -> list[str]:  # noqa: D102
        notes = []
        if self._num_episodes and not self._num_terminated:
            notes.append(
                "no episode terminates, since none ends with a discount of 0 or is_terminal: each is truncated (DrQ-v2 "
                "never writes a discount of 0)"
            )
        if self._num_between:
            notes.append(
                f"{self._num_between:,} rows have a discount between 0 and 1, which is not imported: a memory has one "
                "discount for all"
            )
        if self._others:
            named = listed(sorted(self._others)[:MOST_NAMED])
            notes.append(f"arrays that are not imported: {named}; keys=, --keys choose what an observation is")
        stacks = find_stack(self._shape) if self._shape else None
        if stacks is not None:
            notes.append(
                f"observations of shape {self._shape} are taken for stacks of {stacks.depth} frames; stack_axis= of a "
                "memory says otherwise"
            )
        return notes

    def arrays(self, group: str) -> EpisodeArrays:  # noqa: D102
        file = self._open(group)
        names, columns = choose_keys(file, self._choice.keys, OBSERVATIONS)
        action, reward = file.column(ACTION), file.column(REWARD)
        counts = {each.name: len(each) for each in (*columns, action, reward)}
        if len(set(counts.values())) != 1 or not len(action):
            raise DamagedDataError(f"the arrays have {counts} rows: all must have as many; make the file again")
        known = {ACTION, REWARD, DISCOUNT, IS_FIRST, IS_LAST, IS_TERMINAL, STEP_TYPE, *(each.name for each in columns)}
        self._others |= file.names - known
        self._shape = columns[0].shape[1:] if names is None else ()
        return EpisodeArrays(columns, action.from_row(1), reward.from_row(1), names=names, has_last=True)

    def episodes(self, group: str) -> Iterator[Episode]:
        """Yield the episodes of a file; raise ``InvalidSettingsError`` for one of the other convention."""
        file = self._open(group)
        if file.names & OF_DREAMER_V3 or CHUNK.fullmatch(Path(group).stem):
            self._refuse(group, "its name, or an array of it, is one of DreamerV3's, whose files are chunks of steps")
        num_rows = len(file.column(ACTION))
        rewards = _rows_of(file.column(REWARD), num_rows)
        flags = {name: self._flags(file, name, num_rows) for name in (IS_FIRST, IS_LAST, IS_TERMINAL)}
        if STEP_TYPE in file.names:
            types = _rows_of(file.column(STEP_TYPE), num_rows)
            flags |= {IS_FIRST: types == FIRST, IS_LAST: types == LAST}
        discounts = self._discounts(file, num_rows)
        begins = flags[IS_FIRST]
        if begins is None and not group.endswith(".npz"):
            self._refuse(group, f"it has neither {STEP_TYPE} nor {IS_FIRST}, which say where its episodes begin")
        starts = [0] if begins is None else np.flatnonzero(begins).tolist()
        if starts[:1] != [0] or (len(starts) > 1 and group.endswith(".npz")):
            self._refuse(group, f"{IS_FIRST} is true at the rows {starts[:MOST_NAMED]}, and not at row 0 alone")
        for start, stop in zip(starts, [*starts[1:], num_rows], strict=True):
            action = file.column(ACTION).read(start, start + 1)
            if action.any() or rewards[start]:
                values = f"action {action.reshape(-1).tolist()[:MOST_NAMED]} and reward {rewards[start].item()}"
                self._refuse(group, f"row {start}, the first of an episode, has the {values}")
            ends_early = _first(flags[IS_LAST], start, stop - 1), _first(flags[IS_TERMINAL], start, stop - 1)
            ended = [*ends_early, _first(None if discounts is None else discounts == 0, start, stop - 1)]
            for name, row in zip((IS_LAST, IS_TERMINAL, DISCOUNT), ended, strict=True):
                if row is not None:
                    raise DamagedDataError(
                        f"{name} ends an episode at row {row}, and rows up to {stop - 1} follow it; split the episode "
                        "there"
                    )
            if stop - start > 1:
                yield self._episode(group, start, stop, flags, discounts)

    def _episode(
        self, group: str, start: int, stop: int, flags: dict[str, Any], discounts: npt.NDArray[Any] | None
    ) -> Episode:
        """Return the episode of some rows; it has a step less than rows."""
        last = stop - 1
        if flags[IS_TERMINAL] is not None:
            terminated = bool(flags[IS_TERMINAL][last])
        else:
            terminated = discounts is not None and bool(discounts[last] == 0)
        is_whole = terminated or flags[IS_LAST] is None or bool(flags[IS_LAST][last])
        self._num_episodes += 1
        self._num_terminated += terminated
        if discounts is not None:
            of_steps = discounts[start + 1 : stop]
            self._num_between += int(((of_steps > 0) & (of_steps < 1)).sum())
        return Episode(group, start, last, terminated, is_whole and not terminated)

    def _open(self, group: str) -> ArrayFile:
        """Return a file, open until another one is asked for."""
        if self._current is None or self._current[0] != group:
            self._opened.close()
            self._current = None
            path = self._files[group]
            if path.is_symlink() and len(self._files) > 1:
                raise DamagedDataError("it is a link, which may lead out of the folder; copy the file")
            self._current = group, self._opened.enter_context(open_arrays(path))
        return self._current[1]

    @staticmethod
    def _flags(file: ArrayFile, name: str, num_rows: int) -> npt.NDArray[np.bool_] | None:
        if name not in file.names:
            return None
        flags: npt.NDArray[np.bool_] = _rows_of(file.column(name), num_rows) != 0
        return flags

    @staticmethod
    def _discounts(file: ArrayFile, num_rows: int) -> npt.NDArray[Any] | None:
        return _rows_of(file.column(DISCOUNT), num_rows) if DISCOUNT in file.names else None

    def _refuse(self, group: str, why: str) -> NoReturn:
        raise InvalidSettingsError(
            f"{self._files[group]}: {why}: this layout needs the first of two conventions, {LED_TO}; or {TAKEN_AT}; "
            f"{WAY_OUT}"
        )


def _rows_of(column: Column, num_rows: int) -> npt.NDArray[Any]:
    """Return a number for each row; raise ``DamagedDataError`` for other shapes."""
    values = column.read(0, len(column)).reshape(-1)
    if len(values) != num_rows:
        raise DamagedDataError(
            f"{column.name} has shape {column.shape}: it must have one number for each of {plural(num_rows, 'row')}; "
            "make the file again"
        )
    return values


def _first(flags: npt.NDArray[np.bool_] | None, start: int, stop: int) -> int | None:
    """Return the first true row from ``start`` up to ``stop`` (excluded); ``None`` if there is none."""
    if flags is None or not flags[start:stop].any():
        return None
    return start + int(np.argmax(flags[start:stop]))
