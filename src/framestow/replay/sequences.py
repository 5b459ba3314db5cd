"""Sample sequences of steps.

A sequence within one episode is one window of frames: the stack of its first observation, then one frame for each
step. So each frame is unpacked once, and the stacks are strided views. Sequences that cross episodes have one window
for each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import one_of, whole_number
from framestow.errors import NothingToSampleError
from framestow.frames.observation_spec import Frames, each_leaf
from framestow.replay.batch import SequenceBatch
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.samplers.sampler import Draw
from framestow.replay.sampling import BatchGatherer, PendingFrames, gathered, looked_up
from framestow.replay.timelines.timeline import StepFields, Windows

Borders = Literal["mask", "inside", "cross"]
LONGEST = 65_536  # steps
ROUNDS = 64  # tries before the starts that fit are counted; a millisecond


@dataclass(frozen=True)
class SequenceShape:
    """Length and position of sequences, as in ``ReplayMemory.sample_sequences``."""

    length: int
    overlap: int | None
    burn_in: int
    borders: Borders

    def check(self) -> None:
        """Raise ``InvalidSettingsError`` for values that cannot work."""
        longest = f"a sequence has 1 to {LONGEST:_} steps; for whole episodes of any length, call sample_episodes"
        length = whole_number("length", self.length, 1, LONGEST, rule=longest)
        if self.overlap is not None:
            shared = f"sequences of {length} steps share 0 to {length - 1} with the next one"
            free = "give None to start at any step"
            whole_number("overlap", self.overlap, 0, length - 1, rule=f"{shared}; {free}")
        warming = f"it is 0 to {length - 1} of the {length} steps of a sequence; raise length, which includes it"
        whole_number("burn_in", self.burn_in, 0, length - 1, rule=warming)
        one_of("borders", self.borders, get_args(Borders))

    @property
    def stride(self) -> int:
        """Number of steps between two starts in an episode."""
        return 1 if self.overlap is None else self.length - self.overlap


class SequenceSteps(NamedTuple):
    """Steps of ``B`` sequences: two arrays ``(B, L)``, and the weights of the draws ``(B,)``."""

    indices: npt.NDArray[np.int64]
    is_first: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.float32]


class SequenceStarts:
    """Chooses the steps of sequences, under the memory's lock.

    ``draw`` draws a number of transitions by the memory's sampler.
    """

    def __init__(self, parts: MemoryParts, draw: Callable[[int], Draw]) -> None:
        self._parts, self._draw = parts, draw

    def sequences(self, batch_size: int, shape: SequenceShape) -> SequenceSteps:
        """Choose sequences; raise ``NothingToSampleError`` if there is none of that shape."""
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
                f"none of the episodes in {len(timeline):,} transitions is whole: it must have ended, with all of its "
                "steps stored; append more steps, or give the memory a larger capacity"
            )
        chosen = whole[self._parts.generator.integers(0, len(whole), batch_size)]
        starts = timeline.find_steps(streams[chosen], positions[chosen])
        index, is_first = timeline.follow(starts, int(num_steps[chosen].max()))
        return SequenceSteps(index, is_first, np.ones(batch_size, np.float32))

    def _inside(self, batch_size: int, shape: SequenceShape) -> SequenceSteps:
        """Choose sequences that fit into their episode: draw until enough fit, then count all that fit.

        Drawing keeps the sampler's probabilities among the sequences that fit. Only if nearly none fits, the last few
        of a batch are drawn uniformly from all that do.
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
        """Draw uniformly from all starts of sequences that fit into their episode."""
        timeline, stride = self._parts.timeline, shape.stride
        streams, positions, num_steps, _, are_open, episodes = timeline.readable_runs()
        # As multiples of the stride from the episode's beginning: the first and the last start that fit into the run.
        num_needed = np.where(are_open, max(shape.length, self._parts.settings.n_step), shape.length)
        first = -(-(positions - episodes) // stride)
        last = (positions - episodes + num_steps - num_needed) // stride
        counts = np.maximum(last - first + 1, 0)
        until = np.cumsum(counts)
        if not counts.sum():
            raise NothingToSampleError(
                f"length is {shape.length}: the longest run of stored steps in one episode has "
                f"{num_steps.max(initial=0)}, and none has enough steps after a start; take shorter sequences, or "
                "borders='mask'"
            )
        ranks = self._parts.generator.integers(0, until[-1], count)
        run = np.searchsorted(until, ranks, "right")
        multiples = first[run] + ranks - (until[run] - counts[run])
        return timeline.find_steps(streams[run], episodes[run] + multiples * stride)


ChooseSteps = Callable[[], SequenceSteps]  # called under the memory's lock
Array = npt.NDArray[Any]


class SequenceGatherer:
    """Gathers batches of sequences into the arrays of a ``BatchGatherer``."""

    def __init__(self, parts: MemoryParts, batches: BatchGatherer) -> None:
        self._parts, self._batches = parts, batches
        self._starts = SequenceStarts(parts, batches.draw)

    def sample(self, batch_size: int, shape: SequenceShape) -> SequenceBatch:
        """Return sequences drawn by the memory's sampler; raise ``NothingToSampleError`` if there is none."""
        return gathered(self._pending(batch_size, shape))

    def draw_ahead(self, batch_size: int, shape: SequenceShape) -> PendingSequences:
        """Draw as ``sample`` does, and leave the unpacking to the caller."""
        return looked_up(self._pending(batch_size, shape))

    def sample_episodes(self, batch_size: int) -> SequenceBatch:
        """Return whole episodes, each equally likely; raise ``NothingToSampleError`` if there is none."""
        return gathered(PendingSequences(self._parts, self, lambda: self._starts.episodes(batch_size)))

    def _pending(self, batch_size: int, shape: SequenceShape) -> PendingSequences:
        crosses, stack = shape.borders == "cross", self._parts.settings.stack
        num_frames = batch_size * (shape.length * (stack + 1) if crosses else shape.length + stack)

        def choose() -> SequenceSteps:
            self._batches.reserve(num_frames)
            return self._starts.sequences(batch_size, shape)

        return PendingSequences(self._parts, self, choose, crosses, shape.burn_in)

    def look_up(self, pending: PendingSequences) -> None:
        """Choose the steps and copy their values and the places of their frames; takes the memory's lock."""
        parts = self._parts
        with parts.lock:
            pending.steps = pending.choose()
            mask = pending.mask
            windows, pending.columns = _steps_of(parts, pending.steps.indices, mask)
            windows = windows if pending.crosses else _joined(windows, mask)
            length = parts.settings.stack + (1 if pending.crosses else mask.shape[1])
            pending.windows, pending.frames = windows, self._batches.buffers(len(windows.streams), length)
            pending.reading = parts.storage.start_reading()

    def batch(self, pending: PendingSequences) -> SequenceBatch:
        """Return the batch of a look-up whose frames are unpacked."""
        frames, mask = pending.frames, pending.mask
        observations = self._each_step(frames, mask) if pending.crosses else self._strided(frames, mask)
        return _batch(*observations, pending.columns, pending.steps, mask, pending.burn_in)

    def _strided(self, frames: Frames, mask: npt.NDArray[np.bool_]) -> tuple[Any, Any]:
        """Return observations and next observations as views of one window for each sequence."""
        length = mask.shape[1]
        each_leaf(lambda leaf: _move_to_front(leaf, mask), frames)
        observation = self._batches.as_observation(frames, lambda leaf: _stacks(leaf, 0, length))
        return observation, self._batches.as_observation(frames, lambda leaf: _stacks(leaf, 1, length))

    def _each_step(self, frames: Frames, mask: npt.NDArray[np.bool_]) -> tuple[Any, Any]:
        """Return observations and next observations as views of one window for each step; zeros where masked."""
        by_step = each_leaf(lambda leaf: _of_steps(leaf, mask), frames)
        observation = self._batches.as_observation(by_step, lambda leaf: leaf[:, :, :-1])
        return observation, self._batches.as_observation(by_step, lambda leaf: leaf[:, :, 1:])


class PendingSequences(PendingFrames[SequenceBatch]):
    """Sequences that are drawn and looked up, but whose frames are not unpacked yet (``PendingFrames``)."""

    __slots__ = ("_gatherer", "burn_in", "choose", "crosses", "steps")

    steps: SequenceSteps

    def __init__(
        self,
        parts: MemoryParts,
        gatherer: SequenceGatherer,
        choose: ChooseSteps,
        crosses: bool = False,
        burn_in: int = 0,
    ) -> None:
        super().__init__(parts)
        self._gatherer, self.choose, self.crosses, self.burn_in = gatherer, choose, crosses, burn_in

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """Whether there is a step, ``(B, L)``."""
        return self.steps.indices >= 0

    def look_up(self) -> None:
        """Choose the steps and copy their values and the places of their frames; takes the memory's lock."""
        self._gatherer.look_up(self)

    def _batch(self) -> SequenceBatch:
        return self._gatherer.batch(self)


def _batch(
    observation: Any,
    next_observation: Any,
    columns: StepFields,
    steps: SequenceSteps,
    mask: npt.NDArray[np.bool_],
    burn_in: int,
) -> SequenceBatch:
    action, reward, discount, terminated, truncated, extra = columns
    return SequenceBatch(
        observation=observation,
        action=action,
        reward=reward,
        discount=discount,
        next_observation=next_observation,
        terminated=terminated,
        truncated=truncated,
        is_first=steps.is_first,
        mask=mask,
        index=steps.indices,
        weight=steps.weight,
        extras=extra,
        burn_in=burn_in,
    )


def _steps_of(
    parts: MemoryParts, index: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]
) -> tuple[Windows, StepFields]:
    """Return the windows of all steps, sequence by sequence, and their values.

    Masked steps get values of 0, and the window of the sequence's first step.
    """
    is_full = bool(mask.all())
    steps = index if is_full else np.where(mask, index, index[:, :1])
    windows, (*numbers, extra) = parts.timeline.resolve_steps(steps.ravel())

    def shaped(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        of_steps = column.reshape(*mask.shape, *column.shape[1:])
        if not is_full:
            of_steps[~mask] = np.zeros((), column.dtype)
        return of_steps

    action, reward, discount, terminated, truncated = map(shaped, numbers)
    more = {name: shaped(column) for name, column in extra.items()}
    return Windows(*windows), (action, reward, discount, terminated, truncated, more)


def _joined(windows: Windows, mask: npt.NDArray[np.bool_]) -> Windows:
    """Return one window for each sequence: the frames of its first observation, then one for each step."""
    length = mask.shape[1]
    num_later = mask.sum(1) - 1
    firsts = np.arange(0, mask.size, length)
    lasts = windows.last_positions[firsts + num_later]
    return Windows(windows.streams[firsts], lasts, windows.counts[firsts] + num_later.astype(np.int32))


def _of_steps(frames: Array, mask: npt.NDArray[np.bool_]) -> Array:
    """Return the windows of all steps by sequence, ``(B, L, ...)``; zeros where masked."""
    if not mask.all():
        frames[~mask.ravel()] = 0
    return frames.reshape(*mask.shape, *frames.shape[1:])


def _move_to_front(frames: Array, mask: npt.NDArray[np.bool_]) -> Array:
    """Move the frames of short sequences to the front, in place, with zeros after them; storages pad the front."""
    num_steps = mask.sum(1)
    for row in np.flatnonzero(num_steps < mask.shape[1]):
        flat = frames[row].reshape(-1)
        num_masked = int(mask.shape[1] - num_steps[row]) * (flat.size // frames.shape[1])
        flat[:-num_masked] = flat[num_masked:]
        flat[-num_masked:] = 0
    return frames


def _stacks(frames: Array, first: int, length: int) -> Array:
    """Return views of windows as ``length`` stacks each, of which the first starts at frame ``first``."""
    num_windows, num_frames, *frame = frames.shape
    of_window, of_frame, *of_rest = frames.strides
    return np.ndarray(
        (num_windows, length, num_frames - length, *frame),
        frames.dtype,
        frames,
        first * of_frame,
        (of_window, of_frame, of_frame, *of_rest),
    )
