"""Chunks: some hundred steps of one environment, packed where they are played, and what a shard answers to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.replay.step_checks import SegmentSteps

Priorities = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]  # of n-step TD errors
ONLY_ENV = np.zeros(1, np.int32)  # the environments of a storage that has one


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
    segments: tuple[bytes, ...]  # one for each array, with the paddings of the runs that begin in it
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


# What a shard did with a chunk (``Shard.take``).
STORED, DUPLICATE, GAP, REPLACED = "stored", "duplicate", "gap", "replaced"


class ShardReport(NamedTuple):
    """What a shard reports with each answer."""

    epoch: int  # changes with each restart; 0 at first
    transitions: int  # that can be sampled
    mass: float  # sum of what draws are proportional to
    smallest: float  # mass of one transition, infinity without any
    inserted: int  # steps since the shard started
    insert_limit: float  # steps that it may have inserted; writers wait at this number
    ignored_updates: int  # priorities of evicted transitions
    duplicates: int  # chunks that were sent twice
    nbytes: int  # of the memory in RAM


class Taken(NamedTuple):
    """Answer to ``take``."""

    statuses: list[str]  # of each chunk
    open_frames: list[int]  # of each chunk: frames in the open segment of its environment afterwards
    report: ShardReport
