"""framestow's own memory, one system for each of its storages."""

from __future__ import annotations

from typing import ClassVar

from framestow.benchmarking.play import Step
from framestow.benchmarking.system import Pictures, System, Task
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory
from framestow.storage.storages import STORAGES


class OwnMemory(System):
    """`ReplayMemory` with one stream; the subclasses name the storage."""

    _storage: ClassVar[str]
    setting = ""
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, task: Task) -> None:
        self._memory = ReplayMemory(
            task.capacity,
            FrameSpec(task.frame_shape),
            task.num_actions,
            stack=task.stack,
            storage=self._storage,
            threads=task.threads,
            seed=task.seed,
        )
        self._batch_size = task.batch_size

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves its columns; frames come as they come."""
        return 12

    def append(self, step: Step) -> None:
        """Store the newest frame, and at an episode's beginning its first."""
        if step.starts_episode:
            self._memory.begin(step.observation[-1:])
        self._memory.append(
            [step.action], [step.reward], [step.terminated], [step.truncated], step.next_observation[-1:]
        )

    def sample(self) -> Batch:
        """Draw a batch into recycled arrays."""
        return self._memory.sample(self._batch_size)

    def pictures(self, batch: Batch) -> Pictures:
        """Give the batch's own arrays."""
        return Pictures(batch.observation, batch.next_observation, batch.reward)

    def bytes_told(self) -> int:
        """Count all parts of the memory."""
        return self._memory.nbytes


OWN_SYSTEMS: tuple[type[OwnMemory], ...] = tuple(
    type(f"Own{storage.title()}", (OwnMemory,), {"name": f"framestow, {storage}", "_storage": storage})
    for storage in STORAGES
)
