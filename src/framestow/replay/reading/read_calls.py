"""``ReadCalls``: what can be sampled, for loaders and learners: a memory, an ensemble of memories, or shards."""

from __future__ import annotations

from typing import Any, Protocol

from framestow.checks import truth_value
from framestow.errors import DamagedSegmentError
from framestow.replay.reading.batch import Batch, SequenceBatch
from framestow.replay.reading.batches_ahead import Drawn, DrawsAhead, Pending
from framestow.replay.reading.sequences import Borders
from framestow.replay.reports.memory_report import MemoryReport


class ReadCalls(DrawsAhead[Batch], Protocol):
    """The calls of a ``ReplayMemory``, a ``ReplayEnsemble`` and a ``ShardedReplay`` that read stored steps.

    A class of several memories inherits ``sample`` and ``sample_sequences``, which draw ahead and unpack at once.
    """

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes in RAM."""

    def report(self) -> MemoryReport:
        """Return the numbers of transitions and bytes."""

    def sample(self, batch_size: int, *, copy: bool = False) -> Batch:
        """Sample ``batch_size`` transitions, as ``ReplayMemory.sample`` does.

        Raises:
            NothingToSampleError: there is none.
        """
        copy = truth_value("copy", copy)
        batch = _unpack_at_once(self.draw_ahead(batch_size))
        return batch.copy() if copy else batch

    def sample_sequences(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
        copy: bool = False,
    ) -> SequenceBatch:
        """Sample sequences, each of one memory, as ``ReplayMemory.sample_sequences`` does.

        Raises:
            NothingToSampleError: there is none.
        """
        copy = truth_value("copy", copy)
        drawn = self.draw_sequences_ahead(batch_size, length, overlap=overlap, burn_in=burn_in, borders=borders)
        batch = _unpack_at_once(drawn)
        return batch.copy() if copy else batch

    def draw_sequences_ahead(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
    ) -> Pending[SequenceBatch]:
        """Draw sequences now, to unpack later."""

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Give the sampler new priorities of transitions, by their indices in a batch."""


def _unpack_at_once(pending: Pending[Drawn]) -> Drawn:
    """Unpack a draw; draw again if a damaged segment is skipped."""
    try:
        while True:
            try:
                return pending.unpack()
            except DamagedSegmentError as error:
                pending.redraw(error)
    finally:
        pending.stop()
