"""Floats that are pixels over 255: kept as the pixels."""

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
from framestow.storage.frame_storage import FrameStorage, Reading

LARGEST_PIXEL = 255


class PixelScaling:
    """The 256 floats k / 255 of one dtype, and the ``uint8`` k that each stands for.

    k / 255 is the quotient rounded to the nearest float, as ``frame.astype(dtype) / dtype(255)`` gives it. All else is
    no scaled pixel: ``-0.0``, NaN, and also ``k * dtype(1 / 255)``, which differs in the last bit for 126 of the 256
    in ``float32``. Stateless apart from its table; any number of threads may share one.

    >>> scaling = PixelScaling(np.dtype(np.float32))
    >>> frames = np.array([[0, 128, 255], [0, 128, 254.9]], np.float32) / np.float32(255)
    >>> pixels, is_exact = scaling.to_pixels(frames)
    >>> pixels[0], is_exact
    (array([  0, 128, 255], dtype=uint8), array([ True, False]))
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        if dtype not in SCALED_DTYPES:
            raise TypeError(f"dtype is {dtype}: scaled pixels are float16, float32 or float64")
        self._dtype = dtype
        self._bits = np.dtype(f"u{dtype.itemsize}")
        self._table = self._divided(np.arange(LARGEST_PIXEL + 1, dtype=np.uint8))

    def to_pixels(self, frames: npt.NDArray[np.floating[Any]]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """Give ``frames``, ``(n, *frame)`` in C order, as ``uint8``, and which of the n are exactly that over 255.

        The pixels of the others are arbitrary.
        """
        with np.errstate(all="ignore"):  # what cannot be cast is told apart by its bits below
            pixels = (frames * np.float32(LARGEST_PIXEL) + np.float32(0.5)).astype(np.uint8)
        scaled = np.empty_like(frames)
        self.from_pixels(pixels, scaled)
        is_same = scaled.view(self._bits) == frames.view(self._bits)  # bits: -0.0 equals 0.0, and NaN not even itself
        return pixels, is_same.reshape(len(frames), -1).all(axis=1)

    def from_pixels(self, pixels: npt.NDArray[np.uint8], out: npt.NDArray[np.floating[Any]]) -> None:
        """Write ``pixels`` / 255 into ``out``, of the same shape."""
        if self._dtype == np.float16:  # NumPy divides those seven times slower than it looks them up
            np.take(self._table, pixels, out=out, mode="clip")
        else:  # four times faster than the table: 189 µs against 769 for 32 windows of 5 Atari frames
            np.divide(pixels, self._dtype.type(LARGEST_PIXEL), out=out, dtype=self._dtype)

    def _divided(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.floating[Any]]:
        # In float64 first: rounding its quotient once more gives the nearest float16 or float32 (Figueroa 1995).
        return (pixels / np.float64(LARGEST_PIXEL)).astype(self._dtype)


# CRC-32C of every byte after it, the mark, bytes of the packed pixels, number of exceptional frames. Then the pixels,
# the places of the exceptional frames within the segment, 4 bytes each, and those frames packed; all little-endian.
HEADER = struct.Struct("<I4sII")
MARK = b"sca1"
CHECKSUM_BYTES = 4
PLACE = np.dtype("<u4")


@dataclass(frozen=True)
class ScaledSegment:
    """A segment of ``ScaledPixels`` in parts.

    ``pixels``: a packed segment of ``uint8``; ``places``: which frames of it are exceptional, ascending;
    ``exact_frames``: a packed segment of those, in the floats that they came as, empty where there is none.
    """

    pixels: bytes
    places: npt.NDArray[Any]
    exact_frames: bytes

    def to_bytes(self) -> bytes:
        """Give bytes that stand alone."""
        rest = HEADER.pack(0, MARK, len(self.pixels), len(self.places))[CHECKSUM_BYTES:]
        rest += self.pixels + self.places.astype(PLACE).tobytes() + self.exact_frames
        return struct.pack("<I", checksum(rest)) + rest

    @classmethod
    def from_bytes(cls, segment: bytes) -> ScaledSegment:
        """Take ``to_bytes`` apart; raise ``DamagedDataError`` if a byte is not what was written."""
        if len(segment) < HEADER.size or HEADER.unpack_from(segment)[0] != checksum(segment[CHECKSUM_BYTES:]):
            raise DamagedDataError(
                f"segment of {len(segment)} bytes does not match its checksum: bytes were changed or cut off"
            )
        _, mark, pixel_bytes, num_places = HEADER.unpack_from(segment)
        exact_start = HEADER.size + pixel_bytes + PLACE.itemsize * num_places
        if mark != MARK or exact_start > len(segment):
            raise DamagedDataError(f"segment of {len(segment)} bytes is none of scaled floats")
        places = np.frombuffer(segment, PLACE, num_places, HEADER.size + pixel_bytes)
        return cls(segment[HEADER.size : HEADER.size + pixel_bytes], places, segment[exact_start:])


FIRST_ROOM = 16  # positions

Positions = npt.NDArray[np.int64]


class PositionLog:
    """Ascending positions, each with its *ordinal*: how many came before it, for ever, whatever was dropped since.

    A copy (``copy.copy``) stays as it is when the log goes on; it shares what both have.

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
        self._rows = np.empty((2, FIRST_ROOM), np.int64)  # positions and ordinals
        self._start = self._stop = 0
        self.next_ordinal = 0
        """How many positions were ever added."""

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def nbytes(self) -> int:
        """Bytes taken."""
        return self._rows.nbytes

    def positions(self) -> Positions:
        """The positions held, ascending; a view."""
        return self._rows[0, self._start : self._stop]

    def ordinals(self) -> Positions:
        """The ordinals of the positions held, ascending; a view."""
        return self._rows[1, self._start : self._stop]

    def append(self, position: int) -> None:
        """Add a position above all others."""
        if self._stop == self._rows.shape[1]:
            self._move_to(self._rows[:, self._start : self._stop])
        self._rows[:, self._stop] = position, self.next_ordinal
        self._stop, self.next_ordinal = self._stop + 1, self.next_ordinal + 1

    def drop(self, first: int, before: int) -> Positions:
        """Forget the positions at ``first`` up to ``before``; give their ordinals."""
        begin, end = self.places_from(np.array([first, before])).tolist()
        dropped = self.ordinals()[begin:end].copy()
        if begin == 0:
            self._start += end
        elif len(dropped):
            self._move_to(np.delete(self._rows[:, self._start : self._stop], np.s_[begin:end], axis=1))
        return dropped

    def places_from(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each of ``positions``, the place among those held of the first that is not below it."""
        return np.asarray(np.searchsorted(self.positions(), positions), np.int64)

    def _move_to(self, held: npt.NDArray[np.int64]) -> None:
        """Take rows of its own for ``held``, with room to grow: older copies keep theirs."""
        rows = np.empty((2, max(FIRST_ROOM, 2 * held.shape[1])), np.int64)
        rows[:, : held.shape[1]] = held
        self._rows, self._start, self._stop = rows, 0, held.shape[1]


NO_POSITIONS = PositionLog()


class ScaledReading:
    """What a ``ScaledPixels`` held when it started: readings of its storages, and where the exceptions were then."""

    def __init__(self, scaling: PixelScaling, pixels: Reading, exceptions: Reading, logs: list[PositionLog]) -> None:
        self._scaling, self._pixels, self._exceptions, self._exceptional = scaling, pixels, exceptions, logs

    def windows(
        self,
        streams: npt.NDArray[np.int32],
        last_positions: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        out: npt.NDArray[Any],
        padding: StackPadding = "first_frame",
    ) -> None:
        """Write one window of consecutive frames for each row of ``out`` (see ``FrameStorage``)."""
        # The pixels are unpacked into the end of ``out`` itself and scaled from its front: row r ends where row r + 1
        # of the pixels begins, or before. So a batch takes no second buffer.
        pixels = out.reshape(-1).view(np.uint8)[-out.size :].reshape(out.shape)
        self._pixels.windows(streams, last_positions, counts, pixels, padding)
        firsts, stops = self._places(streams, last_positions, counts)
        if len(out) and (stops - firsts == counts).all():  # as where an environment scales in some other way
            rows = zip(streams.tolist(), stops.tolist(), strict=True)
            last_ordinals = np.array([self._exceptional[stream].ordinals()[stop - 1] for stream, stop in rows])
            self._exceptions.windows(streams, last_ordinals, counts, out, padding)
            return
        for row in range(len(out)):
            self._scaling.from_pixels(pixels[row], out[row])
        for row in np.flatnonzero(stops > firsts).tolist():
            places = slice(int(firsts[row]), int(stops[row]))
            self._put_exceptions(int(streams[row]), places, int(last_positions[row]), out[row])
            pad_window(out[row], out.shape[1] - int(counts[row]), padding)

    def stop(self) -> None:
        """Let go of what was evicted meanwhile."""
        self._pixels.stop()
        self._exceptions.stop()

    def _places(
        self, streams: npt.NDArray[np.int32], last_positions: npt.NDArray[np.int64], counts: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which exceptional frames of its log each window has: from which place on, and up to which."""
        firsts, stops = np.zeros((2, len(streams)), np.int64)
        if any(map(len, self._exceptional)):
            for stream in np.unique(streams).tolist():
                rows, log = streams == stream, self._exceptional[stream]
                firsts[rows] = log.places_from(last_positions[rows] - counts[rows] + 1)
                stops[rows] = log.places_from(last_positions[rows] + 1)
        return firsts, stops

    def _put_exceptions(self, stream: int, places: slice, last_position: int, window: npt.NDArray[Any]) -> None:
        log = self._exceptional[stream]
        frames = exact_frames(self._exceptions, stream, log.ordinals()[places], window[:0])
        window[len(window) - 1 - (last_position - log.positions()[places])] = frames


class ScaledPixels(FrameStorage):
    """Frames of floats k / 255 as their ``uint8`` k; a frame with any other value in it as it came, beside them.

    The same promises as every ``FrameStorage``: what came is what comes back, bit for bit, and nothing is refused. Two
    storages of the kind that ``make`` makes do the work, the second made when it is first needed::

        position        0    1    2    3    4    5
        came            f0   f1   x    f2   y    f3        f: all k / 255     x, y: anything else
        pixels          k0   k1   k1   k2   k2   k3        an exceptional frame repeats the pixels before it: no bytes
        exceptions                0         1              its ordinal is its position in the storage of floats

    What was evicted leaves the floats when a whole segment of them is needed no more.

    Nothing is decided for a whole stream: an environment whose first odd frame comes after days goes on.
    """

    def __init__(self, make: Callable[[FrameSpec, int], FrameStorage], spec: FrameSpec, num_streams: int) -> None:
        self.spec = spec
        self._codec = SegmentCodec(replace(spec, is_scaled=False))
        self._scaling = PixelScaling(spec.dtype)
        self._pixels = make(FrameSpec(spec.shape), num_streams)
        self._make_exceptions = partial(make, replace(spec, is_scaled=False), num_streams)
        self._exceptions: FrameStorage | None = None
        self._exceptional = [PositionLog() for _ in range(num_streams)]
        self._newest_pixels = np.zeros((num_streams, *spec.shape), np.uint8)
        self._lock = threading.Lock()  # so that a reading starts between two changes, in all parts at once

    @property
    def frames_per_segment(self) -> int:
        """Frames whose pixels go together; exceptional frames may stay longer."""
        return self._pixels.frames_per_segment

    def append(self, streams: npt.NDArray[np.int32], frames: npt.NDArray[Any]) -> int:
        """Store ``frames[i]`` at the next position of ``streams[i]`` (see ``FrameStorage``)."""
        pixels, is_exact = self._scaling.to_pixels(frames)
        with self._lock:
            if is_exact.all():
                self._newest_pixels[streams] = pixels
                self._pixels.append(streams, pixels)
                return self.charged_bytes
            odd = np.flatnonzero(~is_exact)
            pixels[odd] = self._newest_pixels[streams[odd]]
            stops = np.array([self.stored_positions(stream).stop for stream in streams.tolist()])
            try:
                self._append_with_exceptions(streams, stops, pixels, frames, odd)
            except BaseException:  # Ctrl-C came: what is in one part of this must be in all
                self._append_with_exceptions(streams, stops, pixels, frames, odd)
                raise
        return self.charged_bytes

    def start_reading(self) -> ScaledReading:
        """Give what can read the frames that are held now, at leisure (see ``FrameStorage``)."""
        with self._lock:
            logs = [copy(log) if len(log) else NO_POSITIONS for log in self._exceptional]
            pixels = self._pixels.start_reading()
            # Where there are no exceptions, none is asked of the reading that stands in for theirs.
            exceptions = self._exceptions.start_reading() if self._exceptions else pixels
            return ScaledReading(self._scaling, pixels, exceptions, logs)

    def evict(self, stream: int, before: int, first: int = 0) -> None:
        """Allow the frames of ``stream`` at ``first`` up to ``before`` to go (see ``FrameStorage``)."""
        with self._lock:
            frames = self.frames_per_segment
            self._pixels.evict(stream, before, first)
            log = self._exceptional[stream]
            if len(log):
                sealed_end = self.open_segment(stream) * frames
                begin, end = -(-max(first, 0) // frames) * frames, min(before, sealed_end) // frames * frames
                places = slice(*log.places_from(np.array([begin, max(begin, end)])).tolist())
                self._evict_exceptions(stream, log.ordinals(), places)
                log.drop(begin, max(begin, end))  # last: after Ctrl-C the same call does what is left

    def stored_positions(self, stream: int) -> range:
        """Positions of ``stream`` from the oldest frame held to the next one (see ``FrameStorage``)."""
        return self._pixels.stored_positions(stream)

    def sealed_segments(self, stream: int) -> npt.NDArray[np.int64]:
        """Numbers of the sealed segments of ``stream`` that are held, ascending."""
        return self._pixels.sealed_segments(stream)

    def segment(self, stream: int, number: int) -> bytes:
        """Give the pixels of a segment, and the exceptional frames among them (see ``FrameStorage``)."""
        pixels, log = self._pixels.segment(stream, number), self._exceptional[stream]
        start = number * self.frames_per_segment
        places = slice(*log.places_from(np.array([start, start + self.frames_per_segment])).tolist())
        exact = b""
        if places.start < places.stop:
            like = np.empty((0, *self._codec.spec.shape), self._codec.spec.dtype)
            frames = exact_frames(self._storage_of_exceptions(), stream, log.ordinals()[places], like)
            exact = self._codec.pack(frames)
        return ScaledSegment(pixels, log.positions()[places] - start, exact).to_bytes()

    def restore(self, stream: int, number: int, segment: bytes) -> None:
        """Put what ``segment`` gave behind what ``stream`` holds (see ``FrameStorage``)."""
        scaled = ScaledSegment.from_bytes(segment)
        frames = self._codec.unpack(scaled.exact_frames) if len(scaled.places) else ()
        ends = np.append(scaled.places.astype(np.int64), self.frames_per_segment)
        if len(frames) != len(scaled.places) or (np.diff(ends) <= 0).any():
            raise DamagedDataError(
                f"segment has {len(frames)} exceptional frames at places {scaled.places.tolist()}: must be as many, "
                f"ascending, below {self.frames_per_segment}"
            )
        one, start = np.array([stream], np.int32), number * self.frames_per_segment
        self._pixels.restore(stream, number, scaled.pixels)
        for place, frame in zip(scaled.places.tolist(), frames, strict=True):
            self._storage_of_exceptions().append(one, frame[None])
            self._exceptional[stream].append(start + place)
        newest = self._newest_pixels[stream][None, None]
        self._pixels.windows(one, np.array([self.stored_positions(stream).stop - 1]), np.ones(1, np.int32), newest)

    def begin_at(self, stream: int, number: int) -> None:
        """Let ``stream``, of which nothing is held, go on with the first frame of segment ``number``."""
        self._pixels.begin_at(stream, number)

    @property
    def charged_bytes(self) -> int:
        """What counts against a budget (see ``FrameStorage``)."""
        pixels = self._pixels.charged_bytes + self._newest_pixels.nbytes
        if self._exceptions is None:
            return pixels
        return pixels + self._exceptions.charged_bytes + sum(log.nbytes for log in self._exceptional)

    def charge_steps(self, step_bytes: int) -> None:
        """Charge so much for the step of each frame (see ``FrameStorage``); the pixels have a frame of each."""
        self._pixels.charge_steps(step_bytes)

    @property
    def num_frames(self) -> dict[str, int]:
        """Frames held: all k / 255, or exceptional."""
        held = sum(self._pixels.num_frames.values())
        exceptional = sum(map(len, self._exceptional))
        return {"k/255, as uint8": held - exceptional, "other floats, exact": exceptional}

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes held, by part: those of the pixels, and those of the exceptional frames together."""
        index_bytes = sum(log.nbytes for log in self._exceptional)
        return self._pixels.nbytes | {
            "newest pixels": self._newest_pixels.nbytes,
            "other floats": index_bytes + (sum(self._exceptions.nbytes.values()) if self._exceptions else 0),
        }

    def _append_with_exceptions(
        self,
        streams: npt.NDArray[np.int32],
        stops: npt.NDArray[np.int64],
        pixels: npt.NDArray[np.uint8],
        frames: npt.NDArray[Any],
        odd: npt.NDArray[np.int64],
    ) -> None:
        """Store frames at the positions ``stops``, the ``odd`` ones exact; called again, do what is still to do."""
        storage = self._storage_of_exceptions()
        logs = {row: self._exceptional[streams[row]] for row in odd.tolist()}
        unlogged = [row for row, log in logs.items() if stops[row] not in log.positions()[-1:]]
        missing = [row for row in unlogged if storage.stored_positions(int(streams[row])).stop == logs[row].next_ordinal]
        storage.append(streams[missing], frames[missing])
        for row in unlogged:
            logs[row].append(int(stops[row]))
        self._newest_pixels[streams] = pixels
        behind = [row for row, stop in enumerate(stops) if self.stored_positions(int(streams[row])).stop == stop]
        self._pixels.append(streams[behind], pixels[behind])

    def _storage_of_exceptions(self) -> FrameStorage:
        if self._exceptions is None:
            self._exceptions = self._make_exceptions()
        return self._exceptions

    def _evict_exceptions(self, stream: int, ordinals: npt.NDArray[np.int64], leaving: slice) -> None:
        """Let go of the segments of floats whose stored ``ordinals`` are all among ``leaving``."""
        exceptions = self._storage_of_exceptions()
        size = exceptions.frames_per_segment
        numbers, num_leaving = np.unique(ordinals[leaving] // size, return_counts=True)
        num_stored = np.diff(np.searchsorted(ordinals, np.stack([numbers, numbers + 1], axis=1) * size), axis=1)[:, 0]
        free = numbers[num_stored == num_leaving]
        for run in np.split(free, np.flatnonzero(np.diff(free) > 1) + 1):
            if len(run):  # at once: between two calls it could wait for a reading
                exceptions.evict(stream, (int(run[-1]) + 1) * size, int(run[0]) * size)


def exact_frames(
    exceptions: FrameStorage | Reading, stream: int, ordinals: npt.NDArray[np.int64], like: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Read frames with consecutive ordinals, ``(n, *frame)`` of the dtype of ``like``, ``(0, *frame)``."""
    frames = np.empty((1, len(ordinals), *like.shape[1:]), like.dtype)
    num_frames = np.array([len(ordinals)], np.int32)
    exceptions.windows(np.array([stream], np.int32), ordinals[-1:], num_frames, frames)
    exact: npt.NDArray[Any] = frames[0]
    return exact
