"""The shape of one frame, and how the packer sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from framestow.errors import InvalidSettingsError

MAX_CHANNELS_LAST = 4  # a last axis up to this long is taken for the channels of (H, W, C)


@dataclass(frozen=True)
class FrameSpec:
    """Shape of one ``uint8`` frame: ``(H, W)``, ``(H, W, C)``, ``(C, H, W)``, or any other shape of whole bytes.

    The packer sees a frame as ``rows`` rows of ``row_bytes`` bytes whose pixels are ``pixel_bytes`` apart:

    ==============  ==========================  =========  ===========
    shape           rows                        row_bytes  pixel_bytes
    ==============  ==========================  =========  ===========
    (H, W)          H                           W          1
    (H, W, C<=4)    H                           W * C      C
    (C, H, W)       C * H                       W          1
    ==============  ==========================  =========  ===========

    >>> FrameSpec((84, 84)).nbytes
    7056
    >>> FrameSpec((64, 64, 3)).row_bytes, FrameSpec((3, 64, 64)).row_bytes
    (192, 64)
    """

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.shape or any(int(side) < 1 for side in self.shape):
            raise InvalidSettingsError(
                f"frame shape is {self.shape}: every side must be at least 1; give the shape of one frame, as (84, 84)"
            )

    @classmethod
    def from_space(cls, space: Any) -> FrameSpec:
        """Read the spec off a Gymnasium ``Box``, or anything with ``shape`` and ``dtype``; Gymnasium is not imported.

        Raises ``InvalidSettingsError`` for a space whose samples are not single ``uint8`` arrays.
        """
        if isinstance(space, cls):
            return space
        shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
        if shape is None or dtype is None:
            raise InvalidSettingsError(
                f"observation_space is {space!r}: it must describe one picture by its shape and dtype; "
                "give a Box such as Box(0, 255, (84, 84), np.uint8)"
            )
        if np.dtype(dtype) != np.uint8:
            raise InvalidSettingsError(
                f"observation_space has dtype {np.dtype(dtype)}: frames are stored as uint8, losslessly; "
                "give the environment's unscaled uint8 frames and scale after sampling"
            )
        return cls(tuple(int(side) for side in shape))

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """Element type of a frame, always ``uint8``."""
        return np.dtype(np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes of one uncompressed frame."""
        return math.prod(self.shape)

    @property
    def pixel_bytes(self) -> int:
        """Distance in bytes between a pixel and the next one of its row."""
        return self.shape[-1] if self._channels_last else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the picture."""
        return math.prod(self.shape[-2:]) if self._channels_last else self.shape[-1]

    @property
    def rows(self) -> int:
        """Number of rows that the packer sees."""
        return self.nbytes // self.row_bytes

    @property
    def _channels_last(self) -> bool:
        return len(self.shape) == 3 and self.shape[-1] <= MAX_CHANNELS_LAST
