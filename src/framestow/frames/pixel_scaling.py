"""Pixels scaled to 0 to 1, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.frames.frame_spec import SCALED_DTYPES

LARGEST_PIXEL = 255


class PixelScaling:
    """The 256 floats k / 255 of one dtype, and the ``uint8`` k that each stands for.

    k / 255 is the quotient rounded to the nearest float, as ``frame.astype(dtype) / dtype(255)`` gives it. All else is
    no scaled pixel: ``-0.0``, NaN, and also ``k * dtype(1 / 255)``, which differs in the last bit for 126 of the 256
    in ``float32``. Stateless apart from its table; any number of threads may share one.

    >>> scaling = PixelScaling(np.dtype(np.float32))
    >>> frames = np.array([[0, 128, 255], [0, 128, 254.9]], np.float32) / np.float32(255)
    >>> pixels, is_exact = scaling.to_pixels(frames)
    >>> pixels[0], is_exact
    (array([  0, 128, 255], dtype=uint8), array([ True, False]))
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        if dtype not in SCALED_DTYPES:
            raise TypeError(f"dtype is {dtype}: scaled pixels are float16, float32 or float64")
        self._dtype = dtype
        self._bits = np.dtype(f"u{dtype.itemsize}")
        self._table = self._divided(np.arange(LARGEST_PIXEL + 1, dtype=np.uint8))

    def to_pixels(self, frames: npt.NDArray[np.floating[Any]]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """Give ``frames``, ``(n, *frame)`` in C order, as ``uint8``, and which of the n are exactly that over 255.

        The pixels of the others are arbitrary.
        """
        with np.errstate(all="ignore"):  # what cannot be cast is told apart by its bits below
            pixels = (frames * np.float32(LARGEST_PIXEL) + np.float32(0.5)).astype(np.uint8)
        scaled = np.empty_like(frames)
        self.from_pixels(pixels, scaled)
        is_same = scaled.view(self._bits) == frames.view(self._bits)  # bits: -0.0 equals 0.0, and NaN not even itself
        return pixels, is_same.reshape(len(frames), -1).all(axis=1)

    def from_pixels(self, pixels: npt.NDArray[np.uint8], out: npt.NDArray[np.floating[Any]]) -> None:
        """Write ``pixels`` / 255 into ``out``, of the same shape."""
        if self._dtype == np.float16:  # NumPy divides those seven times slower than it looks them up
            np.take(self._table, pixels, out=out, mode="clip")
        else:  # four times faster than the table: 189 µs against 769 for 32 windows of 5 Atari frames
            np.divide(pixels, self._dtype.type(LARGEST_PIXEL), out=out, dtype=self._dtype)

    def _divided(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.floating[Any]]:
        # In float64 first: rounding its quotient once more gives the nearest float16 or float32 (Figueroa 1995).
        return (pixels / np.float64(LARGEST_PIXEL)).astype(self._dtype)
