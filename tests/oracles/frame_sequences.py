"""Frame sequences for property tests: scenes of a game, one after the other; printed, it can be given again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from oracles import pixel_envs


@dataclass(frozen=True)
class Scene:
    """``count`` frames of a maker of ``pixel_envs``, drawn from ``seed``; ``noisy_rows`` of each are noise."""

    kind: str
    count: int
    seed: int = 0
    noisy_rows: int = 0


@dataclass(frozen=True)
class FrameSequence:
    """Scenes as the native core takes them: ``rows`` rows of ``row_bytes`` bytes, pixels ``pixel_bytes`` apart."""

    rows: int
    row_bytes: int
    pixel_bytes: int
    scenes: tuple[Scene, ...]
    channels_first: bool = False

    @property
    def geometry(self) -> tuple[int, int, int]:
        return self.rows, self.row_bytes, self.pixel_bytes

    @property
    def array(self) -> tuple[int, int, int, bool, int, bool]:
        """What a native store takes: packed, and no scaled floats."""
        return *self.geometry, False, 0, self.channels_first

    def frames(self) -> NDArray[np.uint8]:
        """All frames, ``(n, rows * row_bytes)``."""
        return np.concatenate([self._frames_of(scene) for scene in self.scenes])

    def frames_again_and_again(self, count: int) -> NDArray[np.uint8]:
        """``count`` frames: the sequence, then the sequence again with every byte one higher, and so on."""
        frames = self.frames()
        rounds = [frames + np.uint8(number % 256) for number in range(-(-count // len(frames)))]
        return np.concatenate(rounds)[:count]

    def _frames_of(self, scene: Scene) -> NDArray[np.uint8]:
        rng = np.random.default_rng(scene.seed)
        frames = pixel_envs.MAKERS[scene.kind](rng, scene.count, (self.rows, self.row_bytes))
        for frame in frames[:, : scene.noisy_rows]:
            frame[:] = rng.integers(0, 256, frame.shape)
        return frames.reshape(scene.count, -1)


def scenes() -> st.SearchStrategy[Scene]:
    """A handful of frames of one kind."""
    return st.builds(
        Scene,
        kind=st.sampled_from(list(pixel_envs.MAKERS)),
        count=st.integers(1, 12),
        seed=st.integers(0, 2**32 - 1),
        noisy_rows=st.sampled_from([0, 0, 0, 1, 2]),
    )


@st.composite
def frame_sequences(draw: st.DrawFn, max_rows: int = 40, max_row_bytes: int = 80) -> FrameSequence:
    """Any geometry, one row and one byte included, pixels that do not divide a row too; one to five scenes."""
    row_bytes = draw(
        st.one_of(
            st.integers(max_row_bytes // 2, max_row_bytes),
            st.integers(1, max_row_bytes),
            st.sampled_from([15, 16, 17, 31, 32, 33]),
        )
    )
    rows = draw(st.one_of(st.integers(max_rows // 2, max_rows), st.integers(1, max_rows)))
    channels_first = draw(st.sampled_from([False, False, False, True]))
    return FrameSequence(
        rows=-(-rows // 3) * 3 if channels_first else rows,
        row_bytes=row_bytes,
        pixel_bytes=1 if channels_first else min(row_bytes, draw(st.sampled_from([1, 1, 1, 2, 3, 4, 5, 7]))),
        scenes=tuple(draw(st.lists(scenes(), min_size=1, max_size=5))),
        channels_first=channels_first,
    )
