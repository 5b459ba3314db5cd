"""Inspect a saved memory for ``framestow inspect``: its settings, games, episodes, files and bytes.

``inspect_memory`` opens a folder without changing it, also while another process writes to it.
"""

from __future__ import annotations

import datetime
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import StepStore
from framestow.errors import DamagedDataError
from framestow.interface import warn_caller
from framestow.replay.reading.episodes import EpisodeSpans
from framestow.replay.reports.facts import OF_A_MEMORY, Fact, shown_in
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.store.format import (
    COMMIT,
    COMMIT_FILE,
    FRAMES,
    STEPS,
    VERSION,
    FolderContents,
    commit_path,
    id_of,
    read_while_written,
)
from framestow.replay.store.reader import StoredMemory
from framestow.storage.files.block_format import INDEX
from framestow.storage.files.file_system import DISK, FileSystem

PARTS = {FRAMES: "frames", STEPS: "steps", COMMIT: "commits"}
"""Name of the part in reports, by the beginning of a file's name."""
UNNAMED = "(not named)"  # label of a memory without labels


@dataclass(frozen=True)
class StoredFiles:
    """The files of a saved memory.

    ``bytes_by_part`` counts the bytes of all generations with their copies, and of the commit before a newest without.
    ``left_over`` gives, per file, the bytes that belong to no generation: from a crash, or from a writer that is still
    adding them.
    """

    version: int
    generation: int
    commit: Path
    kept_generations: list[int]
    bytes_by_part: dict[str, int]
    left_over: dict[str, int]


def find_files(folder: Path, generation: int | None = None, files: FileSystem = DISK) -> StoredFiles:
    """Return the files of the memory in ``folder``: of the newest generation unless ``generation`` is given.

    Another process may write meanwhile. Raises ``FileNotFoundError`` if the folder holds no memory,
    ``DamagedDataError`` for a damaged commit and ``IncompatibleError`` for another version.
    """
    return read_while_written(folder, partial(_read_files, folder, generation, files), files)


def _read_files(folder: Path, generation: int | None, files: FileSystem, contents: FolderContents) -> StoredFiles:
    found = contents.find(generation)
    number = found.whole().generation
    sizes = _sizes(folder, files, contents)
    ends: dict[str, int] = {}
    for commit in (contents.read(one).whole() for one in contents.existing):
        ends_of_commit = {
            name: sizes[name]
            for is_copy in (False, True)
            if (name := commit_path(folder, commit.generation, is_copy=is_copy).name) in sizes
        }
        for file, end in {**commit.file_ends(), **ends_of_commit}.items():
            ends[file] = max(end, ends.get(file, 0))
    path = commit_path(folder, number)
    if found.warning:
        warn_caller(found.warning, RuntimeWarning)
    return StoredFiles(VERSION, number, path, contents.generations, _by_part(ends), _beyond(ends, sizes))


def _by_part(ends: dict[str, int]) -> dict[str, int]:
    parts: dict[str, int] = {}
    for name, end in ends.items():
        part = "indices" if name.endswith(f".{INDEX}") else PARTS[re.split("[.-]", name)[0]]
        parts[part] = parts.get(part, 0) + end
    return {part: parts[part] for part in (*PARTS.values(), "indices") if part in parts}


def _beyond(ends: dict[str, int], sizes: dict[str, int]) -> dict[str, int]:
    return {name: size - ends.get(name, 0) for name, size in sizes.items() if size > ends.get(name, 0)}


def _sizes(folder: Path, files: FileSystem, contents: FolderContents) -> dict[str, int]:
    """Return the size of each file of a store in ``folder``."""
    sizes = {}
    for name in contents.names:
        if id_of(name) or COMMIT_FILE.fullmatch(name):
            with suppress(FileNotFoundError, DamagedDataError):  # removed by a writer meanwhile, or no file
                sizes[name] = files.size(folder / name)
    return sizes


@dataclass(frozen=True)
class Spread:
    """Mean, minimum and maximum of some numbers."""

    mean: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: npt.NDArray[np.generic]) -> Spread | None:
        """Return the spread of ``values``; None for an empty array."""
        return cls(float(values.mean()), float(values.min()), float(values.max())) if values.size else None


@dataclass(frozen=True)
class Ages:
    """Ages of the transitions of one label, in frames appended to their environment since."""

    oldest: int
    median: int


@dataclass(frozen=True)
class LabelInspection:
    """The stored transitions and episodes of one label, such as the name of a game.

    An episode is *whole* if its first step and a step that terminated or truncated it are stored. It is *open* if it
    has not ended. Otherwise it is *cut*: its first steps were evicted, or a reset came before its end.

    ``transitions`` can be sampled; ``waiting`` counts the steps whose n-step return is not complete. ``frames`` counts
    the frames that both reference. ``returns`` (sums of recorded rewards) and ``lengths``
    (steps) are those of whole episodes, None without any. ``ages`` is None without transitions.
    """

    label: str
    num_envs: int
    transitions: int
    waiting: int
    frames: int
    whole_episodes: int
    cut_episodes: int
    open_episodes: int
    returns: Spread | None
    lengths: Spread | None
    ages: Ages | None


@dataclass(frozen=True)
class StoredSteps:
    """The steps of some environments of a store that was opened to be read, with their episodes, read once."""

    steps: StepStore
    num_envs: int
    episodes: EpisodeSpans
    waiting: int
    """Number of steps whose n-step return is not complete."""

    @property
    def whole(self) -> npt.NDArray[Any]:
        """The spans of whole episodes."""
        return self.episodes.spans[self.episodes.is_whole]

    @property
    def whole_episodes(self) -> int:
        """Number of whole episodes."""
        return len(self.whole)

    @property
    def open_episodes(self) -> int:
        """Number of episodes that have not ended."""
        return int(self.episodes.spans["is_open"].sum())

    @property
    def ages(self) -> Ages | None:
        """Ages of the steps; ``None`` without any."""
        spans = self.episodes.spans
        return _ages(self.steps.newest_positions[spans["env_id"]] - spans["first"] - 1, spans["length"])


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.mean


def _spread_of(key: str, column: str, words: str, values: str) -> Fact:
    """Return the fact of the spread of a field of whole episodes."""
    return Fact(
        key,
        words,
        {"column": column},
        lambda stored: Spread.of(stored.whole[values]),
        numbers={"mean": words, "least": "  minimum", "greatest": "  maximum"},
    )


# Functions of ``StoredSteps``: of the environments of one label.
OF_A_LABEL = (
    Fact("num_envs", "environments", {}, lambda stored: stored.num_envs),
    Fact(
        "transitions",
        "transitions",
        {"column": "transitions"},
        lambda stored: int(stored.episodes.spans["length"].sum()) - stored.waiting,
    ),
    Fact("waiting", "  others wait for their return", {}, lambda stored: stored.waiting),
    Fact("frames", "frames", {}, lambda stored: int(stored.episodes.num_frames.sum())),
    Fact("whole_episodes", "whole episodes", {"column": "whole"}, lambda stored: stored.whole_episodes),
    Fact(
        "cut_episodes",
        "cut-off episodes",
        {"column": "cut"},
        lambda stored: len(stored.episodes) - stored.whole_episodes - stored.open_episodes,
    ),
    Fact("open_episodes", "running episodes", {}, lambda stored: stored.open_episodes),
    _spread_of("returns", "return", "return of whole episodes, mean", "total_reward"),
    _spread_of("lengths", "steps", "steps of whole episodes, mean", "length"),
    Fact(
        "ages",
        "age in steps, median",
        {"column": "age"},
        lambda stored: stored.ages,
        numbers={"median": "age in steps, median", "oldest": "  oldest"},
    ),
)
# Of a whole store. The viewer computes its numbers from ``StoredSteps``; ``Inspection`` has those of ``inspect``.
OF_A_STORE = (
    Fact(
        "waiting",
        "steps that wait for their return",
        {"inspect": "waiting", "view": "waiting"},
        lambda stored: stored.waiting,
    ),
    Fact(
        "episodes",
        "episodes",
        {"view": "episodes", "tile": "episodes, {whole_episodes} of them whole"},
        lambda stored: len(stored.episodes),
    ),
    Fact("whole_episodes", "whole episodes", {"view": "whole_episodes"}, lambda stored: stored.whole_episodes),
    Fact(
        "mean_return",
        "mean return of whole episodes",
        {"view": "mean_return", "tile": "mean return of whole episodes"},
        lambda stored: _mean(Spread.of(stored.whole["total_reward"])),
    ),
    Fact("nbytes", "in files", {"inspect": "nbytes"}, unit="bytes"),
    Fact("frames_by_files", "times the files' size: uncompressed frames", {"inspect": "times_smaller_than_frames"}),
    Fact(
        "stacked_pairs_by_files",
        "times the files' size: uncompressed pairs of observations",
        {"inspect": "times_smaller_than_stacked_pairs"},
    ),
)


def inspect_labels(settings: MemorySettings, steps: StepStore) -> list[LabelInspection]:
    """Return an inspection of each label, in the order of the environments.

    Reads all steps in pieces of bounded size. Takes 40 bytes for each episode.
    """
    labels = settings.labels or (UNNAMED,) * settings.num_envs
    episodes = EpisodeSpans.of(steps)
    waiting = steps.resolve_steps(steps.pending, with_extras=False)[0].env_ids
    found = []
    for label in dict.fromkeys(labels):
        env_ids = [env_id for env_id, its_label in enumerate(labels) if its_label == label]
        stored = StoredSteps(steps, len(env_ids), episodes.of_envs(env_ids), int(np.isin(waiting, env_ids).sum()))
        found.append(LabelInspection(label, **{fact.key: fact.compute(stored) for fact in OF_A_LABEL}))
    return found


def _ages(oldest: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Ages | None:
    if not len(oldest):
        return None
    # The ages of a span are consecutive numbers: bisection over intervals finds the median without listing all ages.
    wanted = (int(lengths.sum()) + 1) // 2
    low, high = int((oldest - lengths + 1).min()), int(oldest.max())
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _num_not_older(middle, oldest, lengths) >= wanted else (middle + 1, high)
    return Ages(int(oldest.max()), low)


def _num_not_older(age: int, oldest: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> int:
    """Return how many steps of spans with these oldest ages and lengths are at most ``age`` old."""
    return int(np.clip(age - (oldest - lengths), 0, lengths).sum())


@dataclass(frozen=True)
class Inspection:
    """Contents and size of a memory in a folder.

    ``file_bytes`` gives the bytes of the files by part, and ``left_over`` the bytes that belong to no generation
    (``StoredFiles``).
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
        """Number of transitions that can be sampled."""
        return sum(label.transitions for label in self.labels)

    @property
    def waiting(self) -> int:
        """Number of stored steps whose n-step return is not complete."""
        return sum(label.waiting for label in self.labels)

    @property
    def nbytes(self) -> int:
        """Bytes of all files that belong to the memory."""
        return sum(self.file_bytes.values())

    @property
    def frames_by_files(self) -> float:
        """Size of the uncompressed frames, divided by the size of the files; 0 for an empty memory."""
        frames = sum(label.frames for label in self.labels)
        return self.settings.frame.nbytes * frames / max(1, self.nbytes)

    @property
    def stacked_pairs_by_files(self) -> float:
        """Size of two uncompressed stacks per transition, divided by the size of the files."""
        return 2 * self.settings.stack * self.settings.frame.nbytes * self.transitions / max(1, self.nbytes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        values = asdict(self) | {"settings": self.settings.state(), "folder": str(self.folder)}
        values["written"] = self.written.isoformat(timespec="seconds")
        shown = shown_in("inspect", OF_A_MEMORY, OF_A_STORE)
        return values | {name: getattr(self, fact.key) for name, fact in shown}


def inspect_memory(folder: Path, generation: int | None = None) -> Inspection:
    """Return what the memory in ``folder`` contains: its newest generation unless ``generation`` is given.

    Reads the steps and unpacks no frame. While another process writes, the result is a consistent snapshot of one
    commit. Raises the errors of ``ReplayMemory.open``.
    """
    return read_while_written(folder, lambda _: _read_inspection(folder, generation))


def _read_inspection(folder: Path, generation: int | None) -> Inspection:
    files = find_files(folder, generation)
    with StoredMemory.open(folder, files.generation) as stored:
        steps, settings = stored.read_steps(), stored.settings
    return Inspection(
        folder=folder,
        version=files.version,
        generation=files.generation,
        kept_generations=files.kept_generations,
        written=datetime.datetime.fromtimestamp(DISK.status(files.commit).st_mtime).astimezone(),
        settings=settings,
        labels=inspect_labels(settings, steps),
        file_bytes=files.bytes_by_part,
        left_over=files.left_over,
    )
