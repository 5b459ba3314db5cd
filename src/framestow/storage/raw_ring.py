"""Uncompressed frames in RAM."""

from __future__ import annotations

import math
import mmap
import sys
import threading
from itertools import takewhile
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.frames.codec import SegmentCodec
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import StackPadding, pad_window
from framestow.storage.frame_storage import FrameStorage


def private_pages(num_bytes: int) -> mmap.mmap:
    """Take pages of zeros that no other process sees, as many as hold ``num_bytes``; they go back with the object.

    An allocator would keep what is freed for itself once it has seen a few large blocks: 10 % of 64 MiB of raw frames.
    """
    size = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


Chunk = npt.NDArray[Any]
MAX_RETIRED_CHUNKS = 16
LARGE_CHUNK = 1 << 20  # bytes from which on it has pages of its own; a process may have some 65,000 such areas
CHUNK_CHARGE, STREAM_CHARGE = 512, 1024  # bytes of the objects that a chunk and a stream take
DROPPED_READING_S = 0.05  # how often to look for readings that were collected without being stopped


class RawReading:
    """What a ``RawRing`` held when it started: it is handed every chunk that is evicted meanwhile."""

    def __init__(self, ring: RawRing) -> None:
        self._ring = ring
        self.retired: dict[tuple[int, int], Chunk] = {}  # by stream and number of the chunk

    def windows(
        self,
        streams: npt.NDArray[np.int32],
        last_positions: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        out: npt.NDArray[Any],
        padding: StackPadding = "first_frame",
    ) -> None:
        """Write one window of consecutive frames for each row of ``out`` (see ``FrameStorage``)."""
        self._ring.read(self, streams, last_positions, counts, out, padding)

    def stop(self) -> None:
        """Let go of what was evicted meanwhile."""
        self._ring.stop_reading(self)


class RawRing(FrameStorage):
    """Frames as they came, in chunks of a fixed number of frames a stream.

    The plain counterpart of the packed storage: the same promises (``FrameStorage``), a byte for every byte. It is also
    where vectors of numbers are kept, which would not shrink.
    Its chunks cover the same positions as packed segments, so snapshots of either load into the other. Frames are
    looked up under a lock and copied without it: nobody writes where a reading may look.
    """

    def __init__(
        self, spec: FrameSpec, num_streams: int, frames_per_segment: int | None = None, step_bytes: int = 0
    ) -> None:
        self._spec = spec
        self._codec = SegmentCodec(spec)
        self._chunk_frames = frames_per_segment if frames_per_segment is not None else self._codec.frames_per_segment
        self._chunk_bytes = self._chunk_frames * spec.nbytes
        self.charge_steps(step_bytes)
        # By number, ascending. They alone say what is stored: Ctrl-C may come between any two changes.
        self._chunks: list[dict[int, Chunk]] = [{} for _ in range(num_streams)]
        self._next_position = [0] * num_streams
        self._readings: WeakSet[RawReading] = WeakSet()
        self._lock = threading.Lock()
        self._a_reading_stopped = threading.Condition(self._lock)

    @property
    def frames_per_segment(self) -> int:
        """Frames of a chunk."""
        return self._chunk_frames

    def append(self, streams: npt.NDArray[np.int32], frames: npt.NDArray[Any]) -> int:
        """Store ``frames[i]`` at the next position of ``streams[i]`` (see ``FrameStorage``)."""
        with self._lock:
            for stream, frame in zip(streams.tolist(), frames, strict=True):
                number, place = divmod(self._next_position[stream], self._chunk_frames)
                if place == 0:
                    self._chunks[stream][number] = self._new_chunk()
                self._chunks[stream][number][place] = frame
                self._next_position[stream] += 1
            return self.charged_bytes

    def start_reading(self) -> RawReading:
        """Give what can read the frames that are held now, at leisure (see ``FrameStorage``)."""
        reading = RawReading(self)
        with self._lock:
            self._readings.add(reading)
        return reading

    def stop_reading(self, reading: RawReading) -> None:
        """Forget ``reading``, and what was evicted since it started."""
        with self._lock:
            self._readings.discard(reading)
            reading.retired.clear()
            self._a_reading_stopped.notify_all()

    def read(
        self,
        reading: RawReading,
        streams: npt.NDArray[np.int32],
        last_positions: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        out: npt.NDArray[Any],
        padding: StackPadding = "first_frame",
    ) -> None:
        """Write what ``reading`` is asked for.

        All windows are put together by one call: 32 of five vectors take 20 µs, where copying each by itself took 90.
        """
        if not len(out):
            return
        length, runs, padded = out.shape[1], list[Chunk](), list[tuple[int, int]]()
        with self._lock:
            if reading not in self._readings:
                raise ValueError("this reading has stopped: frames that it saw may be gone; start another")
            wanted = zip(streams.tolist(), last_positions.tolist(), counts.tolist(), strict=True)
            for row, (stream, last, count) in enumerate(wanted):
                if count < length:
                    padded.append((row, length - count))
                    runs.append(np.empty((length - count, *self._spec.shape), self._spec.dtype))
                number, place = divmod(last, self._chunk_frames)
                chunk = self._chunks[stream].get(number)
                if chunk is not None and 1 <= count <= min(place + 1, length) and last < self._next_position[stream]:
                    runs.append(chunk[place + 1 - count : place + 1])  # it lies in one chunk, as nearly all do
                else:
                    runs += self._runs(reading, row, stream, last, count, length)
        np.concatenate(runs, out=out.reshape(-1, *out.shape[2:]))
        for row, num_padded in padded:
            pad_window(out[row], num_padded, padding)

    def evict(self, stream: int, before: int, first: int = 0) -> None:
        """Let go of the chunks of ``stream`` that lie wholly in ``first`` up to ``before`` (see ``FrameStorage``)."""
        with self._lock:
            while len(self._retired()) >= MAX_RETIRED_CHUNKS:
                self._a_reading_stopped.wait(DROPPED_READING_S)
            chunks, sealed_end = self._chunks[stream], self._next_position[stream]
            begin, end = -(-first // self._chunk_frames), min(before, sealed_end) // self._chunk_frames
            for number in list(takewhile(lambda number: number < end, chunks)):
                if number >= begin:
                    for reading in list(self._readings):  # before it leaves: an interrupted call can be made again
                        reading.retired[stream, number] = chunks[number]
                    del chunks[number]

    def held(self, stream: int) -> range:
        """Positions of ``stream`` from the oldest frame held to the next one (see ``FrameStorage``)."""
        with self._lock:
            return self._held(stream)

    def _held(self, stream: int) -> range:
        stop = self._next_position[stream]
        first = next(iter(self._chunks[stream]), stop // self._chunk_frames)
        return range(first * self._chunk_frames, stop)

    def sealed_segments(self, stream: int) -> npt.NDArray[np.int64]:
        """Numbers of the chunks of ``stream`` that are held and full, ascending."""
        with self._lock:
            numbers = np.array(list(self._chunks[stream]), np.int64)
            return numbers[numbers < self._next_position[stream] // self._chunk_frames]

    def segment(self, stream: int, number: int) -> bytes:
        """Pack the frames of a chunk (see ``FrameStorage``)."""
        with self._lock:
            chunk = self._chunks[stream].get(number)
            if chunk is None:
                raise IndexError(
                    f"segment {number} of stream {stream} is not stored: those with positions "
                    f"{self._held(stream).start} to {self._next_position[stream] - 1} are, but for what was evicted"
                )
            frames = chunk[: self._next_position[stream] - number * self._chunk_frames]
        return self._codec.pack(frames)

    def restore(self, stream: int, number: int, segment: bytes) -> None:
        """Put the frames of a segment behind what ``stream`` holds (see ``FrameStorage``)."""
        open_number, num_open = divmod(self._next_position[stream], self._chunk_frames)
        if number < (open_number if self._chunks[stream] else 0) or num_open:
            raise ValueError(
                f"segment {number} of stream {stream} does not follow what is held: restore segments in the order of "
                "their numbers, and nothing after one that is not full"
            )
        frames = self._codec.unpack(segment)
        if len(frames) > self._chunk_frames:
            raise DamagedDataError(
                f"segment {number} of stream {stream} holds {len(frames)} frames: expected at most {self._chunk_frames}"
            )
        chunk = self._new_chunk()
        chunk[: len(frames)] = frames
        with self._lock:
            self._chunks[stream][number] = chunk
            self._next_position[stream] = number * self._chunk_frames + len(frames)

    def begin_at(self, stream: int, number: int) -> None:
        """Let ``stream``, of which nothing is held, go on with the first frame of chunk ``number``."""
        with self._lock:
            if self._chunks[stream]:
                raise ValueError(f"stream {stream} cannot begin at segment {number}: it holds frames")
            self._next_position[stream] = number * self._chunk_frames

    @property
    def charged_bytes(self) -> int:
        """What counts against a budget (see ``FrameStorage``)."""
        return len(self._chunks) * STREAM_CHARGE + sum(map(len, self._chunks)) * self._chunk_charge

    def charge_steps(self, step_bytes: int) -> None:
        """Charge so much for the step of each frame (see ``FrameStorage``)."""
        self._chunk_charge = self._chunk_bytes + self._chunk_frames * step_bytes + CHUNK_CHARGE

    @property
    def num_frames(self) -> dict[str, int]:
        """Frames held."""
        with self._lock:
            num_held = 0
            for chunks, stop in zip(self._chunks, self._next_position, strict=True):
                number, num_open = divmod(stop, self._chunk_frames)
                num_held += (len(chunks) - (number in chunks)) * self._chunk_frames + num_open
        return {"raw": num_held}

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes held, by part: whole chunks and those that readings keep; the written pages of those being filled."""
        with self._lock:
            open_bytes = [self._open_bytes(position % self._chunk_frames) for position in self._next_position]
            num_chunks = sum(map(len, self._chunks)) + len(self._retired()) - sum(map(bool, open_bytes))
        return {"frames": self._chunk_bytes * num_chunks, "open segments": sum(open_bytes)}

    # What follows wants the lock held.

    def _runs(self, reading: RawReading, row: int, stream: int, last: int, count: int, length: int) -> list[Chunk]:
        """Views of the frames of one window, chunk by chunk."""
        first, held = last - count + 1, self._held(stream)
        numbers = range(first // self._chunk_frames, last // self._chunk_frames + 1)
        chunks = [self._chunk(reading, stream, number) for number in numbers]
        if not 1 <= count <= length or last >= held.stop or any(chunk is None for chunk in chunks):
            raise IndexError(
                f"window {row} wants {count} frames of stream {stream} up to position {last}: "
                f"positions {held.start} to {held.stop - 1} are held and a window takes 1 to {length} frames"
            )
        starts = [number * self._chunk_frames for number in numbers]
        return [
            chunk[max(first - start, 0) : last + 1 - start]
            for start, chunk in zip(starts, chunks, strict=True)
            if chunk is not None
        ]

    def _chunk(self, reading: RawReading, stream: int, number: int) -> Chunk | None:
        chunk = self._chunks[stream].get(number)
        return reading.retired.get((stream, number)) if chunk is None else chunk

    def _retired(self) -> set[tuple[int, int]]:
        """Stream and number of each chunk that readings keep."""
        return {place for reading in list(self._readings) for place in reading.retired}

    def _open_bytes(self, num_frames: int) -> int:
        """Bytes of a chunk with so many frames so far."""
        if self._chunk_bytes < LARGE_CHUNK:
            return self._chunk_bytes if num_frames else 0
        return -(-num_frames * self._spec.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE

    def _new_chunk(self) -> Chunk:
        shape = (self._chunk_frames, *self._spec.shape)
        if self._chunk_bytes < LARGE_CHUNK:
            return np.empty(shape, self._spec.dtype)
        return np.frombuffer(private_pages(self._chunk_bytes), self._spec.dtype, math.prod(shape)).reshape(shape)
