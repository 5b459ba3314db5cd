"""Small stores of all kinds with several generations, and every way to damage them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from framestow.errors import NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.writer import StoreWriter
from framestow.storage.files.block_format import ENTRY, FILE_HEADER_BYTES, INDEX
from oracles.bordered_steps import append_with_borders
from oracles.list_memory import ListMemory
from oracles.store_files import commit_files

NUM_BYTES = 12  # of a frame
FILE_BYTES = 6_000  # so that each log has several files
EPISODE_STEPS = 12  # on average
Damage = Callable[[Path], None]


class Observations(NamedTuple):
    """Convert frames of ``NUM_BYTES`` bytes to the observations of a memory and back."""

    space: Any
    encode: Callable[[np.ndarray], Any]
    decode: Callable[[Any], np.ndarray]


OBSERVATIONS = {
    "pictures": Observations(
        FrameSpec((3, 4)), lambda b: b.reshape(*b.shape[:-1], 3, 4), lambda o: o.reshape(*o.shape[:-2], NUM_BYTES)
    ),
    "vectors": Observations(
        FrameSpec((NUM_BYTES,), np.float32), lambda b: b.astype(np.float32), lambda o: o.astype(np.uint8)
    ),
    "scaled": Observations(
        FrameSpec((3, 4), np.float32, is_scaled=True),
        lambda b: (b / np.float32(255)).astype(np.float32).reshape(*b.shape[:-1], 3, 4),
        lambda o: np.rint(o.reshape(*o.shape[:-2], NUM_BYTES) * 255).astype(np.uint8),
    ),
    "dict": Observations(
        {"camera": FrameSpec((2, 4)), "joints": FrameSpec((4,), np.float32)},
        lambda b: {
            "camera": np.ascontiguousarray(b[..., :8]).reshape(*b.shape[:-1], 2, 4),
            "joints": b[..., 8:].astype(np.float32),
        },
        lambda o: np.concatenate(
            [o["camera"].reshape(*o["camera"].shape[:-2], 8), o["joints"].astype(np.uint8)], axis=-1
        ),
    ),
}


@dataclass(frozen=True)
class Kind:
    """Settings of a memory, and the steps of each environment before each of its generations."""

    steps: tuple[int, ...]
    observations: str = "pictures"
    storage: str = "packed"
    retention: str = "random"
    stack: int = 1
    n_step: int = 1
    num_envs: int = 2
    seed: int = 0
    resumes_first: bool = False
    """Whether a last generation resumes from the first one, and replaces those between."""

    @property
    def capacity(self) -> int:
        """Less than the number of steps, so that some are evicted."""
        return 600 if self.retention == "random" else 2_500

    @property
    def frames_per_segment(self) -> int:
        return 14 if self.retention == "random" else 64

    def memory(self) -> ReplayMemory:
        return ReplayMemory(
            self.capacity,
            OBSERVATIONS[self.observations].space,
            5,
            stack=self.stack,
            n_step=self.n_step,
            num_envs=self.num_envs,
            storage=self.storage,
            retention=self.retention,
            frames_per_segment=self.frames_per_segment,
            extras={"number": np.int64},
            seed=self.seed,
        )


class RecordedStore:
    """A memory that was saved to ``folder`` after each generation, and the recording in plain lists.

    Each step has its number as an extra field.
    """

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.observations = kind, OBSERVATIONS[kind.observations]
        self._random = np.random.default_rng(kind.seed)
        self.oracle = ListMemory(10**9, kind.num_envs, kind.stack, 0.99, n_step=kind.n_step)
        self._known: dict[tuple[int, int], tuple[Any, ...]] = {}
        self.numbers: dict[int, set[int]] = {}
        """Of each generation, the numbers of the transitions that could be drawn."""
        memory = kind.memory()
        with StoreWriter(folder, file_bytes=FILE_BYTES) as writer:
            writer.continue_from(None)
            for num_steps in kind.steps:
                self.play(memory, num_steps)
                kept = set(writer.generations)
                has_copy = kind.stack == 2  # the others are as flushes leave them
                commit = writer.commit(
                    memory.inner.parts, kept=kept, is_pinned=True, is_closed=True, with_copy=has_copy
                )
                self.numbers[commit.generation] = set(numbers_of(memory))
        if kind.resumes_first:
            back = ReplayMemory.load(folder, generation=min(self.numbers))
            self.close_episodes(back)
            self.play(back, kind.steps[-1])
            first = min(self.numbers)
            self.numbers = {first: self.numbers[first], back.save(folder, keep_previous=True): set(numbers_of(back))}

    def play(self, memory: ReplayMemory, num_steps: int) -> None:
        """Record random steps on all environments with short episodes; begin those that are closed in ``memory``."""
        self.begin(memory, np.flatnonzero(~memory.inner.steps.is_open))
        for _ in range(num_steps):
            env_ids = np.arange(self.kind.num_envs)
            ends = self._random.random((3, len(env_ids))) < 1 / EPISODE_STEPS / 3
            frames, first = self._noise(len(env_ids)), len(self.oracle.steps)
            numbers, rewards = first + env_ids, self._random.integers(-3, 4, len(env_ids)).astype(np.float32)
            actions = numbers % 5
            extras, borders = {"number": numbers}, self._random.random(len(env_ids)) < 0.1
            of_step = actions, rewards, ends[0], ends[1]
            self.oracle.append(*of_step, frames, env_ids.tolist(), extras, borders)
            frames = self.observations.encode(frames)
            append_with_borders(memory, (*of_step, frames), env_ids, borders, extras)
            self.begin(memory, np.flatnonzero(ends.any(axis=0)))

    def begin(self, memory: ReplayMemory, env_ids: np.ndarray) -> None:
        if len(env_ids):
            frames = self._noise(len(env_ids))
            self.oracle.begin(frames, env_ids.tolist())
            memory.begin(self.observations.encode(frames), env_ids)

    def close_episodes(self, memory: ReplayMemory) -> None:
        """Close all episodes, so that the next steps follow any generation that ``memory`` has."""
        memory.inner.core.close_episodes()

    def read_all(self, memory: ReplayMemory) -> None:
        """Read every transition until no more damage is found."""
        while len(memory):
            try:
                memory.get(memory.sampleable_indices())
            except NothingToSampleError:
                continue
            return

    def assert_is_part(self, memory: ReplayMemory) -> set[int]:
        """Raise unless the sampleable transitions equal the recording; return their numbers.

        A return may have fewer rewards than recorded, if its next step is lost and the episode ends there.
        """
        memory.inner.parts.check()
        indices = memory.sampleable_indices()
        if not len(indices):
            return set()
        batch = memory.get(indices)
        numbers = batch.extras["number"].tolist()
        assert len(set(numbers)) == len(numbers), "a transition is there twice"
        there = set(numbers)
        seen, led_to = self.observations.decode(batch.observation), self.observations.decode(batch.next_observation)
        for row, number in enumerate(numbers):
            returned = (
                seen[row].tobytes(),
                led_to[row].tobytes(),
                *(float(batch.reward[row]), float(batch.discount[row]), bool(batch.terminated[row])),
                int(batch.action[row]),
            )
            steps = self.oracle.steps_of(number)
            lengths = [
                length
                for length in range(1, len(steps) + 1)
                if length == len(steps) or int(steps[length].extras["number"]) not in there
            ]
            assert returned in [self._expected(number, length) for length in lengths], f"transition {number} is another"
        return there

    def _expected(self, number: int, length: int) -> tuple[Any, ...]:
        """Return the transition of a step whose return has ``length`` rewards."""
        if (number, length) not in self._known:
            oracle, step = self.oracle, self.oracle.steps[number]
            steps = oracle.steps_of(number)[:length]
            self._known[number, length] = (
                oracle.stacked(step.stretch, step.start).tobytes(),
                oracle.stacked(steps[-1].next_stretch, steps[-1].end).tobytes(),
                float(np.float32(sum(0.99**power * one.reward for power, one in enumerate(steps)))),
                float(np.float32(0.0 if steps[-1].terminated else 0.99**length)),
                steps[-1].terminated,
                step.action,
            )
        return self._known[number, length]

    def _noise(self, num_frames: int) -> np.ndarray:
        return self._random.integers(0, 256, (num_frames, NUM_BYTES), dtype=np.uint8)


def numbers_of(memory: ReplayMemory) -> list[int]:
    indices = memory.sampleable_indices()
    return memory.get(indices).extras["number"].tolist() if len(indices) else []


def cut_off(name: str, num_bytes: int) -> Damage:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: max(0, len(content) - num_bytes)])

    return damage


def flip(name: str, offset: int) -> Damage:
    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[offset] ^= 16
        (folder / name).write_bytes(content)

    return damage


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def both(*damages: Damage) -> Damage:
    def damage(folder: Path) -> None:
        for one in damages:
            one(folder)

    return damage


def blocks_of(folder: Path, log: str) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """Return the files and offsets of each block by track and number, the newest copy last."""
    blocks: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for index in sorted(folder.glob(f"{log}-*.{INDEX}")):
        content = index.read_bytes()[FILE_HEADER_BYTES:]
        for entry in np.frombuffer(content, ENTRY):
            key = int(entry["track"]), int(entry["number"])
            blocks.setdefault(key, []).append((index.with_suffix(".log").name, int(entry["offset"])))
    return blocks


def damages_of(folder: Path) -> dict[str, Damage]:
    """Return every way to damage a store, by name; names do not contain the random id."""
    damages: dict[str, Damage] = {"nothing": lambda _folder: None}
    newest_blocks: dict[str, Damage] = {}
    for log in ("frames", "steps"):
        for path in sorted(folder.glob(f"{log}-*.log")):
            name, size, label = path.name, path.stat().st_size, f"{log}.{path.name.partition('.')[2]}"
            damages[f"a byte missing at the end of {label}"] = cut_off(name, 1)
            damages[f"half of {label} missing"] = cut_off(name, size // 2)
            damages[f"{label} gone"] = remove(name)
            damages[f"{label} empty"] = cut_off(name, size)
        newest: dict[int, int] = {}
        for (env_id, number), blocks in blocks_of(folder, log).items():
            label = f"block {number} of environment {env_id} in {log} flipped"
            damages[label] = both(*(flip(name, offset + 3) for name, offset in blocks))
            if number >= newest.get(env_id, -1):
                newest[env_id] = number
                newest_blocks[f"newest of track {env_id} in {log} flipped"] = damages[label]
        for path in sorted(folder.glob(f"{log}-*.index")):
            damages[f"{log}.{path.name.partition('.')[2]} gone"] = remove(path.name)
    commits = [path.name for path in commit_files(folder)]
    of_small: dict[str, Damage] = {}
    files = {name: [name, *(path.name for path in folder.glob(f"{name}.copy"))] for name in commits}
    for name in commits:
        size = (folder / name).stat().st_size
        of_small[f"front of {name} flipped"] = flip(name, 40)
        of_small[f"state of {name} flipped"] = flip(name, size - 40)
        of_small[f"states of {name} and its copy flipped"] = both(*(flip(file, size - 40) for file in files[name]))
    of_small["newest commit gone"] = remove(commits[-1])
    of_small["newest commit and its copy gone"] = both(*map(remove, files[commits[-1]]))
    of_small["newest commit cut"] = cut_off(commits[-1], 9)
    of_small["all commits flipped"] = both(*(of_small[f"states of {name} and its copy flipped"] for name in commits))
    of_small["all commits gone"] = both(*(remove(file) for of_commit in files.values() for file in of_commit))
    damages |= of_small
    ends = {name: one for name, one in damages.items() if "at the end of" in name}
    for (name, one), (other_name, other) in product(of_small.items(), (newest_blocks | ends).items()):
        damages[f"{name}, {other_name}"] = both(one, other)
    all_newest = both(*newest_blocks.values()) if newest_blocks else damages["nothing"]
    damages["newest of all tracks flipped"] = all_newest
    return damages


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file() and path.name != "LOCK"}
