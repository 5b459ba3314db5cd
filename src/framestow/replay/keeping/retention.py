"""Who leaves a full memory: the oldest, or any."""

from __future__ import annotations

import json
from typing import Literal

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import one_of
from framestow.errors import InvalidSettingsError

Retention = Literal["fifo", "random"]
RETENTIONS: tuple[Retention, ...] = ("fifo", "random")

MIN_SEALED_SEGMENTS = 16  # that a full memory chooses from
MIN_SEGMENT_FRAMES = 16  # and no less than so many stacks, since each hole costs a stack of transitions:
MIN_SEGMENT_STACKS = 4


def check_retention(retention: str, capacity: int, num_streams: int, stack: int) -> None:
    """Raise ``InvalidSettingsError`` for a retention that is none, or that so few transitions do not allow."""
    one_of("retention", retention, RETENTIONS, "take 'fifo'")
    fewest = min_segment_frames(stack) * (num_streams + MIN_SEALED_SEGMENTS) + num_streams * stack
    if retention == "random" and capacity < fewest:
        raise InvalidSettingsError(
            f"capacity is {capacity}: retention='random' with {num_streams} environments and a stack of {stack} takes "
            f"at least {fewest} transitions, to choose from {MIN_SEALED_SEGMENTS} segments; raise it or take 'fifo'"
        )


def check_segment_frames(retention: str, frames: int, stack: int) -> None:
    """Raise ``InvalidSettingsError`` where any segment may leave and one alone, without its neighbours, shows nothing.

    A single step shows ``stack`` frames and one more; longer returns are not asked for.
    Of segments of F frames that leave at random, a window of W
    frames that lies in k of them is whole with probability 1 / k, since the age of a segment is exponential: so from
    F = W frames on more than half of a full memory can be drawn, and of F = 1 one in W at most.
    """
    fewest = stack + 1
    if retention == "random" and frames < fewest:
        raise InvalidSettingsError(
            f"frames_per_segment is {frames}: with retention='random' a segment must show a transition where its "
            f"neighbours have left, {stack} frames of its observation and 1 to its next one; give at least "
            f"{fewest}"
        )


def min_segment_frames(stack: int) -> int:
    """Give the fewest frames that a segment may have by itself where any may leave."""
    return max(MIN_SEGMENT_FRAMES, MIN_SEGMENT_STACKS * stack)


def segment_frames(retention: str, capacity: int, num_streams: int, stack: int, usual: int) -> int:
    """Give the frames of a segment: what packs best (``usual``), but few enough to choose from enough segments.

    However full the memory is, a segment of each stream is being filled, and ``stack`` frames before it are still
    looked at; all others may leave, and they are ``MIN_SEALED_SEGMENTS`` at least.

    >>> [segment_frames("random", capacity, 8, 4, usual=320) for capacity in (1_000, 5_000, 100_000)]
    [40, 207, 320]
    """
    if retention != "random":
        return usual
    most = (capacity - num_streams * stack) // (num_streams + MIN_SEALED_SEGMENTS)
    return max(min(usual, most), min_segment_frames(stack))


class RandomRetention:
    """Chooses who leaves, each with the same probability, by a generator of its own.

    So every experience has a chance to stay, and recent ones have more: of n segments, one is still there after k
    others have left with probability (1 - 1/n)^k. It is the rule of a table whose new row takes the place of a random
    one.
    """

    def __init__(self, seed: int | None = None) -> None:
        # Not the memory's own numbers, which are default_rng(seed)'s.
        self._generator = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])

    def choose(self, num_sealed: int) -> int:
        """Give the number, from 0, of one among ``num_sealed``."""
        return int(self._generator.integers(num_sealed))

    def state(self) -> npt.NDArray[np.uint8]:
        """Give the generator's state, as JSON in bytes."""
        return np.frombuffer(json.dumps(self._generator.bit_generator.state).encode(), np.uint8)

    def restore(self, state: npt.NDArray[np.uint8]) -> None:
        """Take over what ``state`` gave."""
        self._generator.bit_generator.state = json.loads(state.tobytes())
