"""Floats that are pixels over 255: kept as the pixels."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.frames.codec import checksum
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.pixel_scaling import PixelScaling
from framestow.frames.stacking import StackPadding, pad_window
from framestow.storage.frame_storage import FrameStorage, Reading
from framestow.storage.position_log import PositionLog

# CRC-32C of the rest, next position, ordinal of the first float frame held, that of the first position, number of
# positions; the positions follow, 8 bytes each.
INDEX = struct.Struct("<Iqqqq")
CHECKSUM_BYTES = 4
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
        firsts, stops = self._ordinals(streams, last_positions, counts)
        if len(out) and (stops - firsts == counts).all():  # as where an environment scales in some other way
            self._exceptions.windows(streams, stops - 1, counts, out, padding)
            return
        for row in range(len(out)):
            self._scaling.from_pixels(pixels[row], out[row])
        for row in np.flatnonzero(stops > firsts).tolist():
            ordinals = range(int(firsts[row]), int(stops[row]))
            self._put_exceptions(int(streams[row]), ordinals, int(last_positions[row]), out[row])
            pad_window(out[row], out.shape[1] - int(counts[row]), padding)

    def stop(self) -> None:
        """Let go of what was evicted meanwhile."""
        self._pixels.stop()
        self._exceptions.stop()

    def _ordinals(
        self, streams: npt.NDArray[np.int32], last_positions: npt.NDArray[np.int64], counts: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which exceptional frames each window has: the first one's ordinal, and the first one's behind it."""
        firsts, stops = np.zeros((2, len(streams)), np.int64)
        if any(map(len, self._exceptional)):
            for stream in np.unique(streams).tolist():
                rows, log = streams == stream, self._exceptional[stream]
                firsts[rows] = log.ordinals_from(last_positions[rows] - counts[rows] + 1)
                stops[rows] = log.ordinals_from(last_positions[rows] + 1)
        return firsts, stops

    def _put_exceptions(self, stream: int, ordinals: range, last_position: int, window: npt.NDArray[Any]) -> None:
        frames = np.empty((1, len(ordinals), *window.shape[1:]), window.dtype)
        one, num_frames = np.array([stream], np.int32), np.array([len(ordinals)], np.int32)
        self._exceptions.windows(one, np.array([ordinals[-1]]), num_frames, frames)
        places = len(window) - 1 - (last_position - self._exceptional[stream].positions(ordinals))
        window[places] = frames[0]


class ScaledPixels(FrameStorage):
    """Frames of floats k / 255 as their ``uint8`` k; a frame with any other value in it as it came, beside them.

    The same promises as every ``FrameStorage``: what came is what comes back, bit for bit, and nothing is refused. Two
    storages of the kind that ``make`` makes do the work, the second made when it is first needed::

        position        0    1    2    3    4    5
        came            f0   f1   x    f2   y    f3        f: all k / 255     x, y: anything else
        pixels          k0   k1   k1   k2   k2   k3        an exceptional frame repeats the pixels before it: no bytes
        exceptions                0         1              its ordinal is its position in the storage of floats

    Nothing is decided for a whole stream: an environment whose first odd frame comes after days goes on.
    """

    def __init__(self, make: Callable[[FrameSpec, int], FrameStorage], spec: FrameSpec, num_streams: int) -> None:
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

    def append(self, streams: npt.NDArray[np.int32], frames: npt.NDArray[Any]) -> None:
        """Store ``frames[i]`` at the next position of ``streams[i]`` (see ``FrameStorage``)."""
        pixels, is_exact = self._scaling.to_pixels(frames)
        with self._lock:
            if not is_exact.all():
                odd = np.flatnonzero(~is_exact)
                pixels[odd] = self._newest_pixels[streams[odd]]
                self._storage_of_exceptions().append(streams[odd], frames[odd])
                for stream in streams[odd].tolist():
                    self._exceptional[stream].append(self.held(stream).stop)
            self._newest_pixels[streams] = pixels
            self._pixels.append(streams, pixels)

    def start_reading(self) -> ScaledReading:
        """Give what can read the frames that are held now, at leisure (see ``FrameStorage``)."""
        with self._lock:
            logs = [copy(log) if len(log) else NO_POSITIONS for log in self._exceptional]
            pixels = self._pixels.start_reading()
            # Where there are no exceptions, none is asked of the reading that stands in for theirs.
            exceptions = self._exceptions.start_reading() if self._exceptions else pixels
            return ScaledReading(self._scaling, pixels, exceptions, logs)

    def evict(self, stream: int, before: int) -> None:
        """Allow the frames of ``stream`` below position ``before`` to go (see ``FrameStorage``)."""
        with self._lock:
            self._pixels.evict(stream, before)
            log = self._exceptional[stream]
            if len(log):
                log.drop(before_ordinal=int(log.ordinals_from(np.array([self.held(stream).start]))[0]))
                self._storage_of_exceptions().evict(stream, log.first_ordinal)

    def held(self, stream: int) -> range:
        """Positions of ``stream`` that can be read."""
        return self._pixels.held(stream)

    def segments(self, stream: int) -> Iterator[bytes]:
        """An index of the exceptional frames, then the segments of the pixels, then those of the exceptions."""
        log, exceptions = self._exceptional[stream], self._exceptions
        # Whole segments are evicted, so the log may begin later than they do.
        first_held = exceptions.held(stream).start if exceptions else 0
        index = bytearray(INDEX.pack(0, self.held(stream).stop, first_held, log.first_ordinal, len(log)))
        index += log.positions().astype("<i8").tobytes()
        index[:CHECKSUM_BYTES] = struct.pack("<I", checksum(index[CHECKSUM_BYTES:]))
        yield bytes(index)
        yield from self._pixels.segments(stream)
        if exceptions:
            yield from exceptions.segments(stream)

    def restore(self, stream: int, first_position: int, segments: Iterable[bytes]) -> None:
        """Fill an empty ``stream`` from what ``segments`` gave (see ``FrameStorage``)."""
        source = iter(segments)
        next_position, first_held, log = _read_index(next(source, b""))
        self._pixels.restore(stream, first_position, _until(self._pixels, stream, next_position, source))
        _check_length(self._pixels, stream, next_position)
        next_ordinal = log.first_ordinal + len(log)
        if next_ordinal:
            self._storage_of_exceptions().restore(stream, first_held, source)
            _check_length(self._storage_of_exceptions(), stream, next_ordinal)
        self._exceptional[stream] = log
        if next_position > first_position:
            newest, one = self._newest_pixels[stream][None, None], np.ones(1, np.int32)
            self._pixels.windows(np.array([stream], np.int32), np.array([next_position - 1]), one, newest)

    @property
    def num_frames(self) -> dict[str, int]:
        """Frames held: all k / 255, or exceptional."""
        held = sum(len(self.held(stream)) for stream in range(len(self._exceptional)))
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

    def _storage_of_exceptions(self) -> FrameStorage:
        if self._exceptions is None:
            self._exceptions = self._make_exceptions()
        return self._exceptions


def _read_index(segment: bytes) -> tuple[int, int, PositionLog]:
    """Next position of the stream, ordinal of the first exceptional frame held, and the log of where they are."""
    if len(segment) < INDEX.size or INDEX.unpack_from(segment)[0] != checksum(segment[CHECKSUM_BYTES:]):
        raise DamagedDataError(f"index of {len(segment)} bytes does not match its checksum: bytes were changed or lost")
    _, next_position, first_held, first_ordinal, num_positions = INDEX.unpack_from(segment)
    if len(segment) != INDEX.size + 8 * num_positions:
        raise DamagedDataError(f"index of {len(segment)} bytes cannot hold the {num_positions} positions that it tells")
    return next_position, first_held, PositionLog(first_ordinal, np.frombuffer(segment, "<i8", offset=INDEX.size))


def _check_length(storage: FrameStorage, stream: int, stop: int) -> None:
    if storage.held(stream).stop != stop:
        raise DamagedDataError(
            f"stream {stream} has frames up to {storage.held(stream).stop}: its index has them up to {stop}"
        )


def _until(storage: FrameStorage, stream: int, stop: int, segments: Iterator[bytes]) -> Iterator[bytes]:
    """Pass on segments for as long as ``storage``, which restores each as it comes, lacks frames below ``stop``."""
    while storage.held(stream).stop < stop:
        segment = next(segments, None)
        if segment is None:
            return
        yield segment
