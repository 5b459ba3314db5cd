"""What a layout of logged data reads: episodes, their arrays, and the steps that these are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np

from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import map_arrays
from framestow.interface import listed
from framestow.offline.array_files import PIECE_BYTES, Array, ArrayFile, Column
from framestow.offline.file_settings import FileSettings
from framestow.offline.transfer import MOST_NAMED
from framestow.replay.settings.action_spec import ActionSpec

MOST_ACTIONS = 2**31
EXTRA = "extra_"  # how the names of arrays with extras begin


class Choice(NamedTuple):
    """What a caller chooses of the data."""

    keys: tuple[str, ...] = ()
    """Arrays that are the observation; the layout's own if there is none."""
    filter_key: str | None = None
    """Name of a list of episodes in the file; ``None`` takes all episodes."""


class Episode(NamedTuple):
    """Steps ``start`` to ``stop`` (excluded) of the arrays of ``group``; the flags are those of the last one."""

    group: str
    start: int
    stop: int
    terminated: bool
    truncated: bool


class OpenData(Protocol):
    """Logged data of one layout, open to be read. A *group* is what is read together: a file, or a part of one."""

    @property
    def settings(self) -> FileSettings:
        """What the file says of the memory that wrote it."""

    def groups(self) -> Iterable[str]:
        """Return the names of the groups, in the order of the import; an error names one that is not empty."""

    def episodes(self, group: str) -> Iterable[Episode]:
        """Return the episodes of a group.

        Raises:
            DamagedDataError: this group cannot be read; others may.
            InvalidSettingsError: the data has another layout.
        """

    def arrays(self, group: str) -> EpisodeArrays:
        """Return the arrays of a group, open until another group is read; raise ``DamagedDataError`` as ``episodes``.

        Call it once for a group: it looks up each array.
        """

    def notes(self) -> list[str]:
        """Return what to say of the groups that were read, one sentence each."""


class Layout(Protocol):
    """A layout of logged data."""

    summary: str
    """Which data has it, for messages."""

    def open(self, path: Path, choice: Choice) -> AbstractContextManager[OpenData]:
        """Open a file or a folder."""


@dataclass(frozen=True)
class EpisodeArrays:
    """The arrays of a group: a row for each step.

    ``observations`` has an array for each part of an observation. ``names`` has the keys of a dict, and is ``None`` for
    a tuple, or for one array if ``is_tuple`` is false. The next observation of a step is in ``next_observations`` if
    there are some, and otherwise in the next row. With ``has_last``, the observations have a row more than there are
    steps, so that the last step has a next observation too.
    """

    observations: tuple[Column, ...]
    actions: Column
    rewards: Column
    next_observations: tuple[Column, ...] = ()
    names: tuple[str, ...] | None = None
    is_tuple: bool = False
    has_last: bool = False
    action: ActionSpec | None = None
    """The action space that the file names."""
    extras: Mapping[str, Column] = field(default_factory=dict)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of an action; d3rlpy gives integers an axis of length 1."""
        shape = self.actions.shape[1:]
        if self.action is not None:
            return self.action.shape
        return () if self.actions.dtype.kind in "iu" and math.prod(shape) == 1 else shape

    @property
    def kind(self) -> tuple[Any, ...]:
        """What must be the same in all episodes."""
        observed = [(column.shape[1:], column.dtype) for column in self.observations]
        extras = {name: (column.shape[1:], column.dtype) for name, column in self.extras.items()}
        return self.names, observed, bool(self.next_observations), self.action_shape, self.actions.dtype, extras

    @property
    def space(self) -> Any:
        """The space of an observation; a number is an array of one."""
        return self._rebuild(
            [FrameSpec(each.shape[1:] or (1,), each.dtype.newbyteorder("=")) for each in self.observations]
        )

    def action_spec(self, num_actions: int | None = None) -> ActionSpec:
        """Return the spec of an action, one of ``num_actions`` if it is an integer; ``None`` takes that of the file."""
        if self.action is not None and num_actions is None:
            return self.action
        if not self.action_shape and self.actions.dtype.kind in "iu":
            return ActionSpec.from_space(MOST_ACTIONS if num_actions is None else num_actions)
        dtype = self.actions.dtype.newbyteorder("=")
        return ActionSpec.from_space(SimpleNamespace(shape=self.action_shape, dtype=dtype, low=0, high=0))

    def nbytes(self, episode: Episode) -> int:
        """Return the bytes of the episode's arrays."""
        every = (*self.observations, *self.next_observations, self.actions, self.rewards, *self.extras.values())
        return (episode.stop - episode.start) * sum(column.row_bytes for column in every)

    def num_steps(self, episode: Episode) -> int:
        """Return how many of the episode's steps can be imported: all, or all but the last."""
        has_next = self.has_last or bool(self.next_observations) or episode.terminated
        return episode.stop - episode.start - (not has_next)

    def values(self, episode: Episode) -> Iterator[tuple[Array, Array, dict[str, Array]]]:
        """Yield pieces of the episode's actions, rewards and extras, ``(n, *action)``, ``(n,)`` and ``(n, *shape)``."""
        columns = self.actions, self.rewards, *self.extras.values()
        step = max(1, PIECE_BYTES // max(8, *(column.row_bytes for column in columns)))
        for at in range(episode.start, episode.stop, step):
            stop = min(at + step, episode.stop)
            actions, rewards, *extras = (each.read(at, stop) for each in columns)
            rewards = rewards.reshape(-1) if rewards.ndim == 2 and rewards.shape[1] == 1 else rewards
            yield actions.reshape(-1, *self.action_shape), rewards, dict(zip(self.extras, extras, strict=True))

    def steps(self, episode: Episode) -> Iterator[tuple[Any, Any, Any, Any, dict[str, Any]]]:
        """Yield observation, action, reward, next observation and extras of each step that can be imported."""
        values = itertools.chain.from_iterable(map(_rows_of, self.values(episode)))
        observations = self._rows(self.observations, episode.start, episode.stop + self.has_last)
        if self.next_observations:
            after = self._rows(self.next_observations, episode.start, episode.stop)
        else:
            observations, after = itertools.tee(observations)
            last = next(after)
            if episode.terminated and not self.has_last:
                after = itertools.chain(after, [map_arrays(np.zeros_like, last)])
        for observation, (action, reward, extras), successor in zip(observations, values, after, strict=False):
            yield observation, action, reward, successor, extras

    def _rows(self, columns: Sequence[Column], start: int, stop: int) -> Iterator[Any]:
        """Yield the observation of each row."""
        rows = [itertools.chain.from_iterable(each.pieces(start, stop)) for each in columns]
        shaped = [map(np.atleast_1d, each) for each in rows]
        return map(self._rebuild, zip(*shaped, strict=True))

    def _rebuild(self, parts: Sequence[Any]) -> Any:
        """Return an observation of its parts."""
        if self.names is not None:
            return dict(zip(self.names, parts, strict=True))
        return tuple(parts) if self.is_tuple else parts[0]


def choose_keys(
    file: ArrayFile, keys: Sequence[str], usual: Sequence[str]
) -> tuple[tuple[str, ...] | None, tuple[Column, ...]]:
    """Return the names of a dict observation, ``None`` for one array, and its arrays.

    They are those of ``keys``, or without any the first of ``usual`` that is there. Raises ``InvalidSettingsError`` for
    a file without them.
    """
    chosen = tuple(keys) or tuple(name for name in usual if name in file.names)[:1]
    missing = [key for key in chosen if key not in file.names]
    if missing or not chosen:
        found = listed(sorted(file.names)[:MOST_NAMED]) or "none"
        raise InvalidSettingsError(
            f"{file.path}: it has no {' and no '.join(missing or usual)}, but the arrays {found}; choose those of an "
            "observation by keys=, --keys"
        )
    return (chosen if len(chosen) > 1 else None), tuple(map(file.column, chosen))


def check_rows(arrays: EpisodeArrays, *others: Column) -> EpisodeArrays:
    """Return ``arrays``; raise ``DamagedDataError`` unless each has a row for each step, and there is one."""
    observations, successors = arrays.observations, arrays.next_observations
    every = (*observations, *successors, arrays.actions, arrays.rewards, *arrays.extras.values(), *others)
    counts = {each.name: len(each) for each in every}
    shapes = [[(each.shape, each.dtype) for each in part] for part in (observations, successors)]
    if len(set(counts.values())) != 1 or not len(arrays.actions) or (successors and shapes[0] != shapes[1]):
        raise DamagedDataError(
            f"the arrays have {counts} rows: each must have a row for each step, there must be one, and next "
            "observations must be as the observations; make the file again"
        )
    if arrays.action is not None and math.prod(arrays.action.shape) != math.prod(arrays.actions.shape[1:]):
        raise DamagedDataError(
            f"the actions have shape {arrays.actions.shape}: the file names an action space of shape "
            f"{arrays.action.shape}; make the file again"
        )
    return arrays


def _rows_of(piece: tuple[Array, Array, dict[str, Array]]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    actions, rewards, extras = piece
    for row, (action, reward) in enumerate(zip(actions, rewards, strict=True)):
        yield action, reward, {name: values[row] for name, values in extras.items()}
