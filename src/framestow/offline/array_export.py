"""Write the episodes of a memory to a file of arrays: ``export_arrays``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.checks import any_path, one_of
from framestow.errors import InvalidSettingsError
from framestow.interface import clause
from framestow.offline.array_files import PIECE_BYTES, Array, Write, new_hdf5, new_npz
from framestow.offline.file_settings import FileSettings
from framestow.offline.layouts.d3rlpy import COUNT
from framestow.offline.layouts.episode_arrays import EXTRA
from framestow.offline.layouts.rows import NEXT, TIMEOUTS
from framestow.offline.transfer import Progress, Transferred, check_transfer, fill_path, no_progress
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.episodes import StoredEpisode

ExportLayout: TypeAlias = Literal["d4rl", "d3rlpy", "npz"]
EXPORT_LAYOUTS: tuple[ExportLayout, ...] = get_args(ExportLayout)
HDF5_ENDINGS = ".hdf5", ".h5", ".hdf"


def export_arrays(
    memory: ReplayMemory, path: str | Path, layout: ExportLayout = "d4rl", progress: Progress = no_progress
) -> Transferred:
    """Write all episodes of ``memory`` to a new file, with ``next_observations`` and extras.

    ::

        export_arrays(memory, "breakout.hdf5")

    Observations are whole, as in batches, and compressed by gzip; one row of a stack of four 84x84 frames has 28 KB
    before. Environments follow one after the other. An import gives the same transitions. d3rlpy itself does not read
    ``next_observations``: there, the last step of an episode that did not terminate has no transition.

    Extras are arrays ``extra_NAME``. Discount, ``n_step`` and action space are JSON: the attribute ``framestow`` of an
    HDF5 file, the array ``framestow`` of a ``.npz`` file. Other readers ignore both.

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
    one_of("layout", layout, EXPORT_LAYOUTS)
    if not len(memory):
        raise InvalidSettingsError("the memory has no transition: there is nothing to export; append steps first")
    shown = memory.observations()
    is_of_arrays = isinstance(shown, tuple) and not any(isinstance(part, dict | tuple) for part in shown)
    if isinstance(shown, dict | tuple) and not (is_of_arrays and layout == "d3rlpy"):
        ways = "take the layout d3rlpy, or export it to Minari" if is_of_arrays else "export it to Minari"
        raise InvalidSettingsError(
            f"observations are a {type(shown).__name__}: {layout} has one array for "
            f"{'each part' if isinstance(shown, tuple) and layout == 'd3rlpy' else 'them'}; {ways}"
        )
    endings = (".npz",) if layout == "npz" else HDF5_ENDINGS
    if path.suffix not in endings:
        raise InvalidSettingsError(
            f"path is {path}: a file of the layout {layout} ends with {' or '.join(endings)}; give such a name"
        )
    open_file = new_npz if layout == "npz" else new_hdf5
    export = _Export(memory, progress)
    with fill_path(path) as unfinished, open_file(unfinished, FileSettings.of_memory(memory)) as write:
        (export.by_episode if layout == "d3rlpy" else export.flat)(write)
    return export.result


class _Export:
    """Writes the episodes of a memory."""

    def __init__(self, memory: ReplayMemory, progress: Progress) -> None:
        self._memory, self._progress = memory, progress
        lengths = [len(episode) for episode in memory.episodes()]
        self._extras = memory.inner.settings.extras.names
        notes = []
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
        columns |= {EXTRA + name: partial(_extra, name) for name in self._extras}
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
        write(COUNT, (), np.int64, [np.array(self.result.episodes)])
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
            for name in self._extras:
                values = episode.extras[name]
                write(f"{EXTRA}{name}_{number}", values.shape, values.dtype, [values])

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


def _extra(name: str, episode: StoredEpisode) -> Array:
    return episode.extras[name]


def _timeouts(episode: StoredEpisode) -> npt.NDArray[np.bool_]:
    timeouts = episode.truncated.copy()
    timeouts[-1] |= not episode.has_end
    return timeouts
