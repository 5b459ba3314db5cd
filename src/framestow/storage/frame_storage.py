"""``FrameStorage``: the frames of a memory, by environment and position, in RAM and in files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from typing import Literal, TypeAlias, get_args

from framestow._core import FrameSnapshot, FrameStore, default_frames_per_segment
from framestow.checks import whole_number
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import ObservationSpec, observation_spec
from framestow.storage.tracks import Tracks

__all__ = [
    "STORAGES",
    "FrameSnapshot",
    "FrameStorage",
    "Storage",
    "check_frames_per_segment",
    "usual_frames_per_segment",
]

Storage: TypeAlias = Literal["packed", "raw"]
STORAGES: tuple[Storage, ...] = get_args(Storage)
MAX_SEGMENT_FRAMES, MAX_SEGMENT_BYTES = 2**24, 2**31  # limits of a packed segment, the bytes unpacked


class FrameStorage(FrameStore):
    """Frames of n environments, addressed by environment and position, returned bit for bit.

    A *position* numbers the frames of one environment from 0, and is never reused. A storage has the frames of the
    range ``stored_positions(env_id)``, except for evicted segments within it. It knows no episodes.

    Segment k of an environment has the positions ``k * frames_per_segment`` to ``(k + 1) * frames_per_segment``
    (excluded). It is *open* while it is being filled, and *sealed* when it is full. A sealed segment never changes, and
    is evicted as a whole::

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

    A *stretch* is consecutive frames in which every observation is the last ``depth`` ones. A window that begins with a
    stretch's first frame, and has fewer frames than the output, is padded: by ``padding`` of ``windows``, or by what
    ``append`` got for that frame. ``depths`` says which arrays are stacks; of depth 1, no padding is stored::

        append(env_ids, frames, paddings, lead_ins)    paddings: 0, 1, 2 or 3 for each frame, of all arrays

        0   the stretch goes on
        1   a stretch begins, padded with zeros
        2   a stretch begins, padded with the frames of its row of lead_ins, (n, depth - 1, *frame), oldest first
        3   a stretch begins, padded by ``windows``

    Saved segments, and those in files, are compressed. Images of a raw storage are never moved to files
    (``supports_files``).

    With observations of several arrays (``ObservationSpec``), frames and outputs are tuples with one array per array.
    All arrays have the same positions, and are appended to and evicted together. Methods about a *segment* address a
    *track*, one array of one environment (``tracks``)::

                        environment 0   environment 1
        array "camera"      0          1          append, evict, windows: environment 0 or 1, for all arrays
        array "joints"      2          3          segment, restore, begin_at, move_to_file, ...: track 0 to 3

    Threads: one thread at a time may call ``append``, ``evict``, ``restore`` and ``segment``. Meanwhile, any number of
    threads may start snapshots (each used by one thread) and call ``windows``, ``stored_positions`` and ``nbytes``. A
    snapshot sees the frames that were stored at its start until it is stopped or garbage-collected. It holds no lock,
    so the writer continues. Evicted frames stay in memory for it; if they take too much, ``evict`` waits. So a thread
    with an open snapshot must not wait for the writer.

    Files: a file stays open as long as one of its segments is stored, even if it is renamed or deleted. No other file
    may get its name meanwhile. Every read is verified: for damaged bytes, ``windows`` and ``segment`` raise
    ``DamagedSegmentError`` with file, offset, environment and segment.
    """

    def __init__(
        self,
        spec: FrameSpec | ObservationSpec,
        num_envs: int,
        storage: Storage = "packed",
        threads: int = 1,
        frames_per_segment: int | None = None,
        step_bytes: int = 0,
        depths: Sequence[int] | None = None,
    ) -> None:
        """Create an empty storage.

        Arguments:
            spec: the frames of an observation; of one array, its ``FrameSpec`` will do.
            num_envs: number of environments.
            storage: one of ``STORAGES``.
            threads: most threads that unpack the windows of one call.
            frames_per_segment: frames that are stored and evicted together; by default the number that compresses best.
            step_bytes: bytes of each frame's step in the step store, for ``charged_bytes``.
            depths: frames of an observation, of each array; 1 by default. ``windows`` gives arrays of lower depth than
                the deepest one only the last frames of each window, as many as their output takes.
        """
        self._spec = spec = observation_spec(spec)
        depths = [1] * len(spec.frame_specs) if depths is None else depths
        if frames_per_segment is None:
            frames_per_segment = usual_frames_per_segment(spec, depths)
        frames_per_segment = check_frames_per_segment(spec, frames_per_segment, depths)
        self.tracks = Tracks(len(spec.frame_specs), num_envs)
        # By array: whether its frames are stored uncompressed.
        self._is_raw = [storage == "raw" or frame.is_column for frame in spec.frame_specs]
        arrays = [
            (*_native_format(frame, is_raw), depth - 1)
            for frame, is_raw, depth in zip(spec.frame_specs, self._is_raw, depths, strict=True)
        ]
        super().__init__(num_envs, arrays, frames_per_segment, step_bytes, threads)

    def stored_positions(self, track: int) -> range:
        """Return the positions of ``track``, from the oldest stored frame to the next one (excluded)."""
        return range(self.first_position(track), self.next_position(track))

    def open_segment(self, track: int) -> int:
        """Return the number of the segment that the next frame of ``track`` goes into; lower ones are sealed."""
        return self.next_position(track) // self.frames_per_segment

    def supports_files(self, track: int) -> bool:
        """Return whether the sealed segments of this track can be in files."""
        return self._can_be_in_files(self.tracks.array_of(int(track)))

    def _can_be_in_files(self, array: int) -> bool:
        return not self._is_raw[array] or self._spec.frame_specs[array].is_column

    @property
    def unflushed_bytes(self) -> int:
        """Bytes in RAM of segments that can be in files."""
        return sum(self.nbytes_of(array)[0] for array in filter(self._can_be_in_files, range(self.tracks.num_arrays)))

    def move_to_file(  # type: ignore[override]  # the native method takes encoded paths
        self, track: int, number: int, path: str | PathLike[str], offset: int, size: int
    ) -> None:
        """Read a sealed segment from a file from now on, and free its RAM.

        The file has the ``size`` bytes that ``segment`` returns at ``offset``. The segment may be in another file
        already. Raises ``IndexError`` for a segment that is not stored or not sealed, ``ValueError`` for another size
        and ``OSError`` for a file that cannot be opened, ``DamagedDataError`` for what is no file; all change nothing.
        """
        super().move_to_file(track, number, os.fsencode(path), offset, size)

    def restore_in_file(  # type: ignore[override]
        self,
        track: int,
        number: int,
        path: str | PathLike[str],
        offset: int,
        size: int,
        num_frames: int,
        checksum: int | None = None,
    ) -> None:
        """Append to ``track`` a full segment that is in a file, without reading it.

        Its bytes are verified when a window needs them, also against ``checksum``, the CRC-32C of them all.
        Raises the errors of ``restore`` and ``move_to_file``, and
        ``ValueError`` for a segment that is not full.
        """
        if num_frames != self.frames_per_segment:
            raise ValueError(
                f"segment {number} of track {track} has {num_frames} frames: only full segments of "
                f"{self.frames_per_segment} frames can be in files; restore it into RAM"
            )
        super().restore_in_file(track, number, os.fsencode(path), offset, size, checksum)

    @property
    def num_frames(self) -> dict[str, int]:
        """Number of stored frames over all environments, by how they are stored, and by array if there are several.

        Of scaled floats in a file, "other floats" are known, and counted as such, once their segment was read.
        """
        counts: dict[str, int] = {}
        for array, name in enumerate(self._names):
            num_stored, num_exact = self.num_frames_of(array)
            if _is_scaled(self._spec.frame_specs[array]):
                of_array = {"k/255, as uint8": num_stored - num_exact, "other floats, exact": num_exact}
            else:
                of_array = {"raw" if self._is_raw[array] else "packed": num_stored}
            counts |= {f"{name}, {how}" if name else how: count for how, count in of_array.items()}
        return counts

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes in RAM by part, including evicted frames that snapshots still see, but not files."""
        return {"frames": self.sealed_nbytes, "open segments": self.open_nbytes, "index": self.index_nbytes}

    @property
    def nbytes_by_key(self) -> dict[str, int]:
        """Bytes in RAM by array, all parts together; empty if an observation is a single array."""
        return {name: sum(self.nbytes_of(array)[:3]) for array, name in enumerate(self._names) if name}

    @property
    def _names(self) -> list[str]:
        return [array.key for array in self._spec.arrays]


def check_frames_per_segment(spec: ObservationSpec, frames_per_segment: int, depths: Sequence[int]) -> int:
    """Return the number as an ``int``; raise ``InvalidSettingsError`` if a segment cannot have so many frames.

    ``depths``: frames of an observation, of each array. Each frame of a segment may begin a stretch with lead-ins.

    >>> check_frames_per_segment(observation_spec(FrameSpec((84, 84))), 1280, [4])
    1280
    """
    largest, most = max(frame.nbytes for frame in spec.frame_specs), _most_frames_per_segment(spec, depths)
    rule = f"a segment of frames of {largest} bytes in stacks of {max(depths)} has 1 to {most} frames"
    return whole_number("frames_per_segment", frames_per_segment, 1, most, rule=rule)


def usual_frames_per_segment(spec: ObservationSpec, depths: Sequence[int] | None = None) -> int:
    """Return the default number of frames per segment for ``spec``: the one that compresses its largest array best."""
    largest = max(spec.frame_specs, key=lambda frame: frame.nbytes)
    best = default_frames_per_segment(*_native_format(largest, is_raw=False)[:3])
    return min(best, _most_frames_per_segment(spec, depths or [1] * len(spec.frame_specs)))


def _most_frames_per_segment(spec: ObservationSpec, depths: Sequence[int]) -> int:
    """Return the most frames of a segment: they, and the lead-ins of as many stretches, are within the limits."""
    return min(
        min(MAX_SEGMENT_FRAMES, MAX_SEGMENT_BYTES // frame.nbytes) // max(1, depth - 1)
        for frame, depth in zip(spec.frame_specs, depths, strict=True)
    )


def _is_scaled(frame: FrameSpec) -> bool:
    return frame.is_scaled and not frame.is_column


def _native_format(frame: FrameSpec, is_raw: bool) -> tuple[int, int, int, bool, int, bool]:
    """Return the arguments of the native store for one array: its geometry, encoding, and bytes of scaled floats."""
    pixels = FrameSpec(frame.shape) if _is_scaled(frame) else frame
    scaled_bytes = frame.dtype.itemsize if _is_scaled(frame) else 0
    return pixels.rows, pixels.row_bytes, pixels.pixel_bytes, is_raw, scaled_bytes, pixels.has_colour_planes
