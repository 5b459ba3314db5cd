"""Sample a batch: draw indices, find their steps, unpack their frames.

A batch starts as a ``PendingBatch``. Its draw takes the memory's lock for microseconds; its frames are unpacked
without the lock, into an array of an ``OutputPool``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from framestow._core import OutputPool, StepFields, Windows
from framestow.checks import whole_number
from framestow.errors import DamagedSegmentError, InvalidSettingsError, NothingToSampleError
from framestow.frames.observation_spec import Frames
from framestow.interface import HidesNames, one_line
from framestow.replay.eviction.budget import OUTPUT_ARRAYS
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.reading.batch import Batch, describe_batch
from framestow.replay.reading.summed_extras import summed_extras
from framestow.replay.samplers.sampler import Draw
from framestow.replay.settings.observation_layout import StackLayout
from framestow.replay.steps.step_store import POSITION_RANGE, unreadable
from framestow.storage.frame_storage import FrameSnapshot

MAX_BUFFERS = 8  # of a pool, for each array of an observation

BatchOrSequences = TypeVar("BatchOrSequences")


class PendingFrames(HidesNames, ABC, Generic[BatchOrSequences]):
    """Steps that are drawn, but whose frames are not unpacked yet.

    New steps and evictions do not change what ``read`` returns. Call ``read`` once, from any thread, or ``stop``.
    Until then evicted frames stay readable for it, and a writer that evicts many frames waits for it
    (docs/threads.md).
    """

    __slots__ = ("_parts", "fields", "frames", "snapshot", "windows")
    _hidden_names = frozenset({"draw", "draw_steps", "fields", "frames", "read", "redraw", "snapshot", "windows"})

    windows: Windows
    fields: StepFields
    frames: Frames

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self.snapshot: FrameSnapshot | None = None

    @abstractmethod
    def draw_steps(self) -> None:
        """Choose the steps and copy their values and the positions of their frames; takes the memory's lock."""

    @abstractmethod
    def _make_batch(self) -> BatchOrSequences:
        """Return the batch of the unpacked frames."""

    def read(self) -> BatchOrSequences:
        """Unpack the frames and return the batch; draw again if a damaged segment is skipped.

        Raises:
            DamagedSegmentError: damage in a memory with ``on_damage="raise"``.
        """
        while True:
            try:
                return self.unpack()
            except DamagedSegmentError as error:
                self.redraw(error)

    def unpack(self) -> BatchOrSequences:
        """Unpack the frames and return the batch, without the memory's lock.

        Raises:
            DamagedSegmentError: any damage. The thread that drew then calls ``redraw``.
        """
        snapshot: FrameSnapshot | None = None
        try:  # taken from ``self``, so that stop() in another thread does not end it during the read
            snapshot, self.snapshot = self.snapshot, None
            if snapshot is None:
                raise ValueError("the draw was unpacked or stopped before: each is unpacked once; draw another one")
            self._read_frames(snapshot)
        finally:
            if snapshot is not None:
                snapshot.stop()
        return self._make_batch()

    def _read_frames(self, snapshot: FrameSnapshot) -> None:
        snapshot.windows(*self.windows, self.frames, self._parts.settings.stack_padding)

    def redraw(self, error: DamagedSegmentError) -> None:
        """Skip the segment of ``error`` and draw again; raise ``error`` if the memory skips none."""
        with self._parts.lock:
            self._parts.damage.skip(error)
            self.draw_steps()

    def stop(self) -> None:
        """Release the frames, unless a thread unpacks them now; does not change a batch that was returned."""
        snapshot, self.snapshot = self.snapshot, None
        if snapshot is not None:
            snapshot.stop()


AnyPending = TypeVar("AnyPending", bound="PendingFrames[Any]")


def drawn(pending: AnyPending) -> AnyPending:
    """Return ``pending`` with its steps drawn; stop it on any interrupt, because a lost snapshot blocks the writer."""
    try:
        pending.draw_steps()
        return pending
    except BaseException:  # also between the draw and the return, as a traceback keeps the snapshot alive
        pending.stop()
        raise


def read_pending(pending: PendingFrames[BatchOrSequences]) -> BatchOrSequences:
    """Draw and read ``pending``; stop it on any interrupt."""
    try:
        pending.draw_steps()
        return pending.read()
    finally:
        pending.stop()


@lru_cache  # of a few batch sizes: 0.1 µs instead of 0.3
def observation_parts(num_rows: int, num_windows: int, n_step: int) -> tuple[Any, Any]:
    """Return which parts of a batch's frames are the observations and the next observations.

    Each row has one window of ``stack + n_step`` frames; or all observations' windows come before the next ones'. A
    batch has two windows for each row if one of its steps is a border.
    """
    if num_windows == num_rows:
        return np.s_[:, :-n_step], np.s_[:, n_step:]
    return np.s_[:num_rows], np.s_[num_rows:]


class BatchBuilder:
    """Reads batches of a memory's transitions into arrays of an ``OutputPool``."""

    def __init__(self, parts: MemoryParts) -> None:
        self._parts, self._lock, self._steps, self._storage = parts, parts.lock, parts.steps, parts.frames
        self._has_budget = parts.budget.max_bytes is not None
        self._spec, self._padding = parts.settings.frame, parts.settings.stack_padding
        self._layout = layout = parts.settings.layout
        # Whether observations are stacks of frames along the first axis, in a single array.
        self._is_as_stored = self._spec.is_one_array and layout.stacks[0] == StackLayout(0, layout.depth)
        # Of each array: shape and dtype of its frames, and how many frames less than ``stack`` it has.
        self._arrays = [
            (array.shape, array.dtype, layout.depth - depth)
            for array, depth in zip(self._spec.frame_specs, layout.depths, strict=True)
        ]
        self._pool = OutputPool(max_buffers=MAX_BUFFERS * len(self._arrays))
        if self._has_budget:
            self._pool.max_bytes = parts.budget.output_bytes
        self._largest_draw = 0  # frames of the largest batch that the budget has bytes for
        self._stack, self._n_step = parts.settings.stack, parts.settings.n_step
        # Whether a transition has sums of extras that are not the values of its first step.
        self._sums_extras = bool(parts.settings.extras.summed) and self._n_step > 1
        self.num_bordered_sequences = 0
        """Number of sampled sequences that had a border."""

    @property
    def nbytes(self) -> int:
        """Number of bytes of the output buffers."""
        return self._pool.nbytes

    def read(self, choose: Callable[[Any], Draw], argument: Any, shares_frames: bool = True) -> Batch:
        """Return the batch of the transitions that ``choose(argument)`` draws under the memory's lock.

        If a damaged segment is skipped, it draws again. Unless ``shares_frames``, observations and next observations
        are two arrays in C order, whose memory is reused when nobody refers to either.
        """
        while True:
            snapshot: FrameSnapshot | None = None
            try:
                with self._lock:
                    draw = choose(argument)
                    windows, fields, frames, snapshot = self.locate(draw.indices, shares_frames)
                snapshot.windows(*windows, frames, self._padding)
                return self.make_batch(draw, fields, frames)
            except DamagedSegmentError as error:
                damaged = error
            finally:
                if snapshot is not None:
                    snapshot.stop()
            with self._lock:
                self._parts.damage.skip(damaged)

    def draw(self, batch_size: int) -> Draw:
        """Draw by the memory's sampler, and reserve output buffers; hold the lock.

        Raises:
            NothingToSampleError: the memory is empty.
        """
        if self._has_budget:
            self.reserve(batch_size * 2 * self._stack)  # two windows a row, as in a batch with a border
        if not len(self._steps):
            raise NothingToSampleError(
                "the memory has no transition: nothing can be sampled; append steps first"
                if self._n_step == 1
                else f"the memory has no transition with all of its {self._n_step} steps: nothing can be sampled; "
                "append more steps, or give it a larger max_bytes if it has one"
            )
        return self._parts.notified_sampler.draw(batch_size, self._parts.generator)

    def reserve(self, num_frames: int) -> None:
        """Reserve output buffers for batches of ``num_frames`` in the budget; evict transitions if needed."""
        if num_frames > self._largest_draw and self._has_budget:
            self._largest_draw = num_frames
            self._parts.budget.reserve_output(OUTPUT_ARRAYS * num_frames * self._spec.nbytes)
            self._pool.max_bytes = self._parts.budget.output_bytes
            self._parts.evict_to_fit()

    def as_draw(self, indices: npt.NDArray[np.int64]) -> Draw:
        """Return ``indices`` as a draw with weights of 1; raise ``NothingToSampleError`` if one is not sampleable."""
        missing = indices[~self._steps.is_sampleable(indices)]
        if missing.size:
            raise unreadable(self._steps, missing[0], "transition")
        return Draw(indices, np.ones(len(indices), np.float32))

    def locate(
        self, indices: npt.NDArray[np.int64], shares_frames: bool = True
    ) -> tuple[Windows, StepFields, Frames, FrameSnapshot]:
        """Return where the frames of transitions are, their other fields, arrays for the frames, and a new snapshot.

        The caller must stop the snapshot. Hold the lock.
        """
        windows, fields = self._steps.resolve(indices, True, shares_frames)
        if self._sums_extras:
            fields = fields._replace(extras=fields.extras | summed_extras(self._steps, self._parts.settings, indices))
        num_windows = len(windows.env_ids)
        length = self._stack
        if num_windows == len(indices):
            length += self._n_step
        frames = self.take_buffers(num_windows, length)
        return windows, fields, frames, self._storage.take_snapshot()

    def take_buffers(self, num_windows: int, length: int) -> Frames:
        """Return arrays of the pool for ``num_windows`` of ``length`` frames, one for each array."""
        frames: Frames = ()
        for shape, dtype, missing in self._arrays:
            frames += (self._pool.take((num_windows, length - missing, *shape), dtype),)
        return frames

    def make_batch(self, draw: Draw, fields: StepFields, frames: Frames) -> Batch:
        """Return the batch of a draw whose frames are unpacked."""
        both = observation_parts(len(draw.indices), len(frames[0]), self._n_step)
        if self._is_as_stored:
            observation, next_observation = frames[0][both[0]], frames[0][both[1]]
        else:
            observation, next_observation = (self.as_observation(frames, itemgetter(part)) for part in both)
        # Without the constructor of the frozen dataclass: 0.5 µs instead of 2.
        batch: Batch = object.__new__(Batch)
        values = vars(batch)
        values["observation"] = observation
        values["action"] = fields.action
        values["reward"] = fields.reward
        values["discount"] = fields.discount
        values["next_observation"] = next_observation
        values["index"] = draw.indices
        values["weight"] = draw.weights
        values["terminated"] = fields.terminated
        values["truncated"] = fields.truncated
        values["extras"] = fields.extras
        return batch

    def as_observation(
        self, frames: Frames, part: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], num_leading: int = 1
    ) -> Any:
        """Return ``part`` of each array in ``frames``, ``(..., depth, *frame)``, as observations."""
        return self._layout.join([part(array) for array in frames], num_leading, self._take)

    def _take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array of the pool, which belongs to the lock; threads unpack without it."""
        with self._lock:
            return self._pool.take(shape, dtype)


class PendingBatch(PendingFrames[Batch]):
    """``BatchBuilder.read`` in two halves: transitions that are drawn, and not unpacked yet."""

    __slots__ = ("_batch_size", "_builder", "draw")

    draw: Draw

    def __init__(self, parts: MemoryParts, builder: BatchBuilder, batch_size: int) -> None:
        super().__init__(parts)
        self._builder, self._batch_size = builder, batch_size

    def draw_steps(self) -> None:  # noqa: D102
        with self._parts.lock:
            self.draw = self._builder.draw(self._batch_size)
            self.windows, self.fields, self.frames, self.snapshot = self._builder.locate(self.draw.indices)

    def _make_batch(self) -> Batch:
        return self._builder.make_batch(self.draw, self.fields, self.frames)


@dataclass(frozen=True)
class StepSequences:
    """``B`` sequences of ``length`` consecutive steps, without frames; zeros after the end of an episode.

    ==========  ========================  =======  =================================================
    field       shape                     dtype    meaning
    ==========  ========================  =======  =================================================
    index       ``(B, length)``           int64    number of the step; -1 after the episode's end
    action      ``(B, length, *action)``  int64    action of the step (of a Box: the Box's dtype)
    reward      ``(B, length)``           float32  reward of that one step, for any ``n_step``
    terminated  ``(B, length)``           bool     the episode ended by its own rules there
    truncated   ``(B, length)``           bool     the episode was cut off there
    extras      ``(B, length, *shape)``   any      extra fields of the step, by name
    ==========  ========================  =======  =================================================
    """

    index: npt.NDArray[np.int64]
    action: npt.NDArray[Any]
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    extras: Mapping[str, npt.NDArray[Any]]

    def __repr__(self) -> str:
        return describe_batch(self)


def step_sequences(parts: MemoryParts, indices: npt.NDArray[np.int64], length: int) -> StepSequences:
    """Return ``length`` steps from each of ``indices``; raise ``NothingToSampleError`` if one is not readable."""
    length = whole_number("length", length, 1, POSITION_RANGE, rule=f"a sequence has 1 to {POSITION_RANGE:_} steps")
    with parts.lock:
        missing = indices[parts.steps.places(indices)[0] < 0]
        if missing.size:
            raise unreadable(parts.steps, missing[0])
        followed = parts.steps.follow(indices, length)[0]
        is_step = followed >= 0
        fields = parts.steps.resolve_steps(followed[is_step])[1]

    def spread(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if is_step.all():
            return column.reshape(*is_step.shape, *column.shape[1:])
        spread_out = np.zeros((*is_step.shape, *column.shape[1:]), column.dtype)
        spread_out[is_step] = column
        return spread_out

    return StepSequences(
        index=followed,
        action=spread(fields.action),
        reward=spread(fields.reward),
        terminated=spread(fields.terminated),
        truncated=spread(fields.truncated),
        extras={name: spread(column) for name, column in fields.extras.items()},
    )


Indices = npt.NDArray[np.int64]


class StoredBatches:
    """Iterator over all transitions that were stored when it was created, each in exactly one batch.

    Transitions that are evicted meanwhile are omitted, and new ones are not included. All batches but the last are
    full, so evictions can reduce their number. ``len()`` is the number of remaining batches without evictions.
    """

    def __init__(
        self,
        parts: MemoryParts,
        builder: BatchBuilder,
        batch_size: int,
        shuffled: bool,
        seed: int | None,
        drop_last: bool,
    ) -> None:
        if seed is not None and not shuffled:
            raise InvalidSettingsError(
                f"seed is {seed}: batches that are not shuffled use no seed; give shuffled=True with it"
            )
        self._parts, self._builder = parts, builder
        self._batch_size, self._drops_last = batch_size, drop_last
        with parts.lock:
            steps = parts.steps
            self._num_planned = len(steps) // batch_size if drop_last else -(-len(steps) // batch_size)
            # The sampleable transitions of each environment start below its stop; pending ones do not.
            newest = steps.newest_positions
            first_pending = np.maximum(newest - parts.settings.n_step + 1, steps.episode_starts)
            self._stops = np.where(steps.is_open, first_pending, newest)
            self._order = steps.sampleable_indices() if shuffled else None
        if self._order is not None:
            np.random.default_rng(seed).shuffle(self._order)
        self._num_returned = 0
        self._last, self._index = self._next = -1, 0  # the last index returned, or the index in the order

    def __iter__(self) -> StoredBatches:
        return self

    def __len__(self) -> int:
        return max(self._num_planned - self._num_returned, 0)

    def __repr__(self) -> str:
        left = f"{len(self):,} of {self._num_planned:,} batches of {self._batch_size:,} left"
        return one_line(self, lambda: [left])

    def __next__(self) -> Batch:
        if self._num_returned >= self._num_planned:
            raise StopIteration
        batch = self._builder.read(self._next_draw, self._order)
        self._last, self._index = self._next
        self._num_returned += 1
        return batch

    def _next_draw(self, order: Indices | None) -> Draw:
        return self._builder.as_draw(self._next_in_order() if order is None else self._next_shuffled(order))

    def _next_in_order(self) -> Indices:
        steps, last = self._parts.steps, self._last
        found, num_missing = [np.zeros(0, np.int64)], self._batch_size
        while num_missing:
            behind = steps.sampleable_after(last, num_missing)
            if not len(behind):
                break
            last = int(behind[-1])
            env_ids, positions = steps.places(behind)
            found.append(behind[positions < self._stops[env_ids]])
            num_missing -= len(found[-1])
        return self._choose(found, last=last)

    def _next_shuffled(self, order: Indices) -> Indices:
        index = self._index
        found, num_missing = [np.zeros(0, np.int64)], self._batch_size
        while num_missing and index < len(order):
            drawn = order[index : index + num_missing]
            index += len(drawn)
            found.append(drawn[self._parts.steps.is_sampleable(drawn)])
            num_missing -= len(found[-1])
        return self._choose(found, index=index)

    def _choose(self, found: list[Indices], last: int = -1, index: int = 0) -> Indices:
        """Return the indices of the next batch; ``__next__`` moves on only after the batch is read."""
        indices = np.concatenate(found)
        if not len(indices) or (self._drops_last and len(indices) < self._batch_size):
            self._num_returned = self._num_planned
            raise StopIteration
        self._next = last, index
        return indices
