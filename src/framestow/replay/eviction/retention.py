"""Decide which transitions are evicted: by capacity, or because their frames are damaged. ``budget`` has the bytes.

Frames are evicted in whole segments. With ``retention="fifo"`` the oldest transitions are evicted first, with
``"random"`` a random segment.
"""

from __future__ import annotations

import json
import logging
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow._core import Core
from framestow.checks import one_of
from framestow.errors import DamagedDataError, DamagedSegmentError, InvalidSettingsError
from framestow.interface import plural
from framestow.replay.forked_draws import ForkedGenerator

Retention: TypeAlias = Literal["fifo", "random"]
RETENTIONS: tuple[Retention, ...] = get_args(Retention)

MIN_SEALED_SEGMENTS = 16  # a full memory with random retention evicts one of at least so many
MIN_SEGMENT_FRAMES = 16  # shortest segment that is chosen for random retention
MIN_SEGMENT_STACKS = 4  # an evicted segment also costs a stack of its neighbours' transitions, so segments are longer


def check_retention(
    retention: Retention, capacity: int, num_envs: int, stack: int, frames_per_segment: int | None = None
) -> None:
    """Raise ``InvalidSettingsError`` for an unknown retention, or for a capacity too small for random retention.

    A smaller capacity would be exceeded by segments that are not sealed yet, or would leave few to choose from. Without
    ``frames_per_segment`` the shortest segments that ``segment_frames`` chooses must fit.
    """
    one_of("retention", retention, RETENTIONS, "use 'fifo'")
    frames = min_segment_frames(stack) if frames_per_segment is None else frames_per_segment
    fewest = frames * (num_envs + MIN_SEALED_SEGMENTS) + num_envs * stack
    if retention == "random" and capacity < fewest:
        segments, way_out = "", "raise it"
        if frames_per_segment is not None:
            segments, way_out = f" and segments of {frames} frames", "raise it, give a smaller frames_per_segment"
        raise InvalidSettingsError(
            f"capacity is {capacity}: retention='random' with {plural(num_envs, 'environment')} and a stack of {stack}"
            f"{segments} needs at least {fewest} transitions, to choose from {MIN_SEALED_SEGMENTS} segments; {way_out} "
            "or use 'fifo'"
        )


def check_segment_frames(retention: Retention, frames: int, stack: int) -> None:
    """Raise ``InvalidSettingsError`` if random retention would leave segments without a sampleable transition.

    A one-step transition references W = ``stack`` + 1 frames. Segments of F frames are evicted at random, and their
    ages are exponential. So a window that spans k segments is complete with probability 1 / k. From F = W on, more than
    half of a full memory is sampleable; with F = 1 it is at most one in W.
    """
    fewest = stack + 1
    if retention == "random" and frames < fewest:
        raise InvalidSettingsError(
            f"frames_per_segment is {frames}: with retention='random' a segment must contain a whole transition, "
            f"{stack} frames of its observation and 1 of its next one; give at least {fewest}"
        )


def min_segment_frames(stack: int) -> int:
    """Return the fewest frames of a segment that ``segment_frames`` chooses for random retention."""
    return max(MIN_SEGMENT_FRAMES, MIN_SEGMENT_STACKS * stack)


def segment_frames(retention: Retention, capacity: int, num_envs: int, stack: int, usual: int) -> int:
    """Return the number of frames per segment: ``usual``, or fewer so that random retention has enough segments.

    In a full memory each environment has one open segment, and ``stack`` frames before it are still referenced. All
    other segments can be evicted; there are at least ``MIN_SEALED_SEGMENTS`` of them.

    >>> [
    ...     segment_frames("random", capacity, 8, 4, usual=320)
    ...     for capacity in (1_000, 5_000, 100_000)
    ... ]
    [40, 207, 320]
    """
    if retention != "random":
        return usual
    most = (capacity - num_envs * stack) // (num_envs + MIN_SEALED_SEGMENTS)
    return max(min(usual, most), min_segment_frames(stack))


class RandomRetention:
    """Choose the sealed segment to evict, each with the same probability.

    Of n segments, each one survives k evictions with probability (1 - 1/n)^k. So ages are geometric: most transitions
    are recent, and some are old. A table whose new rows overwrite random rows follows the same law.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._generator = ForkedGenerator(_spawned(seed))

    def restart(self, seed: int | None) -> None:
        """Choose as a new object with this seed from now on; ``None`` takes fresh entropy."""
        self._generator.restart(_spawned(seed))

    def choose(self, num_sealed: int) -> int:
        """Return a random number from 0 to ``num_sealed`` - 1."""
        return int(self._generator.integers(num_sealed))

    def state(self) -> npt.NDArray[np.uint8]:
        """Return the generator's state, as JSON in bytes."""
        return np.frombuffer(json.dumps(self._generator.bit_generator.state).encode(), np.uint8)

    def restore(self, state: npt.NDArray[np.uint8]) -> None:
        """Set the generator to what ``state`` returned."""
        self._generator.bit_generator.state = json.loads(state.tobytes())


def _spawned(seed: int | None) -> np.random.SeedSequence:
    """Return a seed for evictions that are independent of batches, which the memory draws by ``seed`` itself."""
    return np.random.SeedSequence(seed).spawn(1)[0]


OnDamage: TypeAlias = Literal["raise", "skip"]
"""What to do with damage. ``"raise"``: raise the error. ``"skip"``: leave out what is damaged, count it and log it."""

_log = logging.getLogger(__name__)


class DamagedSegments:
    """Skip damaged segments, or raise their errors, as ``on_damage`` says; count the skipped ones.

    Transitions that reference a frame of a skipped segment are not sampled any more. The caller holds the memory's
    lock.
    """

    def __init__(self, on_damage: OnDamage, core: Core) -> None:
        one_of("on_damage", on_damage, get_args(OnDamage), "use 'raise' to get an error")
        self.are_skipped = on_damage == "skip"
        self.are_logged = True
        """Whether skipped damage is logged; a repair reports it itself."""
        self._core = core
        # The skipped segments, as (env_id, number of the segment). Each is counted and logged once.
        self._segments: set[tuple[int, int]] = set()
        self.num_transitions = 0
        """Transitions lost with skipped segments or with damaged blocks of steps."""

    @property
    def num_segments(self) -> int:
        """Number of skipped segments."""
        return len(self._segments)

    def skip(self, error: DamagedSegmentError) -> None:
        """Evict the damaged segment that ``error`` names, or raise ``error`` if ``on_damage`` is ``"raise"``."""
        if not self.are_skipped:
            raise error
        self.num_transitions += self._core.lose_segment(error.env_id, error.segment)
        if (error.env_id, error.segment) not in self._segments:
            self._segments.add((error.env_id, error.segment))
            if self.are_logged:
                _log.warning("a damaged segment is skipped: %s", error)

    def skip_steps(self, error: KeyError | DamagedDataError) -> None:
        """Log the damaged block of steps that ``error`` names, or raise ``error``. The step store counts its steps."""
        if not self.are_skipped:
            raise error
        if self.are_logged:
            _log.warning("a damaged block of steps is skipped: %s", error.args[0])
