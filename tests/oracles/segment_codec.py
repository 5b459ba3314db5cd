"""Pack frames into one segment and unpack it, by the native calls that a storage makes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from framestow._core import default_frames_per_segment, pack_segment, unpack_segment, verify_segment
from framestow.frames.frame_spec import FrameSpec


class SegmentCodec:
    """Packs frames of one shape and dtype."""

    def __init__(self, spec: FrameSpec) -> None:
        self.spec = spec
        self.frames_per_segment = default_frames_per_segment(spec.rows, spec.row_bytes, spec.pixel_bytes)

    def pack(self, frames: NDArray[Any]) -> bytes:
        """Return a segment with ``frames``, ``(n, *spec.shape)``."""
        spec = self.spec
        return pack_segment(
            _bytes_of(np.ascontiguousarray(frames)), spec.rows, spec.row_bytes, spec.pixel_bytes, spec.has_colour_planes
        )

    def unpack(self, segment: Any) -> NDArray[Any]:
        """Verify ``segment`` and return its frames, ``(n, *spec.shape)``."""
        spec = self.spec
        frames = np.empty((verify_segment(segment), *spec.shape), spec.dtype)
        unpack_segment(segment, spec.rows, spec.row_bytes, spec.pixel_bytes, _bytes_of(frames))
        return frames


def _bytes_of(frames: NDArray[Any]) -> NDArray[np.uint8]:
    return frames.reshape(len(frames), -1).view(np.uint8)
