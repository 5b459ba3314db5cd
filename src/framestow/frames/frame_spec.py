"""Shape and dtype of one frame, and how the packer sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import truth_value
from framestow.errors import InvalidSettingsError

MAX_CHANNELS_LAST = 4  # a last axis up to this long is taken for the channels of (H, W, C)
MAX_FRAME_BYTES = 2**30  # the packer's own bound
MAX_ITEM_BYTES = 8  # longer floats differ from machine to machine
SCALED_DTYPES = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True, init=False)
class FrameSpec:
    """Shape and dtype of one frame: ``(H, W)``, ``(H, W, C)``, ``(C, H, W)``, or any other shape from one axis on.

    The packer sees a frame as ``rows`` rows of ``row_bytes`` bytes whose pixels are ``pixel_bytes`` apart, b being the
    bytes of an element, 1 for ``uint8``:

    ==============  ==========================  =========  ===========
    shape           rows                        row_bytes  pixel_bytes
    ==============  ==========================  =========  ===========
    (H, W)          H                           W * b      b
    (H, W, C<=4)    H                           W * C * b  C * b
    (C, H, W)       C * H                       W * b      b
    ==============  ==========================  =========  ===========

    ``dtype`` is any boolean, integer or float of up to 8 bytes in the machine's byte order. ``is_scaled`` says that
    floats are pixels scaled to 0 to 1 (``uint8`` divided by 255), which are kept as ``uint8`` for as long as they are
    exactly that; frames come back bit for bit either way.

    >>> FrameSpec((84, 84)).nbytes, FrameSpec((84, 84), np.float32).nbytes
    (7056, 28224)
    >>> FrameSpec((64, 64, 3)).row_bytes, FrameSpec((3, 64, 64)).row_bytes
    (192, 64)
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_scaled: bool

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8, is_scaled: bool = False) -> None:
        for name, value in (
            ("shape", _checked_shape(shape)),
            ("dtype", _checked_dtype(dtype)),
            ("is_scaled", truth_value("is_scaled", is_scaled)),
        ):
            object.__setattr__(self, name, value)  # the only way into a frozen dataclass
        if self.nbytes > MAX_FRAME_BYTES:
            raise InvalidSettingsError(
                f"frame of shape {self.shape} and dtype {self.dtype} has {self.nbytes} bytes: it may have "
                f"{MAX_FRAME_BYTES}; give one frame's shape"
            )
        if self.is_scaled and self.dtype not in SCALED_DTYPES:
            raise InvalidSettingsError(
                f"frame dtype is {self.dtype}: scaled pixels are float16, float32 or float64; leave out is_scaled"
            )

    @classmethod
    def from_space(cls, space: Any) -> FrameSpec:
        """Read the spec off a Gymnasium ``Box``, or anything with ``shape`` and ``dtype``; Gymnasium is not imported.

        Floats of two axes or more whose ``low`` and ``high`` lie in 0 to 1 are taken for scaled pixels. Raises
        ``InvalidSettingsError`` for a space whose samples are not single arrays of numbers.
        """
        if isinstance(space, cls):
            return space
        shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
        if shape is None or dtype is None:
            raise InvalidSettingsError(
                f"observation_space is {space!r}: it must describe one frame by its shape and dtype; "
                "give a Box such as Box(0, 255, (84, 84), np.uint8)"
            )
        return cls(tuple(int(side) for side in shape), np.dtype(dtype), _holds_scaled_pixels(space))

    @property
    def is_column(self) -> bool:
        """Whether a frame is a vector of numbers and no picture: one axis of elements longer than a byte.

        Neighbouring bytes of such frames tell nothing about each other, so they are not packed.
        """
        return len(self.shape) == 1 and self.dtype.itemsize > 1

    @property
    def nbytes(self) -> int:
        """Bytes of one uncompressed frame."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def pixel_bytes(self) -> int:
        """Distance in bytes between a pixel and the next one of its row."""
        return self.dtype.itemsize * (self.shape[-1] if self._channels_last else 1)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the picture."""
        return self.dtype.itemsize * (math.prod(self.shape[-2:]) if self._channels_last else self.shape[-1])

    @property
    def rows(self) -> int:
        """Number of rows that the packer sees."""
        return self.nbytes // self.row_bytes

    @property
    def leaf_frames(self) -> tuple[FrameSpec, ...]:
        """The specs of all arrays that an observation is made of, as ``ObservationSpec`` has several: this one."""
        return (self,)

    def empty(self, *leading: int) -> npt.NDArray[Any]:
        """Make an array for frames behind the axes ``leading``, with arbitrary contents."""
        return np.empty((*leading, *self.shape), self.dtype)

    def rebuilt(self, frames: Any) -> Any:
        """Give frames in the form of the observation: as they are."""
        return frames

    def state(self) -> dict[str, Any]:
        """What a snapshot keeps: JSON-able values, the byte order among them."""
        return {"shape": list(self.shape), "dtype": self.dtype.str, "is_scaled": self.is_scaled}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> FrameSpec:
        """Read back what ``state`` gave; snapshots from before there were dtypes are of ``uint8``."""
        dtype = np.dtype(state.get("dtype", "uint8"))
        return cls(tuple(state["shape"]), dtype, state.get("is_scaled", False))

    @property
    def _channels_last(self) -> bool:
        return len(self.shape) == 3 and self.shape[-1] <= MAX_CHANNELS_LAST


def _checked_shape(told: tuple[int, ...]) -> tuple[int, ...]:
    try:
        shape = None if isinstance(told, (str, bytes)) else tuple(map(index, told))
    except TypeError:
        shape = None
    if not shape or min(shape) < 1 or any(isinstance(side, bool) for side in told):
        raise InvalidSettingsError(
            f"frame shape is {told!r}: every side must be a whole number of at least 1; give the shape of one "
            "frame, as (84, 84)"
        )
    return shape


def _checked_dtype(told: npt.DTypeLike) -> np.dtype[Any]:
    try:
        dtype = np.dtype(told)
    except TypeError as error:
        raise InvalidSettingsError(f"frame dtype is {told!r}: it must name a NumPy dtype, as 'float32'") from error
    if dtype.kind not in "biuf" or dtype.itemsize > MAX_ITEM_BYTES or not dtype.isnative:
        raise InvalidSettingsError(
            f"frame dtype is {dtype}: frames are booleans, integers or floats of up to {MAX_ITEM_BYTES} bytes in this "
            "machine's byte order; convert them in a wrapper"
        )
    return dtype


def _holds_scaled_pixels(space: Any) -> bool:
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if np.dtype(space.dtype) not in SCALED_DTYPES or len(space.shape) == 1 or low is None or high is None:
        return False
    return bool(np.all(np.asarray(low) >= 0) and np.all(np.asarray(high) <= 1))
