"""Store float frames that are pixels divided by 255 as ``uint8`` pixels, and all other float frames exactly."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.frames.codec import SegmentCodec, checksum
from framestow.frames.frame_spec import SCALED_DTYPES, FrameSpec
from framestow.frames.stacking import StackPadding, pad_window
from framestow.storage.frame_storage import FrameStorage, Int32s, Int64s, Reading

LARGEST_PIXEL = 255


class PixelScaling:
    """Convert between ``uint8`` pixels k and the floats k / 255 of one dtype.

    k / 255 is the quotient rounded to the nearest float, as ``frame.astype(dtype) / dtype(255)`` computes it. All other
    floats are no scaled pixels: ``-0.0``, NaN, and also ``k * dtype(1 / 255)``, which differs in the last bit for 126
    of the 256 values in ``float32``. Threads may share an instance.

    >>> scaling = PixelScaling(np.dtype(np.float32))
    >>> frames = np.array([[0, 128, 255], [0, 128, 254.9]], np.float32) / np.float32(255)
    >>> pixels, is_scaled = scaling.to_pixels(frames)
    >>> pixels[0], is_scaled
    (array([  0, 128, 255], dtype=uint8), array([ True, False]))
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        if dtype not in SCALED_DTYPES:
            raise TypeError(f"dtype is {dtype}: scaled pixels must be float16, float32 or float64; convert the frames")
        self._dtype = dtype
        self._bits = np.dtype(f"u{dtype.itemsize}")
        self._table = self._divided(np.arange(LARGEST_PIXEL + 1, dtype=np.uint8))

    def to_pixels(self, frames: npt.NDArray[np.floating[Any]]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """Return ``frames``, ``(n, *frame)`` in C order, as ``uint8``, and a mask of those that are exactly k / 255.

        The pixels of the other frames are arbitrary.
        """
        with np.errstate(all="ignore"):  # the comparison of bits below finds values that cannot be cast
            pixels = (frames * np.float32(LARGEST_PIXEL) + np.float32(0.5)).astype(np.uint8)
        scaled = np.empty_like(frames)
        self.from_pixels(pixels, scaled)
        is_same = scaled.view(self._bits) == frames.view(self._bits)  # bits, since -0.0 == 0.0 and NaN != NaN
        return pixels, is_same.reshape(len(frames), -1).all(axis=1)

    def from_pixels(self, pixels: npt.NDArray[np.uint8], out: npt.NDArray[np.floating[Any]]) -> None:
        """Write ``pixels`` / 255 into ``out``, of the same shape."""
        if self._dtype == np.float16:  # the table is seven times faster than division
            np.take(self._table, pixels, out=out, mode="clip")
        else:  # division is four times faster than the table: 189 µs against 769 for 32 windows of 5 Atari frames
            np.divide(pixels, self._dtype.type(LARGEST_PIXEL), out=out, dtype=self._dtype)

    def _divided(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.floating[Any]]:
        # Rounding the float64 quotient gives the nearest float16 or float32 (Figueroa 1995).
        return (pixels / np.float64(LARGEST_PIXEL)).astype(self._dtype)


# Little-endian: CRC-32C of all following bytes, magic, bytes of the packed pixels, number of float frames. Then follow
# the packed pixels, the places of the float frames within the segment (4 bytes each), and the packed float frames.
HEADER = struct.Struct("<I4sII")
MAGIC = b"sca1"
CHECKSUM_BYTES = 4
PLACE = np.dtype("<u4")


@dataclass(frozen=True)
class ScaledSegment:
    """The parts of a segment of ``ScaledPixels``.

    ``pixels`` is a packed segment of ``uint8`` frames. ``places`` are the numbers of the float frames within the
    segment, ascending. ``floats`` is a packed segment of these frames; empty without float frames.
    """

    pixels: bytes
    places: npt.NDArray[Any]
    floats: bytes

    def to_bytes(self) -> bytes:
        """Return the segment as self-contained bytes."""
        rest = HEADER.pack(0, MAGIC, len(self.pixels), len(self.places))[CHECKSUM_BYTES:]
        rest += self.pixels + self.places.astype(PLACE).tobytes() + self.floats
        return struct.pack("<I", checksum(rest)) + rest

    @classmethod
    def from_bytes(cls, segment: bytes) -> ScaledSegment:
        """Return the segment that ``to_bytes`` was called on; raise ``DamagedDataError`` if a byte has changed."""
        if len(segment) < HEADER.size or HEADER.unpack_from(segment)[0] != checksum(segment[CHECKSUM_BYTES:]):
            raise DamagedDataError(
                f"segment of {len(segment)} bytes does not match its checksum: bytes were changed or cut off; "
                "load an older save"
            )
        _, magic, pixel_bytes, num_places = HEADER.unpack_from(segment)
        exact_start = HEADER.size + pixel_bytes + PLACE.itemsize * num_places
        if magic != MAGIC or exact_start > len(segment):
            raise DamagedDataError(
                f"segment of {len(segment)} bytes is not a segment of scaled floats; load an older save"
            )
        places = np.frombuffer(segment, PLACE, num_places, HEADER.size + pixel_bytes)
        return cls(segment[HEADER.size : HEADER.size + pixel_bytes], places, segment[exact_start:])


INITIAL_SIZE = 16  # of a PositionLog, in positions


class PositionLog:
    """Ascending positions, each with its *ordinal*: the number of positions ever added before it.

    Changing a log does not change its copies (``copy.copy``), which share memory with it.

    >>> log = PositionLog()
    >>> for position in (3, 4, 9, 12):
    ...     log.append(position)
    >>> log.drop(first=4, before=10).tolist()
    [1, 2]
    >>> log.positions().tolist(), log.ordinals().tolist()
    ([3, 12], [0, 3])
    >>> log.places_from(np.array([0, 4, 12, 13])).tolist()
    [0, 1, 1, 2]
    """

    def __init__(self) -> None:
        self._rows = np.empty((2, INITIAL_SIZE), np.int64)  # positions and ordinals
        self._start = self._stop = 0
        self.next_ordinal = 0
        """Number of positions ever added."""

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def nbytes(self) -> int:
        """Bytes in RAM."""
        return self._rows.nbytes

    def positions(self) -> Int64s:
        """Return a view of the positions, ascending."""
        return self._rows[0, self._start : self._stop]

    def ordinals(self) -> Int64s:
        """Return a view of the ordinals, ascending."""
        return self._rows[1, self._start : self._stop]

    def append(self, position: int) -> None:
        """Add a position, higher than all others."""
        if self._stop == self._rows.shape[1]:
            self._move_to(self._rows[:, self._start : self._stop])
        self._rows[:, self._stop] = position, self.next_ordinal
        self._stop, self.next_ordinal = self._stop + 1, self.next_ordinal + 1

    def drop(self, first: int, before: int) -> Int64s:
        """Remove the positions ``first`` to ``before`` (excluded), and return their ordinals."""
        begin, end = self.places_from(np.array([first, before])).tolist()
        dropped = self.ordinals()[begin:end].copy()
        if begin == 0:
            self._start += end
        elif len(dropped):
            self._move_to(np.delete(self._rows[:, self._start : self._stop], np.s_[begin:end], axis=1))
        return dropped

    def places_from(self, positions: Int64s) -> Int64s:
        """Return, for each of ``positions``, the place of the first logged position that is not lower."""
        return np.asarray(np.searchsorted(self.positions(), positions), np.int64)

    def _move_to(self, remaining: Int64s) -> None:
        """Copy ``remaining`` into a new, larger array; older copies keep the previous one."""
        rows = np.empty((2, max(INITIAL_SIZE, 2 * remaining.shape[1])), np.int64)
        rows[:, : remaining.shape[1]] = remaining
        self._rows, self._start, self._stop = rows, 0, remaining.shape[1]


EMPTY_LOG = PositionLog()


class ScaledReading(Reading):
    """A reading of a ``ScaledPixels``: readings of its two storages, and copies of its position logs."""

    def __init__(self, scaling: PixelScaling, pixels: Reading, floats: Reading, logs: list[PositionLog]) -> None:
        self._scaling, self._pixels, self._floats, self._float_logs = scaling, pixels, floats, logs

    def windows(
        self, streams: Int32s, last_positions: Int64s, counts: Int32s, out: Any, padding: StackPadding = "first_frame"
    ) -> None:
        # Unpack the pixels into the end of ``out`` and scale them from its beginning, so no second buffer is needed:
        # scaled row r ends before row r + 1 of the pixels begins.
        pixels = out.reshape(-1).view(np.uint8)[-out.size :].reshape(out.shape)
        self._pixels.windows(streams, last_positions, counts, pixels, padding)
        firsts, stops = self._places(streams, last_positions, counts)
        if len(out) and (stops - firsts == counts).all():  # float frames only: the environment scales in another way
            rows = zip(streams.tolist(), stops.tolist(), strict=True)
            last_ordinals = np.array([self._float_logs[stream].ordinals()[stop - 1] for stream, stop in rows])
            self._floats.windows(streams, last_ordinals, counts, out, padding)
            return
        for row in range(len(out)):
            self._scaling.from_pixels(pixels[row], out[row])
        for row in np.flatnonzero(stops > firsts).tolist():
            places = slice(int(firsts[row]), int(stops[row]))
            self._write_floats(int(streams[row]), places, int(last_positions[row]), out[row])
            pad_window(out[row], out.shape[1] - int(counts[row]), padding)

    def stop(self) -> None:
        self._pixels.stop()
        self._floats.stop()

    def _places(self, streams: Int32s, last_positions: Int64s, counts: Int32s) -> tuple[Int64s, Int64s]:
        """Return, for each window, the range of its float frames: first place and end place in the stream's log."""
        firsts, stops = np.zeros((2, len(streams)), np.int64)
        if any(map(len, self._float_logs)):
            for stream in np.unique(streams).tolist():
                rows, log = streams == stream, self._float_logs[stream]
                firsts[rows] = log.places_from(last_positions[rows] - counts[rows] + 1)
                stops[rows] = log.places_from(last_positions[rows] + 1)
        return firsts, stops

    def _write_floats(self, stream: int, places: slice, last_position: int, window: npt.NDArray[Any]) -> None:
        log = self._float_logs[stream]
        frames = _read_floats(self._floats, stream, log.ordinals()[places], window[:0])
        window[len(window) - 1 - (last_position - log.positions()[places])] = frames


class ScaledPixels(FrameStorage):
    """Float frames of values k / 255 as ``uint8`` k; frames with any other value ("float frames") exactly.

    All frames are returned bit for bit, and none is refused. ``make`` creates two storages: one for pixels, and one for
    float frames as soon as the first one is appended::

        position        0    1    2    3    4    5
        appended        f0   f1   x    f2   y    f3        f: all k / 255     x, y: float frames
        pixels          k0   k1   k1   k2   k2   k3        a float frame repeats the pixels before it, at no cost
        floats                    0         1              position in the storage of floats: the ordinal in the log

    A segment of floats is evicted when all its frames are evicted.
    """

    def __init__(self, make: Callable[[FrameSpec, int], FrameStorage], spec: FrameSpec, num_streams: int) -> None:
        self.spec = spec
        self._codec = SegmentCodec(replace(spec, is_scaled=False))
        self._scaling = PixelScaling(spec.dtype)
        self._pixels = make(FrameSpec(spec.shape), num_streams)
        self._make_floats = partial(make, replace(spec, is_scaled=False), num_streams)
        self._floats: FrameStorage | None = None
        self._float_logs = [PositionLog() for _ in range(num_streams)]
        self._newest_pixels = np.zeros((num_streams, *spec.shape), np.uint8)
        self._lock = threading.Lock()  # so that a reading starts with consistent pixels, floats and logs

    @property
    def frames_per_segment(self) -> int:
        return self._pixels.frames_per_segment

    def append(self, streams: Int32s, frames: npt.NDArray[Any]) -> int:
        pixels, is_scaled = self._scaling.to_pixels(frames)
        with self._lock:
            if is_scaled.all():
                self._newest_pixels[streams] = pixels
                self._pixels.append(streams, pixels)
                return self.charged_bytes
            float_rows = np.flatnonzero(~is_scaled)
            pixels[float_rows] = self._newest_pixels[streams[float_rows]]
            stops = np.array([self.stored_positions(stream).stop for stream in streams.tolist()])
            try:
                self._append_with_floats(streams, stops, pixels, frames, float_rows)
            except BaseException:  # after a Ctrl-C, finish: pixels, floats and logs must agree
                self._append_with_floats(streams, stops, pixels, frames, float_rows)
                raise
        return self.charged_bytes

    def start_reading(self) -> ScaledReading:
        with self._lock:
            logs = [copy(log) if len(log) else EMPTY_LOG for log in self._float_logs]
            pixels = self._pixels.start_reading()
            floats = self._floats.start_reading() if self._floats else pixels  # without float frames it is never used
            return ScaledReading(self._scaling, pixels, floats, logs)

    def evict(self, stream: int, before: int, first: int = 0) -> None:
        with self._lock:
            frames = self.frames_per_segment
            self._pixels.evict(stream, before, first)
            log = self._float_logs[stream]
            if len(log):
                sealed_end = self.open_segment(stream) * frames
                begin, end = -(-max(first, 0) // frames) * frames, min(before, sealed_end) // frames * frames
                places = slice(*log.places_from(np.array([begin, max(begin, end)])).tolist())
                self._evict_floats(stream, log.ordinals(), places)
                log.drop(begin, max(begin, end))  # last, so that a repeated call finishes after a Ctrl-C

    def stored_positions(self, stream: int) -> range:
        return self._pixels.stored_positions(stream)

    def sealed_segments(self, stream: int) -> Int64s:
        return self._pixels.sealed_segments(stream)

    def segment(self, stream: int, number: int) -> bytes:
        pixels, log = self._pixels.segment(stream, number), self._float_logs[stream]
        start = number * self.frames_per_segment
        places = slice(*log.places_from(np.array([start, start + self.frames_per_segment])).tolist())
        exact = b""
        if places.start < places.stop:
            like = np.empty((0, *self._codec.spec.shape), self._codec.spec.dtype)
            frames = _read_floats(self._floats_storage(), stream, log.ordinals()[places], like)
            exact = self._codec.pack(frames)
        return ScaledSegment(pixels, log.positions()[places] - start, exact).to_bytes()

    def restore(self, stream: int, number: int, segment: bytes) -> None:
        scaled = ScaledSegment.from_bytes(segment)
        frames = self._codec.unpack(scaled.floats) if len(scaled.places) else ()
        ends = np.append(scaled.places.astype(np.int64), self.frames_per_segment)
        if len(frames) != len(scaled.places) or (np.diff(ends) <= 0).any():
            raise DamagedDataError(
                f"segment has {len(frames)} float frames at places {scaled.places.tolist()}: it must have one per "
                f"place, ascending, below {self.frames_per_segment}; load an older save"
            )
        one, start = np.array([stream], np.int32), number * self.frames_per_segment
        self._pixels.restore(stream, number, scaled.pixels)
        for place, frame in zip(scaled.places.tolist(), frames, strict=True):
            self._floats_storage().append(one, frame[None])
            self._float_logs[stream].append(start + place)
        newest = self._newest_pixels[stream][None, None]
        self._pixels.windows(one, np.array([self.stored_positions(stream).stop - 1]), np.ones(1, np.int32), newest)

    def begin_at(self, stream: int, number: int) -> None:
        self._pixels.begin_at(stream, number)

    @property
    def charged_bytes(self) -> int:
        pixels = self._pixels.charged_bytes + self._newest_pixels.nbytes
        if self._floats is None:
            return pixels
        return pixels + self._floats.charged_bytes + sum(log.nbytes for log in self._float_logs)

    def charge_steps(self, step_bytes: int) -> None:
        """Add ``step_bytes`` per frame to ``charged_bytes``; every frame has pixels."""
        self._pixels.charge_steps(step_bytes)

    @property
    def num_frames(self) -> dict[str, int]:
        """Number of stored frames: of values k / 255, and of other floats."""
        num_stored = sum(self._pixels.num_frames.values())
        num_floats = sum(map(len, self._float_logs))
        return {"k/255, as uint8": num_stored - num_floats, "other floats, exact": num_floats}

    @property
    def nbytes(self) -> dict[str, int]:
        index_bytes = sum(log.nbytes for log in self._float_logs)
        return self._pixels.nbytes | {
            "newest pixels": self._newest_pixels.nbytes,
            "other floats": index_bytes + (sum(self._floats.nbytes.values()) if self._floats else 0),
        }

    def _append_with_floats(
        self,
        streams: Int32s,
        stops: Int64s,
        pixels: npt.NDArray[np.uint8],
        frames: npt.NDArray[Any],
        float_rows: Int64s,
    ) -> None:
        """Store frames at the positions ``stops``, those of ``float_rows`` exactly; a repeated call does the rest."""
        storage = self._floats_storage()
        logs = {row: self._float_logs[streams[row]] for row in float_rows.tolist()}
        unlogged = [row for row, log in logs.items() if stops[row] not in log.positions()[-1:]]
        next_ordinals = {row: storage.stored_positions(int(streams[row])).stop for row in unlogged}
        missing = [row for row in unlogged if next_ordinals[row] == logs[row].next_ordinal]
        storage.append(streams[missing], frames[missing])
        for row in unlogged:
            logs[row].append(int(stops[row]))
        self._newest_pixels[streams] = pixels
        behind = [row for row, stop in enumerate(stops) if self.stored_positions(int(streams[row])).stop == stop]
        self._pixels.append(streams[behind], pixels[behind])

    def _floats_storage(self) -> FrameStorage:
        if self._floats is None:
            self._floats = self._make_floats()
        return self._floats

    def _evict_floats(self, stream: int, ordinals: Int64s, evicted: slice) -> None:
        """Evict the segments of floats whose stored ``ordinals`` are all in the range ``evicted`` of places."""
        floats = self._floats_storage()
        size = floats.frames_per_segment
        numbers, num_evicted = np.unique(ordinals[evicted] // size, return_counts=True)
        num_stored = np.diff(np.searchsorted(ordinals, np.stack([numbers, numbers + 1], axis=1) * size), axis=1)[:, 0]
        free = numbers[num_stored == num_evicted]
        for run in np.split(free, np.flatnonzero(np.diff(free) > 1) + 1):
            if len(run):  # in one call, since every call may wait for a reading
                floats.evict(stream, (int(run[-1]) + 1) * size, int(run[0]) * size)


def _read_floats(
    floats: FrameStorage | Reading, stream: int, ordinals: Int64s, like: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Return frames with consecutive ordinals, ``(n, *frame)``; ``like`` is an empty ``(0, *frame)`` of their dtype."""
    frames = np.empty((1, len(ordinals), *like.shape[1:]), like.dtype)
    num_frames = np.array([len(ordinals)], np.int32)
    floats.windows(np.array([stream], np.int32), ordinals[-1:], num_frames, frames)
    exact: npt.NDArray[Any] = frames[0]
    return exact
