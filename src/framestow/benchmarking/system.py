"""What every measured system offers, and what it is built for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.play import Step


@dataclass(frozen=True)
class Task:
    """What a system has to keep and to hand out."""

    capacity: int  # transitions
    frame_shape: tuple[int, ...]
    stack: int  # frames an observation
    num_actions: int
    batch_size: int
    threads: int
    """Threads that framestow unpacks a batch with."""
    seed: int

    @property
    def stack_shape(self) -> tuple[int, ...]:
        """Shape of an observation, oldest frame first."""
        return (self.stack, *self.frame_shape)

    @property
    def stack_bytes(self) -> int:
        """Bytes of an observation."""
        return int(np.prod(self.stack_shape))


class Pictures(NamedTuple):
    """What of a batch can be held against the play: ``(batch, stack, *frame)`` twice, and ``(batch,)``."""

    observations: npt.NDArray[np.uint8]
    next_observations: npt.NDArray[np.uint8]
    rewards: npt.NDArray[Any]


class System(Protocol):
    """A memory of one stream of steps: fed, sampled from uniformly, and asked what it gave.

    ``__init__`` takes a `Task` and imports what it needs; whatever it raises leaves the system out of the table.
    """

    name: ClassVar[str]
    setting: ClassVar[str]
    gives_up: ClassVar[str]
    """What is lost at this setting, in words; empty if nothing."""
    keeps_final_frames: ClassVar[bool]
    """Whether the observation after an episode's last step comes back."""
    uses_torch: ClassVar[bool]
    """Whether PyTorch's number of threads matters to ``sample``."""

    def __init__(self, task: Task) -> None: ...

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Bytes that are reserved for each transition beforehand."""

    def append(self, step: Step) -> None:
        """Keep one step."""

    def sample(self) -> Any:
        """Draw a batch uniformly, as a learner would."""

    def pictures(self, batch: Any) -> Pictures:
        """Give what ``sample`` returned as arrays."""

    def bytes_told(self) -> int:
        """Bytes that the system itself says it takes; 0 if it does not tell."""
        return 0
