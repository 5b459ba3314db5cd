"""Files of arrays: ``ArrayData`` imports them. ``LAYOUTS`` of ``framestow.offline.layouts`` reads each layout.

=========  ==========================================================================================================
layout     arrays
=========  ==========================================================================================================
d4rl       HDF5 with a row for each step: ``observations``, ``actions``, ``rewards``, ``terminals``, ``timeouts``,
           and perhaps ``next_observations``. d3rlpy's version 1 has ``episode_terminals`` instead of ``timeouts``
d3rlpy     HDF5 of d3rlpy's version 2.1, with arrays for each episode: ``observations_0``, ``actions_0``,
           ``rewards_0``, ``terminated_0``, ``observations_1``, ...; of tuples ``observations_0_0``, ...
npz        NumPy's ``.npz`` with the names of d4rl
episodes   a folder of ``.npz``, one an episode, or HDF5 of many: ``observation`` or ``image``, ``action``, ``reward``,
           ``discount``, ... Row t has the action and reward that led to observation t: DrQ-v2, DreamerV1 and V2, v-d4rl
robomimic  HDF5 of demonstrations: ``data/demo_0/obs/KEY``, ``data/demo_0/actions``, ...
=========  ==========================================================================================================
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from framestow.checks import any_path, truth_value, whole_number
from framestow.errors import DamagedDataError, FramestowError, InvalidSettingsError, InvalidStepError
from framestow.interface import one_line, plural
from framestow.offline.file_settings import FileSettings
from framestow.offline.layouts import LayoutName, find_layout
from framestow.offline.layouts.episode_arrays import MOST_ACTIONS, Choice, Episode, EpisodeArrays, Layout, OpenData
from framestow.offline.transfer import (
    SKIP_BAD,
    Progress,
    Transferred,
    bytes_of,
    check_transfer,
    match_extras,
    no_progress,
    note_bad,
)
from framestow.replay.memory import ReplayMemory
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.step_checks import check_actions, check_rewards

STEPS_PER_PROGRESS = 256
NO_SUCCESSOR = "last steps of episodes, whose next observation is not in the file"  # in ``Transferred.left_out``


@dataclass(frozen=True)
class ArrayData:
    """A file or folder of arrays whose actions, rewards and flags were checked.

    ::

        data = ArrayData.open("hopper-medium.hdf5")
        memory = ReplayMemory(
            data.num_steps,
            data.observation_space,
            data.action_space,
            **data.settings,
        )
        transferred = data.import_into(memory)

    Without ``next_observations``, the next observation of a step is the observation of the next row. The file then does
    not have that of an episode's last step: after a termination it becomes zeros, which no target uses. The last step
    of any other episode is left out, and counted. (The layout ``episodes`` has an observation more than steps.)
    """

    path: Path
    observation_space: Any
    action_space: ActionSpec
    num_steps: int
    array_bytes: int
    """Bytes of the arrays in RAM."""
    notes: tuple[str, ...]
    left_out: dict[str, int] = field(repr=False)
    file_settings: FileSettings = field(repr=False)
    """What the file says of the memory that it was exported from."""
    _layout: Layout = field(repr=False)
    _choice: Choice = field(repr=False)
    _episodes: tuple[Episode, ...] = field(repr=False)

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            yield str(self.path)
            yield plural(len(self._episodes), "episode")
            yield plural(self.num_steps, "step")

        return one_line(self, details)

    @property
    def file_bytes(self) -> int:
        """Bytes of the file, or of all files in the folder."""
        return bytes_of(self.path)

    @property
    def settings(self) -> dict[str, Any]:
        """Further arguments of a ``ReplayMemory``, of a file that an export wrote: discount, ``n_step`` and extras."""
        found = self.file_settings
        given = {"discount": found.discount, "n_step": found.n_step, "extras": found.extras or None}
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def open(
        cls,
        path: str | Path,
        num_actions: int | None = None,
        *,
        layout: LayoutName | None = None,
        keys: Sequence[str] = (),
        filter_key: str | None = None,
        skip_bad: bool = False,
    ) -> ArrayData:
        """Open a file or folder of one of the layouts above; read and check all but the observations.

        Arguments:
            path: the file, or for ``episodes`` a folder. A file whose name ends with ``.npz`` is read as such, any
                other as HDF5.
            num_actions: number of actions if they are integers; ``None`` takes that of the file, or the largest one
                plus 1.
            layout: the layout. ``None`` takes ``d4rl``, ``d3rlpy`` or ``npz`` by the names of the arrays; the others
                must be named.
            keys: arrays that are the observation: one is it itself, several are a dict. For ``episodes``, where the
                observation is not ``observation`` or ``image``, and for ``robomimic``, where it is all otherwise.
            filter_key: for ``robomimic``: name of a list of demonstrations in the file.
            skip_bad: leave out episodes that cannot be imported. ``left_out`` of the import's result counts them, and
                its ``notes`` name them. Observations are then read twice, to find damage.

        Raises:
            InvalidSettingsError: there is no such file, or it has another layout; the message says which there are.
            InvalidStepError: an episode has a reward or an action that no memory takes.
            DamagedDataError: an array cannot be read, or is stored elsewhere, or has too few rows.
        """
        path, skip_bad = any_path("path", path), truth_value("skip_bad", skip_bad)
        if num_actions is not None:
            num_actions = whole_number(
                "num_actions", num_actions, 1, MOST_ACTIONS, rule="an action space has 1 to 2**31"
            )
        if filter_key is not None and not isinstance(filter_key, str):
            raise InvalidSettingsError(
                f"filter_key is {filter_key!r}: it must be the name of a list of demonstrations; give 'train'"
            )
        choice = Choice(_checked_keys(keys), filter_key)
        found = find_layout(path, layout)
        scan = _Scan(path, num_actions, skip_bad)
        with found.open(path, choice) as data:
            for group in data.groups():
                scan.take(data, group)
            settings, notes = data.settings, data.notes()
        if scan.first is None or not scan.num_steps:
            raise InvalidSettingsError(
                f"{path}: no step can be imported: {next(iter(scan.bad.values()), NO_SUCCESSOR)}; give another file"
            )
        left_out = {NO_SUCCESSOR: scan.num_left_out} if scan.num_left_out else {}
        said = Transferred(left_out=left_out, notes=notes)
        note_bad(said, scan.bad)
        is_known = num_actions is None and settings.action is not None
        action = scan.first.action_spec(None if is_known else num_actions or scan.largest + 1)
        return cls(
            path=path,
            observation_space=scan.first.space,
            action_space=action,
            num_steps=scan.num_steps,
            array_bytes=scan.array_bytes,
            notes=tuple(said.notes),
            left_out=said.left_out,
            file_settings=settings,
            _layout=found,
            _choice=choice,
            _episodes=tuple(scan.good),
        )

    def import_into(self, memory: ReplayMemory, progress: Progress = no_progress) -> Transferred:
        """Append all episodes to environment 0 of ``memory`` by ``add``, with some MiB of rows in RAM at a time.

        Arguments:
            memory: memory of whole observations, or of their frames with ``stack``. Its extras must be in the file.
            progress: called with the bytes of the observations that are done, and their total.

        Raises:
            InvalidSettingsError: the memory has an extra that the file does not have.
            InvalidStepError: the memory has another space.
            DamagedDataError: observations cannot be read.
        """
        check_transfer(memory, progress)
        notes = match_extras(memory, self.file_settings.extras, self.path)
        result = Transferred(left_out=dict(self.left_out), notes=[*self.notes, *notes])
        with self._layout.open(self.path, self._choice) as data:
            for group, episodes in itertools.groupby(self._episodes, attrgetter("group")):
                arrays = data.arrays(group)
                row_bytes = sum(column.row_bytes for column in arrays.observations)
                for episode in episodes:
                    num_steps = arrays.num_steps(episode)
                    result.episodes += num_steps > 0
                    for _ in _append(memory, arrays, episode, num_steps):
                        result.transitions += 1
                        if not result.transitions % STEPS_PER_PROGRESS:
                            progress(result.transitions * row_bytes, self.num_steps * row_bytes)
        return result


def _append(memory: ReplayMemory, arrays: EpisodeArrays, episode: Episode, num_left: int) -> Iterator[None]:
    """Append the first ``num_left`` steps of an episode, and yield after each."""
    names = memory.inner.settings.extras.names
    for observation, action, reward, successor, extras in arrays.steps(episode):
        num_left -= 1
        flags = not num_left and episode.terminated, not num_left and episode.truncated
        given = {name: extras[name] for name in names} or None
        memory.add(observation, action, reward, successor, *flags, env_ids=0, extras=given)
        yield


class _Scan:
    """Reads and checks all but the observations of some data."""

    def __init__(self, path: Path, num_actions: int | None, skip_bad: bool) -> None:
        self._path, self._num_actions, self._skip_bad = path, num_actions, skip_bad
        self.first: EpisodeArrays | None = None
        self.good: list[Episode] = []
        self.bad: dict[int, FramestowError] = {}
        self.largest = self.array_bytes = self.num_steps = self.num_left_out = 0

    def take(self, data: OpenData, group: str) -> None:
        """Check the episodes of a group."""
        try:
            episodes, arrays = list(data.episodes(group)), data.arrays(group)
        except (DamagedDataError, InvalidStepError) as error:
            self._leave_out(error, group)
            return
        self.first = self.first or arrays
        for episode in episodes:
            try:
                largest = _check(arrays, episode, self.first, self._num_actions, self._skip_bad)
            except (DamagedDataError, InvalidStepError) as error:
                self._leave_out(error, group)
                continue
            self.largest = max(self.largest, largest)
            self.good.append(episode)
            self.num_steps += arrays.num_steps(episode)
            self.num_left_out += episode.stop - episode.start - arrays.num_steps(episode)
            self.array_bytes += arrays.nbytes(episode)

    def _leave_out(self, error: DamagedDataError | InvalidStepError, group: str) -> None:
        """Count an episode that cannot be imported, or raise the error that names it."""
        number = len(self.good) + len(self.bad)
        where = f"{self._path}: episode {number}" + (f" ({group})" if group and group != str(number) else "")
        if not self._skip_bad:
            raise type(error)(f"{where}: {error}; {SKIP_BAD}") from error
        self.bad[number] = error


def _check(
    arrays: EpisodeArrays, episode: Episode, first: EpisodeArrays, num_actions: int | None, reads_all: bool
) -> int:
    """Return the largest of an episode's actions if they are integers; raise for what cannot be imported."""
    if arrays.kind != first.kind:
        raise DamagedDataError(f"its arrays are {arrays.kind}: all must be {first.kind}; make the file again")
    spec, largest, at = arrays.action_spec(num_actions), 0, 0
    for actions, rewards, _ in arrays.values(episode):
        try:
            checked = check_actions(spec, actions, len(actions))
            check_rewards(rewards, len(actions))
        except InvalidStepError as error:
            raise InvalidStepError(f"from its row {at} on, {error}") from error
        largest = max(largest, int(checked.max(initial=0))) if spec.is_counted else 0
        at += len(actions)
    last = episode.stop + arrays.has_last
    for column in arrays.observations if reads_all else ():
        deque(column.pieces(episode.start, last), maxlen=0)
    for column in arrays.next_observations if reads_all else ():
        deque(column.pieces(episode.start, episode.stop), maxlen=0)
    return largest


def _checked_keys(keys: Any) -> tuple[str, ...]:
    if isinstance(keys, str) or not isinstance(keys, Sequence) or not all(isinstance(key, str) for key in keys):
        raise InvalidSettingsError(f"keys is {keys!r}: it must be a list of names of arrays; give ['image']")
    return tuple(keys)
