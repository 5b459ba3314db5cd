"""Dopamine's replay memory in plain lists: how it fills, what it writes out, and what it draws from what it reads.

After `circular_replay_buffer.py` of Dopamine and `logged_replay_buffer.py` of batch_rl, in own words: a ring of slots,
blank ones before each episode, written out one slot before it is full and once more at the end of training.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ELEMENTS = {"observation": np.uint8, "action": np.int32, "reward": np.float32, "terminal": np.uint8}
CAPACITY = 1_000_000


@dataclass
class Slot:
    """A slot of Dopamine's memory; ``step`` is the number of the played step, -1 for a blank slot."""

    observation: np.ndarray
    action: int
    reward: float
    terminal: bool
    step: int


class DopamineLog:
    """Fills a ring and writes it like the DQN Replay Dataset."""

    def __init__(self, folder: Path, capacity: int, shape: tuple[int, ...], stack: int = 4) -> None:
        self.folder, self.capacity, self.shape, self.stack = folder, capacity, shape, stack
        self.added: list[Slot] = []
        self.num_logs = 0
        self.logged: list[tuple[int, int]] = []  # what each log holds, as numbers of the slots added
        folder.mkdir(parents=True, exist_ok=True)

    def add(
        self, observation: np.ndarray, action: int, reward: float, terminal: bool, step: int, *, is_reset: bool = False
    ) -> None:
        if not self.added or self.added[-1].terminal or is_reset:
            blank = Slot(np.zeros(self.shape, np.uint8), 0, 0.0, False, -1)
            self.added += [blank] * (self.stack - 1)
        self.added.append(Slot(observation, action, reward, terminal, step))
        if len(self.added) % self.capacity == self.capacity - 1:
            self.log(len(self.added))
            self.logged.append((max(0, len(self.added) - self.capacity), len(self.added)))

    def log_at_the_end(self) -> None:
        self.log(len(self.added) % self.capacity)

    def log(self, add_count: int) -> None:
        ring: list[Slot | None] = [None] * self.capacity
        for number, slot in enumerate(self.added):
            ring[number % self.capacity] = slot
        never_written = Slot(np.full(self.shape, 77, np.uint8), 3, 5.0, False, -1)
        slots = [never_written if slot is None else slot for slot in ring]
        for element, kind in ELEMENTS.items():
            values = np.array([getattr(slot, element) for slot in slots], kind)
            self.write(f"$store$_{element}", values)
        self.write("add_count", np.array(add_count))
        cursor = add_count % self.capacity
        self.write("invalid_range", np.array([(cursor - 1 + i) % self.capacity for i in range(self.stack + 1)]))
        self.num_logs += 1

    def write(self, name: str, values: np.ndarray) -> None:
        path = self.folder / f"{name}_ckpt.{self.num_logs}.gz"
        with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as zipped:
            np.save(zipped, values, allow_pickle=False)


@dataclass
class Drawn:
    """A transition as sampled by Dopamine, with stacks ``(stack, *frame)``."""

    state: np.ndarray
    action: int
    reward: float
    next_state: np.ndarray
    terminal: bool


class DopamineReader:
    """Loads one checkpoint like Dopamine's ``load`` and returns all sampleable transitions in order."""

    def __init__(self, folder: Path, number: int, stack: int) -> None:
        self.stack = stack
        for element in ELEMENTS:
            setattr(self, element, self.read(folder / f"$store$_{element}_ckpt.{number}.gz"))
        self.add_count = int(self.read(folder / f"add_count_ckpt.{number}.gz"))
        self.invalid_range = self.read(folder / f"invalid_range_ckpt.{number}.gz")
        self.capacity = max(CAPACITY, len(self.observation))

    @staticmethod
    def read(path: Path) -> np.ndarray:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file) as unzipped:
            return np.load(unzipped, allow_pickle=False)

    def may_be_drawn(self, index: int) -> bool:
        if not self.stack - 1 <= index < self.add_count - 1 or index in self.invalid_range.tolist():
            return False
        return not self.terminal[index - self.stack + 1 : index].any()

    def drawn(self) -> list[Drawn]:
        assert self.add_count < self.capacity, "these tests fill no ring of a million"
        return [self.transition(index) for index in range(len(self.observation)) if self.may_be_drawn(index)]

    def transition(self, index: int) -> Drawn:
        return Drawn(
            self.observation[index - self.stack + 1 : index + 1],
            int(self.action[index]),
            float(self.reward[index]),
            self.observation[index - self.stack + 2 : index + 2],
            bool(self.terminal[index]),
        )
