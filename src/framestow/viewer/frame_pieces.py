"""``read_piece``: some frames of an episode, and which of them each observation has, as bytes for the page.

The frames are those of ``StoredEpisode.frames``, each as the exclusive-or with the frame before. Most bytes are 0 then,
so zlib takes a frame of Breakout to about 60 bytes, and the browser undoes both exactly (docs/decisions/viewer.md).

The observations of a step are compared with these frames, bit for bit, so the page shows what ``memory.get`` returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow._core import Windows
from framestow.errors import DamagedSegmentError
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.replay.reading.episodes import StoredEpisode
from framestow.viewer.columns import pack_columns

PIECE_BYTES, MOST_FRAMES = 2 * 2**20, 2**12  # of a piece, uncompressed
STEPS_AT_ONCE = 32  # transitions that are read by one call, so that the memory's pool of outputs stays small
ZEROS, LOST = -(2**30), -(2**30) - 1  # in place of a frame's number: padding with zeros; frames that are lost
FIRST_EXTRA = 2**30  # number of the first frame that belongs to observations only

Bytes = npt.NDArray[np.uint8]


class Gap(NamedTuple):
    """Frames that cannot be read: their first number, how many they are, and why."""

    first: int
    num_frames: int
    reason: str


def frames_per_piece(memory: ReplayMemory) -> int:
    """Return the number of frames of a piece: at most 2 MiB of them, and at least one."""
    return max(1, min(MOST_FRAMES, PIECE_BYTES // memory.inner.settings.frame.nbytes))


def steps_of_piece(memory: ReplayMemory, episode: StoredEpisode, number: int) -> npt.NDArray[np.int64]:
    """Return the steps whose observations are in a piece of an episode."""
    length = frames_per_piece(memory)
    start = number * length - episode.history
    return np.arange(max(start, 0), min(start + length, len(episode)))


def read_piece(
    memory: ReplayMemory, episode: StoredEpisode, first_position: int, number: int
) -> tuple[bytes, list[Gap]]:
    """Return a piece of an episode: its frames from ``number`` times ``frames_per_piece`` on, and its observations.

    Returns the frames too that it could not read.

    Frame 0 is the newest frame of the first observation; frames before it have negative numbers. The piece has, for
    each array k of an observation:

    ==============  =======================================================================================
    ``frames.k``    frames, ``(n, bytes)``, each as the exclusive-or with the one before
    ``extras.k``    frames that only observations have, such as those of another episode's stack
    ``stacks.k``    ``(steps, 2, depth)``: numbers of the frames of the observation and the next observation
    ==============  =======================================================================================

    Arguments:
        memory: The memory.
        episode: An episode of it.
        first_position: Position of the episode's frame 0.
        number: Number of the piece.
    """
    length, stack = frames_per_piece(memory), memory.stack
    start = number * length - episode.history
    stop = min(start + length, len(episode) + 1)
    steps = steps_of_piece(memory, episode, number)
    first = max(-episode.history, start - stack)
    last = min(len(episode) + 1, stop + memory.inner.settings.n_step)
    frames, gaps = _read_frames(memory, episode, first_position, first, last)
    stacks = [_Stacks(array, first) for array in frames]
    reasons: dict[int, str] = {}
    _fill_stacks(memory, episode.indices[steps], stacks, steps, reasons)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for key, (array, found) in enumerate(zip(frames, stacks, strict=True)):
        own = array[start - first : stop - first]
        arrays[f"frames.{key}"] = own ^ np.concatenate([np.zeros_like(own[:1]), own[:-1]])
        arrays[f"extras.{key}"] = np.array(found.extras, np.uint8).reshape(len(found.extras), array.shape[1])
        arrays[f"stacks.{key}"] = found.numbers
    values = {
        "first": start,
        "first_step": int(steps[0]) if len(steps) else 0,
        "gaps": [list(gap) for gap in gaps if gap.first < stop and gap.first + gap.num_frames > start],
        "lost": reasons,
    }
    return pack_columns(values, arrays), gaps


def _read_frames(
    memory: ReplayMemory, episode: StoredEpisode, first_position: int, first: int, before: int
) -> tuple[list[Bytes], list[Gap]]:
    """Return frames as bytes, ``(n, bytes)`` of each array; those of damaged segments are zeros and gaps."""
    gaps: list[Gap] = []
    try:
        return _as_bytes(memory, episode.frames(first, before)), gaps
    except DamagedSegmentError:
        pieces = []
        for start, stop in _by_segment(memory, first_position, first, before):
            try:
                pieces.append(_as_bytes(memory, episode.frames(start, stop)))
            except DamagedSegmentError as error:
                gaps.append(Gap(start, stop - start, str(error)))
                specs = memory.inner.settings.frame.frame_specs
                pieces.append([np.zeros((stop - start, spec.nbytes), np.uint8) for spec in specs])
        return [np.concatenate(parts) for parts in zip(*pieces, strict=True)], gaps


def _by_segment(memory: ReplayMemory, first_position: int, first: int, before: int) -> Iterator[tuple[int, int]]:
    """Yield the frames ``first`` to ``before`` by the segment that they are in."""
    length = memory.inner.frames.frames_per_segment
    while first < before:
        stop = min(before, ((first_position + first) // length + 1) * length - first_position)
        yield first, stop
        first = stop


def _as_bytes(memory: ReplayMemory, frames: Any) -> list[Bytes]:
    arrays = (array.of(frames) for array in memory.inner.settings.frame.arrays)
    return [_rows_of_bytes(array, len(array)) for array in arrays]


def _rows_of_bytes(array: npt.NDArray[Any], num_rows: int) -> Bytes:
    return np.ascontiguousarray(array).reshape(num_rows, -1).view(np.uint8)


@dataclass
class _Stacks:
    """Finds the frames of observations of one array among those of the episode."""

    frames: Bytes
    first: int
    numbers: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 2, 0), np.int32))
    extras: list[Bytes] = field(default_factory=list)
    _known: dict[bytes, int] = field(default_factory=dict)

    def find(self, shown: npt.NDArray[Any], expected: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the numbers of the frames ``shown``, ``(n, depth, *frame)``; ``expected`` are likely ones."""
        rows = _rows_of_bytes(shown, expected.size)
        among = np.clip(expected.ravel() - self.first, 0, len(self.frames) - 1)
        numbers = (among + self.first).astype(np.int32)
        for row in np.flatnonzero((rows != self.frames[among]).any(axis=1)).tolist():
            numbers[row] = self._number_of(rows[row])
        return numbers.reshape(expected.shape)

    def _number_of(self, frame: Bytes) -> int:
        if not frame.any():
            return ZEROS
        if not self._known:
            self._known = {one.tobytes(): self.first + number for number, one in enumerate(self.frames)}
        content = frame.tobytes()
        if content not in self._known:
            self._known[content] = FIRST_EXTRA + len(self.extras)
            self.extras.append(frame.copy())
        return self._known[content]


def _fill_stacks(
    memory: ReplayMemory,
    indices: npt.NDArray[np.int64],
    stacks: list[_Stacks],
    steps: npt.NDArray[np.int64],
    reasons: dict[int, str],
) -> None:
    """Fill ``numbers`` of all arrays for these steps, and the ``reasons`` why steps are lost."""
    depths = memory.inner.settings.layout.depths
    for found, depth in zip(stacks, depths, strict=True):
        found.numbers = np.full((len(steps), 2, depth), LOST, np.int32)
    sampleable = np.flatnonzero(memory.inner.steps.is_sampleable(indices))
    for start in range(0, len(sampleable), STEPS_AT_ONCE):
        rows = sampleable[start : start + STEPS_AT_ONCE]
        for some, batch in read_batches(memory, indices, rows, steps, reasons):
            _fill_rows(memory, batch, stacks, some, steps[some])


def read_batches(
    memory: ReplayMemory,
    indices: npt.NDArray[np.int64],
    rows: npt.NDArray[np.intp],
    steps: npt.NDArray[np.int64],
    reasons: dict[int, str],
) -> Iterator[tuple[npt.NDArray[np.intp], Batch]]:
    """Yield the transitions of ``rows`` as batches: one, or one each where a frame is damaged."""
    try:
        yield rows, memory.get(indices[rows])
    except DamagedSegmentError as error:
        if len(rows) == 1:
            reasons[int(steps[rows[0]])] = str(error)
            return
        for row in rows:
            yield from read_batches(memory, indices, row[None], steps, reasons)


def count_steps(windows: Windows) -> npt.NDArray[np.int64]:
    """Return the number of steps of each transition; ``windows`` has all observations, then all next observations."""
    last_positions, last_next_positions = windows.last_positions.reshape(2, -1)
    num_steps: npt.NDArray[np.int64] = last_next_positions - last_positions
    return num_steps


def _fill_rows(
    memory: ReplayMemory,
    batch: Batch,
    stacks: list[_Stacks],
    rows: npt.NDArray[np.intp],
    steps: npt.NDArray[np.int64],
) -> None:
    settings = memory.inner.settings
    layout = settings.layout
    num_steps = count_steps(memory.inner.steps.resolve(batch.index, with_extras=False)[0])
    for part, observation in enumerate((batch.observation, batch.next_observation)):
        newest = steps + part * num_steps
        shown = layout.split(layout.flatten(observation))
        for found, array in zip(stacks, shown, strict=True):
            depth = array.shape[1]
            expected = newest[:, None] + np.arange(1 - depth, 1)
            if settings.stack_padding == "first_frame":
                expected = np.maximum(expected, found.first)
            found.numbers[rows, part] = found.find(array, expected)
