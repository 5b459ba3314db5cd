"""The yardstick: windows copied out of an uncompressed array, and nothing else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.play import Frames, Play

NUM_BATCHES = 61  # drawn beforehand, taken in turn


class BareWindows:
    """Copies windows of consecutive frames with one ``np.take`` into a kept output.

    The array holds the play's frames again and again, ``num_bytes`` of them, so that it lies in no cache. No episode is
    respected and nothing but frames is kept: no memory can do with less work from uncompressed frames.
    """

    def __init__(self, play: Play, num_bytes: int) -> None:
        self._frames = np.empty((num_bytes // play.frames[0].nbytes, *play.frames.shape[1:]), np.uint8)
        for start in range(0, len(self._frames), len(play.frames)):
            part = self._frames[start : start + len(play.frames)]
            part[:] = play.frames[: len(part)]
        self._out = np.empty(0, np.uint8)
        self._windows: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
        self._next = 0

    def copy(self, batch_size: int, length: int) -> Frames:
        """Copy the next batch of ``length`` frames each; the array that comes back is written over by the next call."""
        if (batch_size, length) not in self._windows:
            self._windows.clear()  # one kind is timed after the other
            rng = np.random.default_rng(batch_size)
            firsts = rng.integers(len(self._frames) - length, size=(NUM_BATCHES, batch_size, 1))
            self._windows[batch_size, length] = firsts + np.arange(length)
            self._out = np.empty((batch_size, length, *self._frames.shape[1:]), np.uint8)
        self._next = (self._next + 1) % NUM_BATCHES
        return np.take(self._frames, self._windows[batch_size, length][self._next], axis=0, out=self._out, mode="clip")
