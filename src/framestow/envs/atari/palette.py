"""What the palette numbers of an emulator's screen look like, learned from the emulator itself."""

from __future__ import annotations

from typing import Any, Literal

import cv2
import numpy as np
import numpy.typing as npt

from framestow.frames.preprocessing import NUM_COLOURS


class Palette:
    """The colours that a game has shown so far.

    The emulator's palette is that of the game's television standard and is not told by ale-py. But it gives a screen
    both as palette numbers and in colour, and one look at both teaches every number in it. A game shows ten to forty.
    """

    def __init__(self, ale: Any, maximum_of: Literal["grey", "rgb"]) -> None:
        self._ale = ale
        self._colour_of: npt.NDArray[np.uint8] = np.zeros((NUM_COLOURS, 3 if maximum_of == "rgb" else 1), np.uint8)
        self.is_known: npt.NDArray[np.bool_] = np.zeros(NUM_COLOURS, bool)
        """Which of the 256 numbers have been learned."""

    def learn(self, raw_frame: npt.NDArray[np.uint8]) -> None:
        """Learn the numbers of a raw frame, which must be the one that the emulator shows now."""
        in_colour = self._colour_of.shape[1] == 3
        screen = self._ale.getScreenRGB() if in_colour else self._ale.getScreenGrayscale()
        self._colour_of[raw_frame] = screen.reshape(*raw_frame.shape, -1)
        self.is_known[raw_frame] = True

    def grey_of_pair(self) -> npt.NDArray[np.uint8]:
        """Give the grey of the maximum of two palette numbers, ``uint8`` (256, 256).

        The maximum is one of greys, or colour by colour with the luminance taken afterwards as OpenCV does.
        """
        maxima = np.maximum(self._colour_of[:, None], self._colour_of[None, :])
        if maxima.shape[2] == 1:
            return maxima[:, :, 0]
        grey: npt.NDArray[np.uint8] = cv2.cvtColor(maxima, cv2.COLOR_RGB2GRAY)
        return grey
