"""Two readers draw differently, unless they are given the same seed."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framestow.distributed import ShardedReplay, start_local_shards
from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.integrations.classic import MemoryEfficientAtariBuffer, ReplayBuffer
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.hindsight import HindsightGoals
from framestow.replay.samplers.by_age import ByAge
from framestow.replay.samplers.emphasize_recent import EmphasizeRecent
from framestow.replay.samplers.mixture import Mixture
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.uniform import Uniform
from oracles.chi_square import chi_square, chi_square_bound
from oracles.goal_play import GoalPlay
from oracles.numbered_steps import SHAPE, numbered_memory, play_episode
from oracles.readers import (
    NUM_BATCHES,
    NUM_READERS,
    Make,
    assert_drawn_differently,
    assert_forked_processes_draw_differently,
    drawn,
    drawn_from,
    forked,
    save_transitions,
)
from oracles.start_methods import every_start_method

AT_RANDOM = {"retention": "random", "frames_per_segment": 16}

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("readers") / "store"
    save_transitions(folder)
    return folder


def opened(folder: Path) -> list[np.ndarray]:
    return [drawn_from(folder) for _ in range(NUM_READERS)]


def reopened(folder: Path) -> list[np.ndarray]:
    """A learner that opens the store again every twenty batches, to see what was written meanwhile."""
    return [drawn(ReplayMemory.open(folder), 20) for _ in range(NUM_READERS * NUM_BATCHES // 20)]


def loaded_with_seeds(folder: Path) -> list[np.ndarray]:
    return [drawn(ReplayMemory.load(folder, seed=seed)) for seed in range(NUM_READERS)]


def parent_and_children(folder: Path) -> list[np.ndarray]:
    memory = ReplayMemory.load(folder)
    children = [forked(partial(drawn, memory)) for _ in range(NUM_READERS - 1)]
    return [*children, drawn(memory)]


@pytest.mark.parametrize(
    "readers", [opened, reopened, loaded_with_seeds, pytest.param(parent_and_children, marks=needs_fork)]
)
def test_readers_of_a_store_draw_differently(readers, store):
    assert_drawn_differently(np.concatenate(readers(store)))


@pytest.mark.parametrize("method", every_start_method())
def test_processes_that_open_a_store_draw_differently(method, store):
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert_drawn_differently(np.concatenate(pool.map(drawn_from, [store] * NUM_READERS)))


def test_readers_with_the_same_seed_draw_the_same(store, tmp_path):
    save_transitions(tmp_path)
    resume = partial(ReplayMemory.open, tmp_path, read_only=False, flush_every=None)

    def draws_by(seed: int) -> list[list[list[int]]]:
        with resume(seed=seed) as resumed:
            memories = [ReplayMemory.open(store, seed=seed), ReplayMemory.load(store, seed=np.int64(seed)), resumed]
            return [drawn(memory, 3).tolist() for memory in memories]

    as_saved = drawn(ReplayMemory.load(store), 3).tolist()  # with the seed 0, before its first draw
    assert [as_saved] * 3 == draws_by(0) == draws_by(0)
    assert draws_by(1) == draws_by(1)
    assert as_saved not in draws_by(1)


@pytest.mark.parametrize("seed", [-1, 0.5, "0", True])
@pytest.mark.parametrize("read", [ReplayMemory.open, ReplayMemory.load, partial(ReplayMemory.open, read_only=False)])
def test_a_wrong_seed_is_refused_before_the_folder_is_read(read, seed, tmp_path):
    with pytest.raises(InvalidSettingsError, match=r"seed is .*: it must be a whole number from 0 up"):
        read(tmp_path / "nothing", seed=seed)


def test_a_loaded_memory_evicts_as_its_seed_says(tmp_path):
    filled(**AT_RANDOM).save(tmp_path)

    def evicted(**options: int) -> list[int]:
        return play_on(ReplayMemory.load(tmp_path, **options))

    assert evicted(seed=1) == evicted(seed=1)
    assert evicted() == evicted()
    assert len({str(evicted()), str(evicted(seed=1)), str(evicted(seed=2))}) == 3


def filled(**settings: Any) -> ReplayMemory:
    memory = numbered_memory(300, num_envs=2, **settings)
    for episode in range(30):
        for env_id in range(2):
            play_episode(memory, episode, length=5, env_id=env_id, truncated=True)
    return memory


def play_on(memory: ReplayMemory) -> list[int]:
    """Play until segments are evicted at random; return what is left."""
    for episode in range(30):
        play_episode(memory, episode, length=5, truncated=True)
    return memory.sampleable_indices().tolist()


def of_memory(draw: Callable[[ReplayMemory], Any], **settings: Any) -> Callable[[], Any]:
    return partial(draw, filled(**settings))


def by(make_sampler: Callable[[], Any]) -> Make:
    return lambda: of_memory(indices, sampler=make_sampler())


def indices(memory: ReplayMemory) -> np.ndarray:
    return memory.sample(32).index


def with_new_goals() -> Callable[[], Any]:
    """Every transition gets a new goal; of these the draw is."""
    play = GoalPlay().play(100)
    hindsight = HindsightGoals(play.memory, lambda achieved, desired, info: np.zeros(len(achieved)), share=1.0)
    return lambda: hindsight.sample(16).observation["desired_goal"]


def of_shards() -> Callable[[], Any]:
    """How many rows of each batch the second shard gives, which the replay's own generator draws."""
    replay = ShardedReplay(100, FrameSpec(SHAPE), 256, shards=2, num_envs=2, stack=2, seed=0, start=start_local_shards)
    play_episode(replay, 0, length=30, env_id=0, truncated=True)
    play_episode(replay, 0, length=17, env_id=1, truncated=True)
    replay.flush()
    return lambda: [replay.sample(5).observation[:, -1, 0, 0].sum() for _ in range(20)]


def of_an_atari_buffer() -> Callable[[], Any]:
    buffer = MemoryEfficientAtariBuffer(capacity=100, stacked_frames=2, seed=0)
    frames = np.zeros((2, 8, 8), np.uint8)
    for step in range(100):
        buffer.append((frames, step, 0.0, 1.0, frames, {}))
    buffer = pickle.loads(pickle.dumps(buffer))  # as other processes get it
    return lambda: [experience[1] for experience in buffer.sample(16)[0]]


def of_a_frame_history() -> Callable[[], Any]:
    buffer = ReplayBuffer(100, 2, seed=0)
    for step in range(90):
        slot = buffer.store_frame(np.zeros((8, 8, 1), np.uint8))
        buffer.store_effect(slot, step, 0.0, False)
    return lambda: buffer.sample(16)[1]


MAKERS: dict[str, Make] = {
    "uniform": lambda: of_memory(indices),
    "prioritized": by(Prioritized),
    "recent": by(EmphasizeRecent),
    "by age": by(lambda: ByAge(half_life=50)),
    "mixture": by(lambda: Mixture((Uniform(), 0.5), (Prioritized(), 0.5))),
    "ahead": lambda: of_memory(lambda memory: memory.draw_ahead(32).unpack().index),
    "sequences": lambda: of_memory(lambda memory: memory.sample_sequences(16, 3).index),
    "episodes": lambda: of_memory(lambda memory: memory.sample_episodes(16).index),
    "goals": with_new_goals,
    "evictions": lambda: of_memory(play_on, **AT_RANDOM),
    "shards": of_shards,
    "Atari buffer": of_an_atari_buffer,
    "frame history": of_a_frame_history,
}


@needs_fork
def test_each_forked_process_draws_differently_and_in_the_same_way_in_every_run():
    assert_forked_processes_draw_differently(MAKERS)


@needs_fork
def test_forked_processes_together_draw_every_transition_equally_often():
    memory = filled(seed=3)
    held = memory.sampleable_indices()

    batches = np.concatenate([forked(partial(drawn, memory)) for _ in range(6)])

    counts = np.bincount(np.searchsorted(held, batches.ravel()), minlength=len(held))
    assert 6 * NUM_BATCHES * 32 == counts.sum()
    assert chi_square(counts) < chi_square_bound(len(held) - 1)
