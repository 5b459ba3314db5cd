"""Observations of several arrays: a storage for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.frames.observation_spec import ObservationSpec
from framestow.frames.stacking import StackPadding
from framestow.storage.frame_storage import FrameStorage, Reading, StorageInFiles


class KeyedReading:
    """What a ``KeyedStorage`` held when it started: a reading of each leaf."""

    def __init__(self, readings: list[Reading]) -> None:
        self._readings = readings

    def windows(
        self,
        streams: npt.NDArray[np.int32],
        last_positions: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        out: Any,
        padding: StackPadding = "first_frame",
    ) -> None:
        """Write one window of consecutive frames for each row of each array of ``out`` (see ``KeyedStorage``)."""
        for reading, part in zip(self._readings, out, strict=True):
            reading.windows(streams, last_positions, counts, part, padding)

    def of_leaf(self, number: int) -> Reading:
        """Give the reading of one leaf alone, whose ``out`` is one array; it stops with this one."""
        return self._readings[number]

    def stop(self) -> None:
        """Let go of what was evicted meanwhile."""
        for reading in self._readings:
            reading.stop()


class KeyedStorage(StorageInFiles):
    """Frames of several leaves: each in a storage of its own, all with the same positions.

    The same promises as every ``StorageInFiles``, but that frames and ``out`` are tuples of arrays, one a leaf. Frames
    come and go in all leaves together. Where a *segment* is meant, each leaf has its own, under a number of a stream
    that no step has: leaf k of stream s is ``k * num_streams + s``, so the first leaf's are those of the streams::

                        stream 0   stream 1
        leaf "camera"      0          1          append, evict, windows, held: stream 0 or 1, all leaves
        leaf "joints"      2          3          segment, restore, begin_at, move_to_file, ...: one of 0 to 3

    A leaf that cannot lie in files (vectors of numbers, floats in 0 to 1) stays in RAM: ``supports_files`` tells.
    """

    def __init__(self, spec: ObservationSpec, storages: Iterable[FrameStorage], num_streams: int) -> None:
        self._storages = list(storages)
        self._keys = [leaf.key for leaf in spec.leaves]
        self._num_streams = num_streams
        if len({storage.frames_per_segment for storage in self._storages}) != 1:
            raise ValueError("leaves have segments of different lengths: all leave together, so give one to all")

    @property
    def frames_per_segment(self) -> int:
        """Frames that lie and leave together, the same in all leaves."""
        return self._storages[0].frames_per_segment

    def append(self, streams: npt.NDArray[np.int32], frames: Any) -> int:
        """Store row i of each of ``frames`` at the next position of ``streams[i]`` (see ``FrameStorage``)."""
        try:
            charges = [storage.append(streams, part) for storage, part in zip(self._storages, frames, strict=True)]
        except BaseException:  # Ctrl-C came: what is in one leaf must be in all
            self._bring_level(streams, frames)
            raise
        return sum(charges)

    def start_reading(self) -> KeyedReading:
        """Give what can read the frames that are held now, at leisure (see ``FrameStorage``)."""
        readings: list[Reading] = []
        try:
            for storage in self._storages:
                readings.append(storage.start_reading())
        except BaseException:
            KeyedReading(readings).stop()
            raise
        return KeyedReading(readings)

    def evict(self, stream: int, before: int, first: int = 0) -> None:
        """Allow the frames of ``stream`` at ``first`` up to ``before`` to go, of all leaves (see ``FrameStorage``)."""
        for storage in self._storages:
            storage.evict(stream, before, first)

    def stored_positions(self, stream: int) -> range:
        """Positions of a stream, or of one leaf of it, from the oldest frame held to the next one."""
        storage, own = self._at(stream)
        return storage.stored_positions(own)

    def sealed_segments(self, stream: int) -> npt.NDArray[np.int64]:
        """Numbers of the sealed segments of a leaf that are held, ascending."""
        storage, own = self._at(stream)
        return storage.sealed_segments(own)

    def segment(self, stream: int, number: int) -> bytes:
        """Give the packed frames of a leaf's segment (see ``FrameStorage``)."""
        storage, own = self._at(stream)
        return storage.segment(own, number)

    def restore(self, stream: int, number: int, segment: bytes) -> None:
        """Put what ``segment`` gave behind what a leaf holds (see ``FrameStorage``)."""
        storage, own = self._at(stream)
        storage.restore(own, number, segment)

    def begin_at(self, stream: int, number: int) -> None:
        """Let a leaf, of which nothing is held, go on with the first frame of segment ``number``."""
        storage, own = self._at(stream)
        storage.begin_at(own, number)

    def supports_files(self, stream: int) -> bool:
        """Whether the segments of this leaf may lie in files."""
        storage, own = self._at(stream)
        return isinstance(storage, StorageInFiles) and storage.supports_files(own)

    def move_to_file(self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int) -> None:
        """Read a leaf's sealed segment from a file from now on (see ``StorageInFiles``)."""
        storage, own = self._in_files(stream)
        storage.move_to_file(own, number, path, offset, size)

    def restore_in_file(
        self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int, num_frames: int
    ) -> None:
        """Put a full segment that lies in a file behind what a leaf holds (see ``StorageInFiles``)."""
        storage, own = self._in_files(stream)
        storage.restore_in_file(own, number, path, offset, size, num_frames)

    @property
    def disk_nbytes(self) -> int:
        """Bytes of the segments that lie in files."""
        return sum(storage.disk_nbytes for storage in self._storages if isinstance(storage, StorageInFiles))

    @property
    def charged_bytes(self) -> int:
        """What counts against a budget (see ``FrameStorage``)."""
        return sum(storage.charged_bytes for storage in self._storages)

    def charge_steps(self, step_bytes: int) -> None:
        """Charge so much for the step of each frame (see ``FrameStorage``): once, with the first leaf's."""
        self._storages[0].charge_steps(step_bytes)

    @property
    def num_frames(self) -> dict[str, int]:
        """Frames held, by leaf and by how they are kept."""
        return _summed(
            {f"{key}, {how}": count for how, count in storage.num_frames.items()}
            for key, storage in zip(self._keys, self._storages, strict=True)
        )

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes held by part, of all leaves together."""
        return _summed(storage.nbytes for storage in self._storages)

    @property
    def nbytes_by_key(self) -> dict[str, int]:
        """Bytes held by leaf, all parts together; those in files are not among them."""
        held = (sum(storage.nbytes.values()) for storage in self._storages)
        return _summed({key: num_bytes} for key, num_bytes in zip(self._keys, held, strict=True))

    def _at(self, stream: int) -> tuple[FrameStorage, int]:
        """The storage of a leaf and the number of the stream in it."""
        leaf, own = divmod(int(stream), self._num_streams)
        return self._storages[leaf], own

    def _in_files(self, stream: int) -> tuple[StorageInFiles, int]:
        storage, own = self._at(stream)
        if not isinstance(storage, StorageInFiles):
            key = self._keys[int(stream) // self._num_streams]
            raise ValueError(f"segments of {key} cannot lie in files: ask supports_files first, and restore into RAM")
        return storage, own

    def _bring_level(self, streams: npt.NDArray[np.int32], frames: Sequence[npt.NDArray[Any]]) -> None:
        """Give each leaf the frames of these streams that another has already."""
        stops = np.array([[storage.stored_positions(stream).stop for stream in streams.tolist()] for storage in self._storages])
        for storage, part, lacks in zip(self._storages, frames, stops < stops.max(axis=0), strict=True):
            if lacks.any():
                storage.append(streams[lacks], part[lacks])


def _summed(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    whole: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            whole[name] = whole.get(name, 0) + count
    return whole
