"""The yardstick: windows copied out of an uncompressed array, and nothing else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.play import Play

NUM_BATCHES = 257  # drawn beforehand, taken in turn


class BareCopy:
    """Copies ``batch_size`` windows of ``stack + 1`` consecutive frames with one ``np.take`` into a kept output.

    The array holds the play's frames again and again, ``num_bytes`` of them. Beside a small memory it must be small:
    otherwise the memory fits the processor's cache and the array does not. No episode is respected and nothing but
    frames is kept: no memory can do with less work from uncompressed frames.
    """

    name = "bare NumPy copy"

    def __init__(self, play: Play, num_bytes: int, batch_size: int, stack: int, seed: int) -> None:
        frame_shape = play.frames.shape[1:]
        self.frame_bytes = int(np.prod(frame_shape))
        self.num_frames = max(num_bytes // self.frame_bytes, stack + 2)
        self._frames = np.empty((self.num_frames, *frame_shape), np.uint8)
        for start in range(0, self.num_frames, len(play.frames)):
            part = self._frames[start : start + len(play.frames)]
            part[:] = play.frames[: len(part)]
        self._out = np.empty((batch_size, stack + 1, *frame_shape), np.uint8)
        firsts = np.random.default_rng(seed).integers(self.num_frames - stack, size=(NUM_BATCHES, batch_size, 1))
        self._windows = list(firsts + np.arange(stack + 1))
        self._next = 0

    def sample(self) -> npt.NDArray[np.uint8]:
        """Copy the next batch of windows; the array that comes back is written over by the next call."""
        self._next = (self._next + 1) % NUM_BATCHES
        return np.take(self._frames, self._windows[self._next], axis=0, out=self._out, mode="clip")
