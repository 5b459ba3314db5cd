"""What nnabla-rl's MemoryEfficientAtariBuffer does by its documentation, in a list that nothing ever leaves.

Of ``s`` and ``s_next`` the newest frame is kept, as ``uint8``, by truncation. A stack is put together by walking back
to the experience behind the last one whose ``non_terminal`` is 0; what lies before is that episode's first frame,
repeated. What it gives is ``float32``, k / 255.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Kept(NamedTuple):
    pixels: np.ndarray
    rest: tuple[Any, ...]  # a, r, non_terminal
    next_pixels: np.ndarray
    others: tuple[Any, ...]
    is_first: bool


class PlainAtariBuffer:
    def __init__(self, capacity: int, stacked_frames: int = 4) -> None:
        self.capacity, self.stacked_frames = capacity, stacked_frames
        self.kept: list[Kept] = []

    def __len__(self) -> int:
        return min(len(self.kept), self.capacity)

    def append(self, experience: tuple[Any, ...]) -> None:
        s, a, r, non_terminal, s_next, *others = experience
        is_first = not self.kept or self.kept[-1].rest[2] == 0
        if s.ndim > 2:
            s, s_next = s[-1], s_next[-1]
        self.kept.append(Kept(as_pixels(s), (a, r, non_terminal), as_pixels(s_next), tuple(others), is_first))

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if not 0 <= index < len(self):
            raise KeyError(index)
        at = len(self.kept) - len(self) + index
        frames = [self.kept[at].pixels]
        while len(frames) < self.stacked_frames:
            at -= 0 if self.kept[at].is_first else 1
            frames.insert(0, self.kept[at].pixels)
        newest = self.kept[len(self.kept) - len(self) + index]
        s, s_next = (
            np.stack(stack).astype(np.float32) / 255.0 for stack in (frames, [*frames[1:], newest.next_pixels])
        )
        return (s, *newest.rest, s_next, *newest.others)


def as_pixels(frame: np.ndarray) -> np.ndarray:
    return (frame * 255.0).astype(np.uint8) if frame.dtype.kind == "f" else frame.copy()
