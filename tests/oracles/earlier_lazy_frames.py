"""The LazyFrames of OpenAI Baselines and of Gymnasium before 1.0, by their documentation."""

from __future__ import annotations

import numpy as np


class BaselinesLazyFrames:
    """Joined along the last axis; the first conversion keeps the whole array and drops the frames."""

    def __init__(self, frames):
        self.frames, self.joined = list(frames), None

    def look(self):
        if self.joined is None:
            self.joined, self.frames = np.concatenate(self.frames, axis=-1), None
        return self.joined

    def __array__(self, dtype=None, copy=None):
        joined = self.look()
        return joined if dtype is None else joined.astype(dtype)

    def __len__(self):
        return len(self.look())

    def __getitem__(self, index):
        return self.look()[index]

    def count(self):
        return self.look().shape[-1]

    def frame(self, number):
        return self.look()[..., number]


class GymnasiumLazyFrames:
    """Stacked along a new first axis; an index returns a frame, a slice a stack of frames."""

    def __init__(self, frames):
        self.frames = list(frames)
        self.shape = (len(self.frames), *self.frames[0].shape)
        self.dtype = self.frames[0].dtype

    def __array__(self, dtype=None, copy=None):
        return np.stack(self.frames).astype(dtype or self.dtype)

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        return self.frames[index] if isinstance(index, int) else np.stack(self.frames[index])

    def __eq__(self, other):
        return np.stack(self.frames) == other

    __hash__ = None
