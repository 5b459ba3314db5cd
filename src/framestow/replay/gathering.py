"""From a draw to a batch: chosen and looked up under the memory's lock, unpacked without it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedSegmentError, NothingToSampleError
from framestow.replay.batch import Batch
from framestow.replay.budget import OUTPUT_ARRAYS
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.output_pool import OutputPool
from framestow.replay.samplers.sampler import Draw
from framestow.storage.frame_storage import Reading


class Gathering:
    """Makes batches of a memory's transitions, into arrays that it takes back when nobody looks at them any more."""

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self._has_budget = parts.budget.max_bytes is not None
        self._pool = OutputPool(max_bytes=parts.budget.output_bytes) if self._has_budget else OutputPool()
        self._largest_draw = 0
        self._window_shape = (parts.settings.stack + 1, *parts.settings.frame.shape)
        self._frame_dtype = parts.settings.frame.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that are kept for batches to come."""
        return self._pool.nbytes

    def drawn(self, batch_size: int) -> Batch:
        """Draw by the memory's sampler and generator; raise ``NothingToSampleError`` where there is nothing."""
        return self._gathered(lambda: self._draw(batch_size))

    def chosen(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Give the transitions with these indices, all with weight 1; ``NothingToSampleError`` for one not held."""
        return self._gathered(lambda: self._choose(indices))

    def _draw(self, batch_size: int) -> Draw:
        if not len(self._parts.timeline):
            raise NothingToSampleError("the memory holds no transition: there is nothing to sample; append steps first")
        if batch_size > self._largest_draw and self._has_budget:
            self._make_room(batch_size)
        return self._parts.sampler.draw(batch_size, self._parts.timeline, self._parts.generator)

    def _make_room(self, batch_size: int) -> None:
        """Let the budget keep arrays for such draws, and transitions go for them."""
        self._largest_draw = batch_size
        window_bytes = (self._parts.settings.stack + 1) * self._parts.settings.frame.nbytes
        self._parts.budget.reserve_output(OUTPUT_ARRAYS * batch_size * window_bytes)
        self._pool.max_bytes = self._parts.budget.output_bytes
        self._parts.make_fit()

    def _choose(self, indices: npt.NDArray[np.int64]) -> Draw:
        timeline = self._parts.timeline
        missing = indices[~timeline.is_held(indices)]
        if missing.size:
            raise NothingToSampleError(
                f"transition {missing[0]} is not held: it has gone or never was; take indices from sampleable_indices()"
            )
        return Draw(indices, np.ones(len(indices), np.float32))

    def _gathered(self, choose: Callable[[], Draw]) -> Batch:
        """A batch of what ``choose`` gives; where a damaged segment is skipped, it chooses anew, among what is left."""
        while True:
            try:
                return self._gathered_whole(choose)
            except DamagedSegmentError as error:
                with self._parts.lock:
                    self._parts.damage.skip(error)

    def _gathered_whole(self, choose: Callable[[], Draw]) -> Batch:
        parts = self._parts
        reading: Reading | None = None
        try:
            with parts.lock:
                indices, weights = choose()
                windows, (action, reward, discount, terminated, truncated) = parts.timeline.resolve(indices)
                frames = self._pool.take((len(indices), *self._window_shape), self._frame_dtype)
                reading = parts.storage.start_reading()
            reading.windows(*windows, frames, parts.settings.stack_padding)
        finally:  # whatever interrupts it, at whatever line: a reading that stays makes the writer wait
            if reading is not None:
                reading.stop()
        return Batch(frames[:, :-1], action, reward, discount, frames[:, 1:], indices, weights, terminated, truncated)
