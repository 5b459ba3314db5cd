"""Compress consecutive frames into a segment of bytes, and decompress it, without loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from framestow._core import (
    checksum,
    default_frames_per_segment,
    inspect_segment,
    pack_segment,
    unpack_segment,
    verify_segment,
)
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

__all__ = ["SegmentCodec", "bytes_of", "checksum"]


def bytes_of(array: NDArray[Any], leading_axes: int = 1) -> NDArray[np.uint8]:
    """View ``array`` (C order) as bytes, keeping its first ``leading_axes``; the native core takes this form.

    >>> bytes_of(np.array([[1.0], [2.0]], np.float16)).tolist()
    [[0, 60], [0, 64]]
    """
    shape = array.shape
    return array.reshape(*shape[:leading_axes], math.prod(shape[leading_axes:])).view(np.uint8)


class SegmentCodec:
    """Pack consecutive frames of one environment losslessly: a base frame and patches, or raw bytes if smaller.

    A segment is self-contained, has a CRC-32C checksum, and is the same on every machine. The codec has no state, so
    threads may share it.

    >>> import numpy as np
    >>> codec = SegmentCodec(FrameSpec((84, 84)))
    >>> frames = np.zeros((64, 84, 84), np.uint8)
    >>> for step in range(64):
    ...     frames[step, 40:42, step : step + 3] = 200  # a ball moves over an empty field
    >>> segment = codec.pack(frames)
    >>> frames.nbytes, len(segment)
    (451584, 772)
    >>> np.array_equal(codec.unpack(segment), frames)
    True
    """

    def __init__(self, spec: FrameSpec) -> None:
        self.spec = spec

    @property
    def frames_per_segment(self) -> int:
        """Default number of frames per segment: enough to make the cost of the base frame small."""
        return default_frames_per_segment(self.spec.rows, self.spec.row_bytes, self.spec.pixel_bytes)

    def pack(self, frames: NDArray[Any]) -> bytes:
        r"""Return a segment with ``frames``, ``(n, *spec.shape)`` of ``spec.dtype`` with n >= 1.

        Raises:
            InvalidSettingsError: another shape or dtype.

        >>> import numpy as np
        >>> segment = SegmentCodec(FrameSpec((2, 2))).pack(np.array([[[1, 2], [3, 4]]], np.uint8))
        >>> segment[24:]  # four bytes do not compress: they are stored raw
        b'\x01\x02\x03\x04'
        """
        spec = self.spec
        if frames.dtype != spec.dtype or frames.shape[1:] != spec.shape or len(frames) == 0:
            raise InvalidSettingsError(
                f"frames are {frames.dtype} of shape {frames.shape}: they must be {spec.dtype} of shape "
                f"(n, {str(spec.shape)[1:]} with n at least 1; pass the frames as the environment returned them"
            )
        return pack_segment(
            bytes_of(np.ascontiguousarray(frames)), spec.rows, spec.row_bytes, spec.pixel_bytes, spec.has_colour_planes
        )

    def unpack(self, segment: Buffer, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Verify ``segment`` and return its frames, ``(n, *spec.shape)``, in ``out`` or in a new array.

        Raises:
            DamagedDataError: a byte was changed or the frames have another shape.
            InvalidSettingsError: ``out`` does not fit.

        >>> import numpy as np
        >>> codec = SegmentCodec(FrameSpec((1, 3)))
        >>> segment = bytearray(codec.pack(np.array([[[7, 7, 9]]], np.uint8)))
        >>> codec.unpack(segment)
        array([[[7, 7, 9]]], dtype=uint8)
        >>> segment[25] ^= 1
        >>> codec.unpack(segment)
        Traceback (most recent call last):
        ...
        framestow.errors.DamagedDataError: segment of 27 bytes does not match its checksum: bytes were changed or ...
        """
        spec = self.spec
        verify_segment(segment)  # before allocating what the header asks for
        fields = inspect_segment(segment)
        geometry = fields["rows"], fields["row_bytes"], fields["pixel_bytes"]
        if geometry != (spec.rows, spec.row_bytes, spec.pixel_bytes):
            raise DamagedDataError(
                f"segment has frames of (rows, row_bytes, pixel_bytes) {geometry}: frames of shape {spec.shape} have "
                f"{spec.rows, spec.row_bytes, spec.pixel_bytes}; use the spec that it was packed with"
            )
        shape = fields["num_frames"], *spec.shape
        if out is None:
            out = np.empty(shape, spec.dtype)
        elif out.dtype != spec.dtype or out.shape != shape or not out.flags.c_contiguous:
            raise InvalidSettingsError(
                f"out is {out.dtype} of shape {out.shape}: it must be {spec.dtype} of shape {shape} in C order; "
                "leave it out for a new array"
            )
        unpack_segment(segment, spec.rows, spec.row_bytes, spec.pixel_bytes, bytes_of(out))
        return out
