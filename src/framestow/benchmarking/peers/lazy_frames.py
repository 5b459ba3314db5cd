"""A list of transitions with LazyFrames, as the DQN of OpenAI Baselines keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.play import Step
from framestow.benchmarking.system import Pictures, System, Task


class LazyFrames:
    """A stack that shares its frames with its neighbours and is put together when an array is asked for."""

    __slots__ = ("frames",)

    def __init__(self, frames: tuple[npt.NDArray[np.uint8], ...]) -> None:
        self.frames = frames

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Stack the frames; the result is not kept, as that would undo the sharing (Baselines issues 295 and 896)."""
        return np.stack(self.frames).astype(dtype or np.uint8, copy=False)


class LazyFramesList(System):
    """Python tuples in a list; an observation is one object, shared as this step's and as the last one's next."""

    name = "LazyFrames in a list"
    setting = "np.stack of the batch"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, task: Task) -> None:
        self._transitions: list[tuple[LazyFrames, int, float, LazyFrames, bool]] = []
        self._generator = np.random.default_rng(task.seed)
        self._batch_size = task.batch_size
        self._newest: LazyFrames | None = None

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserve a reference; frames come as they come."""
        return 8

    def append(self, step: Step) -> None:
        """Keep one new frame, and the stack that it ends."""
        observation = self._newest
        if step.starts_episode or observation is None:
            observation = LazyFrames((step.observation[-1].copy(),) * len(step.observation))
        self._newest = LazyFrames((*observation.frames[1:], step.next_observation[-1].copy()))
        self._transitions.append((observation, step.action, step.reward, self._newest, step.terminated))

    def sample(self) -> Any:
        """Draw a batch of arrays."""
        drawn = self._generator.integers(len(self._transitions), size=self._batch_size).tolist()
        observations, actions, rewards, next_observations, ends = zip(
            *[self._transitions[index] for index in drawn], strict=True
        )
        return (
            np.stack([np.asarray(observation) for observation in observations]),
            np.array(actions),
            np.array(rewards, np.float32),
            np.stack([np.asarray(observation) for observation in next_observations]),
            np.array(ends),
        )

    def pictures(self, batch: Any) -> Pictures:
        """Give the batch's own arrays."""
        return Pictures(batch[0], batch[3], batch[2])
