"""The bytes of a segment of scaled floats: packed pixels, and the frames that are none."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.frames.codec import checksum

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
