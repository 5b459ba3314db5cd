"""What a saved memory is and holds, and where its bytes are: everything that ``framestow inspect`` tells."""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from framestow.errors import DamagedDataError, NothingToSampleError
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.saving.stored_files import stored_files
from framestow.replay.source_inspection import UNNAMED, LabelInspection, inspect_labels
from framestow.storage.files.manifest import generations


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
    index = timeline.held_at(np.array([rank]))
    (streams, first_step, counts), _ = timeline.resolve_steps(index, with_columns=False)
    (_, last_positions, _), _ = timeline.resolve(index, with_columns=False)
    num_steps = int(last_positions[-1] - first_step[0]) + 1
    return DrawnTransition(memory.get(index), int(streams[0]), memory.stack + 1 - int(counts[0]), num_steps)
