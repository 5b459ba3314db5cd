"""The calls that drop_ins.py measures, the same for each library's own buffer and for its drop-in.

A `Buffer` wraps a library's calls, with that library's arguments and results. A `Candidate` builds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from framestow.benchmarking.libraries import BatchArrays

STACK = 4
BATCH_SIZE = 32
OURS = "framestow"
LAST_FRAME = "the last frame of an episode"


class Row(NamedTuple):
    """One step of every environment, as a vector environment returns it; contiguous arrays that are not shared."""

    observations: NDArray[np.uint8]  # (num_envs, STACK, H, W)
    actions: NDArray[np.int64]  # (num_envs,), likewise the following
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    next_observations: NDArray[np.uint8]

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Which episodes ended with this step."""
        return self.terminated | self.truncated


class Size(NamedTuple):
    """The arguments that a buffer is built with."""

    transitions: int
    num_envs: int
    frame: tuple[int, ...]
    num_actions: int


class Buffer(NamedTuple):
    """A library's calls.

    ============= ===============================================================================
    ``prepared``  what the library's own collector would pass to ``add``; it is not timed
    ``add``       stores one step of every environment
    ``sample``    samples ``BATCH_SIZE`` transitions
    ``as_arrays`` converts what ``sample`` returned to arrays
    ``nbytes``    the bytes that it reports itself; 0 if it reports none
    ============= ===============================================================================
    """

    prepared: Callable[[Row], Any]
    add: Callable[[Any], object]
    sample: Callable[[], Any]
    as_arrays: Callable[[Any], BatchArrays]
    nbytes: Callable[[], int] = lambda: 0


@dataclass(frozen=True)
class Candidate:
    """A buffer to be measured."""

    name: str
    gives_up: str
    stacks_each: float  # of frames that it reserves a transition
    build: Callable[[Size], Buffer]
    most_envs: int = 8
    pads_as_played: bool = True
    """Whether the first observations of an episode are padded with its first frame."""
    steps_at_once: int = 1
    """Of one environment, that it is filled with; additions are timed step by step."""

    @property
    def keeps_last_frames(self) -> bool:
        """Whether the observation after an episode's last step comes back."""
        return LAST_FRAME not in self.gives_up

    @property
    def is_ours(self) -> bool:
        """Whether it is framestow's."""
        return self.name.startswith(OURS)


def ours(build: Callable[[Size], Buffer], gives_up: str = "", **facts: Any) -> Candidate:
    return Candidate(OURS, gives_up, 0.02, build, **facts)


def reported_by_memory(buffer: Any) -> Callable[[], int]:
    """Return the bytes that the memory behind a drop-in reports; 0 for the library's own buffer."""
    return lambda: buffer.memory.nbytes if hasattr(buffer, "memory") else 0
