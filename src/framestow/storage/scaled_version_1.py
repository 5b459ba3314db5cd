"""How memories of format version 1 kept scaled floats: three lists a stream, none of which stands alone."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import inspect_segment
from framestow.errors import DamagedDataError
from framestow.frames.codec import SegmentCodec, checksum
from framestow.frames.frame_spec import FrameSpec
from framestow.storage.scaled_segment import ScaledSegment

# CRC-32C of the rest, next position, ordinal of the first float frame held, that of the first position, number of
# positions; the positions follow, 8 bytes each.
INDEX = struct.Struct("<Iqqqq")
CHECKSUM_BYTES = 4


def segments_that_stand_alone(
    spec: FrameSpec, frames_per_segment: int, first_position: int, segments: Iterable[bytes]
) -> Iterator[bytes]:
    """Turn what version 1 kept of a stream of scaled floats into segments as ``ScaledPixels`` takes them now.

    ``segments``: the index of the exceptional frames, the packed pixels from ``first_position`` on, then the packed
    exceptional frames. One of those is unpacked at a time. Raises ``DamagedDataError`` for a lost or changed one.
    """
    source = iter(segments)
    next_position, first_held, first_ordinal, positions = _read_index(next(source, b""))
    starts = range(first_position, next_position, frames_per_segment)
    pixels = [next(source, b"") for _ in starts]
    frames = _frames(SegmentCodec(replace(spec, is_scaled=False)), source)
    for _ in range(first_ordinal - first_held if len(positions) else 0):
        next(frames, None)  # of a position that was evicted already
    for start, packed in zip(starts, pixels, strict=True):
        num_frames, due = inspect_segment(packed)["num_frames"], min(frames_per_segment, next_position - start)
        if num_frames != due:
            raise DamagedDataError(f"segment at position {start} holds {num_frames} frames of pixels: {due} are told")
        begin, end = np.searchsorted(positions, (start, start + frames_per_segment)).tolist()
        exact = b""
        if begin < end:
            held = [frame for _, frame in zip(range(begin, end), frames, strict=False)]
            if len(held) < end - begin:
                raise DamagedDataError(
                    f"{end - begin - len(held)} exceptional frames from position {start} on are lost"
                )
            exact = SegmentCodec(replace(spec, is_scaled=False)).pack(np.stack(held))
        yield ScaledSegment(packed, positions[begin:end] - start, exact).to_bytes()


def _read_index(index: bytes) -> tuple[int, int, int, npt.NDArray[np.int64]]:
    """Next position of the stream, ordinals of the first float frame and of the first position, the positions."""
    if len(index) < INDEX.size or INDEX.unpack_from(index)[0] != checksum(index[CHECKSUM_BYTES:]):
        raise DamagedDataError(f"index of {len(index)} bytes does not match its checksum: bytes were changed or lost")
    _, next_position, first_held, first_ordinal, num_positions = INDEX.unpack_from(index)
    if len(index) != INDEX.size + 8 * num_positions:
        raise DamagedDataError(f"index of {len(index)} bytes cannot hold the {num_positions} positions that it tells")
    return next_position, first_held, first_ordinal, np.frombuffer(index, "<i8", offset=INDEX.size)


def _frames(codec: SegmentCodec, segments: Iterator[bytes]) -> Iterator[npt.NDArray[Any]]:
    for segment in segments:
        yield from codec.unpack(segment)
