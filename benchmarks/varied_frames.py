"""Frames for very large memories: takes of real play in varied order, in many environments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHORTEST, LONGEST = 300, 3_000  # frames per take

Frames = NDArray[np.uint8]


@dataclass
class Take:
    """A piece of a recording as one episode: frames ``start`` up to ``stop``, upside down or not."""

    frames: Frames
    start: int
    stop: int
    is_upside_down: bool

    def copy_to(self, out: Frames) -> None:
        """Write the next ``len(out)`` frames."""
        frames = self.frames[self.start : self.start + len(out)]
        out[:] = frames[:, ::-1] if self.is_upside_down else frames
        self.start += len(out)

    @property
    def num_left(self) -> int:
        """Frames that were not returned yet."""
        return self.stop - self.start


class VariedFrames:
    """One environment of takes of one recording, with random start, length and orientation (upright or upside down).

    A segment of a memory may begin at any frame of any take, so few segments are equal: 20,000 recorded frames in two
    orientations have 40,000 starts, and takes end anywhere in a segment.
    """

    def __init__(self, recording: Frames, seed: int) -> None:
        self._recording = recording
        self._rng = np.random.default_rng(seed)
        self._take = self._next_take()

    def _next_take(self) -> Take:
        length = int(self._rng.integers(SHORTEST, LONGEST))
        start = int(self._rng.integers(len(self._recording) - length))
        return Take(self._recording, start, start + length, bool(self._rng.integers(2)))

    def first_frame(self) -> Frames:
        """Begin a take; return its first frame."""
        self._take = self._next_take()
        frame = np.empty((1, *self._recording.shape[1:]), np.uint8)
        self._take.copy_to(frame)
        return frame[0]

    def fill(self, out: Frames) -> dict[int, Frames]:
        """Write the frames of the next ``len(out)`` steps; return the first frames after each ended take."""
        endings: dict[int, Frames] = {}
        done = 0
        while done < len(out):
            num_taken = min(self._take.num_left, len(out) - done)
            self._take.copy_to(out[done : done + num_taken])
            done += num_taken
            if self._take.num_left == 0:
                endings[done - 1] = self.first_frame()
        return endings
