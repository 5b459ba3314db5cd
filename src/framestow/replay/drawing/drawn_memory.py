"""What a learner draws from a memory: the part of ``ReplayMemory`` that makes batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.replay.batch import Batch
from framestow.replay.drawing.gathering import Gathering, PendingBatch
from framestow.replay.held_episodes import HeldEpisode, held_episodes
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.samplers.checked_priorities import checked_priorities
from framestow.replay.samplers.sampler import Sampler


class DrawnMemory:
    """Draws, looks up and goes through the transitions of a memory."""

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self._gathering = Gathering(parts)

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions, with replacement, by the memory's sampler and generator.

        Raises ``NothingToSampleError`` while there is none.
        """
        if batch_size < 1:
            raise InvalidSettingsError(f"batch_size is {batch_size}: a batch has at least 1 transition")
        return self._gathering.drawn(batch_size)

    def draw_ahead(self, batch_size: int) -> PendingBatch:
        """Draw as ``sample`` does, now, and unpack later: what loaders build on, so that a learner need not wait.

        The same draws give the same batches, whoever gathers them, and when. See ``PendingBatch`` for what is owed.
        """
        if batch_size < 1:
            raise InvalidSettingsError(f"batch_size is {batch_size}: a batch has at least 1 transition")
        return self._gathering.draw_ahead(batch_size)

    @property
    def sampler(self) -> Sampler:
        """What draws. Another one can be set at any time; it begins with all that is held, in the same generator."""
        return self._parts.told.sampler

    @sampler.setter
    def sampler(self, sampler: Sampler) -> None:
        self._parts.switch_sampler(sampler)

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Tell the sampler the TD errors, of any sign, of the transitions with these indices (``Batch.index``).

        Both have the same shape; CPU tensors are taken as arrays are. Transitions that have left meanwhile, and indices
        of -1, are left out; where one comes twice, the last error counts. Raises ``InvalidSettingsError``, before
        anything is changed, for shapes that differ, for what is not finite, and for a sampler without priorities.
        """
        self._parts.update_priorities(*checked_priorities(indices, priorities))

    def transitions(self, indices: npt.ArrayLike) -> Batch:
        """Give exactly the transitions with these indices (as ``Batch.index`` gives them), all with weight 1.

        Raises ``NothingToSampleError`` for one that is not held.
        """
        return self._gathering.chosen(np.atleast_1d(np.asarray(indices, np.int64)))

    def sampleable_indices(self) -> npt.NDArray[np.int64]:
        """Give the index of every transition that may be drawn, oldest first."""
        with self._parts.lock:
            return self._parts.timeline.held_indices()

    def episodes(self) -> Iterator[HeldEpisode]:
        """Give what is held episode by episode, stream by stream; frames are read when they are asked for.

        Nothing may be appended to a full memory meanwhile: ``NothingToSampleError``.
        """
        return held_episodes(self._parts)
