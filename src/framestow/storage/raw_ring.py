"""Uncompressed frames in RAM."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.frames.codec import SegmentCodec
from framestow.frames.frame_spec import FrameSpec


class RawRing:
    """Frames as they came, in chunks of a fixed number of frames a stream; a chunk that is let go is used again.

    The plain counterpart of the packed storage: the same promises (``FrameStorage``), a byte for every byte. It is also
    where vectors of numbers are kept, which would not shrink.
    Its chunks cover the same positions as packed segments, so snapshots of either load into the other.
    """

    def __init__(self, spec: FrameSpec, num_streams: int) -> None:
        self._spec = spec
        self._codec = SegmentCodec(spec)
        self._chunk_frames = self._codec.frames_per_segment
        self._chunks: list[deque[npt.NDArray[Any]]] = [deque() for _ in range(num_streams)]
        self._first_chunk = [0] * num_streams
        self._next_position = [0] * num_streams
        self._spare: list[npt.NDArray[Any]] = []

    @property
    def frames_per_segment(self) -> int:
        """Frames of a chunk."""
        return self._chunk_frames

    def append(self, streams: npt.NDArray[np.int32], frames: npt.NDArray[Any]) -> None:
        """Store ``frames[i]`` at the next position of ``streams[i]`` (see ``FrameStorage``)."""
        for stream, frame in zip(streams.tolist(), frames, strict=True):
            position = self._next_position[stream]
            if position % self._chunk_frames == 0:
                self._chunks[stream].append(self._spare.pop() if self._spare else self._new_chunk())
            self._chunks[stream][-1][position % self._chunk_frames] = frame
            self._next_position[stream] = position + 1

    def windows(
        self,
        streams: npt.NDArray[np.int32],
        last_positions: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        out: npt.NDArray[Any],
    ) -> None:
        """Write one window of consecutive frames for each row of ``out`` (see ``FrameStorage``)."""
        wanted = list(zip(streams.tolist(), last_positions.tolist(), counts.tolist(), strict=True))
        for row, (stream, last, count) in enumerate(wanted):
            held = self.held(stream)
            if not 1 <= count <= out.shape[1] or last - count + 1 < held.start or last >= held.stop:
                raise IndexError(
                    f"window {row} wants {count} frames of stream {stream} up to position {last}: "
                    f"positions {held.start} to {held.stop - 1} are held and a window takes 1 to {out.shape[1]} frames"
                )
        for row, (stream, last, count) in enumerate(wanted):
            self._copy_run(stream, last - count + 1, out[row, out.shape[1] - count :])
            out[row, : out.shape[1] - count] = out[row, out.shape[1] - count]

    def evict(self, stream: int, before: int) -> None:
        """Let go of the chunks of ``stream`` that lie wholly below position ``before``."""
        while self._chunks[stream] and (self._first_chunk[stream] + 1) * self._chunk_frames <= before:
            if (self._first_chunk[stream] + 1) * self._chunk_frames > self._next_position[stream]:
                break  # the chunk that is being filled stays
            self._spare.append(self._chunks[stream].popleft())
            self._first_chunk[stream] += 1

    def held(self, stream: int) -> range:
        """Positions of ``stream`` that can be read."""
        return range(self._first_chunk[stream] * self._chunk_frames, self._next_position[stream])

    def segments(self, stream: int) -> Iterator[bytes]:
        """Packed segments of ``stream``, oldest first; packed here, for a snapshot."""
        held = self.held(stream)
        for start, chunk in zip(held[:: self._chunk_frames], self._chunks[stream], strict=True):
            yield self._codec.pack(chunk[: min(self._chunk_frames, held.stop - start)])

    def restore(self, stream: int, first_position: int, segments: Iterable[bytes]) -> None:
        """Fill an empty ``stream`` from packed segments (see ``FrameStorage``)."""
        self._first_chunk[stream] = first_position // self._chunk_frames
        self._next_position[stream] = first_position
        for segment in segments:
            if self._next_position[stream] % self._chunk_frames:
                raise DamagedDataError(
                    f"stream {stream} has a short segment before position {self._next_position[stream]}: "
                    "only the last one may be short; take an older save"
                )
            frames = self._codec.unpack(segment)
            chunk = self._new_chunk()
            chunk[: len(frames)] = frames
            self._chunks[stream].append(chunk)
            self._next_position[stream] += len(frames)

    @property
    def num_frames(self) -> dict[str, int]:
        """Frames held."""
        return {"raw": sum(len(self.held(stream)) for stream in range(len(self._chunks)))}

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes held, by part: chunks in use, and chunks waiting to be used again."""
        chunk_bytes = self._chunk_frames * self._spec.nbytes
        return {
            "frames": chunk_bytes * sum(len(chunks) for chunks in self._chunks),
            "spare chunks": chunk_bytes * len(self._spare),
        }

    def _copy_run(self, stream: int, start: int, out: npt.NDArray[Any]) -> None:
        copied = 0
        while copied < len(out):
            chunk, offset = divmod(start + copied, self._chunk_frames)
            taken = min(self._chunk_frames - offset, len(out) - copied)
            source = self._chunks[stream][chunk - self._first_chunk[stream]]
            out[copied : copied + taken] = source[offset : offset + taken]
            copied += taken

    def _new_chunk(self) -> npt.NDArray[Any]:
        return np.empty((self._chunk_frames, *self._spec.shape), self._spec.dtype)
