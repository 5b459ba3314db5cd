"""Where sequences start: at a step that the sampler drew, at a border before it, or where an episode begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import one_of, whole_number
from framestow.errors import NothingToSampleError
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.samplers.sampler import Draw

Borders = Literal["mask", "inside", "cross"]
LONGEST = 65_536  # steps; ten thousand frames of Atari are three minutes of play
ROUNDS = 64  # draws before the starts that fit are counted: a millisecond


@dataclass(frozen=True)
class SequenceShape:
    """What sequences are asked for; see ``ReplayMemory.sample_sequences``."""

    length: int
    overlap: int | None
    burn_in: int
    borders: Borders

    def check(self) -> None:
        """Raise ``InvalidSettingsError`` for what cannot work."""
        longest = f"a sequence has 1 to {LONGEST:_} steps; take whole episodes, of any length, from sample_episodes"
        length = whole_number("length", self.length, 1, LONGEST, rule=longest)
        if self.overlap is not None:
            shared = f"sequences of {length} steps share 0 to {length - 1} with the next one"
            free = "give None to let them start at any step"
            whole_number("overlap", self.overlap, 0, length - 1, rule=f"{shared}; {free}")
        warming = f"of {length} steps 0 to {length - 1} can be left to it; length counts them too"
        whole_number("burn_in", self.burn_in, 0, length - 1, rule=warming)
        one_of("borders", self.borders, get_args(Borders))

    @property
    def stride(self) -> int:
        """Steps between two starts in an episode."""
        return 1 if self.overlap is None else self.length - self.overlap


class SequenceSteps(NamedTuple):
    """Which steps some sequences have: ``(B, L)``, ``(B, L)`` and ``(B,)``."""

    indices: npt.NDArray[np.int64]
    is_first: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.float32]


class SequenceStarts:
    """Chooses the steps of sequences; asked under the memory's lock.

    ``draw``: draws so many transitions by the memory's sampler.
    """

    def __init__(self, parts: MemoryParts, draw: Callable[[int], Draw]) -> None:
        self._parts, self._draw = parts, draw

    def sequences(self, batch_size: int, shape: SequenceShape) -> SequenceSteps:
        """Choose sequences; ``NothingToSampleError`` where there is none of that shape."""
        if shape.borders == "inside":
            return self._inside(batch_size, shape)
        draw = self._draw(batch_size)
        starts = draw.indices
        if shape.stride > 1:
            starts = self._parts.timeline.aligned_starts(starts, shape.stride)
        return SequenceSteps(*self._parts.timeline.follow(starts, shape.length, shape.borders == "cross"), draw.weights)

    def episodes(self, batch_size: int) -> SequenceSteps:
        """Choose whole episodes, each equally likely, as sequences as long as the longest of them."""
        timeline = self._parts.timeline
        streams, positions, num_steps, are_whole, _, _ = timeline.readable_runs()
        whole = np.flatnonzero(are_whole)
        if not len(whole):
            raise NothingToSampleError(
                f"none of the episodes of {len(timeline):,} transitions is whole: all its steps must be held, and it "
                "must have ended; wait for one to end, or give the memory a larger capacity"
            )
        chosen = whole[self._parts.generator.integers(0, len(whole), batch_size)]
        starts = timeline.find_steps(streams[chosen], positions[chosen])
        index, is_first = timeline.follow(starts, int(num_steps[chosen].max()))
        return SequenceSteps(index, is_first, np.ones(batch_size, np.float32))

    def _inside(self, batch_size: int, shape: SequenceShape) -> SequenceSteps:
        """Sequences that fit: the sampler draws until they do, and then those that fit are counted.

        So those that fit are as likely, one to another, as the sampler has it. Only where nearly none does, the
        last few of a batch are drawn from all of them alike.
        """
        timeline = self._parts.timeline
        found: list[SequenceSteps] = []
        num_missing = batch_size
        for _ in range(ROUNDS):
            draw = self._draw(num_missing)
            starts = timeline.aligned_starts(draw.indices, shape.stride, exact=True)
            index, is_first = timeline.follow(starts, shape.length)
            fits = index[:, -1] >= 0
            found.append(SequenceSteps(index[fits], is_first[fits], draw.weights[fits]))
            num_missing -= int(fits.sum())
            if not num_missing:
                break
        else:
            starts = self._counted_starts(num_missing, shape)
            found.append(SequenceSteps(*timeline.follow(starts, shape.length), np.ones(num_missing, np.float32)))
        return SequenceSteps(*(np.concatenate(columns) for columns in zip(*found, strict=True)))

    def _counted_starts(self, count: int, shape: SequenceShape) -> npt.NDArray[np.int64]:
        """Draw uniformly from all starts from which a sequence fits into its episode."""
        timeline, stride = self._parts.timeline, shape.stride
        streams, positions, num_steps, _, are_open, episodes = timeline.readable_runs()
        # Multiples of the stride from the episode's beginning: the first and the last one that fits into the run.
        num_needed = np.where(are_open, max(shape.length, self._parts.settings.n_step), shape.length)
        first = -(-(positions - episodes) // stride)
        last = (positions - episodes + num_steps - num_needed) // stride
        counts = np.maximum(last - first + 1, 0)
        until = np.cumsum(counts)
        if not counts.sum():
            raise NothingToSampleError(
                f"length is {shape.length}: the longest run of steps of one episode has "
                f"{num_steps.max(initial=0)} that are held, and none has so many behind a start; take shorter "
                "sequences, or borders='mask'"
            )
        ranks = self._parts.generator.integers(0, until[-1], count)
        run = np.searchsorted(until, ranks, "right")
        multiples = first[run] + ranks - (until[run] - counts[run])
        return timeline.find_steps(streams[run], episodes[run] + multiples * stride)
