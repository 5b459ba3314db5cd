"""What is below the checked public methods of a ``ReplayMemory``.

``InnerMemory`` is what framestow's own modules use, ``MemoryProperties`` what a memory says of its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.frames.observation_spec import ObservationSpec, space_of
from framestow.interface import HidesNames
from framestow.replay.eviction.retention import Retention
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.reading.sampling import BatchBuilder
from framestow.replay.reading.sequences import SequenceBuilder
from framestow.replay.reports.observation_report import ObservationWatch
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.step_fields import offset_of, slot_record
from framestow.replay.step_checks import ADD, APPEND, BEGIN, Forms, SegmentSteps
from framestow.replay.steps.step_store import Indices, unreadable
from framestow.replay.steps.step_stores import raise_versions
from framestow.replay.store.open_store import OpenStore
from framestow.storage.frame_storage import Storage


class MemoryProperties(HidesNames):
    """The settings of a ``ReplayMemory`` as read-only properties."""

    inner: InnerMemory
    _spaces: tuple[Any, Any]
    _hidden_names = frozenset({"inner"})

    @property
    def capacity(self) -> int:
        """Maximum number of transitions."""
        return self.inner.settings.capacity

    @property
    def observation_space(self) -> Any:
        """The space that was given; of a loaded memory a ``FrameSpec``, or a dict or tuple of them.

        A number in such a dict or tuple is its NumPy dtype. Each form builds an equal memory.
        """
        space = self._spaces[0]
        return space_of(space) if isinstance(space, ObservationSpec) else space

    @property
    def action_space(self) -> Any:
        """The space that was given; of a loaded memory the number of actions, or an object with shape and dtype.

        Each form builds an equal memory.
        """
        space = self._spaces[1]
        return space.space if isinstance(space, ActionSpec) else space

    @property
    def stack(self) -> int:
        """Number of frames in an observation; of several arrays, in the largest stack."""
        return self.inner.settings.stack

    @property
    def takes_frames(self) -> bool:
        """Whether ``begin`` and ``append`` take single frames: the memory was built with ``stack``."""
        return self.inner.settings.layout.takes_frames

    @property
    def num_envs(self) -> int:
        """Number of environments that feed the memory."""
        return self.inner.settings.num_envs

    @property
    def n_step(self) -> int:
        """Number of rewards in a transition's return."""
        return self.inner.settings.n_step

    @property
    def discount(self) -> float:
        """γ of the returns."""
        return self.inner.settings.discount

    @property
    def storage(self) -> Storage:
        """How frames are stored: ``"packed"`` or ``"raw"``."""
        return self.inner.settings.storage

    @property
    def retention(self) -> Retention:
        """Which transitions are evicted: ``"fifo"`` or ``"random"``."""
        return self.inner.settings.retention

    @property
    def seed(self) -> int | None:
        """Seed of the random generator, given or drawn; ``None`` for a generator that was loaded."""
        return self.inner.parts.seed

    @property
    def max_bytes(self) -> int | None:
        """Maximum size in bytes; ``None`` without one."""
        return self.inner.settings.max_bytes

    @property
    def directory(self) -> Path | None:
        """Folder that the memory lives in and writes to; ``None`` for any other memory."""
        return None if self.inner.directory is None else self.inner.directory.path


class InnerMemory:
    """The parts of a memory, and the calls that store steps and draw batches: ``memory.inner``.

    Loaders, shards, recorders, drop-ins, exports and inspection get from it what they need of a memory. Its methods
    take the lock themselves. Hold ``lock`` to read more than one part.

    ==================  ==========================================================================
    attribute           is
    ==================  ==========================================================================
    settings            what the memory was built with (``MemorySettings``)
    core                all changes of frames, steps and newest stacks go through it (native)
    steps, frames       the stored steps; the frames of all tracks
    lock                held for every change, and for every draw
    parts               these and all others: sampler, generator, budget, damage
    batches, sequences  they draw and unpack batches of transitions and of sequences
    directory           the store that the memory lives in; ``None`` for a memory in RAM
    watch               counts the steps that are not stored as one frame each, for the report
    ==================  ==========================================================================
    """

    def __init__(self, parts: MemoryParts) -> None:
        self.parts, self.settings = parts, parts.settings
        self.steps, self.frames, self.lock = parts.steps, parts.frames, parts.lock
        self.directory: OpenStore | None = None
        # Stores by folder: the directory, and folders of ``save`` and ``load``. A second save writes only what is new.
        self._stores: dict[Path, OpenStore] = {}
        self.batches = BatchBuilder(parts)
        self.sequences = SequenceBuilder(parts, self.batches)
        self.core, self._budget = parts.core, parts.budget
        self.watch = ObservationWatch(parts, self.batches)

    def begin(self, frames: tuple[Any, ...], env_ids: Any, are_whole: bool = False) -> None:
        """Start an episode in each of ``env_ids``; ``are_whole``: with whole observations in any case."""
        self._store(self.core.plan_begin, BEGIN, (frames, env_ids, are_whole))

    def begin_whole(self, observations: Any, env_ids: Any = None) -> None:
        """Start an episode in each of ``env_ids``, all by default, with a whole observation."""
        self.begin(self.settings.layout.flatten(observations), env_ids, are_whole=True)

    def close_episode(self, env_id: int) -> None:
        """End the open episode of an environment, if it has one, as a reset does: without a flag."""
        with self.lock:
            self.parts.raise_refusal()
            self.parts.num_changes += 1
            self.core.close_episode(env_id)

    def append(self, step: tuple[Any, ...]) -> npt.NDArray[np.int64]:
        """Store the fields of a ``Step``, and whether its frames are whole observations; return its indices."""
        indices: npt.NDArray[np.int64] = self._store(self.core.plan_append, APPEND, step)
        return indices

    def add(self, step: tuple[Any, ...]) -> npt.NDArray[np.int64]:
        """Store the fields of a ``Step``, and its observations; return its indices."""
        indices: npt.NDArray[np.int64] = self._store(self.core.plan_add, ADD, step)
        return indices

    def _store(self, plan: Callable[..., bool | None], forms: Forms, arguments: tuple[Any, ...]) -> Any:
        """Plan what the arguments store, then evict what a full memory lacks room for, and store it whole.

        Other forms than the usual ones are converted once. Then evicts more transitions if the memory is over its
        budget. Raises ``InvalidStepError`` before anything is stored.
        """
        if self.directory is not None:
            self.directory.make_room()
        with self.lock:
            if self.parts.refusal is not None:
                self.parts.raise_refusal()
            is_unusual = plan(*arguments)
            if is_unusual is None:
                is_unusual = plan(*forms.convert(self.settings, *arguments))
                if is_unusual is None:
                    raise forms.explain(self.settings, self.core, *arguments)
            if is_unusual:
                self._count_unusual()
            indices = self.core.apply()
        if self.core.charged_bytes > self._budget.max_charged_bytes:
            self._fit_budget()
        return indices

    def observations(self) -> Any:
        """Return the current observation of each environment, a new array; zeros before its first episode."""
        with self.lock:
            return self.settings.layout.join(self.core.stacks())

    def overwrite(self, indices: Indices, fields: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace ``"reward"``, or extras by name, of stored steps: all of it or nothing. Each has a row an index.

        Raises:
            NothingToSampleError: a step is not stored; nothing changes.
        """
        record = slot_record(self.settings.num_envs, self.settings.action, self.settings.extras)
        rows = [
            (offset_of(record, name), np.ascontiguousarray(values).reshape(-1).view(np.uint8))
            for name, values in fields.items()
        ]
        with self.lock:
            self._begin_change(indices)
            if indices.size and rows:
                raise_versions(self.steps, indices)
                self.core.overwrite(indices, rows)

    def forget(self, indices: Indices) -> int:
        """Make stored steps unsampleable, with all whose returns include one; return how many were sampleable.

        Raises:
            NothingToSampleError: a step is not stored; nothing changes.
        """
        with self.lock:
            self._begin_change(indices)
            num_forgotten = self.core.forget(indices)
            self.parts.evict_to_fit()
        return num_forgotten

    def clear(self) -> None:
        """Evict all steps, and end all open episodes."""
        with self.lock:
            self.parts.raise_refusal()
            self.parts.num_changes += 1
            self._budget.clear(self.core)
        if self.directory is not None:
            self.directory.flush_for_budget()

    def _begin_change(self, indices: Indices) -> None:
        """Raise if steps may not change, or if one of ``indices`` is not stored; count a change. Hold the lock."""
        self.parts.raise_refusal()
        missing = indices[~self.steps.are_stored(indices)]
        if missing.size:
            raise unreadable(self.steps, missing[0])
        self.parts.num_changes += 1

    def _count_unusual(self) -> None:
        """Count what is unusual about a planned step, and warn of it."""
        self.watch.count_unusual(*self.core.unusual())

    def append_segment(self, env_id: int, segment: bytes, steps: SegmentSteps) -> None:
        """Store consecutive frames of an environment that another process packed, with their steps.

        The segment is stored as it is, after its checksum is verified. It has ``frames_per_segment`` frames, and
        ``takes_segments`` says whether the environment takes one now. Everything is stored by one native call, whole or
        not at all. Raises ``DamagedDataError`` for bytes, and ``InvalidStepError`` for steps, before that.
        """
        if self.directory is not None:
            self.directory.make_room()
        with self.lock:
            self.parts.raise_refusal()
            self.core.append_segment(env_id, segment, steps.bits, *steps.convert(self.settings))
            refused = self.core.refusal
            if refused is not None:
                raise steps.explain(self.settings, refused)
        if self.core.charged_bytes > self._budget.max_charged_bytes:
            self._fit_budget()

    def _fit_budget(self) -> None:
        """Evict transitions until the memory is within its budget, and free their bytes in files."""
        with self.lock:
            self.parts.evict_to_fit()
        if self.directory is not None:
            self.directory.flush_for_budget()

    @property
    def bytes_by_part(self) -> dict[str, int]:
        """Number of bytes in RAM of each part of the memory; read in microseconds, however many segments it has."""
        with self.lock:
            return {
                **self.frames.nbytes,
                "steps": self.steps.nbytes,
                "stacks": self.core.nbytes,
                "output pool": self.batches.nbytes,
                **self.parts.sampler_bytes,
            }

    def takes_segments(self, env_id: int) -> bool:
        """Return whether the memory takes a packed segment of this environment as its next one.

        With random retention it takes single steps: which segment each of them evicts depends on the steps before it.
        """
        settings, length = self.settings, self.frames.frames_per_segment
        frame = settings.frame.frame_specs[0]
        if settings.storage != "packed" or not settings.frame.is_one_array or frame.is_column or frame.is_scaled:
            return False
        if settings.retention != "fifo" or length > settings.capacity:
            return False
        return self.frames.next_position(env_id) % length == 0

    def store_in(self, folder: Path, commit: str = "") -> OpenStore:
        """Return the store in ``folder``; ``commit`` wrote the data that the memory has of a store not seen before."""
        path = folder.resolve()
        return self._stores.setdefault(path, OpenStore(self.parts, path, commit))

    def live_in(self, directory: OpenStore, flush_every: float | None, memory: object) -> None:
        """Use ``directory`` from now on, and flush to it in the background while ``memory`` exists."""
        self.directory = self._stores[directory.path] = directory
        self._budget.count_files(self.settings.file_copies)
        self.parts.count_files()
        with self.lock:
            self.parts.evict_to_fit()
        directory.flush_every(flush_every, memory=memory)
