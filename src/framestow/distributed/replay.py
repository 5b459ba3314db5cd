"""``ShardedReplay``: several shards, each with a part of the environments, sampled as one replay memory.

A save has the stores of the shards, and manifests that say which of their generations belong together::

    memory/
        shard-0/, shard-1/, …   the stores of the shards (docs/saving.md)
        MANIFEST.000007         generation 7: the generation of each shard, the counts and the random generator

A manifest is written after all shards have saved, and older generations are removed after that. So a crash at any
moment leaves a generation whose shards are all complete.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.checks import as_array, check_callable, check_seed, folder_path, real_number, whole_number
from framestow.distributed.group import MAX_SHARDS, PendingRows, ShardGroup
from framestow.distributed.limiter import RateLimiter, ReplayCounts, SampleToInsertRatio
from framestow.distributed.shard import ShardSettings, StartShards, sampler_settings, start_ray_shards
from framestow.distributed.writer import Priorities, ShardWriter, StepCalls, WriterSettings
from framestow.errors import ActorLostError, DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.frames.stacking import StackPadding
from framestow.interface import CHANGES, Closing, LacksCalls, cached_property, one_line, plural
from framestow.keywords import suggests_keywords
from framestow.replay.eviction.byte_amounts import parse_bytes
from framestow.replay.eviction.retention import Retention
from framestow.replay.forked_draws import ForkedGenerator
from framestow.replay.memory import check_batch_size
from framestow.replay.reading.read_calls import ReadCalls
from framestow.replay.reading.sequences import Borders, SequenceShape
from framestow.replay.reports.memory_report import MemoryReport, sum_of_reports
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.sampler import Sampler, check_priorities
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.settings.observation_layout import AxisChoice
from framestow.replay.settings.step_fields import ExtrasSpec, Summed
from framestow.replay.store.format import COUNTS, check_fields
from framestow.replay.store.open_store import keep_only as keep_only_in_store
from framestow.replay.store.open_store import start_over as start_over_in_store
from framestow.replay.store.other_settings import check_same_settings
from framestow.replay.store.reader import StoredMemory
from framestow.storage.files.file_system import DISK
from framestow.storage.files.manifest import (
    generations,
    manifest_path,
    next_generation,
    read_manifest,
    write_manifest,
)
from framestow.storage.frame_storage import Storage

KIND, VERSION = "framestow sharded replay", 1


@suggests_keywords
class ShardedReplay(StepCalls, ReadCalls, LacksCalls, Closing):
    """Replay memory in several shards, each of which owns a ``ReplayMemory`` with a part of the environments.

    Environment e belongs to shard ``e % shards``. The calls are those of ``ReplayMemory``; differences:

    - ``add``, ``begin`` and ``append`` collect chunks of ``frames_per_segment`` frames, and a chunk can be sampled when
      it was sent. ``flush`` sends the rest. ``writer`` returns an object with the same calls for an actor.
    - ``sampler`` is ``Uniform()`` or ``Prioritized()``, with one weight normalisation over all shards.
    - ``Batch.index`` has the shard, its restarts, and the index there. ``update_priorities`` ignores and counts those
      that were evicted or lost. Updates are sent with the next draw of their shard.
    - After the loss of a shard, batches come from the others, with the probabilities that this gives. The shard is
      restarted: with a ``directory`` it has what it had flushed, otherwise it is empty.

    >>> import numpy as np
    >>> from framestow import FrameSpec
    >>> from framestow.distributed import ShardedReplay, start_local_shards
    >>> replay = ShardedReplay(
    ...     100,
    ...     FrameSpec((2, 2)),
    ...     4,
    ...     shards=2,
    ...     num_envs=2,
    ...     seed=0,
    ...     start=start_local_shards,
    ... )
    >>> replay.begin(np.zeros((2, 2, 2), np.uint8))
    >>> replay.append(
    ...     [1, 3],
    ...     [0.5, 0.5],
    ...     [False, False],
    ...     [True, True],
    ...     np.ones((2, 2, 2), np.uint8),
    ... )
    >>> replay.flush()
    >>> sorted(set(replay.sample(32).action.tolist()))
    [1, 3]

    Arguments:
        capacity: Maximum number of transitions of all shards together.
        shards: Number of shards.
        directory: Folder for the shards' memories, which all nodes must share if a shard may restart elsewhere.
        flush_every: Seconds between two flushes of each shard, with a ``directory``.
        rate_limiter: Holds back ``sample`` and writers; ``None`` holds back neither.
        timeout_s: Seconds until a shard that does not answer counts as lost.
        start: Starts the shards: ``framestow.distributed.start_ray_shards``, or ``start_local_shards`` in this process.
        max_bytes: Budget of all shards together. With ``saved``, ``None`` keeps the saved one, as a ``directory`` does.
        saved: Folder and generation of a ``save`` that the shards start with; its other settings must be the same.

    The other arguments are those of ``ReplayMemory``. One thread samples, and a loader's threads unpack. The attributes
    ``capacity``, ``num_envs``, ``num_shards`` and ``stack`` are those of the whole replay, and ``counts`` has what was
    inserted, sampled and ignored.
    """

    _hidden_names = frozenset({"group", "sampler", "settings", "step_writer"})
    _lacking = CHANGES, "shards keep their steps as they came; use a ReplayMemory, or store what you want to learn from"

    def __init__(
        self,
        capacity: int,
        observation_space: Any,
        action_space: Any,
        *,
        shards: int = 1,
        stack: int | None = None,
        stack_padding: StackPadding = "first_frame",
        stack_axis: AxisChoice | Mapping[str, AxisChoice] | None = None,
        num_envs: int = 1,
        n_step: int = 1,
        discount: float = 0.99,
        sampler: Sampler | None = None,
        storage: Storage = "packed",
        retention: Retention = "fifo",
        seed: int | None = None,
        threads: int = 1,
        max_bytes: int | str | None = None,
        label: str = "",
        frames_per_segment: int | None = None,
        directory: str | Path | None = None,
        flush_every: float = 5.0,
        extras: Mapping[str, npt.DTypeLike | Summed] | ExtrasSpec | None = None,
        rate_limiter: SampleToInsertRatio | None = None,
        timeout_s: float = 30.0,
        start: StartShards | None = None,
        saved: tuple[str | Path, int] | None = None,
    ) -> None:
        seed = check_seed(seed)
        self.num_shards = shards = _check_shards(shards, capacity, num_envs)
        rule = "it must be a number of seconds above 0"
        real_number("flush_every", flush_every, 0, rule=rule, is_least_excluded=True)
        self._timeout_s = real_number("timeout_s", timeout_s, 0, rule=rule, is_least_excluded=True)
        self.settings = MemorySettings.of_arguments(  # of each shard's memory
            observation_space,
            action_space,
            capacity=-(-capacity // shards),
            stack=stack,
            stack_padding=stack_padding,
            stack_axis=stack_axis,
            num_envs=-(-num_envs // shards),
            n_step=n_step,
            discount=discount,
            storage=storage,
            retention=retention,
            label=label,
            max_bytes=None if max_bytes is None else parse_bytes(max_bytes) // shards,
            frames_per_segment=frames_per_segment,
            extras=extras,
            is_on_disk=directory is not None,
        )
        self.capacity, self.stack, self.num_envs = self.settings.capacity * shards, self.settings.stack, num_envs
        priorities = sampler_settings(sampler)
        # Gives β, and checks priorities; has no transitions.
        self.sampler: Sampler = Uniform() if priorities is None else Prioritized(**priorities)
        folder = None if directory is None else folder_path("directory", directory).resolve()
        of_shards, state = ([], {}) if saved is None else self._read_saved(saved)
        self.counts = ReplayCounts(**state.get("counts", {}))
        self._generator = ForkedGenerator(None if seed is None else [seed, 1])
        if state:
            self._generator.bit_generator.state = state["generator"]
        limiter = RateLimiter(rate_limiter, self.counts, shards, self.capacity)
        of_replay = ShardSettings(
            self.settings,
            seed=seed,
            priorities=priorities,
            directory=folder,
            flush_every=flush_every,
            insert_limit=limiter.first_limit,
            threads=threads,
        )
        calls = (start or start_ray_shards)(_settings_of_shards(of_replay, shards, of_shards))
        prioritized = self.sampler if isinstance(self.sampler, Prioritized) else None
        of_draws = self.settings, prioritized, self._generator
        self.group = ShardGroup(calls, limiter, self.counts, timeout_s, *of_draws)

    def _read_saved(self, saved: tuple[str | Path, int]) -> tuple[list[tuple[Path, int]], dict[str, Any]]:
        """Return what ``read_generation`` does; raise ``IncompatibleError`` if its shards have other settings."""
        if not isinstance(saved, (tuple, list)) or len(saved) != 2:
            raise InvalidSettingsError(
                f"saved is {saved!r}: it must be a folder and a generation; give both as a tuple"
            )
        generation = whole_number("the generation of saved", saved[1], 0, rule="give the number that save returned")
        of_shards, state = read_generation(folder_path("saved", saved[0]).resolve(), generation, self.num_shards)
        for folder, of_shard in of_shards:
            with StoredMemory.open(folder, of_shard) as stored:
                check_same_settings(self.settings, stored.settings, folder)
        return of_shards, state

    # Storing steps

    def writer(
        self,
        env_ids: Sequence[int] | None = None,
        *,
        max_in_flight: int = 2,
        priority: Priorities | None = np.abs,
    ) -> ShardWriter:
        """Return an object that stores the steps of ``env_ids``, for an actor: give it to a ``Recorder``.

        It numbers its environments from 0. It can be sent to another process as long as it is not used. Each
        environment has one writer; a later one replaces an earlier one.

        Arguments:
            env_ids: Numbers of environments of the replay; ``None`` means all.
            max_in_flight: Calls to each shard before the writer waits.
            priority: Initial priorities of transitions from their n-step TD errors (``ShardWriter.set_values``);
                ``None`` gives new transitions the largest priority so far.
        """
        given = as_array("env_ids", range(self.num_envs) if env_ids is None else env_ids)
        envs = tuple(given.tolist()) if given.ndim == 1 and given.dtype.kind in "iu" else ()
        if len(set(envs)) != len(envs) or not envs or min(envs) < 0 or max(envs) >= self.num_envs:
            raise InvalidSettingsError(
                f"env_ids is {given.tolist()}: a writer has environments of 0 to {self.num_envs - 1}, each once; give "
                "others, or build the replay with a larger num_envs"
            )
        rule = "at least 1 call is in flight; give 2, so that packing and sending overlap"
        max_in_flight = whole_number("max_in_flight", max_in_flight, 1, rule=rule)
        if priority is not None:
            check_callable("priority", priority, "a function of TD errors such as np.abs, or None")
        settings = WriterSettings(self.settings, envs, max_in_flight, self._timeout_s, priority=priority)
        return ShardWriter(self.group.calls, settings)

    @cached_property
    def step_writer(self) -> ShardWriter:
        """The writer of this object's own ``begin``, ``append`` and ``add``."""
        # It does not wait for the rate limiter: the process that samples would wait for itself.
        envs = tuple(range(self.num_envs))
        settings = WriterSettings(
            self.settings, envs, timeout_s=self._timeout_s, waits_for_limiter=False, priority=None
        )
        return ShardWriter(self.group.calls, settings)

    def send(self) -> None:
        """Send all steps of ``begin``, ``append`` and ``add``, and wait until the shards have stored them."""
        if "step_writer" in vars(self):  # one of them was called
            self.step_writer.flush()

    def flush(self) -> None:
        """Send all steps of ``begin`` and ``append``, send all priorities, and write shards to their ``directory``."""
        self.send()
        self.group.send_updates()
        self.group.call_all("flush")
        self.group.refresh()

    # Sampling

    def draw_ahead(self, batch_size: int) -> PendingRows:
        """Ask the shards for a batch, once the rate limiter allows it; a loader's thread waits for the answers."""
        return self.group.draw(check_batch_size(batch_size), None)

    def draw_sequences_ahead(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
    ) -> PendingRows:
        """Ask the shards for sequences, and leave waiting for the answers to a loader's thread."""
        shape = SequenceShape(length, overlap, burn_in, borders)
        return self.group.draw(check_batch_size(batch_size), shape)

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give new TD errors, as ``ReplayMemory.update_priorities`` does; sent with the next draw of their shards."""
        numbers, values = check_priorities(indices, priorities)
        if not self.sampler.check_update(values):
            raise InvalidSettingsError(
                "sampler is a Uniform: it does not use priorities; build the replay with sampler=Prioritized()"
            )
        self.group.add_updates(numbers, values)

    def may_sample(self, batch_size: int) -> bool:
        """Return whether a batch can be sampled now without waiting for inserts."""
        return self.group.may_sample(batch_size)

    @property
    def who_waits(self) -> str:
        """``"learner"``, ``"actors"`` or ``"nobody"``: whom the rate limiter holds back."""
        return self.group.limiter.who_waits(self.group.limiter_size)

    # Shards

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            yield f"{len(self):,} of {self.capacity:,} transitions"
            yield f"stack {self.stack}"
            yield plural(self.num_envs, "environment")
            yield plural(self.num_shards, "shard")

        return one_line(self, details)

    def __len__(self) -> int:
        """Return the number of transitions in the last answers of the shards."""
        return self.group.size

    @property
    def nbytes(self) -> int:
        """Number of bytes in RAM of the memories of all shards that answer."""
        return sum(report.nbytes for report in self._reports())

    def report(self) -> MemoryReport:
        """Return the sum of the reports of all shards that answer, and count the priorities that they ignored.

        Raises:
            ActorLostError: none answers.
        """
        reports = self._reports()
        if not reports:
            raise ActorLostError("no shard answers: their memories cannot be reported; try again when they are back")
        return sum_of_reports(reports, self.capacity)

    def _reports(self) -> list[MemoryReport]:
        answers = self.group.call_all("report")
        with self.group.lock:
            self.counts.ignored_updates += sum(ignored for _, ignored in answers)
        return [report for report, _ in answers]

    # Saving

    def save(self, path: str | Path, *, keep_previous: bool = False) -> int:
        """Save all shards to the folder ``path``, with what a resumed replay needs; return the generation.

        Each shard writes to ``path/shard-<number>``, so all nodes must share this folder. Steps of a ``writer`` that
        are still on the way to a shard are not saved.

        Arguments:
            path: The folder.
            keep_previous: Whether the generations before this one stay, until ``prune``.

        Raises:
            ActorLostError: a shard is lost; the previous generation stays.
        """
        folder = folder_path("path", path).resolve()
        self.send()
        self.group.send_updates()
        saved = self.group.call_each("save", lambda number: (shard_folder(folder, number),))
        with self.group.lock:
            for number, (_, answer) in enumerate(saved):
                self.group.record(number, answer)  # the counts are those of the saved steps
            state = {"counts": vars(self.counts).copy(), "generator": self._generator.bit_generator.state}
        generation = write_generation(folder, [generation for generation, _ in saved], state)
        if not keep_previous:
            self.prune(folder, generation)
        return generation

    def prune(self, path: str | Path, generation: int) -> None:
        """Remove the generations before ``generation`` from the folder ``path``."""
        folder = folder_path("path", path).resolve()
        of_shards, _ = read_generation(folder, generation, self.num_shards)
        self.group.call_each("prune", lambda number: of_shards[number])
        _remove_manifests(folder, [number for number in generations(folder) if number < generation])

    def close(self) -> None:
        """Flush the shards and end them."""
        with contextlib.suppress(ActorLostError):
            self.send()
        self.group.close()


def _check_shards(shards: int, capacity: int, num_envs: int) -> int:
    """Return the number of shards; raise ``InvalidSettingsError`` if one would have no transition or environment."""
    whole_number("capacity", capacity, 1, rule="a replay stores at least 1 transition")
    whole_number("num_envs", num_envs, 1, rule="a replay has at least 1 environment")
    rule = f"a replay has 1 to {MAX_SHARDS} shards, and each needs an environment of the {num_envs}"
    return whole_number("shards", shards, 1, min(MAX_SHARDS, num_envs), rule=rule)


def _settings_of_shards(of_replay: ShardSettings, shards: int, saved: list[tuple[Path, int]]) -> list[ShardSettings]:
    """Return the settings of each shard: of a replay with this seed and directory, and ``saved`` of each, if any."""
    folder = of_replay.directory
    return [
        replace(
            of_replay,
            seed=_derive_seed(of_replay.seed, number),
            directory=None if folder is None else shard_folder(folder, number),
            saved=saved[number] if saved else None,
        )
        for number in range(shards)
    ]


def _derive_seed(seed: int | None, number: int) -> int | None:
    """Return the seed of a shard's memory; the first shard has that of the replay."""
    if seed is None or number == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(number - 1,)).generate_state(1, np.uint32)[0])


def shard_folder(folder: Path, number: int) -> Path:
    """Return the folder of a shard's memory; raise ``DamagedDataError`` if a link or a file has its name."""
    path = folder / f"shard-{number}"
    DISK.is_folder(path)
    return path


def write_generation(folder: Path, of_shards: list[int], state: dict[str, Any]) -> int:
    """Write the next generation and return its number; ``state``: of the replay, as values for JSON."""
    DISK.make_folder(folder)
    number = next_generation(folder)
    write_manifest(folder, KIND, VERSION, {"shards": of_shards, "state": state}, generation=number)
    return number


def read_generation(
    folder: Path, generation: int, num_shards: int | None = None
) -> tuple[list[tuple[Path, int]], dict[str, Any]]:
    """Return folder and generation of each shard, and the state; raises ``FileNotFoundError`` if it is not there.

    Raises:
        IncompatibleError: it has another number of shards than ``num_shards``.
        DamagedDataError: a shard is missing, or its folder is a link.
    """
    content = read_manifest(folder, KIND, VERSION, generation=generation)
    check_fields(content, {"shards": COUNTS, "state": {}}, str(manifest_path(folder, generation)))
    of_shards = [(shard_folder(folder, number), of_shard) for number, of_shard in enumerate(content["shards"])]
    for shard, _ in of_shards:
        if not DISK.is_folder(shard):
            raise DamagedDataError(f"{shard}: the folder of a shard is missing; load an older save")
    if num_shards not in (None, len(of_shards)):
        raise IncompatibleError(
            f"{folder} has the save of a replay with {plural(len(of_shards), 'shard')}: this one has {num_shards}; "
            "give the same number"
        )
    return of_shards, content["state"]


def is_sharded(folder: Path) -> bool:
    """Return whether ``folder`` has the memory of a ``ShardedReplay``."""
    return DISK.is_folder(shard_folder(folder, 0))


def memory_folders(folder: Path) -> list[Path]:
    """Return the folders of all shards if ``folder`` has the memory of a ``ShardedReplay``, otherwise ``folder``."""
    shards = (shard_folder(folder, number) for number in itertools.count())
    return list(itertools.takewhile(DISK.is_folder, shards)) or [folder]


def keep_only(folder: Path, generation: int) -> None:
    """Remove all generations of a memory but ``generation``; of a replay, also those of its shards."""
    if is_sharded(folder):
        for of_shard in read_generation(folder, generation)[0]:
            keep_only_in_store(*of_shard)
        _remove_manifests(folder, [number for number in generations(folder) if number != generation])
    else:
        keep_only_in_store(folder, generation)


def start_over(folder: Path, *, keeps_pinned: bool) -> None:
    """Remove all generations of a memory, of a replay and of its shards; raises as ``start_over`` of a store."""
    for one in memory_folders(folder):
        start_over_in_store(one, keeps_pinned=keeps_pinned)
    if is_sharded(folder):
        _remove_manifests(folder, generations(folder))


def _remove_manifests(folder: Path, numbers: list[int]) -> None:
    """Remove these manifests, except those that framestow did not write or that are damaged."""
    for number in numbers:
        with contextlib.suppress(DamagedDataError, IncompatibleError):
            read_manifest(folder, KIND, VERSION, generation=number)
            DISK.remove(manifest_path(folder, number))
