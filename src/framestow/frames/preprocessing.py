"""Preprocess Atari screens: palette to grey, maximum of two screens, resize by area."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from framestow._core import PaletteScreen as _NativeScreen
from framestow._core import shrinks_by_area

NUM_COLOURS = 256  # palette numbers of a raw frame


class PaletteScreen:
    """Turn raw screens of palette numbers, ``uint8`` (height, width), into grey frames.

    The emulator writes to the two ``raw_frames`` in turn. ``learn`` sets the grey of the maximum of any two palette
    numbers, so the maximum of greys and the maximum per colour channel cost the same. A frame is resized byte for byte
    as by OpenCV's INTER_AREA; without a ``frame_shape`` it is the grey screen. Only changed rows are
    recomputed.

    Not safe for several threads at once.

    >>> screen = PaletteScreen((4, 6), (2, 4))
    >>> grey_of = np.arange(NUM_COLOURS, dtype=np.uint8)
    >>> screen.learn(np.maximum.outer(grey_of, grey_of), np.ones(NUM_COLOURS, bool))
    >>> screen.raw_frames[0][:], screen.raw_frames[1][:, 3:] = 10, 40
    >>> [screen.take_in(which) for which in (0, 1)]
    [True, True]
    >>> frame = np.empty((2, 4), np.uint8)
    >>> screen.write(True, frame)
    >>> frame
    array([[10, 10, 40, 40],
           [10, 10, 40, 40]], dtype=uint8)

    Raises:
        ValueError: ``can_shrink`` does not allow ``frame_shape``, or the screen has no pixels.
    """

    def __init__(self, screen_shape: tuple[int, int], frame_shape: tuple[int, int] | None = None) -> None:
        pair = np.zeros((2, *screen_shape), np.uint8)
        native = _NativeScreen(pair, frame_shape)
        self.raw_frames: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]] = (pair[0], pair[1])
        """The two raw frames; write to them in turn, and call ``take_in`` after each."""
        self.learn: Callable[[npt.NDArray[np.uint8], npt.NDArray[np.bool_]], None] = native.learn
        """``learn(grey_of_pair, is_known)`` copies the grey of the maximum of two palette numbers, ``uint8`` (256,
        256), and a mask of the 256 known numbers."""
        self.take_in: Callable[[int], bool] = native.take_in
        """``take_in(which)`` makes raw frame 0 or 1 the newest. It returns False for an unknown palette number:
        ``learn`` it, and call ``take_in`` again."""
        self.write: Callable[[bool, npt.NDArray[np.uint8]], None] = native.write
        """``write(of_two, out)`` writes the frame of the newest raw frame, or of the maximum of the last two, into a
        ``uint8`` array in C order. Raises ``ValueError`` if ``out`` does not fit, or before ``take_in``."""

    @staticmethod
    def can_shrink(screen_shape: tuple[int, int], frame_shape: tuple[int, int]) -> bool:
        """Return whether this class supports ``frame_shape``: smaller, and not by whole factors along both axes.

        For other shapes, OpenCV's INTER_AREA uses other rules: integer sums, or interpolation.
        """
        return shrinks_by_area(screen_shape, frame_shape)
