"""``Shard``: owns a ``ReplayMemory``, stores chunks of steps, and samples rows with known probabilities."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, StepFields
from framestow.distributed.calls import Calls, LocalCalls
from framestow.distributed.chunk_log import ChunkLog, chunk_log_path
from framestow.distributed.chunks import DUPLICATE, GAP, REPLACED, STORED, Chunk, ShardReport, Taken
from framestow.distributed.ray_actors import ActorPlacement, RayCalls, start_actors
from framestow.distributed.stored_chunks import store_chunk, store_context
from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory
from framestow.replay.memory_report import MemoryReport
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.samplers.prioritized import SETTINGS, Prioritized
from framestow.replay.samplers.sampler import Sampler
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.sampling import PendingFrames
from framestow.replay.sequences import SequenceShape

# Fields of a ``Batch`` and of a ``SequenceBatch`` that a shard sends by name.
BATCH_FIELDS = StepFields._fields
SEQUENCE_FIELDS = (*BATCH_FIELDS, "is_first", "mask")
NO_WRITER = -1
EPOCH_BITS = 12  # of a shard's epoch in the index of a batch
# Epochs modulo 2 ** EPOCH_BITS, indices and priorities of some transitions.
Updates = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.floating[Any]]]


class Rows(NamedTuple):
    """Sampled transitions or sequences of one shard, and its report as of the draw.

    ``frames`` has one array for each array of the space, which ``observation_parts`` of transitions, and
    ``sequence_part`` of sequences, splits.
    """

    report: ShardReport
    frames: tuple[npt.NDArray[Any], ...]
    fields: dict[str, Any]  # the other fields of a ``Batch`` or a ``SequenceBatch``
    indices: npt.NDArray[np.int64]  # of the shard's memory, of each step; -1 where masked
    weight: npt.NDArray[np.float32]  # relative to the transition of the shard with the smallest mass


@dataclass(frozen=True)
class ShardSettings:
    """What a shard is built from, in any process."""

    memory: MemorySettings
    seed: int | None  # of the memory's generator
    priorities: dict[str, Any] | None  # settings of ``Prioritized``; None samples uniformly
    directory: Path | None = None  # where the memory lives; None keeps it in RAM
    flush_every: float = 5.0  # seconds between two flushes to the directory
    saved: tuple[Path, int] | None = None  # folder and generation that the shard starts with
    insert_limit: float = float("inf")  # after each start, until the replay sets another one
    threads: int = 1  # that unpack a batch

    def sampler(self) -> Sampler:
        """Return a new sampler."""
        return Uniform() if self.priorities is None else Prioritized(**self.priorities)


def sampler_settings(sampler: Sampler | None) -> dict[str, Any] | None:
    """Return the settings of a ``Prioritized``, and ``None`` for ``Uniform``.

    Raises:
        InvalidSettingsError: other samplers, since their draws are not in proportion to a mass.
    """
    if sampler is None or type(sampler) is Uniform:
        return None
    if type(sampler) is not Prioritized:
        raise InvalidSettingsError(
            f"sampler is a {type(sampler).__name__}: a sharded replay samples by Uniform or Prioritized only; give "
            "Uniform() or Prioritized()"
        )
    return {name: getattr(sampler, name) for name in SETTINGS}


class Shard:
    """A replay memory that takes chunks of steps and gives rows, for one process at a time.

    Arguments:
        settings: What the shard is built from.
        num_restarts: 0 for a new shard. A shard that is restarted ignores ``settings.saved``: in a directory it resumes
            what was flushed there last, in RAM it is empty.
    """

    def __init__(self, settings: ShardSettings, num_restarts: int = 0) -> None:
        self._settings = settings
        # An index of an earlier epoch names no transition of this shard.
        self._epoch = num_restarts
        self.memory = self._open_memory(is_restarted=num_restarts > 0)
        # By environment: the writer that feeds it, and the number of its next frame. NO_WRITER before its first chunk.
        self._fed: dict[int, tuple[int, int]] = {}
        # Counts of the report, since the shard started.
        self._inserted = self._ignored = self._duplicates = 0
        # Writers wait once so many steps were inserted; the replay sets it with each draw and report.
        self._insert_limit = settings.insert_limit
        # Which chunks the directory has; None for a shard in RAM.
        self._log: ChunkLog | None = None
        if settings.directory is not None:
            newest = self.memory.inner.steps.newest_positions.tolist()
            self._log = ChunkLog(chunk_log_path(settings.directory), newest)
            self._fed |= self._log.found
        self._flushed_at = time.monotonic()

    def _open_memory(self, is_restarted: bool) -> ReplayMemory:
        settings, sampler = self._settings, self._settings.sampler()
        if settings.saved is not None and not is_restarted:
            folder, generation = settings.saved
            options: dict[str, Any] = {"generation": generation, "sampler": sampler, "threads": settings.threads}
            if settings.directory is not None:
                return ReplayMemory.open(folder, read_only=False, flush_every=None, **options)
            return ReplayMemory.load(folder, **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*was not closed", RuntimeWarning)  # a killed shard does not close
            return ReplayMemory(
                **settings.memory.arguments(),
                sampler=sampler,
                seed=settings.seed,
                threads=settings.threads,
                directory=settings.directory,
                flush_every=None,  # the shard flushes between two chunks
            )

    def take(self, chunks: Sequence[Chunk]) -> Taken:
        """Store chunks and return the status of each.

        =============  ====================================================================
        ``stored``     stored; an open episode of another writer ends as truncated
        ``duplicate``  the shard has it already; nothing is stored
        ``gap``        what is before it is missing; nothing is stored until it comes with its ``context``
        ``replaced``   a later writer feeds the environment; nothing is stored
        =============  ====================================================================
        """
        statuses = [self._take(chunk) for chunk in chunks]
        if self._log is not None and time.monotonic() - self._flushed_at >= self._settings.flush_every:
            self.flush()
        length, newest = self.memory.inner.storage.frames_per_segment, self.memory.inner.steps.newest_positions
        open_frames = [int(newest[chunk.env_id] + 1) % length for chunk in chunks]
        return Taken(statuses, open_frames, self.report())

    def _take(self, chunk: Chunk) -> str:
        env_id = chunk.env_id
        writer, next_frame = self._fed.get(env_id, (NO_WRITER, 0))
        if chunk.writer < writer:
            return REPLACED
        if chunk.writer > writer:
            next_frame = 0
        if chunk.first_frame < next_frame:
            self._duplicates += 1
            return DUPLICATE
        # A memory that was reopened has closed its episodes, so even the next chunk may need what is before it.
        is_open = bool(self.memory.inner.steps.is_open[env_id] or chunk.steps.bits[0] & BEGINS_EPISODE)
        is_next = chunk.first_frame == next_frame
        if not (is_next and is_open):
            if chunk.context is None:
                return GAP
            store_context(self.memory, env_id, chunk.context, is_next)
        store_chunk(self.memory, chunk)
        self._fed[env_id] = chunk.writer, chunk.next_frame
        self._inserted += chunk.steps.num_steps
        if self._log is not None:
            newest = int(self.memory.inner.steps.newest_positions[env_id])
            self._log.append(env_id, chunk.writer, chunk.next_frame, newest)
        return STORED

    def sample(
        self,
        num_rows: int,
        epoch: int = 0,
        updates: Sequence[Updates] = (),
        num_draws: int = 0,
        insert_limit: float = float("inf"),
        shape: SequenceShape | None = None,
    ) -> Rows | ShardReport:
        """Update priorities, then sample ``num_rows`` rows; return the report alone if there is none to sample.

        Arguments:
            num_rows: Number of rows.
            epoch: The epoch that ``insert_limit`` is for; in another one the shard ignores it.
            updates: Priorities to update first.
            num_draws: Number of batches that the whole replay has given, which β follows.
            insert_limit: Number of steps that the shard may have inserted, as in ``report``.
            shape: Of sequences, whose start is drawn; ``None`` samples transitions.
        """
        self.update(updates)
        if epoch == self._epoch:
            self._insert_limit = insert_limit
        sampler = self.memory.sampler
        if isinstance(sampler, Prioritized):
            sampler.num_draws = num_draws
        try:
            pending: PendingFrames[Any] = (
                self.memory.draw_ahead(num_rows)
                if shape is None
                else self.memory.draw_sequences_ahead(
                    num_rows, shape.length, overlap=shape.overlap, burn_in=shape.burn_in, borders=shape.borders
                )
            )
        except NothingToSampleError:
            return self.report()
        batch = pending.read()
        names = BATCH_FIELDS if shape is None else SEQUENCE_FIELDS
        fields = {name: getattr(batch, name) for name in names}
        return Rows(self.report(), pending.frames, fields, batch.index, batch.weight)

    def update(self, updates: Sequence[Updates]) -> None:
        """Update priorities; those of evicted transitions, and of another epoch, are ignored and counted."""
        for epochs, indices, priorities in updates:
            is_known = (epochs == self._epoch % 2**EPOCH_BITS) & self.memory.inner.steps.is_sampleable(indices)
            self._ignored += int(np.count_nonzero(~is_known))
            self.memory.update_priorities(indices[is_known], priorities[is_known])

    def report(self, epoch: int = -1, insert_limit: float = 0.0) -> ShardReport:
        """Return what the shard has now. If ``epoch`` is its own, it takes over ``insert_limit`` first."""
        if epoch == self._epoch:
            self._insert_limit = insert_limit
        mass = self.memory.inner.parts.notified_sampler.total_mass()
        assert mass is not None, "sampler_settings takes only samplers with a mass"
        return ShardReport(
            self._epoch,
            len(self.memory),
            *mass,
            self._inserted,
            self._insert_limit,
            self._ignored,
            self._duplicates,
            self.memory.nbytes,
        )

    def memory_report(self) -> MemoryReport:
        """Return the report of the shard's memory."""
        return self.memory.report()

    def read_all(self) -> Batch:
        """Return all transitions, for tests."""
        return self.memory.get(self.memory.sampleable_indices())

    def flush(self) -> None:
        """Write everything to the directory, if there is one."""
        if self._log is not None:
            self.memory.flush()
            self._log.shorten()
        self._flushed_at = time.monotonic()

    def save(self, path: Path, keep_previous: bool) -> tuple[int, ShardReport]:
        """Save the memory to the folder ``path``; return the generation and what it has."""
        return self.memory.save(path, keep_previous=keep_previous), self.report()

    def prune(self, path: Path, generation: int) -> None:
        """Delete the generations before ``generation`` from the folder ``path``."""
        self.memory.prune(path, generation)

    def close(self) -> None:
        """Flush and close the memory."""
        self.memory.close()
        if self._log is not None:
            self._log.close()


StartShards = Callable[[Sequence[ShardSettings]], Calls]


def start_ray_shards(settings: Sequence[ShardSettings], placement: ActorPlacement | None = None) -> RayCalls:
    """Start a Ray actor for each shard, spread over the nodes."""
    return start_actors(Shard, settings, placement)


def start_local_shards(settings: Sequence[ShardSettings]) -> LocalCalls:
    """Return shards in this process, for tests and to debug a program without a cluster."""
    return LocalCalls([partial(Shard, one) for one in settings])
