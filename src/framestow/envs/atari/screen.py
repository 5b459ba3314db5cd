"""What an agent sees of the emulator's screen: the last two raw frames, as one small grey frame."""

from __future__ import annotations

from collections.abc import Callable

import ale_py
import cv2
import numpy as np
import numpy.typing as npt

from framestow.envs.atari.presets import Preset

_INTERPOLATIONS = {"area": cv2.INTER_AREA, "bilinear": cv2.INTER_LINEAR}


class Screen:
    """Reads raw frames from an emulator and makes one frame of the last two of this step.

    The consoles draw some sprites at every other raw frame only, hence the maximum of two (Mnih et al. 2015). The rule
    for every step, whole or cut short::

        raw frames of this step      frame
        1                            the 1st
        1 2                          max(1st, 2nd)
        1 2 3                        max(2nd, 3rd)
        1 2 3 4                      max(3rd, 4th)

    A raw frame of an earlier step never takes part. Every raw frame is read, because a game may end after any of them,
    and then the one before is needed: 10 µs each.
    """

    def __init__(self, ale: ale_py.ALEInterface, preset: Preset) -> None:
        height, width = ale.getScreenDims()
        self._in_colour = preset.maximum_of == "rgb"
        shape = (height, width, 3) if self._in_colour else (height, width)
        self._raw_frames = np.zeros((2, *shape), np.uint8)
        self._raw_frame_views = (self._raw_frames[0], self._raw_frames[1])
        self._copy_raw_frame: Callable[[npt.NDArray[np.uint8]], None] = (
            ale.getScreenRGB if self._in_colour else ale.getScreenGrayscale
        )
        self._size = (preset.frame_shape[1], preset.frame_shape[0])  # OpenCV writes width first
        self._interpolation = _INTERPOLATIONS[preset.resize]
        self._num_read = 0

    def begin_step(self) -> None:
        """Forget the raw frames read so far: those that follow belong to a new step or reset."""
        self._num_read = 0

    def read(self) -> None:
        """Take in the raw frame that the emulator shows now."""
        self._copy_raw_frame(self._raw_frame_views[self._num_read & 1])
        self._num_read += 1

    def frame(self) -> npt.NDArray[np.uint8]:
        """Make the frame of this step, a fresh ``uint8`` array of the preset's shape."""
        raw_frame = self._raw_frame_views[0] if self._num_read == 1 else np.maximum(*self._raw_frame_views)
        if self._in_colour:
            raw_frame = cv2.cvtColor(raw_frame, cv2.COLOR_RGB2GRAY)
        frame: npt.NDArray[np.uint8] = cv2.resize(raw_frame, self._size, interpolation=self._interpolation)
        return frame
