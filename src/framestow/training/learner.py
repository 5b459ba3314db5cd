"""The learner of a run: batches from the memory, updates of the agent, priorities back to the memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framestow.agents.dqn import DQN
from framestow.interface import Closing
from framestow.replay.batch import Batch
from framestow.torch.batch_loader import BatchLoader
from framestow.training.events import Learned
from framestow.training.training_run import RunMemory


class Learner(Closing):
    """Updates the agent, at once or with some updates still being computed by the device.

    Arguments:
        agent, memory: Both are changed by updates, the memory only in its priorities.
        batch_size: Transitions per update.
        gives_priorities: Whether the memory gets the priorities of each update.
        ahead: 0 draws, learns and gives priorities one after another. From 1 on, a thread unpacks and copies this many
            batches beforehand, and an update is yielded after this many later ones were begun: the device never waits
            for the CPU, nor the CPU for the device. A batch is then drawn before the last ``2 * ahead`` updates gave
            their priorities. The order of all draws and priorities is fixed, so the same seed gives the same run.
    """

    def __init__(self, agent: DQN, memory: RunMemory, batch_size: int, gives_priorities: bool, ahead: int) -> None:
        self._agent, self._memory, self._batch_size = agent, memory, batch_size
        self._gives_priorities, self._ahead = gives_priorities, ahead
        # None if nothing is drawn ahead.
        self._loader = BatchLoader(memory, batch_size, agent.device, ahead=ahead) if ahead else None
        # Updates without an event, oldest first; at most ``ahead`` between two calls.
        self._begun: deque[_BegunUpdate] = deque()
        # Events of updates that ``settle`` completed, to be yielded next.
        self._settled: list[Learned] = []

    def update(self, num_updates: int) -> Iterator[Learned]:
        """Begin this many updates and yield those that are complete.

        The memory gets the priorities of an update after it was yielded.
        """
        for _ in range(num_updates):
            batch = self._memory.sample(self._batch_size) if self._loader is None else next(self._loader)
            update = self._agent.learn(batch)
            indices = batch.index if isinstance(batch, Batch) else batch.index.numpy()
            self._begun.append(_BegunUpdate(self._agent.num_updates, indices, update.fetch()))
            if self._settled:
                yield from self._take_settled()
            while len(self._begun) > self._ahead:
                yield from self._complete(self._begun.popleft())

    def settle(self) -> None:
        """Wait until the device has computed all updates, and give the memory their priorities.

        They are yielded by the next ``update`` or ``finish``.
        """
        while self._begun:
            self._settled.extend(self._complete(self._begun.popleft()))

    def finish(self) -> Iterator[Learned]:
        """Complete and yield all updates that were begun."""
        self.settle()
        yield from self._take_settled()

    def close(self) -> None:
        """Stop the thread."""
        if self._loader is not None:
            self._loader.close()

    def _take_settled(self) -> Iterator[Learned]:
        settled, self._settled = self._settled, []
        yield from settled

    def _complete(self, begun: _BegunUpdate) -> Iterator[Learned]:
        numbers = begun.fetch()
        loss, mean_value = numbers[:2].tolist()
        yield Learned(begun.num_updates, loss, mean_value)
        if self._gives_priorities and math.isfinite(loss):  # a training that diverged ends
            self._memory.update_priorities(begun.indices, numbers[2:])


class _BegunUpdate(NamedTuple):
    """An update that the device may still be computing."""

    num_updates: int
    indices: NDArray[np.int64]  # of the batch, for its priorities
    fetch: Callable[[], NDArray[np.float32]]  # waits for the numbers of ``Update``
