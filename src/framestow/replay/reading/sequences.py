"""Sample sequences of steps.

A sequence within one episode is one window of frames: the stack of its first observation, then one frame for each
step. So each frame is unpacked once, and the stacks are strided views. Sequences that cross episodes have one window
for each step. A batch with a border in any of its sequences has two: observation and next observation of each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from framestow._core import BORDER, StepFields, Windows
from framestow.checks import one_of, whole_number
from framestow.errors import NothingToSampleError
from framestow.frames.observation_spec import map_arrays
from framestow.interface import warn_caller
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.reading.batch import SequenceBatch
from framestow.replay.reading.sampling import BatchBuilder, PendingFrames, drawn, read_pending

Borders = Literal["mask", "inside", "cross"]
LONGEST = 65_536  # steps
ROUNDS = 64  # tries before the starts that fit are counted; a millisecond
TOO_LONG = 10  # times the stored steps, from which on a length is warned of


@dataclass(frozen=True)
class SequenceShape:
    """Length and position of sequences, as in ``ReplayMemory.sample_sequences``.

    Raises:
        InvalidSettingsError: If the values do not fit together.
    """

    length: int
    overlap: int | None
    burn_in: int
    borders: Borders

    def __post_init__(self) -> None:
        longest = f"a sequence has 1 to {LONGEST:_} steps; for whole episodes of any length, call sample_episodes"
        length = whole_number("length", self.length, 1, LONGEST, rule=longest)
        if self.overlap is not None:
            shared = f"sequences of {length} steps share 0 to {length - 1} with the next one"
            free = "give None to start at any step"
            whole_number("overlap", self.overlap, 0, length - 1, rule=f"{shared}; {free}")
        warming = f"it must be 0 to {length - 1} of the {length} steps of a sequence; raise length, which includes it"
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


class SequenceBuilder:
    """Reads batches of sequences into the arrays of a ``BatchBuilder``."""

    def __init__(self, parts: MemoryParts, batches: BatchBuilder) -> None:
        self._parts, self._batches = parts, batches
        self._has_warned = False  # of a length far beyond all that is stored

    def sample(self, batch_size: int, shape: SequenceShape) -> SequenceBatch:
        """Return sequences drawn by the memory's sampler; raise ``NothingToSampleError`` if there is none."""
        return read_pending(self._pending(batch_size, shape))

    def draw_ahead(self, batch_size: int, shape: SequenceShape) -> PendingSequences:
        """Draw as ``sample`` does, and leave the unpacking to the caller."""
        return drawn(self._pending(batch_size, shape))

    def sample_episodes(self, batch_size: int) -> SequenceBatch:
        """Return whole episodes, each equally likely; raise ``NothingToSampleError`` if there is none."""
        return read_pending(PendingSequences(self._parts, self._batches, lambda: self._episodes(batch_size)))

    def _pending(self, batch_size: int, shape: SequenceShape) -> PendingSequences:
        crosses, length, stack = shape.borders == "cross", shape.length, self._parts.settings.stack
        num_stored = len(self._parts.steps) + self._parts.settings.n_step - 1  # as many, and those without a return
        if length > TOO_LONG * num_stored > 0 and not self._has_warned:
            self._warn_of_length(length, num_stored)
        num_frames = batch_size * (2 * length if crosses else length + 1) * stack  # as if each step were a border

        def choose() -> SequenceSteps:
            self._batches.reserve(num_frames)
            return self._inside(batch_size, shape) if shape.borders == "inside" else self._draw(batch_size, shape)

        return PendingSequences(self._parts, self._batches, choose, crosses, shape.burn_in)

    def _warn_of_length(self, length: int, num_stored: int) -> None:
        self._has_warned = True
        warn_caller(
            f"length is {length:,}: the memory has {num_stored:,} steps, so most of each sequence is masked, and its "
            "frames take bytes all the same; append more steps first, take a smaller length, or call sample_episodes()",
            UserWarning,
        )

    # The following methods choose steps, under the memory's lock.

    def _draw(self, batch_size: int, shape: SequenceShape) -> SequenceSteps:
        draw = self._batches.draw(batch_size)
        starts = draw.indices
        if shape.stride > 1:
            starts = self._parts.steps.aligned_starts(starts, shape.stride)
        return SequenceSteps(*self._parts.steps.follow(starts, shape.length, shape.borders == "cross"), draw.weights)

    def _episodes(self, batch_size: int) -> SequenceSteps:
        """Choose whole episodes, each equally likely, as sequences as long as the longest of them."""
        steps = self._parts.steps
        env_ids, positions, num_steps, are_whole, _, _ = steps.readable_spans()
        whole = np.flatnonzero(are_whole)
        if not len(whole):
            raise NothingToSampleError(
                f"none of the episodes in {len(steps):,} transitions is whole: it must have ended, with all of its "
                "steps stored; append more steps, or give the memory a larger capacity"
            )
        chosen = whole[self._parts.generator.integers(0, len(whole), batch_size)]
        starts = steps.find_steps(env_ids[chosen], positions[chosen])
        index, is_first = steps.follow(starts, int(num_steps[chosen].max()))
        return SequenceSteps(index, is_first, np.ones(batch_size, np.float32))

    def _inside(self, batch_size: int, shape: SequenceShape) -> SequenceSteps:
        """Choose sequences that fit into their episode: draw until enough fit, then count all that fit.

        Drawing keeps the sampler's probabilities among the sequences that fit. Only if nearly none fits, the last few
        of a batch are drawn uniformly from all that do.
        """
        steps = self._parts.steps
        found: list[SequenceSteps] = []
        num_missing = batch_size
        for _ in range(ROUNDS):
            draw = self._batches.draw(num_missing)
            starts = steps.aligned_starts(draw.indices, shape.stride, exact=True)
            index, is_first = steps.follow(starts, shape.length)
            fits = index[:, -1] >= 0
            found.append(SequenceSteps(index[fits], is_first[fits], draw.weights[fits]))
            num_missing -= int(fits.sum())
            if not num_missing:
                break
        else:
            starts = self._draw_starts(num_missing, shape)
            found.append(SequenceSteps(*steps.follow(starts, shape.length), np.ones(num_missing, np.float32)))
        return SequenceSteps(*(np.concatenate(columns) for columns in zip(*found, strict=True)))

    def _draw_starts(self, count: int, shape: SequenceShape) -> npt.NDArray[np.int64]:
        """Draw uniformly from all starts of sequences that fit into their episode."""
        steps, stride = self._parts.steps, shape.stride
        env_ids, positions, num_steps, _, are_open, episodes = steps.readable_spans()
        # As multiples of the stride from the episode's beginning: the first and the last start that fit into the span.
        num_needed = np.where(are_open, max(shape.length, self._parts.settings.n_step), shape.length)
        first = -(-(positions - episodes) // stride)
        last = (positions - episodes + num_steps - num_needed) // stride
        counts = np.maximum(last - first + 1, 0)
        until = np.cumsum(counts)
        if not counts.sum():
            raise NothingToSampleError(
                f"length is {shape.length}: the longest span of stored steps in one episode has "
                f"{num_steps.max(initial=0)}, and none has enough steps after a start; take shorter sequences, or "
                "borders='mask'"
            )
        ranks = self._parts.generator.integers(0, until[-1], count)
        span = np.searchsorted(until, ranks, "right")
        multiples = first[span] + ranks - (until[span] - counts[span])
        return steps.find_steps(env_ids[span], episodes[span] + multiples * stride)


ChooseSteps = Callable[[], SequenceSteps]  # called under the memory's lock
Array = npt.NDArray[Any]


class PendingSequences(PendingFrames[SequenceBatch]):
    """Sequences that are drawn, but whose frames are not unpacked yet (``PendingFrames``)."""

    __slots__ = ("_batches", "_burn_in", "_choose", "_crosses", "_mask", "_steps")

    _steps: SequenceSteps
    _mask: npt.NDArray[np.bool_]  # whether there is a step, ``(B, L)``

    def __init__(
        self,
        parts: MemoryParts,
        batches: BatchBuilder,
        choose: ChooseSteps,
        crosses: bool = False,
        burn_in: int = 0,
    ) -> None:
        super().__init__(parts)
        self._batches, self._choose, self._crosses, self._burn_in = batches, choose, crosses, burn_in

    def draw_steps(self) -> None:  # noqa: D102
        parts = self._parts
        with parts.lock:
            self._steps = self._choose()
            self._mask = mask = self._steps.indices >= 0
            windows, self.fields, are_borders = _steps_of(parts, self._steps.indices, mask)
            length = parts.settings.stack
            if are_borders.any():
                self._batches.num_bordered_sequences += int(are_borders.any(1).sum())
                windows = _separate(windows, are_borders, length, self._crosses)
            elif self._crosses:
                length += 1
            else:
                length += mask.shape[1]
                windows = _join(windows, mask)
            self.windows, self.frames = windows, self._batches.take_buffers(len(windows.env_ids), length)
            self.snapshot = parts.frames.take_snapshot()

    def _make_batch(self) -> SequenceBatch:
        observation, next_observation = self._observations()
        return SequenceBatch(
            observation=observation,
            next_observation=next_observation,
            **self.fields._asdict(),
            is_first=self._steps.is_first,
            mask=self._mask,
            index=self._steps.indices,
            weight=self._steps.weight,
            burn_in=self._burn_in,
        )

    def _observations(self) -> tuple[Any, Any]:
        """Return observations and next observations, views of the frames; write what is masked."""
        mask, as_observation = self._mask, self._batches.as_observation
        for array in self.frames:
            self._write_masked(array)
        observation = as_observation(self.frames, lambda array: sequence_part(array, mask.shape, 0), 2)
        return observation, as_observation(self.frames, lambda array: sequence_part(array, mask.shape, 1), 2)

    def _write_masked(self, frames: Array) -> None:
        mask = self._mask
        if mask.all():
            return
        if self._crosses:
            for which in (0, 1):
                sequence_part(frames, mask.shape, which)[~mask] = 0
        elif len(frames) == len(mask):
            _move_to_front(frames, mask)
        else:
            _shift_last_stacks(frames, mask)


def _steps_of(
    parts: MemoryParts, index: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]
) -> tuple[Windows, StepFields, npt.NDArray[np.bool_]]:
    """Return the windows of all steps, sequence by sequence, their values, and which are borders.

    Masked steps get values of 0, and the window of the sequence's first step.
    """
    is_full = bool(mask.all())
    steps = (index if is_full else np.where(mask, index, index[:, :1])).ravel()
    windows, fields = parts.steps.resolve_steps(steps)
    are_borders = (parts.steps.flags_of(steps) & BORDER > 0).reshape(mask.shape)

    def reshape(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        of_steps = column.reshape(*mask.shape, *column.shape[1:])
        if not is_full:
            of_steps[~mask] = np.zeros((), column.dtype)
        return of_steps

    return windows, StepFields(*(map_arrays(reshape, field) for field in fields)), are_borders


def _join(windows: Windows, mask: npt.NDArray[np.bool_]) -> Windows:
    """Return one window for each sequence: the frames of its first observation, then one for each step."""
    length = mask.shape[1]
    num_later = mask.sum(1) - 1
    firsts = np.arange(0, mask.size, length)
    lasts = windows.last_positions[firsts + num_later]
    return Windows(windows.env_ids[firsts], lasts, windows.counts[firsts] + num_later.astype(np.int32))


def _separate(windows: Windows, are_borders: npt.NDArray[np.bool_], stack: int, crosses: bool) -> Windows:
    """Return a window for each stack, sequence by sequence: the first observation, then each next observation.

    Where sequences cross into other episodes, the windows of each step's observation and next observation. Each window
    has all frames but one of the window before it, as a rule, and storages copy these.
    """
    shape = are_borders.shape
    env_ids, lasts, counts = (column.reshape(shape) for column in windows)
    next_counts = np.where(are_borders, 1, np.minimum(counts, stack)).astype(np.int32)

    def arrange(observations: Array, next_observations: Array) -> Array:
        if crosses:
            return np.stack([observations, next_observations], axis=2).ravel()
        return np.concatenate([observations[:, :1], next_observations], axis=1).ravel()

    return Windows(arrange(env_ids, env_ids), arrange(lasts - 1, lasts), arrange(counts - 1, next_counts))


def _move_to_front(frames: Array, mask: npt.NDArray[np.bool_]) -> None:
    """Move the frames of short sequences to the front, in place, with zeros after them; storages pad the front."""
    num_steps = mask.sum(1)
    for row in np.flatnonzero(num_steps < mask.shape[1]):
        flat = frames[row].reshape(-1)
        num_masked = int(mask.shape[1] - num_steps[row]) * (flat.size // frames.shape[1])
        flat[:-num_masked] = flat[num_masked:]
        flat[-num_masked:] = 0


def _shift_last_stacks(frames: Array, mask: npt.NDArray[np.bool_]) -> None:
    """Let the last frames of short sequences leave the masked stacks one by one, as in views of one window."""
    next_observations = sequence_part(frames, mask.shape, 1)
    stack = next_observations.shape[2]
    for row, num_steps in enumerate(mask.sum(1).tolist()):
        last = num_steps - 1
        next_observations[row, num_steps:] = 0
        for column in range(num_steps, min(last + stack, mask.shape[1])):
            next_observations[row, column, : stack - column + last] = next_observations[row, last, column - last :]


def sequence_part(frames: Array, shape: tuple[int, ...], which: int) -> Array:
    """Return a view of the observations (0) or the next observations (1) of sequences, ``(B, L, stack, *frame)``.

    ``shape``: B and L. ``frames`` has one window for each sequence, one for each step, or those of ``_separate``.
    """
    num_rows, length = shape
    num_windows = len(frames) // num_rows
    if num_windows == 1:
        return _stacks(frames, which, length)
    of_rows = frames.reshape(num_rows, num_windows, *frames.shape[1:])
    if num_windows == length:
        return of_rows[:, :, which : which + frames.shape[1] - 1]
    return of_rows[:, which : which + length] if num_windows == length + 1 else of_rows[:, which::2]


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
