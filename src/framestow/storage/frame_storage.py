"""``FrameStorage``: the frames of a memory, by stream and position, in RAM and in files."""

from __future__ import annotations

import os
from os import PathLike
from typing import Literal, TypeAlias, get_args

from framestow._core import FrameReading, FrameStore, default_frames_per_segment
from framestow.argument_checks import whole_number
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, ObservationSpec

__all__ = [
    "STORAGES",
    "FrameReading",
    "FrameStorage",
    "Storage",
    "check_frames_per_segment",
    "usual_frames_per_segment",
]

Storage: TypeAlias = Literal["packed", "raw"]
STORAGES: tuple[Storage, ...] = get_args(Storage)
MAX_SEGMENT_FRAMES, MAX_SEGMENT_BYTES = 2**24, 2**31  # limits of a packed segment, the bytes unpacked


class FrameStorage(FrameStore):
    """Frames of n streams, addressed by stream and position, returned bit for bit.

    A *position* numbers the frames of one stream from 0, and is never reused. A storage has the frames of the range
    ``stored_positions(stream)``, except for evicted segments within it. It knows no episodes.

    Segment k of a stream has the positions ``k * frames_per_segment`` to ``(k + 1) * frames_per_segment`` (excluded).
    It is *open* while it is being filled, and *sealed* when it is full. A sealed segment never changes, and is evicted
    as a whole::

        evict(0, before=640)              stored: 640 to the newest
        evict(0, before=1280, first=960)  stored: 640 to 959, and 1280 to the newest

    ======================================  =================================================================
    frames                                  in RAM
    ======================================  =================================================================
    ``storage="packed"``                    compressed by their bytes
    ``storage="raw"``                       uncompressed
    vectors of numbers (``is_column``)      uncompressed, whatever the storage, since they do not compress
    floats in 0 to 1 (``is_scaled``)        values k / 255 as ``uint8`` k, in either storage; other floats exact
    ======================================  =================================================================

    Saved segments, and those in files, are compressed. Images of a raw storage are never moved to files
    (``supports_files``).

    With observations of several arrays (``ObservationSpec``), frames and outputs are tuples with one array per leaf.
    All leaves have the same positions, and are appended to and evicted together. Methods about a *segment* address one
    leaf of one stream: leaf k of stream s has the number ``k * num_streams + s``::

                        stream 0   stream 1
        leaf "camera"      0          1          append, evict, windows: stream 0 or 1, for all leaves
        leaf "joints"      2          3          segment, restore, begin_at, move_to_file, ...: one of 0 to 3

    Threads: one thread at a time may call ``append``, ``evict``, ``restore`` and ``segment``. Meanwhile, any number of
    threads may start readings (each used by one thread) and call ``windows``, ``stored_positions`` and ``nbytes``. A
    reading sees the frames that were stored at its start until it is stopped or garbage-collected. It holds no lock, so
    the writer continues. Evicted frames stay in memory for it; if they take too much, ``evict`` waits. So a thread with
    an open reading must not wait for the writer.

    Files: a file stays open as long as one of its segments is stored, even if it is renamed or deleted. No other file
    may get its name meanwhile. Every read is verified: for damaged bytes, ``windows`` and ``segment`` raise
    ``DamagedSegmentError`` with file, offset, stream and segment.
    """

    def __init__(
        self,
        spec: AnySpec,
        num_streams: int,
        storage: Storage = "packed",
        threads: int = 1,
        frames_per_segment: int | None = None,
        step_bytes: int = 0,
    ) -> None:
        """Create an empty storage.

        Arguments:
            spec: shape and dtype of the frames.
            num_streams: number of streams.
            storage: one of ``STORAGES``.
            threads: most threads that unpack the windows of one call.
            frames_per_segment: frames that are stored and evicted together; by default the number that compresses best.
            step_bytes: bytes of each frame's step in the timeline, for ``charged_bytes``.
        """
        if frames_per_segment is not None:
            frames_per_segment = check_frames_per_segment(spec, frames_per_segment)
        self._spec = spec
        self._is_raw = [storage == "raw" or frame.is_column for frame in spec.leaf_frames]
        leaves = [_native_leaf(frame, is_raw) for frame, is_raw in zip(spec.leaf_frames, self._is_raw, strict=True)]
        super().__init__(num_streams, leaves, frames_per_segment, step_bytes, threads)

    def stored_positions(self, stream: int) -> range:
        """Return the positions of ``stream``, from the oldest stored frame to the next one (excluded)."""
        return range(self.first_position(stream), self.next_position(stream))

    def open_segment(self, stream: int) -> int:
        """Return the number of the segment that the next frame of ``stream`` goes into; lower ones are sealed."""
        return self.next_position(stream) // self.frames_per_segment

    def supports_files(self, stream: int) -> bool:
        """Return whether the sealed segments of this leaf can be in files."""
        leaf = int(stream) // self.num_streams
        return not self._is_raw[leaf] or self._spec.leaf_frames[leaf].is_column

    @property
    def unflushed_bytes(self) -> int:
        """Bytes in RAM of segments that can be in files."""
        leaves = range(0, len(self._is_raw) * self.num_streams, self.num_streams)
        return sum(self.nbytes_of(leaf // self.num_streams)[0] for leaf in leaves if self.supports_files(leaf))

    def move_to_file(  # type: ignore[override]  # the native method takes encoded paths
        self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int
    ) -> None:
        """Read a sealed segment from a file from now on, and free its RAM.

        The file has the ``size`` bytes that ``segment`` returns at ``offset``. The segment may be in another file
        already. Raises ``IndexError`` for a segment that is not stored or not sealed, ``ValueError`` for another size
        and ``OSError`` for a file that cannot be opened; all change nothing.
        """
        super().move_to_file(stream, number, os.fsencode(path), offset, size)

    def restore_in_file(  # type: ignore[override]
        self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int, num_frames: int
    ) -> None:
        """Append to ``stream`` a full segment that is in a file, without reading it.

        Its bytes are verified when a window needs them. Raises the errors of ``restore`` and ``move_to_file``, and
        ``ValueError`` for a segment that is not full.
        """
        if num_frames != self.frames_per_segment:
            raise ValueError(
                f"segment {number} of stream {stream} has {num_frames} frames: only full segments of "
                f"{self.frames_per_segment} frames can be in files; restore it into RAM"
            )
        super().restore_in_file(stream, number, os.fsencode(path), offset, size)

    @property
    def num_frames(self) -> dict[str, int]:
        """Number of stored frames over all streams, by how they are stored, and by leaf if there are several.

        Of scaled floats in a file, "other floats" are known, and counted as such, once their segment was read.
        """
        counts: dict[str, int] = {}
        for leaf, name in enumerate(self._names):
            num_stored, num_exact = self.num_frames_of(leaf)
            if _is_scaled(self._spec.leaf_frames[leaf]):
                of_leaf = {"k/255, as uint8": num_stored - num_exact, "other floats, exact": num_exact}
            else:
                of_leaf = {"raw" if self._is_raw[leaf] else "packed": num_stored}
            counts |= {f"{name}, {how}" if name else how: count for how, count in of_leaf.items()}
        return counts

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes in RAM by part, including evicted frames that readings still see, but not files."""
        return {"frames": self.sealed_nbytes, "open segments": self.open_nbytes, "index": self.index_nbytes}

    @property
    def nbytes_by_key(self) -> dict[str, int]:
        """Bytes in RAM by leaf, all parts together; empty if an observation is a single array."""
        return {name: sum(self.nbytes_of(leaf)[:3]) for leaf, name in enumerate(self._names) if name}

    @property
    def _names(self) -> list[str]:
        return [leaf.key for leaf in self._spec.leaves] if isinstance(self._spec, ObservationSpec) else [""]


def check_frames_per_segment(spec: AnySpec, frames_per_segment: int) -> int:
    """Return the number as an ``int``; raise ``InvalidSettingsError`` if a segment cannot have so many frames.

    >>> check_frames_per_segment(FrameSpec((84, 84)), 1280)
    1280
    """
    largest = max(frame.nbytes for frame in spec.leaf_frames)
    most = min(MAX_SEGMENT_FRAMES, MAX_SEGMENT_BYTES // largest)
    rule = f"a segment of frames of {largest} bytes has 1 to {most} frames"
    return whole_number("frames_per_segment", frames_per_segment, 1, most, rule=rule)


def usual_frames_per_segment(spec: AnySpec) -> int:
    """Return the default number of frames per segment for ``spec``: the one that compresses its largest array best."""
    largest = max(spec.leaf_frames, key=lambda frame: frame.nbytes)
    return default_frames_per_segment(*_native_leaf(largest, is_raw=False)[:3])


def _is_scaled(frame: FrameSpec) -> bool:
    return frame.is_scaled and not frame.is_column


def _native_leaf(frame: FrameSpec, is_raw: bool) -> tuple[int, int, int, bool, int, bool]:
    """Return the arguments of the native store for one array: its geometry, packing, and bytes of scaled floats."""
    pixels = FrameSpec(frame.shape) if _is_scaled(frame) else frame
    scaled_bytes = frame.dtype.itemsize if _is_scaled(frame) else 0
    return pixels.rows, pixels.row_bytes, pixels.pixel_bytes, is_raw, scaled_bytes, pixels.has_colour_planes
