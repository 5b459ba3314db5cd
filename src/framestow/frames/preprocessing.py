"""From a console's screen to a frame: colours looked up, the maximum of two, the mean over the area."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from framestow._core import PaletteScreen as _NativeScreen
from framestow._core import shrinks_by_area

NUM_COLOURS = 256


class PaletteScreen:
    """Makes frames of raw frames of palette numbers, ``uint8`` (height, width), which an emulator writes in turn.

    The rule for colours is data: ``learn`` takes what the maximum of any two palette numbers looks like. So a maximum
    of greys and one colour by colour cost the same, and no number is shown before it was learned. A frame is the mean
    over the area that each of its pixels covers, byte for byte as OpenCV's INTER_AREA gives it; without a
    ``frame_shape`` it is the grey picture itself. Only rows that changed are made anew: 4 µs a frame of Breakout, some
    40 where every pixel changes.

    One thread at a time.

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
        ValueError: ``frame_shape`` is none that `can_shrink` allows, or the screen has no pixel.
    """

    def __init__(self, screen_shape: tuple[int, int], frame_shape: tuple[int, int] | None = None) -> None:
        pair = np.zeros((2, *screen_shape), np.uint8)
        native = _NativeScreen(pair, frame_shape)
        self.raw_frames: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]] = (pair[0], pair[1])
        """The two raw frames, to be written in turn and then taken in."""
        self.learn: Callable[[npt.NDArray[np.uint8], npt.NDArray[np.bool_]], None] = native.learn
        """``learn(grey_of_pair, is_known)``: the grey of the maximum of two palette numbers, ``uint8`` (256, 256), and
        which of the 256 numbers are known. Both are copied."""
        self.take_in: Callable[[int], bool] = native.take_in
        """``take_in(which)``: the raw frame of that number, just written, is the newest. False where it has a palette
        number that is not known: learn it, and take the raw frame in again."""
        self.write: Callable[[bool, npt.NDArray[np.uint8]], None] = native.write
        """``write(of_two, out)``: the frame of the newest raw frame, or of the maximum of the last two, into a
        ``uint8`` array in C order. ValueError where it does not fit, or where the raw frames were not taken in."""

    @staticmethod
    def can_shrink(screen_shape: tuple[int, int], frame_shape: tuple[int, int]) -> bool:
        """Whether frames of that shape are made here: smaller, and not by whole factors along both axes.

        For the others OpenCV's INTER_AREA has other rules: it adds whole numbers, or interpolates.
        """
        return shrinks_by_area(screen_shape, frame_shape)
