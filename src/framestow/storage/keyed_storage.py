"""Store observations of several arrays, with one storage per array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.frames.observation_spec import ObservationSpec
from framestow.frames.stacking import StackPadding
from framestow.storage.frame_storage import FrameStorage, Int32s, Int64s, Reading, StorageInFiles


class KeyedReading(Reading):
    """A reading of a ``KeyedStorage``: one reading per leaf."""

    def __init__(self, readings: list[Reading]) -> None:
        self._readings = readings

    def windows(
        self, streams: Int32s, last_positions: Int64s, counts: Int32s, out: Any, padding: StackPadding = "first_frame"
    ) -> None:
        for reading, part in zip(self._readings, out, strict=True):
            reading.windows(streams, last_positions, counts, part, padding)

    def of_leaf(self, number: int) -> Reading:
        """Return the reading of one leaf, whose ``out`` is a single array; it is stopped with this reading."""
        return self._readings[number]

    def stop(self) -> None:
        for reading in self._readings:
            reading.stop()


class KeyedStorage(StorageInFiles):
    """Frames of several leaves, each in a separate storage with the same positions.

    Differences to other storages: frames and ``out`` are tuples with one array per leaf, and methods about a *segment*
    address one leaf of one stream. Leaf k of stream s has the number ``k * num_streams + s``::

                        stream 0   stream 1
        leaf "camera"      0          1          append, evict, windows: stream 0 or 1, for all leaves
        leaf "joints"      2          3          segment, restore, begin_at, move_to_file, ...: one of 0 to 3

    Frames are appended and evicted in all leaves together. Some leaves cannot be in files and stay in RAM: vectors of
    numbers, and floats in 0 to 1 (``supports_files``).
    """

    def __init__(self, spec: ObservationSpec, storages: Iterable[FrameStorage], num_streams: int) -> None:
        self._storages = list(storages)
        self._keys = [leaf.key for leaf in spec.leaves]
        self._num_streams = num_streams
        if len({storage.frames_per_segment for storage in self._storages}) != 1:
            raise ValueError(
                "leaves have segments of different lengths: they must be equal; give all the same frames_per_segment"
            )

    @property
    def frames_per_segment(self) -> int:
        return self._storages[0].frames_per_segment

    def append(self, streams: Int32s, frames: Any) -> int:
        try:
            charges = [storage.append(streams, part) for storage, part in zip(self._storages, frames, strict=True)]
        except BaseException:  # after a Ctrl-C, all leaves must have the same frames
            self._append_missing(streams, frames)
            raise
        return sum(charges)

    def start_reading(self) -> KeyedReading:
        readings: list[Reading] = []
        try:
            for storage in self._storages:
                readings.append(storage.start_reading())
        except BaseException:
            KeyedReading(readings).stop()
            raise
        return KeyedReading(readings)

    def evict(self, stream: int, before: int, first: int = 0) -> None:
        for storage in self._storages:
            storage.evict(stream, before, first)

    def stored_positions(self, stream: int) -> range:
        storage, local_stream = self._at(stream)
        return storage.stored_positions(local_stream)

    def sealed_segments(self, stream: int) -> Int64s:
        storage, local_stream = self._at(stream)
        return storage.sealed_segments(local_stream)

    def segment(self, stream: int, number: int) -> bytes:
        """Return a leaf's segment as packed bytes."""
        storage, local_stream = self._at(stream)
        return storage.segment(local_stream, number)

    def restore(self, stream: int, number: int, segment: bytes) -> None:
        storage, local_stream = self._at(stream)
        storage.restore(local_stream, number, segment)

    def begin_at(self, stream: int, number: int) -> None:
        storage, local_stream = self._at(stream)
        storage.begin_at(local_stream, number)

    def supports_files(self, stream: int) -> bool:
        """Return whether the segments of this leaf can be in files."""
        storage, local_stream = self._at(stream)
        return isinstance(storage, StorageInFiles) and storage.supports_files(local_stream)

    def move_to_file(self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int) -> None:
        storage, local_stream = self._in_files(stream)
        storage.move_to_file(local_stream, number, path, offset, size)

    def restore_in_file(
        self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int, num_frames: int
    ) -> None:
        storage, local_stream = self._in_files(stream)
        storage.restore_in_file(local_stream, number, path, offset, size, num_frames)

    @property
    def disk_nbytes(self) -> int:
        return sum(storage.disk_nbytes for storage in self._storages if isinstance(storage, StorageInFiles))

    @property
    def charged_bytes(self) -> int:
        return sum(storage.charged_bytes for storage in self._storages)

    def charge_steps(self, step_bytes: int) -> None:
        """Add ``step_bytes`` per frame to ``charged_bytes``, for the first leaf only."""
        self._storages[0].charge_steps(step_bytes)

    @property
    def num_frames(self) -> dict[str, int]:
        """Number of stored frames, by leaf and by how they are stored."""
        return _summed(
            {f"{key}, {how}": count for how, count in storage.num_frames.items()}
            for key, storage in zip(self._keys, self._storages, strict=True)
        )

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes in RAM of all leaves together, by part."""
        return _summed(storage.nbytes for storage in self._storages)

    @property
    def nbytes_by_key(self) -> dict[str, int]:
        """Bytes in RAM by leaf, all parts together."""
        sizes = (sum(storage.nbytes.values()) for storage in self._storages)
        return _summed({key: num_bytes} for key, num_bytes in zip(self._keys, sizes, strict=True))

    def _at(self, stream: int) -> tuple[FrameStorage, int]:
        """Return the storage of a leaf, and the number of its stream there."""
        leaf, local_stream = divmod(int(stream), self._num_streams)
        return self._storages[leaf], local_stream

    def _in_files(self, stream: int) -> tuple[StorageInFiles, int]:
        storage, local_stream = self._at(stream)
        if not isinstance(storage, StorageInFiles):
            key = self._keys[int(stream) // self._num_streams]
            raise ValueError(f"segments of {key} cannot be in files: check supports_files first, and restore into RAM")
        return storage, local_stream

    def _append_missing(self, streams: Int32s, frames: Sequence[npt.NDArray[Any]]) -> None:
        """Append to each leaf the frames that another leaf already has."""
        stops = np.array(
            [[storage.stored_positions(stream).stop for stream in streams.tolist()] for storage in self._storages]
        )
        for storage, part, lacks in zip(self._storages, frames, stops < stops.max(axis=0), strict=True):
            if lacks.any():
                storage.append(streams[lacks], part[lacks])


def _summed(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    whole: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            whole[name] = whole.get(name, 0) + count
    return whole
