"""Describe the shape and dtype of one frame, its layout for the packer, and its part of an observation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.checks import is_number, numpy_dtype, truth_value
from framestow.errors import InvalidSettingsError
from framestow.interface import cached_property
from framestow.keywords import suggests_keywords

MAX_CHANNELS_LAST = 4  # a last axis of at most this length means channels, as in (H, W, C)
MAX_FRAME_BYTES = 2**30  # limit of the packer
MAX_ITEM_BYTES = 8  # longer floats differ between machines
SCALED_DTYPES = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))  # that may be pixels k / 255


@suggests_keywords
@dataclass(frozen=True, init=False)
class FrameSpec:
    """Shape and dtype of one frame: ``(H, W)``, ``(H, W, C)``, ``(C, H, W)``, or any other shape with an axis.

    The packer treats a frame as ``rows`` rows of ``row_bytes`` bytes, with ``pixel_bytes`` bytes per pixel. With b
    bytes per element (1 for ``uint8``):

    ==============  ==========================  =========  ===========
    shape           rows                        row_bytes  pixel_bytes
    ==============  ==========================  =========  ===========
    (H, W)          H                           W * b      b
    (H, W, C<=4)    H                           W * C * b  C * b
    (C, H, W)       C * H                       W * b      b
    ==============  ==========================  =========  ===========

    Colour pictures of three channels are packed pixel by pixel, whether their channels come last or first.

    ``dtype`` is any boolean, integer or float of up to 8 bytes in the machine's byte order. ``is_scaled`` means that
    the floats are ``uint8`` pixels divided by 255. Such frames are stored as ``uint8``, and frames with other values as
    floats. All frames are returned bit for bit.

    >>> import numpy as np
    >>> from framestow import FrameSpec
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
            ("shape", _check_shape(shape)),
            ("dtype", _check_dtype(dtype)),
            ("is_scaled", truth_value("is_scaled", is_scaled)),
        ):
            object.__setattr__(self, name, value)  # the dataclass is frozen
        if self.nbytes > MAX_FRAME_BYTES:
            raise InvalidSettingsError(
                f"frame of shape {self.shape} and dtype {self.dtype} has {self.nbytes} bytes: at most "
                f"{MAX_FRAME_BYTES} are allowed; give the shape of one frame"
            )
        if self.is_scaled and self.dtype not in SCALED_DTYPES:
            raise InvalidSettingsError(
                f"frame dtype is {self.dtype}: scaled pixels must be float16, float32 or float64; leave out is_scaled"
            )

    @classmethod
    def from_space(cls, space: Any) -> FrameSpec:
        """Return the spec of a Gymnasium ``Box``, or of any object with ``shape`` and ``dtype``.

        Floats with at least two axes and bounds within 0 to 1 become scaled pixels. Does not import Gymnasium. Raises
        ``InvalidSettingsError`` for a space whose samples are not single arrays of numbers.
        """
        if isinstance(space, cls):
            return space
        shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
        refuse_array("observation_space", space)
        if shape is None or dtype is None or isinstance(space, type):
            raise InvalidSettingsError(
                f"observation_space is {space!r}: it must have the shape and dtype of one frame; "
                "give a Box such as Box(0, 255, (84, 84), np.uint8)"
            )
        shape, dtype = _check_shape(shape), _check_dtype(dtype)
        return cls(shape, dtype, _holds_scaled_pixels(shape, dtype, space))

    @property
    def is_column(self) -> bool:
        """Whether a frame is a vector of numbers, not an image: one axis, and more than a byte per element.

        Such frames are not packed, since they hardly compress.
        """
        return len(self.shape) == 1 and self.dtype.itemsize > 1

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one uncompressed frame."""
        return math.prod(self.shape) * self.dtype.itemsize

    @cached_property
    def pixel_bytes(self) -> int:
        """Bytes of one pixel."""
        return self.dtype.itemsize * (self.shape[-1] if self._channels_last else 1)

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row of the image."""
        return self.dtype.itemsize * (math.prod(self.shape[-2:]) if self._channels_last else self.shape[-1])

    @cached_property
    def rows(self) -> int:
        """Number of rows, as the packer counts them."""
        return self.nbytes // self.row_bytes

    @property
    def has_colour_planes(self) -> bool:
        """Whether a frame is a colour picture with channels first: ``(3, H, W)`` with a byte per element."""
        return self.shape[0] == 3 and len(self.shape) == 3 and self.dtype.itemsize == 1 and not self._channels_last

    def empty(self, *leading: int) -> npt.NDArray[Any]:
        """Return an uninitialized array for frames, ``(*leading, *shape)``."""
        return np.empty((*leading, *self.shape), self.dtype)

    def state(self) -> dict[str, Any]:
        """Return the spec as JSON-able values, including the byte order."""
        return {"shape": list(self.shape), "dtype": self.dtype.str, "is_scaled": self.is_scaled}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> FrameSpec:
        """Return the spec that ``state`` returned the values of; without a dtype it is ``uint8``."""
        dtype = np.dtype(state.get("dtype", "uint8"))
        return cls(tuple(state["shape"]), dtype, state.get("is_scaled", False))

    @cached_property
    def _channels_last(self) -> bool:
        return len(self.shape) == 3 and self.shape[-1] <= MAX_CHANNELS_LAST


@dataclass(frozen=True)
class ArraySpec:
    """One array of an observation: its path, and the spec of its frames.

    A scalar, such as a ``Discrete``, is stored as a vector with one element (``has_axes`` is False).
    """

    path: tuple[str | int, ...]
    frame: FrameSpec
    has_axes: bool = True

    @property
    def key(self) -> str:
        """The path as a name for tables: keys and numbers joined by dots.

        >>> ArraySpec(("arm", 0), FrameSpec((7,), np.float32)).key
        'arm.0'
        """
        return ".".join(map(str, self.path))

    @property
    def subscript(self) -> str:
        """The path as Python code that follows the name of an observation.

        >>> ArraySpec(("arm", 0), FrameSpec((7,), np.float32)).subscript
        "['arm'][0]"
        """
        return "".join(f"[{key!r}]" for key in self.path)

    @property
    def observed_shape(self) -> tuple[int, ...]:
        """Shape as it is observed: a scalar has no axis."""
        return self.frame.shape if self.has_axes else self.frame.shape[:-1]

    @cached_property
    def num_axes(self) -> int:
        """Number of axes as it is observed."""
        return len(self.observed_shape)

    def as_stored(self, frames: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return observed frames, ``(n, *shape)``, as they are stored: scalars get an axis."""
        return frames if self.has_axes else frames.reshape(*frames.shape, 1)

    def of(self, observation: Any) -> npt.NDArray[Any]:
        """Return a view of this array's frames in ``observation``, as they are stored.

        >>> ArraySpec(("arm", 0), FrameSpec((1,)), has_axes=False).of(
        ...     {"arm": (np.array([7, 8]),)}
        ... ).tolist()
        [[7], [8]]
        """
        for key in self.path:
            observation = observation[key]
        return self.as_stored(observation)

    def as_observed(self, frames: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a view of stored frames as they were observed: scalars lose their axis."""
        return frames if self.has_axes else frames[..., 0]


def refuse_array(name: str, space: Any) -> None:
    """Raise ``InvalidSettingsError`` if ``space`` is an array or a tensor; the message calls it ``name``."""
    if hasattr(space, "__array__") and not isinstance(space, type):
        shape, dtype = tuple(space.shape), str(space.dtype).removeprefix("torch.")
        raise InvalidSettingsError(
            f"{name} is an array of shape {shape} and dtype {dtype}: a space describes arrays, and is none; give "
            f"FrameSpec({shape}, np.{dtype}), or a Box of this shape and dtype"
        )


def _check_shape(given: tuple[int, ...]) -> tuple[int, ...]:
    try:
        shape = None if isinstance(given, (str, bytes)) else tuple(map(index, given))
    except TypeError:
        shape = None
    if not shape or min(shape) < 1 or any(isinstance(side, bool) for side in given):
        raise InvalidSettingsError(
            f"frame shape is {given!r}: every side must be a whole number of at least 1; give the shape of one "
            "frame, such as (84, 84)"
        )
    return shape


def _check_dtype(given: npt.DTypeLike) -> np.dtype[Any]:
    dtype = numpy_dtype("frame dtype", given)
    if not is_number(dtype) or dtype.itemsize > MAX_ITEM_BYTES or not dtype.isnative:
        raise InvalidSettingsError(
            f"frame dtype is {dtype}: frames must be booleans, integers or floats of up to {MAX_ITEM_BYTES} bytes in "
            "this machine's byte order; convert them in a wrapper"
        )
    return dtype


def _holds_scaled_pixels(shape: tuple[int, ...], dtype: np.dtype[Any], space: Any) -> bool:
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if dtype not in SCALED_DTYPES or len(shape) == 1 or low is None or high is None:
        return False
    return bool(np.all(np.asarray(low) >= 0) and np.all(np.asarray(high) <= 1))
