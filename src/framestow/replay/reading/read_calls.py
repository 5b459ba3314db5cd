"""``ReadCalls``: what can be sampled, for loaders and learners: a memory, an ensemble of memories, or shards."""

from __future__ import annotations

from typing import Any, Protocol

from framestow.replay.reading.batch import Batch, SequenceBatch
from framestow.replay.reading.batches_ahead import DrawsAhead, Pending
from framestow.replay.reading.sequences import Borders
from framestow.replay.reports.memory_report import MemoryReport


class ReadCalls(DrawsAhead[Batch], Protocol):
    """The calls of a ``ReplayMemory``, a ``ReplayEnsemble`` and a ``ShardedReplay`` that read stored steps."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes in RAM."""

    def report(self) -> MemoryReport:
        """Return the numbers of transitions and bytes."""

    def sample(self, batch_size: int, *, copy: bool = False) -> Batch:
        """Return a batch of transitions; with ``copy``, of arrays that share no memory."""

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
        """Return a batch of sequences; with ``copy``, of arrays that share no memory."""

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
