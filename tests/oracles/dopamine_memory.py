"""Dopamine's replay memory in plain lists: how it fills, and what it writes out.

After `circular_replay_buffer.py` of Dopamine and `logged_replay_buffer.py` of batch_rl, in own words: a ring of slots,
blank ones before each episode, written out one slot before it is full and once more at the end of training.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oracles.episode_lists import RecordedPlay

ELEMENTS = {"observation": np.uint8, "action": np.int32, "reward": np.float32, "terminal": np.uint8}


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


def write_dopamine_log(play: RecordedPlay, folder: Path) -> Path:
    """Write the episodes of environment 0 as a ring that is not full; an open episode's last frame has a slot."""
    episodes = play.episodes[0]
    log = DopamineLog(folder, 10 + sum(len(episode.frames) + 3 for episode in episodes), episodes[0].frames[0].shape)
    for episode in episodes:
        steps = zip(episode.frames, episode.actions, episode.rewards, episode.terminated, strict=False)
        for step, (frame, action, reward, terminated) in enumerate(steps):
            log.add(frame, int(action), float(reward), bool(terminated), step)
    if not log.added[-1].terminal:
        log.add(episodes[-1].frames[-1], 0, 0.0, False, -1)
    log.log_at_the_end()
    return folder
