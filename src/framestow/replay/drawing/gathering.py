"""From a draw to a batch: chosen and looked up under the memory's lock, unpacked without it."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import Frames, ObservationSpec, each_leaf
from framestow.replay.batch import Batch
from framestow.replay.drawing.output_pool import MAX_BUFFERS, OutputPool
from framestow.replay.drawing.pending_frames import PendingFrames, gathered, looked_up
from framestow.replay.keeping.budget import OUTPUT_ARRAYS
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.samplers.sampler import Draw

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
            self._parts.make_fit()

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
