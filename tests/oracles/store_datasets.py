"""Datasets whose workers draw from a memory, for PyTorch's ``DataLoader``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from framestow.replay.memory import ReplayMemory
from oracles.readers import drawn


class OpenedInWorkers(IterableDataset[np.ndarray]):
    """Each worker opens the store; if ``seeded``, with its own seed, which follows PyTorch's."""

    def __init__(self, folder: Path, seeded: bool) -> None:
        self.folder, self.seeded = folder, seeded

    def __iter__(self) -> Iterator[np.ndarray]:
        memory = ReplayMemory.open(self.folder, seed=get_worker_info().seed if self.seeded else None)
        while True:
            yield drawn(memory, 10)


class InheritedByWorkers(IterableDataset[np.ndarray]):
    """Workers that are forked draw from the memory of their parent."""

    def __init__(self, folder: Path) -> None:
        self.memory = ReplayMemory.load(folder)

    def __iter__(self) -> Iterator[np.ndarray]:
        while True:
            yield drawn(self.memory, 10)
