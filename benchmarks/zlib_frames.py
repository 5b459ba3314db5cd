"""Compare the core with a list of frames that Python's zlib compresses one at a time.

    python benchmarks/zlib_frames.py    Breakout and MsPacman, results/zlib_frames.json

6,000 steps of random play in one environment, batches of 32 transitions with stacks of four frames, sampled in turn.
Of framestow all bytes of the memory count before its first batch, work space included; of the list those of the
compressed frames alone. Times are processor time of the thread, least of the turns, so other work of the machine
changes them little. Both return the same pixels, which is checked.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atari_frames import FRAME_SIDE, recorded
from figures import publish
from framestow import FrameSpec, ReplayMemory

GAMES = ("breakout", "ms_pacman")
STEPS, STACK, BATCH_SIZE = 6_000, 4, 32
LEVEL = 6  # zlib's default
TURNS, CALLS = 100, 5


def filled_memory(frames: NDArray[np.uint8]) -> ReplayMemory:
    """Return a memory with all steps between the frames, as one open episode."""
    memory = ReplayMemory(STEPS, FrameSpec((FRAME_SIDE, FRAME_SIDE)), 18, stack=STACK, seed=0)
    memory.begin(frames[:1])
    for frame in frames[1:]:
        memory.append([0], [0.0], [False], [False], frame[None])
    return memory


class ZlibFrames:
    """Frames compressed one at a time, and windows of them."""

    def __init__(self, frames: NDArray[np.uint8]) -> None:
        self.compressed = [zlib.compress(frame.tobytes(), LEVEL) for frame in frames]
        self.random = np.random.default_rng(0)

    def windows(self, ends: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the frames of each transition whose next observation ends with the frame of that number."""
        out = np.empty((len(ends), STACK + 1, FRAME_SIDE * FRAME_SIDE), np.uint8)
        for row, end in enumerate(ends):
            for place, frame in enumerate(self.compressed[end - STACK : end + 1]):
                out[row, place] = np.frombuffer(zlib.decompress(frame), np.uint8)
        return out.reshape(len(ends), STACK + 1, FRAME_SIDE, FRAME_SIDE)

    def sample(self) -> NDArray[np.uint8]:
        """Return a batch that is drawn uniformly."""
        return self.windows(self.random.integers(STACK, STEPS + 1, BATCH_SIZE))


def measure(game: str) -> dict[str, Any]:
    """Return the bytes of a transition and the microseconds of a batch, of both."""
    frames = recorded(game)[: STEPS + 1]
    memory, listed = filled_memory(frames), ZlibFrames(frames)
    nbytes = {"core": memory.nbytes, "zlib": sum(map(len, listed.compressed))}
    index = np.arange(STACK, STEPS, 97)
    assert (memory.get(index).next_observation == listed.windows(index + 1)[:, 1:]).all()
    samples: dict[str, Callable[[], object]] = {"core": lambda: memory.sample(BATCH_SIZE), "zlib": listed.sample}
    turns = [{name: processor_us(sample) for name, sample in samples.items()} for _ in range(TURNS)]
    return {
        name: {"bytes_per_transition": nbytes[name] / STEPS, "sample_us": min(turn[name] for turn in turns)}
        for name in samples
    }


def processor_us(sample: Callable[[], object]) -> float:
    """Return the microseconds of a call that this thread computes, mean of a turn."""
    before = time.thread_time()
    for _ in range(CALLS):
        sample()
    return (time.thread_time() - before) / CALLS * 1e6


if __name__ == "__main__":
    publish("zlib_frames", {"steps": STEPS, "level": LEVEL, "games": {game: measure(game) for game in GAMES}})
