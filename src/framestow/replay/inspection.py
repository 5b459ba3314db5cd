"""What a saved memory is and holds, and where its bytes are: everything that ``framestow inspect`` tells."""

from __future__ import annotations

import datetime
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, NothingToSampleError
from framestow.replay.batch import Batch
from framestow.replay.episodes import EpisodeRuns
from framestow.replay.memory import ReplayMemory
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.store.format import FRAMES, KIND, STEPS, VERSION, Manifest, checked_manifest
from framestow.storage.files.block_format import ENTRY_BYTES, FILE_HEADER_BYTES, INDEX, LOG, file_name
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import MANIFEST, generations, manifest_path, read_manifest

PARTS = {FRAMES: "frames", STEPS: "steps", "state": "state", MANIFEST: "manifests"}
"""What people call the files whose names begin so."""


@dataclass(frozen=True)
class StoredFiles:
    """The files of a saved memory.

    ``bytes_by_part`` counts what belongs to the generation and to those kept beside it. ``left_over`` gives the
    bytes of each file, or at the end of one, that belong to none: what a crash left, or what a writer is just adding.
    """

    version: int
    generation: int
    manifest: Path
    kept_generations: list[int]
    bytes_by_part: dict[str, int]
    left_over: dict[str, int]


def stored_files(folder: Path, generation: int | None = None, files: FileSystem = DISK) -> StoredFiles:
    """Look at what lies in ``folder``: of its generations the newest unless one is given; also beside a writer.

    Raises ``FileNotFoundError`` where nothing was saved, ``DamagedDataError`` for a manifest that is not as it was
    written and ``IncompatibleError`` for one of another version.
    """
    while True:
        there = generations(folder, files)
        try:
            if not there:
                read_manifest(folder, KIND, VERSION, files=files)  # raises: there is none, or it is of another kind
            return _of_generations(folder, there, generation, files)
        except FileNotFoundError:  # a writer removed one between the listing and the reading
            if generations(folder, files) == there:
                raise


def _of_generations(folder: Path, there: list[int], generation: int | None, files: FileSystem) -> StoredFiles:
    newest = checked_manifest(folder, there[-1], files)
    kept = [checked_manifest(folder, number, files) for number in newest.kept if number in there]
    sizes = _sizes(folder, files)
    ends: dict[str, int] = {}
    for manifest in [*kept, newest]:
        own = manifest_path(folder, manifest.generation).name
        for name, end in {**_ends(manifest), own: sizes.get(own, 0)}.items():
            ends[name] = max(end, ends.get(name, 0))
    number = newest.generation if generation is None else generation
    numbers = [manifest.generation for manifest in [*kept, newest]]
    return StoredFiles(VERSION, number, manifest_path(folder, number), numbers, _by_part(ends), _beyond(ends, sizes))


def _ends(manifest: Manifest) -> dict[str, int]:
    """How much of which files a manifest names."""
    ends: dict[str, int] = {manifest.state["name"]: manifest.state["bytes"]}
    for log, state in ((FRAMES, manifest.frames), (STEPS, manifest.steps)):
        for file in state["files"]:
            ends[file_name(log, file["number"], LOG)] = file["bytes"]
            ends[file_name(log, file["number"], INDEX)] = FILE_HEADER_BYTES + file["blocks"] * ENTRY_BYTES
    return ends


def _by_part(ends: dict[str, int]) -> dict[str, int]:
    parts: dict[str, int] = {}
    for name, end in ends.items():
        part = "indices" if name.endswith(f".{INDEX}") else PARTS[name.partition(".")[0]]
        parts[part] = parts.get(part, 0) + end
    return {part: parts[part] for part in (*PARTS.values(), "indices") if part in parts}


def _beyond(ends: dict[str, int], sizes: dict[str, int]) -> dict[str, int]:
    return {name: size - ends.get(name, 0) for name, size in sizes.items() if size > ends.get(name, 0)}


def _sizes(folder: Path, files: FileSystem) -> dict[str, int]:
    """Bytes of each file of a memory that lies in ``folder``."""
    sizes = {}
    for name in files.names(folder):
        if name.partition(".")[0] in PARTS and (folder / name).is_file():
            with suppress(FileNotFoundError):  # a writer may take one away meanwhile
                sizes[name] = files.size(folder / name)
    return sizes


UNNAMED = "(not named)"  # what feeds a memory that was not told


@dataclass(frozen=True)
class Spread:
    """Mean, least and greatest of some numbers."""

    mean: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: npt.NDArray[np.generic]) -> Spread | None:
        """The spread of ``values``; None where there are none."""
        return cls(float(values.mean()), float(values.min()), float(values.max())) if values.size else None


@dataclass(frozen=True)
class Ages:
    """How long ago transitions were appended: frames that have come to their stream since."""

    oldest: int
    median: int


@dataclass(frozen=True)
class LabelInspection:
    """What is held of one game, or whatever else fed the memory under one name.

    ``frames`` counts those that the transitions show. An episode is *whole* if its first step and one that terminated
    or truncated it are held, *open* if it goes on, and otherwise *cut*: its beginning has left, or a reset came in
    between. ``returns`` (sums of the rewards as they were recorded) and ``lengths`` (steps) are those of whole
    episodes, None without any; ``ages`` is None without transitions.
    """

    label: str
    num_envs: int
    transitions: int
    frames: int
    whole_episodes: int
    cut_episodes: int
    open_episodes: int
    returns: Spread | None
    lengths: Spread | None
    ages: Ages | None


def inspect_labels(parts: MemoryParts) -> list[LabelInspection]:
    """Look at everything that is held, by the labels that the memory's settings name, in the order of their streams.

    Reads no frame. Takes a pass over all steps in pieces of bounded size, and 40 bytes for each episode.
    """
    settings = parts.settings
    labels = settings.labels or (UNNAMED,) * settings.num_envs
    with parts.lock:
        episodes = EpisodeRuns.of(parts.timeline, settings.stack)
        newest_positions = parts.timeline.newest_positions.copy()
    streams_by_label: dict[str, list[int]] = {}
    for stream, label in enumerate(labels):
        streams_by_label.setdefault(label, []).append(stream)
    return [
        _inspected_source(label, len(streams), episodes.of_streams(streams), newest_positions)
        for label, streams in streams_by_label.items()
    ]


def _inspected_source(
    label: str, num_envs: int, episodes: EpisodeRuns, newest_positions: npt.NDArray[np.int64]
) -> LabelInspection:
    runs, is_whole = episodes.runs, episodes.is_whole
    num_whole, num_open = int(is_whole.sum()), int(runs["is_open"].sum())
    return LabelInspection(
        label=label,
        num_envs=num_envs,
        transitions=int(runs["length"].sum()),
        frames=int(episodes.num_frames.sum()),
        whole_episodes=num_whole,
        cut_episodes=len(runs) - num_whole - num_open,
        open_episodes=num_open,
        returns=Spread.of(runs["total_reward"][is_whole]),
        lengths=Spread.of(runs["length"][is_whole]),
        ages=_ages(episodes, newest_positions),
    )


def _ages(episodes: EpisodeRuns, newest_positions: npt.NDArray[np.int64]) -> Ages | None:
    runs = episodes.runs
    if not len(runs):
        return None
    # A run's ages are consecutive numbers, so the median is found among intervals: no array of all transitions.
    oldest = newest_positions[runs["stream"]] - runs["first"] - 1  # 0 for the step that led to the newest frame
    youngest = oldest - runs["length"] + 1
    wanted = (int(runs["length"].sum()) + 1) // 2
    low, high = int(youngest.min()), int(oldest.max())
    while low < high:
        middle = (low + high) // 2
        not_older = int(np.clip(middle - youngest + 1, 0, runs["length"]).sum())
        low, high = (low, middle) if not_older >= wanted else (middle + 1, high)
    return Ages(int(oldest.max()), low)


@dataclass(frozen=True)
class Inspection:
    """A memory in a folder, looked at from outside.

    ``file_bytes`` gives bytes by part of the files that belong to the generation looked at; ``left_over`` those that
    do not: what a crash left, or what a writer is just adding.
    """

    folder: Path
    version: int
    generation: int
    kept_generations: list[int]
    written: datetime.datetime
    settings: MemorySettings
    labels: list[LabelInspection]
    file_bytes: dict[str, int]
    left_over: dict[str, int]

    @property
    def transitions(self) -> int:
        """Transitions held."""
        return sum(told.transitions for told in self.labels)

    @property
    def nbytes(self) -> int:
        """Bytes of all files that belong to the memory."""
        return sum(self.file_bytes.values())

    @property
    def times_smaller_than_frames(self) -> float:
        """How many times larger its frames alone would be without packing; 0 for a memory that holds nothing."""
        frames = sum(told.frames for told in self.labels)
        return self.settings.frame.nbytes * frames / max(1, self.nbytes)

    @property
    def times_smaller_than_stacked_pairs(self) -> float:
        """How many times larger it would be if each transition kept two uncompressed stacks."""
        return 2 * self.settings.stack * self.settings.frame.nbytes * self.transitions / max(1, self.nbytes)

    def label_of(self, stream: int) -> str:
        """The name of what feeds a stream."""
        return self.settings.labels[stream] if self.settings.labels else UNNAMED

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-able values."""
        told = asdict(self) | {"settings": self.settings.state(), "folder": str(self.folder)}
        told["written"] = self.written.isoformat(timespec="seconds")
        names = "transitions", "nbytes", "times_smaller_than_frames", "times_smaller_than_stacked_pairs"
        return told | {name: getattr(self, name) for name in names}


def inspect_memory(folder: Path, generation: int | None = None) -> tuple[Inspection, ReplayMemory]:
    """Open the memory in ``folder``, its newest generation unless one is given, and look at all of it.

    Its segments stay in their files; beside a writer this is what was committed at
    one moment. Raises what opening it raises.
    """
    while True:
        there = generations(folder)
        try:
            return _inspected(folder, generation)
        except (FileNotFoundError, DamagedDataError):  # a writer may have removed that generation and what it needed
            if generation is not None or generations(folder) == there:
                raise


def _inspected(folder: Path, generation: int | None) -> tuple[Inspection, ReplayMemory]:
    files = stored_files(folder, generation)
    sampler = Uniform()  # whatever it was drawn by: that may be a class that is not here
    memory = ReplayMemory.open(folder, generation=files.generation, sampler=sampler)
    inspection = Inspection(
        folder=folder,
        version=files.version,
        generation=files.generation,
        kept_generations=files.kept_generations,
        written=datetime.datetime.fromtimestamp(files.manifest.stat().st_mtime).astimezone(),
        settings=memory._settings,
        labels=inspect_labels(memory._parts),
        file_bytes=files.bytes_by_part,
        left_over=files.left_over,
    )
    return inspection, memory


class DrawnTransition(NamedTuple):
    """A transition to show: a batch of one, and where its frames come from."""

    batch: Batch
    env_id: int
    num_padded: int
    """Places of its observation that hold no frame of the episode."""
    num_steps: int
    """Steps that it leads over: ``n_step``, or those up to its episode's end."""


def draw_transition(memory: ReplayMemory, seed: int) -> DrawnTransition:
    """Draw a transition uniformly by a generator of its own; raise ``NothingToSampleError`` where there is none."""
    timeline = memory._parts.timeline
    if not len(memory):
        raise NothingToSampleError("the memory holds no transition: there is nothing to draw; append steps first")
    rank = int(np.random.default_rng(seed).integers(len(memory)))
    index = timeline.sampleable_at(np.array([rank]))
    (streams, first_step, counts), _ = timeline.resolve_steps(index, with_columns=False)
    (_, last_positions, _), _ = timeline.resolve(index, with_columns=False)
    num_steps = int(last_positions[-1] - first_step[0]) + 1
    return DrawnTransition(memory.get(index), int(streams[0]), memory.stack + 1 - int(counts[0]), num_steps)
