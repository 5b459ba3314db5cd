"""Plain files of arrays, in and out: ``ArrayData``, ``export_arrays`` and ``from_stable_baselines3``.

=========  ==========================================================================================================
layout     arrays
=========  ==========================================================================================================
d4rl       HDF5 with a row for each step: ``observations``, ``actions``, ``rewards``, ``terminals``, ``timeouts``,
           and perhaps ``next_observations``. d3rlpy's version 1 has ``episode_terminals`` instead of ``timeouts``
d3rlpy     HDF5 of d3rlpy's version 2.1, with arrays for each episode: ``observations_0``, ``actions_0``,
           ``rewards_0``, ``terminated_0``, ``observations_1``, ...; of tuples ``observations_0_0``, ...
npz        NumPy's ``.npz`` with the names of d4rl
=========  ==========================================================================================================
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.checks import any_path, as_flags, one_of, truth_value, whole_number
from framestow.errors import DamagedDataError, FramestowError, InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import map_arrays
from framestow.interface import clause, one_line, plural, printable
from framestow.offline.array_files import PIECE_BYTES, Array, ArrayFile, Column, Write, new_hdf5, new_npz, open_arrays
from framestow.offline.transfer import (
    MOST_NAMED,
    SKIP_BAD,
    Progress,
    Transferred,
    check_transfer,
    fill_path,
    no_progress,
    note_bad,
)
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.episodes import StoredEpisode
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.step_checks import check_rewards

Layout: TypeAlias = Literal["d4rl", "d3rlpy", "npz"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

FLAT = ("observations", "actions", "rewards", "terminals")  # what a file with a row for each step must have
NEXT, TIMEOUTS, EPISODE_ENDS = "next_observations", "timeouts", "episode_terminals"
MOST_ACTIONS = 2**31
STEPS_PER_PROGRESS = 256
FLAGS_AT_ONCE = 2**20
NO_SUCCESSOR = "last steps of episodes, whose next observation is not in the file"  # in ``Transferred.left_out``
NO_ENDS = (
    "the file has neither timeouts nor next_observations: where an episode ran out of time, the first observation of "
    "the next one is taken for its last"
)


class _Episode(NamedTuple):
    """Rows ``start`` to ``stop`` of arrays whose names end with ``suffix``; the flags are those of its last row."""

    number: int
    suffix: str
    start: int
    stop: int
    terminated: bool
    truncated: bool


class _Columns(NamedTuple):
    """The arrays of one episode, or of all of them."""

    observations: tuple[Column, ...]
    next_observations: tuple[Column, ...]
    actions: Column
    rewards: Column
    is_tuple: bool

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of an action; d3rlpy gives integers an axis of length 1."""
        shape = self.actions.shape[1:]
        return () if self.actions.dtype.kind in "iu" and math.prod(shape) == 1 else shape

    @property
    def kind(self) -> tuple[Any, ...]:
        """What must be the same in all episodes."""
        observed = [(column.shape[1:], column.dtype) for column in self.observations]
        return observed, bool(self.next_observations), self.action_shape, self.actions.dtype

    @property
    def space(self) -> Any:
        """The space of an observation; a number is an array of one."""
        specs = [FrameSpec(each.shape[1:] or (1,), each.dtype.newbyteorder("=")) for each in self.observations]
        return tuple(specs) if self.is_tuple else specs[0]

    def action_spec(self, num_actions: int) -> ActionSpec:
        """Return the spec of an action, which is one of ``num_actions`` if it is an integer."""
        if not self.action_shape and self.actions.dtype.kind in "iu":
            return ActionSpec.from_space(num_actions)
        dtype = self.actions.dtype.newbyteorder("=")
        return ActionSpec.from_space(SimpleNamespace(shape=self.action_shape, dtype=dtype, low=0, high=0))

    def nbytes(self, episode: _Episode) -> int:
        """Return the bytes of the episode's arrays."""
        every = (*self.observations, *self.next_observations, self.actions, self.rewards)
        return (episode.stop - episode.start) * sum(column.row_bytes for column in every)

    def num_steps(self, episode: _Episode) -> int:
        """Return how many of the episode's steps can be imported: all, or all but the last."""
        return episode.stop - episode.start - (not self.next_observations and not episode.terminated)

    def values(self, episode: _Episode) -> Iterator[tuple[Array, Array]]:
        """Yield pieces of the episode's actions and rewards, ``(n, *action)`` and ``(n,)``."""
        step = max(1, PIECE_BYTES // max(8, self.actions.row_bytes))
        for at in range(episode.start, episode.stop, step):
            stop = min(at + step, episode.stop)
            actions, rewards = (each.read(at, stop) for each in (self.actions, self.rewards))
            yield actions.reshape(-1, *self.action_shape), rewards.reshape(-1) if rewards.ndim == 2 else rewards

    def steps(self, episode: _Episode) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Yield observation, action, reward and next observation of each step that can be imported."""
        values = itertools.chain.from_iterable(zip(*piece, strict=True) for piece in self.values(episode))
        observations = self._rows(self.observations, episode)
        if self.next_observations:
            after = self._rows(self.next_observations, episode)
        else:
            observations, after = itertools.tee(observations)
            last = next(after)
            if episode.terminated:
                after = itertools.chain(after, [map_arrays(np.zeros_like, last)])
        for observation, (action, reward), successor in zip(observations, values, after, strict=False):
            yield observation, action, reward, successor

    def _rows(self, columns: tuple[Column, ...], episode: _Episode) -> Iterator[Any]:
        """Yield the observation of each row."""
        rows = [itertools.chain.from_iterable(each.pieces(episode.start, episode.stop)) for each in columns]
        shaped = [map(np.atleast_1d, each) for each in rows]
        return zip(*shaped, strict=True) if self.is_tuple else iter(shaped[0])


def _columns_of(file: ArrayFile, suffix: str) -> _Columns:
    """Return the arrays whose names end with ``suffix``; raise ``DamagedDataError`` if one is missing or short."""

    def parts(key: str) -> tuple[Column, ...]:
        numbered = (f"{key}{suffix}_{number}" for number in itertools.count())
        names = list(itertools.takewhile(file.names.__contains__, numbered)) if suffix else []
        return tuple(map(file.column, names)) or (file.column(key + suffix),)

    observations = parts("observations")
    actions, rewards = (file.column(key + suffix) for key in ("actions", "rewards"))
    has_next = {NEXT + suffix, f"{NEXT}{suffix}_0"} & file.names
    successors = parts(NEXT) if has_next else ()
    counts = {each.name: len(each) for each in (*observations, *successors, actions, rewards)}
    shapes = [[(each.shape, each.dtype) for each in part] for part in (observations, successors)]
    if len(set(counts.values())) != 1 or not counts[actions.name] or (has_next and shapes[0] != shapes[1]):
        raise DamagedDataError(
            f"the arrays have {counts} rows: each must have a row for each step, there must be one, and next "
            "observations must be as the observations; make the file again"
        )
    return _Columns(observations, successors, actions, rewards, "observations" + suffix not in file.names)


@dataclass(frozen=True)
class ArrayData:
    """A file of arrays whose actions, rewards and flags were checked.

    ::

        data = ArrayData.open("hopper-medium.hdf5")
        memory = ReplayMemory(data.num_steps, data.observation_space, data.action_space)
        transferred = data.import_into(memory)

    Without ``next_observations``, the next observation of a step is the observation of the next row. The file then does
    not have that of an episode's last step: after a termination it becomes zeros, which no target uses. The last step
    of any other episode is left out, and counted.
    """

    path: Path
    observation_space: Any
    action_space: ActionSpec
    num_steps: int
    array_bytes: int
    """Bytes of the arrays in RAM."""
    notes: tuple[str, ...]
    left_out: dict[str, int] = field(repr=False)
    _episodes: tuple[_Episode, ...] = field(repr=False)

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            yield str(self.path)
            yield plural(len(self._episodes), "episode")
            yield plural(self.num_steps, "step")

        return one_line(self, details)

    @property
    def file_bytes(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    @classmethod
    def open(cls, path: str | Path, num_actions: int | None = None, *, skip_bad: bool = False) -> ArrayData:
        """Open an HDF5 or ``.npz`` file of one of the layouts above; read and check all but the observations.

        Arguments:
            path: the file; one whose name ends with ``.npz`` is read as such, any other as HDF5.
            num_actions: number of actions if they are integers; ``None`` takes the largest one plus 1.
            skip_bad: leave out episodes that cannot be imported. ``left_out`` of the import's result counts them, and
                its ``notes`` name them. Observations are then read twice, to find damage.

        Raises:
            InvalidSettingsError: there is no such file, or it has other arrays.
            InvalidStepError: an episode has a reward or an action that no memory takes.
            DamagedDataError: an array cannot be read, or is stored elsewhere, or has too few rows.
        """
        path, skip_bad = any_path("path", path), truth_value("skip_bad", skip_bad)
        if num_actions is not None:
            num_actions = whole_number(
                "num_actions", num_actions, 1, MOST_ACTIONS, rule="an action space has 1 to 2**31"
            )
        good: list[_Episode] = []
        bad: dict[int, FramestowError] = {}
        largest = array_bytes = num_steps = num_left_out = 0
        columns = first = None
        with open_arrays(path) as file:
            columns_of = lru_cache(maxsize=1)(partial(_columns_of, file))  # episodes of one array find it open
            for episode in _episodes_of(file):
                try:
                    columns = columns_of(episode.suffix)
                    first = first or columns
                    largest = max(largest, _check(columns, episode, first, num_actions or MOST_ACTIONS, skip_bad))
                except (DamagedDataError, InvalidStepError) as error:
                    if not skip_bad:
                        raise type(error)(f"{path}: episode {episode.number}: {error}; {SKIP_BAD}") from error
                    bad[episode.number] = error
                    continue
                good.append(episode)
                num_steps += columns.num_steps(episode)
                num_left_out += episode.stop - episode.start - columns.num_steps(episode)
                array_bytes += columns.nbytes(episode)
            has_ends = "terminals" not in file.names or {NEXT, TIMEOUTS, EPISODE_ENDS} & file.names
        if first is None or not num_steps:
            raise InvalidSettingsError(
                f"{path}: no step can be imported: {next(iter(bad.values()), NO_SUCCESSOR)}; give another file"
            )
        left_out = {NO_SUCCESSOR: num_left_out} if num_left_out else {}
        found = Transferred(left_out=left_out, notes=[] if has_ends else [NO_ENDS])
        note_bad(found, bad)
        return cls(
            path=path,
            observation_space=first.space,
            action_space=first.action_spec(num_actions or largest + 1),
            num_steps=num_steps,
            array_bytes=array_bytes,
            notes=tuple(found.notes),
            left_out=found.left_out,
            _episodes=tuple(good),
        )

    def import_into(self, memory: ReplayMemory, progress: Progress = no_progress) -> Transferred:
        """Append all episodes to environment 0 of ``memory`` by ``add``, with some MiB of rows in RAM at a time.

        Arguments:
            memory: memory of whole observations, or of their frames with ``stack``.
            progress: called with the bytes of the observations that are done, and their total.

        Raises:
            InvalidStepError: the memory has another space.
            DamagedDataError: observations cannot be read.
        """
        check_transfer(memory, progress)
        result = Transferred(left_out=dict(self.left_out), notes=list(self.notes))
        with open_arrays(self.path) as file:
            columns_of = lru_cache(maxsize=1)(partial(_columns_of, file))  # episodes of one array find it open
            for episode in self._episodes:
                columns = columns_of(episode.suffix)
                row_bytes = sum(column.row_bytes for column in columns.observations)
                num_left = columns.num_steps(episode)
                result.episodes += num_left > 0
                for step in columns.steps(episode):
                    num_left -= 1
                    flags = not num_left and episode.terminated, not num_left and episode.truncated
                    memory.add(*step, *flags, env_ids=0)
                    result.transitions += 1
                    if not result.transitions % STEPS_PER_PROGRESS:
                        progress(result.transitions * row_bytes, self.num_steps * row_bytes)
        return result


def _episodes_of(file: ArrayFile) -> Iterator[_Episode]:
    """Yield the episodes of a file; raise ``InvalidSettingsError`` for a file of another layout."""
    if "num_episodes" in file.names:
        rule = "it is the number of episodes; make the file again"
        count = whole_number(f"{file.path}: num_episodes", file.column("num_episodes").value(), 0, rule=rule)
        for number in range(count):
            suffix = f"_{number}"
            if f"terminated{suffix}" not in file.names:
                raise DamagedDataError(f"{file.path}: there is no terminated{suffix}: the file was cut; make it again")
            terminated = bool(file.column(f"terminated{suffix}").value())
            is_noted = f"truncated{suffix}" in file.names
            truncated = bool(file.column(f"truncated{suffix}").value()) if is_noted else not terminated
            actions = file.column(f"actions{suffix}") if f"actions{suffix}" in file.names else ()
            yield _Episode(number, suffix, 0, len(actions), terminated, truncated)
        return
    missing = [name for name in FLAT if name not in file.names]
    if missing:
        found = ", ".join(map(printable, sorted(file.names)[:MOST_NAMED])) or "none"
        way_out = "it must have those of D4RL or d3rlpy; rename the arrays"
        if {"total_size", "columns"} <= file.names:
            way_out = "d3rlpy 2.0 wrote it; load it there, and dump it with a newer version"
        raise InvalidSettingsError(
            f"{file.path}: it has no {' and no '.join(missing)}, but the arrays {found}: {way_out}"
        )
    yield from _flat_episodes(file)


def _flat_episodes(file: ArrayFile) -> Iterator[_Episode]:
    """Yield the episodes of a file with a row for each step: each ends at a flag, or with the file."""
    terminals = file.column("terminals")
    cuts = [file.column(name) for name in (TIMEOUTS, EPISODE_ENDS) if name in file.names]
    if any(len(column) != len(terminals) for column in cuts) or not len(terminals):
        raise DamagedDataError(f"{file.path}: terminals and {TIMEOUTS} have different lengths, or none; make it again")
    for column in (terminals, *cuts):
        if math.prod(column.shape[1:]) != 1:
            raise DamagedDataError(
                f"{file.path}: {column.name} has shape {column.shape}: a row must have one flag; make it again"
            )
    number = start = 0
    for first in range(0, len(terminals), FLAGS_AT_ONCE):
        stop = min(first + FLAGS_AT_ONCE, len(terminals))
        terminated, *others = (
            as_flags(f"{file.path}: {each.name}", each.read(first, stop).reshape(-1)) for each in (terminals, *cuts)
        )
        truncated = np.zeros_like(terminated)
        for column, flags in zip(cuts, others, strict=True):
            truncated |= flags & ~terminated if column.name == EPISODE_ENDS else flags
        for at in np.flatnonzero(terminated | truncated).tolist():
            yield _Episode(number, "", start, first + at + 1, bool(terminated[at]), bool(truncated[at]))
            number, start = number + 1, first + at + 1
    if start < len(terminals):
        yield _Episode(number, "", start, len(terminals), False, False)


def _check(columns: _Columns, episode: _Episode, first: _Columns, num_actions: int, reads_all: bool) -> int:
    """Return the largest of an episode's actions if they are integers; raise for what cannot be imported."""
    if columns.kind != first.kind:
        raise DamagedDataError(f"its arrays are {columns.kind}: all must be {first.kind}; make the file again")
    spec, largest, at = columns.action_spec(num_actions), 0, 0
    for actions, rewards in columns.values(episode):
        try:
            checked = spec.check_actions(actions, len(actions))
            check_rewards(rewards, len(actions))
        except InvalidStepError as error:
            raise InvalidStepError(f"from its row {at} on, {error}") from error
        largest = max(largest, int(checked.max())) if spec.is_counted else 0
        at += len(actions)
    for column in (*columns.observations, *columns.next_observations) if reads_all else ():
        deque(column.pieces(episode.start, episode.stop), maxlen=0)
    return largest


def export_arrays(
    memory: ReplayMemory, path: str | Path, layout: Layout = "d4rl", progress: Progress = no_progress
) -> Transferred:
    """Write all episodes of ``memory`` to a new file, with ``next_observations``.

    ::

        export_arrays(memory, "breakout.hdf5")

    Observations are whole, as in batches, and compressed by gzip; one row of a stack of four 84x84 frames has 28 KB
    before. Environments follow one after the other. An import gives the same transitions. d3rlpy itself does not read
    ``next_observations``: there, the last step of an episode that did not terminate has no transition.

    Arguments:
        memory: the memory to export; nothing may be appended meanwhile.
        path: the file; must not exist.
        layout: ``"d4rl"``, ``"d3rlpy"`` (both need h5py) or ``"npz"``.
        progress: called with bytes of observations done and in total.

    Raises:
        InvalidSettingsError: before anything is written, for an empty memory, an existing file, or observations that
            the layout does not have: dicts, and tuples unless it is d3rlpy's and each part is an array.
        MissingExtraError: h5py is not installed.
    """
    check_transfer(memory, progress)
    path = any_path("path", path)
    one_of("layout", layout, LAYOUTS)
    shown = memory.observations()
    if not len(memory):
        raise InvalidSettingsError("the memory has no transition: there is nothing to export; append steps first")
    is_of_arrays = isinstance(shown, tuple) and not any(isinstance(part, dict | tuple) for part in shown)
    if isinstance(shown, dict | tuple) and not (is_of_arrays and layout == "d3rlpy"):
        ways = "take the layout d3rlpy, or export it to Minari" if is_of_arrays else "export it to Minari"
        raise InvalidSettingsError(
            f"observations are a {type(shown).__name__}: {layout} has one array for "
            f"{'each part' if isinstance(shown, tuple) and layout == 'd3rlpy' else 'them'}; {ways}"
        )
    if (layout == "npz") != (path.suffix == ".npz"):
        raise InvalidSettingsError(
            f"path is {path}: the ending .npz belongs to the layout npz, and the layout is {layout}; give another name"
        )
    open_file = new_npz if layout == "npz" else new_hdf5
    export = _Export(memory, progress)
    with fill_path(path) as unfinished, open_file(unfinished) as write:
        (export.by_episode if layout == "d3rlpy" else export.flat)(write)
    return export.result


class _Export:
    """Writes the episodes of a memory."""

    def __init__(self, memory: ReplayMemory, progress: Progress) -> None:
        self._memory, self._progress = memory, progress
        lengths = [len(episode) for episode in memory.episodes()]
        extras = memory.inner.settings.extras
        notes = [f"extras are left out: {extras.description}"] if extras else []
        num_borders = sum(int(episode.borders[:-1].sum()) for episode in memory.episodes())
        if num_borders and memory.n_step > 1:
            notes.append(
                f"{num_borders:,} next observations differ from the observation of the next step: it is written in "
                "their place, since batches of n-step returns do not have them"
            )
        shown = memory.observations()
        self._parts: tuple[Array, ...] = shown if isinstance(shown, tuple) else (shown,)
        self._is_tuple = isinstance(shown, tuple)
        self._row_bytes = sum(part[0].nbytes for part in self._parts)
        self._done = 0
        self.result = Transferred(sum(lengths), len(lengths), notes=notes)
        self.result.observation_bytes = 2 * self.result.transitions * self._row_bytes

    def flat(self, write: Write) -> None:
        """Write a row for each step of all episodes."""
        memory, count = self._memory, self.result.transitions
        for name in ("observations", NEXT):
            pieces = itertools.chain.from_iterable(self._observations(name, 0, each) for each in memory.episodes())
            write(name, (count, *self._parts[0].shape[1:]), self._parts[0].dtype, pieces)
        columns: dict[str, Callable[[StoredEpisode], Array]] = {
            "actions": lambda episode: episode.actions,
            "rewards": lambda episode: episode.rewards,
            "terminals": lambda episode: episode.terminated,
            TIMEOUTS: _timeouts,
        }
        for name, column in columns.items():
            example = column(next(iter(memory.episodes())))
            write(name, (count, *example.shape[1:]), example.dtype, map(column, memory.episodes()))
        num_cut = sum(not episode.has_end for episode in memory.episodes())
        if num_cut:
            self.result.notes.append(
                f"{clause(num_cut, 'episode', 'lack')} an end flag: the last step of each has a timeout, since readers "
                "of this layout would join it with the next one"
            )

    def by_episode(self, write: Write) -> None:
        """Write arrays for each episode."""
        columns = ["observations", "actions", "rewards", "terminated", "truncated", NEXT]
        write("columns", (len(columns),), None, [np.array(columns, object)])
        write("num_episodes", (), np.int64, [np.array(self.result.episodes)])
        write("version", (), None, [np.array("2.1", object)])
        for number, episode in enumerate(self._memory.episodes()):
            for name, (part, shown) in itertools.product(("observations", NEXT), enumerate(self._parts)):
                numbered = f"{name}_{number}_{part}" if self._is_tuple else f"{name}_{number}"
                pieces = self._observations(name, part, episode)
                write(numbered, (len(episode), *shown.shape[1:]), shown.dtype, pieces)
            actions = episode.actions.reshape(len(episode), *(episode.actions.shape[1:] or (1,)))
            write(f"actions_{number}", actions.shape, actions.dtype, [actions])
            write(f"rewards_{number}", (len(episode), 1), np.float32, [episode.rewards[:, None]])
            write(f"terminated_{number}", (), np.bool_, [episode.terminated[-1]])
            write(f"truncated_{number}", (), np.bool_, [episode.truncated[-1]])

    def _observations(self, name: str, part: int, episode: StoredEpisode) -> Iterator[Array]:
        """Yield the observations, or next observations, of an episode in pieces."""
        step, is_next = max(1, PIECE_BYTES // self._row_bytes), name == NEXT
        for at in range(0, len(episode), step):
            stop = min(at + step, len(episode))
            if self._memory.n_step == 1:
                batch = self._memory.get(episode.indices[at:stop])
                found = batch.next_observation if is_next else batch.observation
            else:
                found = episode.observations(at + is_next, stop + is_next)
            rows = found[part] if self._is_tuple else found
            yield rows
            self._done += rows.nbytes
            self._progress(self._done, self.result.observation_bytes)


def _timeouts(episode: StoredEpisode) -> npt.NDArray[np.bool_]:
    timeouts = episode.truncated.copy()
    timeouts[-1] |= not episode.has_end
    return timeouts


def from_stable_baselines3(buffer: Any, capacity: int | None = None, **settings: Any) -> ReplayMemory:
    """Return a memory with the transitions of a replay buffer of Stable-Baselines3, oldest first.

    ::

        memory = from_stable_baselines3(model.replay_buffer, directory="stores/first-run")

    Actions are as the buffer has them: those of a ``Box`` are scaled to -1 to 1. The oldest row of a full buffer with
    ``optimize_memory_usage`` is left out, since the buffer has overwritten its observation.

    Arguments:
        buffer: a ``ReplayBuffer`` or ``DictReplayBuffer``.
        capacity: of the memory; ``None`` takes the number of transitions.
        settings: other arguments of ``ReplayMemory``, such as ``directory``, ``seed`` and ``n_step``.

    Raises:
        InvalidSettingsError: it is another buffer, or empty; or for settings that no memory takes.
    """
    names = ("observations", "actions", "rewards", "dones", "timeouts", "pos", "full", "n_envs", "action_space")
    if any(not hasattr(buffer, name) for name in names):
        raise InvalidSettingsError(
            f"buffer is {buffer!r}: it must be a replay buffer of Stable-Baselines3; give model.replay_buffer"
        )
    size, observations = buffer.buffer_size, buffer.observations
    is_shared = getattr(buffer, "optimize_memory_usage", False) and not hasattr(buffer, "memory")
    count = buffer.size()  # with ``max_bytes``, those of a drop-in end at ``pos``, and begin anywhere
    rows = (np.arange(count) + buffer.pos - count) % size
    rows = rows[1:] if is_shared and buffer.full else rows
    if not len(rows):
        raise InvalidSettingsError("buffer is empty: there is nothing to import; call it after model.learn()")
    spec = ActionSpec.from_space(buffer.action_space)
    actions, rewards, dones, timeouts = buffer.actions, buffer.rewards, buffer.dones, buffer.timeouts
    memory = ReplayMemory(
        len(rows) * buffer.n_envs if capacity is None else capacity,
        map_arrays(lambda array: FrameSpec(array.shape[2:], array.dtype), observations),
        spec,
        num_envs=buffer.n_envs,
        **settings,
    )
    for row in rows.tolist():
        after = (row + 1) % size if is_shared else row
        truncated = (dones[row] > 0) & (timeouts[row] > 0)
        memory.add(
            map_arrays(itemgetter(row), observations),
            actions[row].reshape(buffer.n_envs, *spec.shape),
            rewards[row],
            map_arrays(itemgetter(after), observations if is_shared else buffer.next_observations),
            (dones[row] > 0) & ~truncated,
            truncated,
        )
    return memory
