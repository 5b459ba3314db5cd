"""Make one small grey frame of the last two raw frames of an agent step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import ale_py
import cv2
import numpy as np
import numpy.typing as npt

from framestow.envs.atari.presets import Preset
from framestow.frames.preprocessing import NUM_COLOURS, PaletteScreen


class Palette:
    """The colours of the palette numbers that a game has displayed so far.

    ale-py does not expose the emulator's palette, which depends on the game's television standard. But it returns a
    screen both as palette numbers and in colour, and comparing the two gives the colour of each number. A game uses 10
    to 40 of the 256 numbers.
    """

    def __init__(self, ale: Any, maximum_of: Literal["grey", "rgb"]) -> None:
        self._ale = ale
        # By palette number, its grey value or its red, green and blue, ``(256, 1 or 3)``; 0 while unknown.
        self._colour_of: npt.NDArray[np.uint8] = np.zeros((NUM_COLOURS, 3 if maximum_of == "rgb" else 1), np.uint8)
        self.is_known: npt.NDArray[np.bool_] = np.zeros(NUM_COLOURS, bool)
        """Palette numbers whose colour is known, ``(256,)``."""

    def learn(self, raw_frame: npt.NDArray[np.uint8]) -> None:
        """Learn the colours of a raw frame, which must be the emulator's current one."""
        in_colour = self._colour_of.shape[1] == 3
        screen = self._ale.getScreenRGB() if in_colour else self._ale.getScreenGrayscale()
        self._colour_of[raw_frame] = screen.reshape(*raw_frame.shape, -1)
        self.is_known[raw_frame] = True

    def grey_of_pair(self) -> npt.NDArray[np.uint8]:
        """Return the grey value of the maximum of each two palette numbers, ``uint8`` ``(256, 256)``.

        The maximum is taken of the grey values, or of each colour before OpenCV converts it to grey.
        """
        maxima = np.maximum(self._colour_of[:, None], self._colour_of[None, :])
        if maxima.shape[2] == 1:
            return maxima[:, :, 0]
        grey: npt.NDArray[np.uint8] = cv2.cvtColor(maxima, cv2.COLOR_RGB2GRAY)
        return grey


_INTERPOLATIONS = {"area": cv2.INTER_AREA, "bilinear": cv2.INTER_LINEAR}


class Screen:
    """Read raw frames from an emulator and make one frame of the last two of a step.

    Consoles draw some sprites only in every other raw frame, so a frame is the maximum of two (Mnih et al. 2015). The
    rule is the same for a step that ends early::

        raw frames of this step      frame
        1                            the 1st
        1 2                          max(1st, 2nd)
        1 2 3                        max(2nd, 3rd)
        1 2 3 4                      max(3rd, 4th)

    A raw frame of an earlier step is never used. Every raw frame is read, because a game may end after any of them.
    Reading palette numbers is several times as fast as the emulator's own conversion to grey.
    """

    def __init__(self, ale: ale_py.ALEInterface, preset: Preset) -> None:
        screen_shape = ale.getScreenDims()
        self._copy_raw_frame: Callable[[npt.NDArray[np.uint8]], None] = ale.getScreen
        self._palette = Palette(ale, preset.maximum_of)
        self._frame_shape = preset.frame_shape
        # Whether the native screen shrinks the picture, byte for byte as OpenCV. Otherwise OpenCV does.
        self._resizes_natively = preset.resize == "area" and PaletteScreen.can_shrink(screen_shape, preset.frame_shape)
        self._screen = PaletteScreen(screen_shape, preset.frame_shape if self._resizes_natively else None)
        # The last two raw frames, as palette numbers. ``take_in`` returns False for a raw frame with an unknown colour.
        self._raw_frames, self._take_in = self._screen.raw_frames, self._screen.take_in
        self._grey = np.empty(screen_shape, np.uint8)  # the maximum at full size, for OpenCV to shrink
        self._interpolation = _INTERPOLATIONS[preset.resize]
        # Which of the two raw frames is the newest one, and how many this step has read.
        self._newest, self._num_read = 0, 0
        # Frame to return until the next step or reset: the saved one, or black before the first; None otherwise.
        self._restored: npt.NDArray[np.uint8] | None = np.zeros(preset.frame_shape, np.uint8)

    def begin_step(self) -> None:
        """Discard the raw frames read so far; a new step or reset begins."""
        self._num_read = 0
        self._restored = None

    def restore(self, frame: npt.NDArray[np.uint8]) -> None:
        """Return ``frame``, which was saved, from ``frame`` until the next step or reset."""
        self._restored = np.array(frame, np.uint8)

    def read(self) -> None:
        """Read the emulator's current raw frame."""
        newest = self._newest = 1 - self._newest
        self._copy_raw_frame(self._raw_frames[newest])
        if not self._take_in(newest):
            self._learn(newest)
        self._num_read += 1

    def frame(self) -> npt.NDArray[np.uint8]:
        """Return the frame of this step, a new ``uint8`` array of the preset's shape; black before the first step."""
        if self._restored is not None:
            return self._restored.copy()
        if self._resizes_natively:
            frame: npt.NDArray[np.uint8] = np.empty(self._frame_shape, np.uint8)
            self._screen.write(self._num_read > 1, frame)
            return frame
        self._screen.write(self._num_read > 1, self._grey)
        height, width = self._frame_shape
        resized: npt.NDArray[np.uint8] = cv2.resize(self._grey, (width, height), interpolation=self._interpolation)
        return resized

    def _learn(self, newest: int) -> None:
        self._palette.learn(self._raw_frames[newest])
        self._screen.learn(self._palette.grey_of_pair(), self._palette.is_known)
        self._take_in(newest)
