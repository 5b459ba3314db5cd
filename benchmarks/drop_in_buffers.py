"""What drop_ins.py builds: a `Candidate` is a library's own buffer or its drop-in, at one setting.

Its calls are a `Buffer` of framestow.benchmarking.buffers, the same for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from framestow.benchmarking.buffers import Buffer

STACK = 4
BATCH_SIZE = 32
OURS = "framestow"
LAST_FRAME = "the last frame of an episode"


class Size(NamedTuple):
    """The arguments that a buffer is built with."""

    transitions: int
    num_envs: int
    frame: tuple[int, ...]
    num_actions: int


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
