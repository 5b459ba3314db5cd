"""``Shard``: owns a ``ReplayMemory``, stores chunks of steps, and samples rows with known probabilities.

A chunk has some hundred steps of one environment, packed where they are played.
"""

from __future__ import annotations

import contextlib
import struct
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, BORDER, StepFields
from framestow.distributed.ray import ActorPlacement, Calls, LocalCalls, RayCalls, start_actors
from framestow.errors import DamagedDataError, InvalidSettingsError, NothingToSampleError
from framestow.frames.observation_spec import Frames
from framestow.interface import Closing
from framestow.replay.inner_memory import InnerMemory
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.replay.reading.sampling import PendingFrames
from framestow.replay.reading.sequences import SequenceShape
from framestow.replay.reports.memory_report import MemoryReport
from framestow.replay.samplers.prioritized import SETTINGS, Prioritized
from framestow.replay.samplers.sampler import Sampler
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.step_checks import SegmentSteps
from framestow.storage.files.file_system import DISK, AppendFile, remove_unfinished, write_atomically
from framestow.storage.frame_storage import FrameStorage

ONLY_ENV = np.zeros(1, np.int32)  # the environments of a storage that has one
EPOCH_BITS = 12  # of a shard's epoch in the index of a batch
# Fields of a ``Batch`` and of a ``SequenceBatch`` that a shard sends by name.
BATCH_FIELDS = StepFields._fields
SEQUENCE_FIELDS = (*BATCH_FIELDS, "is_first", "mask")

Updates = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.floating[Any]]]
"""Epochs modulo ``2 ** EPOCH_BITS``, indices and priorities of some transitions."""
Limit = tuple[int, float]
"""Number of steps that a shard may have inserted, and before it the epoch that this is for."""
NO_LIMIT: Limit = (-1, 0.0)


class Context(NamedTuple):
    """What a shard needs to know of the steps before a chunk if it has none of them."""

    observation: Any  # the observation before the chunk's first frame, as ``add`` takes it, of one environment
    begins: bool  # whether it is the first one of its episode


@dataclass(frozen=True)
class Chunk:
    """Consecutive frames of one environment, packed, with their steps.

    A writer that is created later replaces an earlier one of the same environment, for example when its actor was
    restarted.
    """

    env_id: int  # of the shard's memory
    writer: int  # time of the writer's creation, in ns
    first_frame: int  # number of the first frame, among those of this writer and environment, from 0
    segments: tuple[bytes, ...]  # one for each array, with the paddings of the stretches that begin in it
    steps: SegmentSteps
    priorities: npt.NDArray[np.float32] | None = None  # of each step, NaN where unknown; None: all unknown
    context: Context | None = None  # only when it is sent again

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return len(self.steps.bits)

    @property
    def next_frame(self) -> int:
        """Number of the first frame of the next chunk."""
        return self.first_frame + self.num_frames


# What a shard did with a chunk.
STORED = "stored"  # an open episode of another writer ends as truncated
DUPLICATE = "duplicate"  # the shard has it already
GAP = "gap"  # what is before it is missing; it is stored once it comes with its context
REPLACED = "replaced"  # a later writer feeds the environment


class Taken(NamedTuple):
    """Answer to a writer."""

    statuses: list[str]  # of each chunk
    open_frames: list[int]  # of each chunk: frames in the open segment of its environment afterwards
    inserts_left: float  # steps that the shard may insert


class Rows(NamedTuple):
    """Sampled transitions or sequences of one shard.

    ``frames`` has one array for each array of the space, which ``observation_parts`` of transitions, and
    ``sequence_part`` of sequences, splits.
    """

    frames: tuple[npt.NDArray[Any], ...]
    fields: dict[str, Any]  # the other fields of a ``Batch`` or a ``SequenceBatch``
    indices: npt.NDArray[np.int64]  # of the shard's memory, of each step; -1 where masked
    weight: npt.NDArray[np.float32]  # relative to the transition of the shard with the smallest mass


class Answer(NamedTuple):
    """Answer to the replay: what the shard has, as of the draw, and the rows of a draw."""

    epoch: int  # changes with each restart; 0 at first
    size: int  # transitions that can be sampled
    mass: float  # sum of what draws are proportional to
    smallest: float  # mass of one transition, infinity without any
    inserted: int  # steps since the shard started
    has_evicted: bool = False  # whether its memory was ever full and evicted steps
    rows: Rows | None = None  # None if there is none to sample


@dataclass(frozen=True)
class ShardSettings:
    """Arguments of a shard, in any process."""

    memory: MemorySettings
    seed: int | None  # of the memory's generator
    priorities: dict[str, Any] | None  # settings of ``Prioritized``; None samples uniformly
    directory: Path | None = None  # where the memory lives; None keeps it in RAM
    flush_every: float = 5.0  # seconds between two flushes to the directory
    saved: tuple[Path, int] | None = None  # folder and generation that the shard starts with
    insert_limit: float = float("inf")  # after each start, until the replay sets another one
    threads: int = 1  # that unpack a batch


def sampler_settings(sampler: Sampler | None) -> dict[str, Any] | None:
    """Return the settings of a ``Prioritized``, and ``None`` for ``Uniform``.

    Raises:
        InvalidSettingsError: other samplers, since their draws are not in proportion to a mass, and draws without
            replacement, since rows of a lost shard are drawn again from the others.
    """
    if isinstance(sampler, Uniform) and sampler.distinct:
        raise InvalidSettingsError(
            "sampler is Uniform(distinct=True): a sharded replay draws from each shard with replacement; give Uniform()"
        )
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
        # By environment: the writer that feeds it, and the number of its next frame.
        self._fed: dict[int, tuple[int, int]] = {}
        # Since the shard started, and of the updates since the last report.
        self._inserted = self._ignored = 0
        # Writers wait once so many steps were inserted; the replay sets it with each draw and question.
        self._insert_limit = settings.insert_limit
        # Which chunks the directory has; None for a shard in RAM.
        self._log: ChunkLog | None = None
        if settings.directory is not None:
            newest = self.memory.inner.steps.newest_positions.tolist()
            self._log = ChunkLog(chunk_log_path(settings.directory), newest)
            self._fed |= self._log.found
        self._flushed_at = time.monotonic()

    def _open_memory(self, is_restarted: bool) -> ReplayMemory:
        settings = self._settings
        sampler = Uniform() if settings.priorities is None else Prioritized(**settings.priorities)
        options: dict[str, Any] = {"sampler": sampler, "threads": settings.threads}
        if settings.saved is not None and not is_restarted:
            folder, generation = settings.saved
            if settings.directory is None:
                budget = settings.memory.max_bytes
                return ReplayMemory.load(folder, generation=generation, max_bytes=budget, **options)
            return ReplayMemory.open(folder, read_only=False, flush_every=None, generation=generation, **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*was not closed", RuntimeWarning)  # a killed shard does not close
            return ReplayMemory(
                **settings.memory.arguments(),
                seed=settings.seed,
                directory=settings.directory,
                flush_every=None,  # the shard flushes between two chunks
                **options,
            )

    # Calls of writers

    def take(self, chunks: Sequence[Chunk]) -> Taken:
        """Store chunks and return the status of each."""
        statuses = [self._take(chunk) for chunk in chunks]
        if self._log is not None and time.monotonic() - self._flushed_at >= self._settings.flush_every:
            self.flush()
        length, newest = self.memory.inner.frames.frames_per_segment, self.memory.inner.steps.newest_positions
        open_frames = [int(newest[chunk.env_id] + 1) % length for chunk in chunks]
        return Taken(statuses, open_frames, self.inserts_left())

    def _take(self, chunk: Chunk) -> str:
        env_id = chunk.env_id
        writer, next_frame = self._fed.get(env_id, (chunk.writer, 0))
        if chunk.writer < writer:
            return REPLACED
        if chunk.writer > writer:
            next_frame = 0
        if chunk.first_frame < next_frame:
            return DUPLICATE
        # A memory that was reopened has closed its episodes, so even the next chunk may need what is before it.
        is_open = bool(self.memory.inner.steps.is_open[env_id] or chunk.steps.bits[0] & BEGINS_EPISODE)
        is_next = chunk.first_frame == next_frame
        if not (is_next and is_open):
            if chunk.context is None:
                return GAP
            store_context(self.memory.inner, env_id, chunk.context, is_next)
        store_chunk(self.memory, chunk)
        self._fed[env_id] = chunk.writer, chunk.next_frame
        self._inserted += chunk.steps.num_steps
        if self._log is not None:
            newest = int(self.memory.inner.steps.newest_positions[env_id])
            self._log.append(env_id, chunk.writer, chunk.next_frame, newest)
        return STORED

    def inserts_left(self) -> float:
        """Return how many steps may be inserted; 0 or less means that writers wait."""
        return self._insert_limit - self._inserted

    # Calls of the replay

    def answer(self, limit: Limit = NO_LIMIT, rows: Rows | None = None) -> Answer:
        """Take over ``limit`` if it is for this epoch, and return what the shard has."""
        if limit[0] == self._epoch:
            self._insert_limit = limit[1]
        mass = self.memory.inner.parts.notified_sampler.total_mass()
        assert mass is not None, "sampler_settings takes only samplers with a mass"
        has_evicted = self.memory.inner.steps.has_evicted
        return Answer(self._epoch, len(self.memory), *mass, self._inserted, has_evicted, rows)

    def sample(
        self,
        num_rows: int,
        limit: Limit = NO_LIMIT,
        updates: Sequence[Updates] = (),
        num_draws: int = 0,
        shape: SequenceShape | None = None,
    ) -> Answer:
        """Update priorities, then sample ``num_rows`` rows.

        Arguments:
            num_rows: Number of rows.
            limit: As in ``answer``.
            updates: Priorities to update first.
            num_draws: Number of batches that the whole replay has given, which β follows.
            shape: Of sequences, whose start is drawn; ``None`` samples transitions.
        """
        self.update(updates)
        sampler, memory = self.memory.sampler, self.memory
        if isinstance(sampler, Prioritized):
            sampler.num_draws = num_draws
        pending: PendingFrames[Any]
        try:
            if shape is None:
                pending = memory.draw_ahead(num_rows)
            else:
                pending = memory.inner.sequences.draw_ahead(num_rows, shape)
        except NothingToSampleError:
            return self.answer(limit)
        batch = pending.read()
        names = BATCH_FIELDS if shape is None else SEQUENCE_FIELDS
        fields = {name: getattr(batch, name) for name in names}
        return self.answer(limit, Rows(pending.frames, fields, batch.index, batch.weight))

    def update(self, updates: Sequence[Updates]) -> None:
        """Update priorities; those of evicted transitions, and of another epoch, are ignored and counted."""
        for epochs, indices, priorities in updates:
            is_known = (epochs == self._epoch % 2**EPOCH_BITS) & self.memory.inner.steps.is_sampleable(indices)
            self._ignored += int(np.count_nonzero(~is_known))
            self.memory.update_priorities(indices[is_known], priorities[is_known])

    def report(self) -> tuple[MemoryReport, int]:
        """Return the report of the memory, and the number of updates that were ignored since the last report."""
        ignored, self._ignored = self._ignored, 0
        return self.memory.report(), ignored

    def read_all(self) -> Batch:
        """Return all transitions, for tests."""
        return self.memory.get(self.memory.sampleable_indices())

    def flush(self) -> None:
        """Write everything to the directory, if there is one."""
        if self._log is not None:
            self.memory.flush()
            self._log.shorten()
        self._flushed_at = time.monotonic()

    def save(self, path: Path) -> tuple[int, Answer]:
        """Save the memory to the folder ``path``, beside older generations; return the generation and what it has."""
        return self.memory.save(path, keep_previous=True), self.answer()

    def prune(self, path: Path, generation: int) -> None:
        """Remove the generations before ``generation`` from the folder ``path``."""
        self.memory.prune(path, generation)

    def close(self) -> None:
        """Flush and close the memory."""
        self.memory.close()
        if self._log is not None:
            self._log.close()


def store_chunk(memory: ReplayMemory, chunk: Chunk) -> None:
    """Store the steps of a chunk: its packed segment as it is, where the memory takes one, or frame by frame.

    Raises:
        DamagedDataError: other bytes than a writer packed.
        InvalidStepError: steps that break a rule of ``append``, or that go on with an episode that is not open.
    """
    inner, env_id = memory.inner, chunk.env_id
    first = int(inner.steps.newest_positions[env_id]) + 1
    if chunk.num_frames == inner.frames.frames_per_segment and inner.takes_segments(env_id):
        inner.append_segment(env_id, chunk.segments[0], chunk.steps)
    else:
        _append_frames(inner, chunk)
    if chunk.priorities is not None:
        is_step = np.flatnonzero((chunk.steps.bits & BEGINS_EPISODE) == 0)
        known = np.flatnonzero(np.isfinite(chunk.priorities))
        memory.update_priorities(_find_indices(inner, env_id, first + is_step[known] - 1), chunk.priorities[known])


def store_context(inner: InnerMemory, env_id: int, context: Context, is_next: bool) -> None:
    """Store the observation before a chunk; after a lost step if steps are missing, or the episode's beginning.

    ``is_next``: whether the memory has all steps before the chunk.
    """
    env_ids = np.array([env_id], np.int32)
    if not (is_next and context.begins):
        _store_lost_step(inner, context.observation, env_ids)
    if context.begins:
        inner.begin_whole(context.observation, env_ids)


def _store_lost_step(inner: InnerMemory, observation: Any, env_ids: npt.NDArray[np.int32]) -> None:
    """Begin an episode with a step that cannot be sampled, and that no return and no sequence crosses."""
    inner.begin_whole(observation, env_ids)
    first = inner.steps.newest_positions[env_ids]
    space, fields = inner.settings.action, inner.settings.extras.extras
    action = np.resize(space.low or 0, (1, *space.shape)).astype(space.stored_dtype)
    extras = {field.name: np.zeros((1, *field.shape), field.dtype) for field in fields} if fields else None
    observed = inner.settings.layout.flatten(observation)
    inner.add((env_ids, action, [0.0], [False], [False], observed, extras, observed))
    with inner.lock:
        inner.core.lose_indices(_find_indices(inner, int(env_ids[0]), first))


def _find_indices(inner: InnerMemory, env_id: int, positions: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """Return the readable steps that start at these frames, ascending."""
    return inner.steps.find_steps(np.full(len(positions), env_id, np.int64), positions.astype(np.int64))


def _append_frames(inner: InnerMemory, chunk: Chunk) -> None:
    """Unpack the frames and append them one by one: the slower way, for storages that do not take segments."""
    settings, env_ids = inner.settings, np.array([chunk.env_id], np.int32)
    layout, windows = settings.layout, _unpack_chunk(settings, chunk)
    checked = chunk.steps.check_arrays(settings, bool(inner.steps.is_open[chunk.env_id]))
    stacks = [part[env_ids] for part in inner.core.stacks()]
    for index, (step, bits) in enumerate(zip(checked.each(), checked.bits.tolist(), strict=True)):
        window = [part[index : index + 1] for part in windows]
        if bits & (BEGINS_EPISODE | BORDER):
            stacks = window
        else:
            stacks = [np.concatenate([part[:, 1:], new[:, -1:]], 1) for part, new in zip(stacks, window, strict=True)]
        if step is None:
            inner.begin_whole(layout.join(stacks), env_ids)
        else:
            observed = layout.flatten(layout.join(stacks))
            inner.append((*step._replace(env_ids=env_ids, frames=observed), True))


def _unpack_chunk(settings: MemorySettings, chunk: Chunk) -> Frames:
    """Return the frames of a chunk, ``(num_frames, depth, *frame)`` of each array.

    Each has the older frames that it would have if an episode or a stretch began with it.

    Raises:
        DamagedDataError: other bytes than a writer packed.
    """
    num, spec, depths = chunk.num_frames, settings.frame, settings.layout.depths
    storage = FrameStorage(spec, 1, frames_per_segment=num, depths=depths)
    for track, segment in enumerate(chunk.segments):
        storage.restore(track, 0, segment)
        if storage.next_position(track) != num:
            raise DamagedDataError(
                f"a segment has {storage.next_position(track)} frames: its chunk has {num}; send the chunk again"
            )
    stacks = tuple(part.empty(num, depth) for part, depth in zip(spec.frame_specs, depths, strict=True))
    env_ids, counts = np.zeros(num, np.int32), np.ones(num, np.int32)
    storage.windows(env_ids, np.arange(num), counts, stacks, settings.stack_padding)
    return stacks


# Of a chunk: env_id, writer, number of the frame after it, position of its newest frame in the memory.
_RECORD = struct.Struct("<4q")
MAX_LOG_BYTES = 2**20  # after a flush, a longer log is written again


def chunk_log_path(directory: Path) -> Path:
    """Return the log of chunks beside the ``directory`` of a shard's memory."""
    return directory.with_name(directory.name + ".chunks")


class ChunkLog(Closing):
    """A file with a record for each stored chunk.

    After a crash, the last record of an environment whose position was flushed is the last chunk that the memory has. A
    record that was cut off is ignored.

    Arguments:
        path: The file.
        newest_positions: By environment, the position of the newest frame that the memory has.
    """

    def __init__(self, path: Path, newest_positions: Sequence[int]) -> None:
        self._path = path
        self._last: dict[int, tuple[int, ...]] = {}  # by environment: the record of its last chunk
        stored = b""
        with contextlib.suppress(FileNotFoundError):
            stored = DISK.read(path)
        remove_unfinished(path)
        for record in _RECORD.iter_unpack(stored[: len(stored) // _RECORD.size * _RECORD.size]):
            env_id, _, _, position = record
            if 0 <= env_id < len(newest_positions) and position <= newest_positions[env_id]:
                self._last[env_id] = record
        self.found = {
            env_id: (writer, next_frame)
            for env_id, writer, next_frame, position in self._last.values()
            if position == newest_positions[env_id]
        }
        """Writer and number of the next frame of each environment, as of the last chunk that the memory has.

        A memory that was flushed within a chunk has a part of it: its position is above the record's."""
        self._file = self._write_last()

    def append(self, env_id: int, writer: int, next_frame: int, position: int) -> None:
        """Add a chunk."""
        self._last[env_id] = env_id, writer, next_frame, position
        self._file.append(_RECORD.pack(*self._last[env_id]))

    def shorten(self) -> None:
        """Keep only the last record of each environment, if the log is long; call it after a flush."""
        if self._file.size > MAX_LOG_BYTES:
            self.close()
            self._file = self._write_last()

    def _write_last(self) -> AppendFile:
        """Replace the file by one with the last records, and open that."""
        records = b"".join(_RECORD.pack(*record) for record in self._last.values())
        write_atomically(self._path, records, is_durable=False)
        return DISK.open_at(self._path, len(records))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


StartShards = Callable[[Sequence[ShardSettings]], Calls]


def start_ray_shards(settings: Sequence[ShardSettings], placement: ActorPlacement | None = None) -> RayCalls:
    """Start a Ray actor for each shard, spread over the nodes."""
    return start_actors(Shard, settings, placement)


def start_local_shards(settings: Sequence[ShardSettings]) -> LocalCalls:
    """Return shards in this process, for tests and to debug a program without a cluster."""
    return LocalCalls([partial(Shard, one) for one in settings])
