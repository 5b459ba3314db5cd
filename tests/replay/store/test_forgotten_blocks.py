"""A store gives back exactly what a running memory has after whole blocks of steps were forgotten."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from framestow import FrameSpec, ReplayMemory
from framestow.replay.steps.ring_steps import STEPS_PER_BLOCK
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.damaged_stores import blocks_of, flip
from oracles.list_memory import ListMemory

SHAPE, CAPACITY, NUM_ENVS, IDLE = (2, 2), 4_300, 3, 2


class Play:
    """Three environments, of which the last one idles for long, in a memory and in the oracle."""

    def __init__(self, folder: Path, seed: int, **settings) -> None:
        self.folder, self.random, self.settings = folder, np.random.default_rng(seed), settings
        self.capacity = CAPACITY if settings["retention"] == "fifo" else 4 * CAPACITY  # the oracle evicts the oldest
        self.memory = self.reopened()
        self.oracle = ListMemory(self.capacity, NUM_ENVS, 2, 0.99, n_step=settings["n_step"])
        self.indices: list[int] = []  # of the oracle's steps in the memory

    def reopened(self) -> ReplayMemory:
        """Resume the memory as a new run does, which closes its episodes."""
        own = {"directory": self.folder, "flush_every": None, "frames_per_segment": 64, "seed": 0} | self.settings
        return ReplayMemory(self.capacity, FrameSpec(SHAPE), 4, stack=2, num_envs=NUM_ENVS, **own)

    def resume(self) -> None:
        self.memory.close()
        self.memory = self.reopened()
        self.oracle.is_open = [False] * NUM_ENVS

    def frames(self, env_ids: list[int]) -> np.ndarray:
        return self.random.integers(0, 256, (len(env_ids), *SHAPE), np.uint8)

    def begin(self, env_ids: list[int]) -> None:
        frames = self.frames(env_ids)
        self.memory.begin(frames, env_ids)
        self.oracle.begin(frames, env_ids)

    def step_to(self, num_steps: int, env_ids: list[int]) -> None:
        """Step until so many steps were made; some episodes end, with a flag or by a reset."""
        while len(self.indices) < num_steps:
            now = env_ids[: num_steps - len(self.indices)]
            if reset := [env_id for env_id in now if not self.oracle.is_open[env_id] or self.random.random() < 0.01]:
                self.begin(reset)
            actions, rewards = self.random.integers(0, 4, len(now)), self.random.normal(size=len(now))
            terminated, truncated = self.random.random((2, len(now))) < 0.005
            step = actions, rewards, terminated, truncated, self.frames(now), now
            self.indices += self.memory.append(*step).tolist()
            self.oracle.append(*step)

    def forget(self, steps: range) -> None:
        assert self.memory.forget([self.indices[step] for step in steps]) > 0
        self.oracle.forget(list(steps))

    def expected(self) -> list[int]:
        return sorted(self.indices[step] for step in self.oracle.held)


def seen_of(memory: ReplayMemory) -> dict[str, object]:
    """Everything that a memory shows of its steps."""
    memory.inner.parts.check()
    indices = memory.sampleable_indices()
    batch, episodes = memory.get(indices), list(memory.episodes())
    columns = {name: np.array(getattr(batch, name)) for name in ("observation", "action", "reward", "next_observation")}
    return columns | {
        "indices": indices,
        "discount": np.array(batch.discount),
        "returns": memory.returns_to_go(indices),
        "sequences": np.array(memory.steps_from(indices, 7).index),
        "episodes": [(one.env_id, one.indices.tolist(), one.has_beginning, one.has_end) for one in episodes],
        "policy": (memory.open_episodes, memory.observations()),
        "skipped": memory.report().skipped_transitions,
    }


def played(folder: Path, n_step: int, retention: str) -> Play:
    """Before each block episodes end without a flag, by a reset or by a resume; the newest steps evict the oldest."""
    play = Play(folder, seed=n_step, n_step=n_step, retention=retention)
    play.step_to(100, [0, 1, IDLE])  # in the middle of an episode
    for block in (1, 2, 3, 4):
        play.step_to(block * STEPS_PER_BLOCK, [0, 1])
        play.begin([0, 1]) if block < 3 else play.resume()
    play.begin([IDLE])
    play.step_to(5 * STEPS_PER_BLOCK - 100, [0, 1, IDLE])
    return play


@pytest.mark.each_value
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("n_step", [1, 2, 3, 5])
def test_forgotten_blocks_cost_no_other_step_in_a_store(n_step, retention, tmp_path):
    play, elsewhere = played(tmp_path / "home", n_step, retention), tmp_path / "elsewhere"
    for block in (1, 3):
        play.forget(range(block * STEPS_PER_BLOCK, (block + 1) * STEPS_PER_BLOCK))
        play.memory.flush()
        play.memory.save(elsewhere)

        expected = seen_of(play.memory)

        assert play.expected() == expected["indices"].tolist()
        assert expected["skipped"] == 0
        for given_back in (ReplayMemory.load(elsewhere), ReplayMemory.open(elsewhere), ReplayMemory.open(play.folder)):
            np.testing.assert_equal(seen_of(given_back), expected)
        assert verify_store(elsewhere).is_intact
        play.resume()
        play.step_to(len(play.indices) + 40, [0, 1, IDLE])
        assert play.expected() == play.memory.sampleable_indices().tolist()
    if retention == "fifo":
        assert_memory_is_what_the_oracle_holds(play.memory, play.oracle)
    play.memory.close()


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_a_damaged_block_of_forgotten_steps_costs_nothing(retention, tmp_path):
    play, folder = played(tmp_path / "home", 3, retention), tmp_path / "elsewhere"
    gone = range(STEPS_PER_BLOCK, 2 * STEPS_PER_BLOCK)
    play.forget(gone)
    play.memory.save(folder)
    expected = seen_of(play.memory)
    block = next(play.memory.inner.steps.blocks_of(np.array([play.indices[gone[300]]])))
    ((name, offset),) = blocks_of(folder, "steps")[block]
    flip(name, offset + 3)(folder)

    assert not verify_store(folder).is_intact
    repair_store(folder)

    repaired = ReplayMemory.load(folder)
    np.testing.assert_equal(seen_of(repaired), expected)
    repaired.save(folder)  # without the block
    np.testing.assert_equal(seen_of(ReplayMemory.load(folder)), expected)
    play.memory.close()


def test_a_loaded_memory_with_forgotten_blocks_evicts_the_same_steps(tmp_path):
    settings = {"stack": 1, "num_envs": 8, "n_step": 3, "max_bytes": 2**20, "seed": 0}
    memory, zeros = ReplayMemory(10**6, FrameSpec((4, 4)), 4, **settings), np.zeros(8, int)
    memory.begin(np.zeros((8, 4, 4), np.uint8))
    memories = [memory]

    def play(num_calls: int) -> None:
        random = np.random.default_rng(0)
        for _ in range(num_calls):
            frames = random.integers(0, 256, (8, 4, 4), np.uint8)
            for each in memories:
                each.append(zeros, zeros, zeros > 0, zeros > 0, frames)
            stored = {(len(each), *each.sampleable_indices()[:1].tolist()) for each in memories}
            assert len(stored) == 1

    play(4_000)
    first = memory.sampleable_indices()[0] // STEPS_PER_BLOCK + 1
    assert first > 1
    memory.forget(np.arange(first * STEPS_PER_BLOCK, (first + 2) * STEPS_PER_BLOCK))
    memory.save(tmp_path)
    memories.append(ReplayMemory.load(tmp_path))
    play(600)
