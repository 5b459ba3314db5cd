"""Sample a batch: draw slots, look up their steps, unpack their frames."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import whole_number
from framestow.errors import DamagedSegmentError, InvalidSettingsError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import Frames, ObservationSpec, each_leaf
from framestow.replay.batch import Batch
from framestow.replay.eviction import OUTPUT_ARRAYS
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.samplers.sampler import Draw
from framestow.replay.timelines.timeline import StepFields
from framestow.storage.frame_storage import Reading

MAX_BUFFERS = 8
ALIGNMENT = 64  # bytes: what XLA asks of memory that it looks at without a copy


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
    """Give a C-contiguous array with arbitrary contents that begins at a multiple of ``ALIGNMENT``.

    It is a view of the array that has the memory. NumPy's own begin at any multiple of 16.
    """
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(num_bytes + ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[start : start + num_bytes].view(dtype).reshape(shape)


def _count_references(buffers: list[npt.NDArray[Any]], place: int) -> tuple[int, int]:
    """References to a buffer, and to the array that has its memory, which views of the buffer refer to."""
    return sys.getrefcount(buffers[place]), sys.getrefcount(buffers[place].base)


_IDLE_REFERENCES = _count_references([aligned_empty((1,))], 0)  # a buffer that only its list refers to


class OutputPool:
    """Keeps a few output buffers and lends each again when every array that looked at it is gone.

    Fresh memory for each batch costs more than unpacking does: the operating system zeroes every page of it (measured:
    1.6 ms where the copy took 0.09). A view holds a reference to the array that has its memory, so a buffer with no
    reference but the pool's own, to it and to that, is free. That also covers views of views, tensors made by
    ``torch.from_numpy``, memoryviews and DLPack, with no call to give anything back.
    """

    def __init__(self, max_buffers: int = MAX_BUFFERS, max_bytes: int = 144 * 2**20) -> None:
        self._buffers: list[npt.NDArray[Any]] = []
        self._max_buffers = max_buffers
        self.max_bytes = max_bytes  # four batches, as a loader has out, of 1,024 windows of five Atari frames

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers that the pool keeps, lent or idle; not the ``ALIGNMENT`` before each."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
        """Lend an aligned array of ``shape``, its contents arbitrary; one that the pool has no room for is not kept."""
        for place in range(len(self._buffers)):
            if self._is_idle(place) and self._buffers[place].shape == shape and self._buffers[place].dtype == dtype:
                return self._buffers[place]
        buffer = aligned_empty(shape, dtype)
        if self._makes_room_for(buffer.nbytes):
            self._buffers.append(buffer)
        return buffer

    def _is_idle(self, place: int) -> bool:
        return _count_references(self._buffers, place) == _IDLE_REFERENCES

    def _makes_room_for(self, num_bytes: int) -> bool:
        """Drop idle buffers, oldest first, until one of ``num_bytes`` fits; whether it does."""
        if num_bytes > self.max_bytes:
            return False
        place = 0
        while len(self._buffers) >= self._max_buffers or self.nbytes + num_bytes > self.max_bytes:
            if place == len(self._buffers):
                return False
            if self._is_idle(place):
                del self._buffers[place]
            else:
                place += 1
        return True


Given = TypeVar("Given")


class PendingFrames(ABC, Generic[Given]):
    """Steps that are drawn and looked up, and whose frames are not unpacked yet.

    What they are is settled: neither steps nor evictions change what ``gather`` gives. It is called once, from any
    thread. Until then, or until ``stop``, frames that leave the memory stay for it, and a writer that lets much go
    waits for it (docs/threads.md): whoever draws ahead sees to it that some thread gathers.
    """

    __slots__ = ("_parts", "columns", "frames", "reading", "windows")

    windows: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32]]
    columns: StepFields
    frames: Frames

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self.reading: Reading | None = None

    @abstractmethod
    def look_up(self) -> None:
        """Choose the steps, and take down what they carry and where their frames lie; takes the memory's lock."""

    @abstractmethod
    def _batch(self) -> Given:
        """What the frames, now unpacked, are part of."""

    def gather(self) -> Given:
        """Unpack; where a damaged segment is skipped, what is drawn anew, among what is left.

        Raises ``DamagedSegmentError`` where a memory that raises for damage meets some.
        """
        while True:
            try:
                return self.unpack()
            except DamagedSegmentError as error:
                self.draw_anew(error)

    def unpack(self) -> Given:
        """Unpack without the memory's lock, for a thread that others wait for.

        Any damage raises ``DamagedSegmentError``. Whoever drew then calls ``draw_anew``, in a thread and at a moment
        of its own, which settles what comes of it.
        """
        reading: Reading | None = None
        try:  # it is taken, so that no stop() ends it while it is read
            reading, self.reading = self.reading, None
            if reading is None:
                raise ValueError("what is drawn ahead is gathered once, and not after stop(): draw another one")
            reading.windows(*self.windows, self.frames, self._parts.settings.stack_padding)
        finally:
            if reading is not None:
                reading.stop()
        return self._batch()

    def draw_anew(self, error: DamagedSegmentError) -> None:
        """Draw again, without the segment that ``unpack`` raised ``error`` for; a memory that skips none raises it."""
        with self._parts.lock:
            self._parts.damage.skip(error)
            self.look_up()

    def stop(self) -> None:
        """Let go of the frames, unless some thread unpacks them; a batch that was gathered stays as it is."""
        reading, self.reading = self.reading, None
        if reading is not None:
            reading.stop()


Looked = TypeVar("Looked", bound="PendingFrames[Any]")


def looked_up(pending: Looked) -> Looked:
    """Give it looked up; whatever interrupts that, at whatever line: a reading that stays makes the writer wait."""
    try:
        pending.look_up()
        return pending
    except BaseException:
        pending.stop()
        raise


def gathered(pending: PendingFrames[Given]) -> Given:
    """Look it up and gather it, with the same care."""
    try:
        pending.look_up()
        return pending.gather()
    finally:
        pending.stop()


Choose = Callable[[], Draw]  # asked under the memory's lock

OBSERVATION, NEXT_OBSERVATION = np.s_[:, :-1], np.s_[:, 1:]  # of a window that they share


class Gathering:
    """Makes batches of a memory's transitions, into arrays that it takes back when nobody looks at them any more."""

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self._has_budget = parts.budget.max_bytes is not None
        self._spec = parts.settings.frame
        self._leaves = [(leaf.shape, leaf.dtype) for leaf in self._spec.leaf_frames]
        self._pool = OutputPool(max_buffers=MAX_BUFFERS * len(self._leaves))
        if self._has_budget:
            self._pool.max_bytes = parts.budget.output_bytes
        self._largest_draw = 0
        self._n_step = parts.settings.n_step
        # One window a transition, whose frames both observations share, or one for each of them.
        self._window_length = parts.settings.stack + (1 if self._n_step == 1 else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that are kept for batches to come."""
        return self._pool.nbytes

    def drawn(self, batch_size: int) -> Batch:
        """Draw by the memory's sampler and generator; raise ``NothingToSampleError`` where there is nothing."""
        return gathered(PendingBatch(self._parts, self, lambda: self._draw_reserved(batch_size)))

    def chosen(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Give the transitions with these indices, all with weight 1; ``NothingToSampleError`` for one not held."""
        return gathered(PendingBatch(self._parts, self, lambda: self._choose(indices)))

    def chosen_by(self, choose: Callable[[], npt.NDArray[np.int64]]) -> Batch:
        """Give the transitions whose indices ``choose`` gives under the memory's lock, all with weight 1.

        It is asked again where some of them turn out to be damaged and are skipped.
        """
        return gathered(PendingBatch(self._parts, self, lambda: self._choose(choose())))

    def draw_ahead(self, batch_size: int) -> PendingBatch:
        """Draw as ``drawn`` does, and leave the unpacking to whoever asks the draw for its batch."""
        return looked_up(PendingBatch(self._parts, self, lambda: self._draw_reserved(batch_size)))

    def _draw_reserved(self, batch_size: int) -> Draw:
        self.reserve(batch_size * self._window_length * (1 if self._n_step == 1 else 2))
        return self.draw(batch_size)

    def draw(self, batch_size: int) -> Draw:
        """Draw by the memory's sampler and generator, under its lock; ``NothingToSampleError`` for nothing."""
        if not len(self._parts.timeline):
            raise NothingToSampleError(
                "the memory holds no transition: there is nothing to sample; append steps first"
                if self._n_step == 1
                else f"the memory holds no transition with all of its {self._n_step} steps: nothing can be sampled; "
                "append more steps, or give it a larger max_bytes if it has one"
            )
        return self._parts.draw(batch_size)

    def reserve(self, num_frames: int) -> None:
        """Let the budget keep arrays for batches of so many frames, and transitions go for them."""
        if num_frames > self._largest_draw and self._has_budget:
            self._largest_draw = num_frames
            self._parts.budget.reserve_output(OUTPUT_ARRAYS * num_frames * self._parts.settings.frame.nbytes)
            self._pool.max_bytes = self._parts.budget.output_bytes
            self._parts.evict_to_fit()

    def _choose(self, indices: npt.NDArray[np.int64]) -> Draw:
        timeline = self._parts.timeline
        missing = indices[~timeline.is_held(indices)]
        if missing.size:
            raise NothingToSampleError(
                f"transition {missing[0]} is not held: it has gone or never was; take indices from sampleable_indices()"
            )
        return Draw(indices, np.ones(len(indices), np.float32))

    def lent(self, num_windows: int, length: int) -> Frames:
        """Arrays of the pool for so many windows of ``length`` frames: one, or where there are several, one a leaf."""
        if type(self._spec) is FrameSpec:
            ((shape, dtype),) = self._leaves
            return self._pool.take((num_windows, length, *shape), dtype)
        return tuple(self._pool.take((num_windows, length, *shape), dtype) for shape, dtype in self._leaves)

    def shown(self, frames: Frames, part: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Any:
        """What ``part`` makes of an array that was lent, or of that of each leaf, in the form of an observation."""
        parts = each_leaf(part, frames)
        return self._spec.rebuilt(parts) if isinstance(self._spec, ObservationSpec) else parts

    def look_up(self, pending: PendingBatch) -> None:
        """Choose the transitions, and take down what they carry and where their frames lie."""
        parts = self._parts
        with parts.lock:
            pending.draw = pending.choose()
            pending.windows, pending.columns = parts.timeline.resolve(pending.draw.indices)
            pending.frames = self.lent(len(pending.windows[0]), self._window_length)
            pending.reading = parts.storage.start_reading()

    def batch(self, pending: PendingBatch) -> Batch:
        """The batch of what was looked up and unpacked."""
        frames = pending.frames
        action, reward, discount, terminated, truncated, columns = pending.columns
        indices, weights = pending.draw
        these: tuple[Any, Any] = OBSERVATION, NEXT_OBSERVATION
        if self._n_step > 1:
            these = np.s_[: len(indices)], np.s_[len(indices) :]
        if isinstance(frames, tuple):
            observation, next_observation = (self.shown(frames, itemgetter(part)) for part in these)
        else:
            observation, next_observation = frames[these[0]], frames[these[1]]
        return Batch(
            observation, action, reward, discount, next_observation, indices, weights, terminated, truncated, columns
        )


class PendingBatch(PendingFrames[Batch]):
    """Transitions that are drawn and looked up, and whose frames are not unpacked yet: see ``PendingFrames``."""

    __slots__ = ("_gathering", "choose", "draw")

    draw: Draw

    def __init__(self, parts: MemoryParts, gathering: Gathering, choose: Choose) -> None:
        super().__init__(parts)
        self._gathering, self.choose = gathering, choose

    def look_up(self) -> None:
        """Choose the transitions, and take down what they carry and where their frames lie."""
        self._gathering.look_up(self)

    def _batch(self) -> Batch:
        return self._gathering.batch(self)


@dataclass(frozen=True)
class HeldSteps:
    """Steps that follow on one another in their episodes, ``B`` times ``length`` of them; where there is none, zeros.

    ==========  ========================  =======  ===============================================
    field       shape                     dtype    meaning
    ==========  ========================  =======  ===============================================
    index       ``(B, length)``           int64    number of the step; -1 behind the episode's end
    action      ``(B, length, *action)``  int64    what was done (of a Box: its own dtype)
    reward      ``(B, length)``           float32  what that step alone gave
    terminated  ``(B, length)``           bool     the episode ended by its own rules there
    truncated   ``(B, length)``           bool     the episode was cut off there
    extras      ``(B, length, *shape)``   its own  what else was declared, by name
    ==========  ========================  =======  ===============================================
    """

    index: npt.NDArray[np.int64]
    action: npt.NDArray[Any]
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    extras: Mapping[str, npt.NDArray[Any]]


def held_steps(parts: MemoryParts, indices: npt.NDArray[np.int64], length: int) -> HeldSteps:
    """Look up ``length`` steps from each of ``indices`` on; ``NothingToSampleError`` for one that is not held."""
    length = whole_number("length", length, 1, rule="at least the step itself is looked up; give 1 or more")
    with parts.lock:
        missing = indices[parts.timeline.places(indices)[0] < 0]
        if missing.size:
            raise NothingToSampleError(
                f"step {missing[0]} is not held: it has gone or never was; take indices from sampleable_indices()"
            )
        followed = parts.timeline.follow(indices, length)[0]
        is_step = followed >= 0
        columns = parts.timeline.resolve_steps(followed[is_step])[1]
    action, reward, _, terminated, truncated, extra = columns

    def spread(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if is_step.all():
            return column.reshape(*is_step.shape, *column.shape[1:])
        spread_out = np.zeros((*is_step.shape, *column.shape[1:]), column.dtype)
        spread_out[is_step] = column
        return spread_out

    return HeldSteps(
        followed,
        spread(action),
        spread(reward),
        spread(terminated),
        spread(truncated),
        {name: spread(column) for name, column in extra.items()},
    )


Indices = npt.NDArray[np.int64]
Give = Callable[[Callable[[], Indices]], Batch]  # the batch of what it is given to choose by, under the memory's lock


class HeldBatches:
    """Gives every transition that was held when it was made exactly once; an iterator.

    What leaves the memory meanwhile is left out, and what comes is not taken in, so batches stay full to the last one
    and there may be fewer of them. ``len()`` tells how many are still to come if nothing leaves.
    """

    def __init__(
        self,
        parts: MemoryParts,
        give: Give,
        batch_size: int,
        shuffled: bool,
        seed: int | None,
        drop_last: bool,
    ) -> None:
        if seed is not None and not shuffled:
            raise InvalidSettingsError(
                f"seed is {seed}: what is not shuffled has one order; give shuffled=True with it"
            )
        self._parts, self._give, self._batch_size, self._drops_last = parts, give, batch_size, drop_last
        with parts.lock:
            timeline = parts.timeline
            self._num_planned = len(timeline) // batch_size if drop_last else -(-len(timeline) // batch_size)
            # What is drawable of each stream now starts below this; a step that lacks its return yet does not.
            newest = timeline.newest_positions
            settled = np.maximum(newest - parts.settings.n_step + 1, timeline.episode_starts)
            self._stops = np.where(timeline.is_open, settled, newest)
            self._order = timeline.held_indices() if shuffled else None
        if self._order is not None:
            np.random.default_rng(seed).shuffle(self._order)
        self._num_given = 0
        self._last, self._place = self._next = -1, 0  # the index given last, or how far in the order

    def __iter__(self) -> HeldBatches:
        return self

    def __len__(self) -> int:
        return max(self._num_planned - self._num_given, 0)

    def __next__(self) -> Batch:
        if self._num_given >= self._num_planned:
            raise StopIteration
        batch = self._give(self._next_in_order if self._order is None else self._next_shuffled)
        self._last, self._place = self._next
        self._num_given += 1
        return batch

    def _next_in_order(self) -> Indices:
        timeline, last = self._parts.timeline, self._last
        found, num_missing = [np.zeros(0, np.int64)], self._batch_size
        while num_missing:
            behind = timeline.sampleable_after(last, num_missing)
            if not len(behind):
                break
            last = int(behind[-1])
            streams, positions = timeline.places(behind)
            found.append(behind[positions < self._stops[streams]])
            num_missing -= len(found[-1])
        return self._chosen(found, last=last)

    def _next_shuffled(self) -> Indices:
        place, order = self._place, self._order
        found, num_missing = [np.zeros(0, np.int64)], self._batch_size
        while order is not None and num_missing and place < len(order):
            drawn = order[place : place + num_missing]
            place += len(drawn)
            found.append(drawn[self._parts.timeline.is_held(drawn)])
            num_missing -= len(found[-1])
        return self._chosen(found, place=place)

    def _chosen(self, found: list[Indices], last: int = -1, place: int = 0) -> Indices:
        """What a batch is made of; nothing has been given before that is done."""
        indices = np.concatenate(found)
        if not len(indices) or (self._drops_last and len(indices) < self._batch_size):
            self._num_given = self._num_planned
            raise StopIteration
        self._next = last, place
        return indices
