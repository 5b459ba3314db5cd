"""Memories that are awkward to draw from; each maker takes a folder, and what makes the sampler that it draws by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from framestow.errors import NothingToSampleError
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.sampler import Sampler
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode
from oracles.store_files import log_file

MakeSampler = Callable[[], Sampler]


def not_yet_full(_folder: Path, make_sampler: MakeSampler) -> ReplayMemory:
    memory = numbered_memory(1000, sampler=make_sampler())
    for episode in range(9):
        play_episode(memory, episode, length=1 + 7 * episode % 20, truncated=True)
    return memory


def with_one_transition(_folder: Path, make_sampler: MakeSampler) -> ReplayMemory:
    memory = numbered_memory(1, sampler=make_sampler())
    play_episode(memory, episode=0, length=5)
    return memory


def five_envs_at_different_rates(_folder: Path, make_sampler: MakeSampler, seed: int = 0) -> ReplayMemory:
    """Environment s plays in one round of s + 1, and the ring is swept twice."""
    memory = numbered_memory(150, num_envs=5, sampler=make_sampler(), seed=seed)
    for number in range(120):
        for env_id in range(5):
            if number % (env_id + 1) == 0:
                play_episode(memory, number, length=1 + number % 3, env_id=env_id, terminated=number % 2 == 0)
    return memory


def with_pending_steps(_folder: Path, make_sampler: MakeSampler) -> ReplayMemory:
    """Three open episodes whose newest two steps are pending, among others that ended; the ring has wrapped."""
    memory = numbered_memory(90, num_envs=3, n_step=3, sampler=make_sampler())
    for episode in range(20):
        for env_id in range(3):
            play_episode(memory, episode, length=1 + (episode + env_id) % 6, env_id=env_id, truncated=True)
    play_open_episodes(memory, length=7)
    return memory


def nearly_all_pending(_folder: Path, make_sampler: MakeSampler) -> ReplayMemory:
    """Of 40 environments one has ended its episode; each other one has 30 steps, of which at least 27 are pending."""
    memory = numbered_memory(2000, num_envs=40, n_step=29, sampler=make_sampler())
    play_open_episodes(memory, length=30)
    memory.begin(numbered_frame(0, 1, 0)[None], [0])
    return memory


def with_holes(_folder: Path, make_sampler: MakeSampler) -> ReplayMemory:
    """Random retention: segments of 16 frames have left everywhere."""
    memory = numbered_memory(300, num_envs=2, retention="random", sampler=make_sampler(), frames_per_segment=16)
    for episode in range(100):
        for env_id in range(2):
            play_episode(memory, episode, length=1 + (7 * episode + env_id) % 23, env_id=env_id, truncated=True)
    return memory


def with_lost_frames(folder: Path, make_sampler: MakeSampler) -> ReplayMemory:
    return damaged(folder, make_sampler, num_changed=25)


def nearly_all_lost(folder: Path, make_sampler: MakeSampler) -> ReplayMemory:
    return damaged(folder, make_sampler, num_changed=250)


def loaded(folder: Path, make_sampler: MakeSampler) -> ReplayMemory:
    five_envs_at_different_rates(folder, make_sampler).save(folder)
    return ReplayMemory.load(folder, sampler=make_sampler())


def switched(folder: Path, make_sampler: MakeSampler) -> ReplayMemory:
    """A memory that lived with another sampler first, and went on with this one."""
    memory = five_envs_at_different_rates(folder, lambda: None)
    memory.sample(10)
    memory.sampler = make_sampler()
    for episode in range(120, 140):
        play_episode(memory, episode, length=2, env_id=episode % 5, truncated=True)
    return memory


MEMORIES = [
    not_yet_full,
    with_one_transition,
    five_envs_at_different_rates,
    with_holes,
    with_lost_frames,
    nearly_all_lost,
    loaded,
    switched,
    with_pending_steps,
    nearly_all_pending,
]


def play_open_episodes(memory: ReplayMemory, length: int) -> None:
    """One more episode of every environment, side by side, which goes on."""
    env_ids = range(memory.num_envs)
    memory.begin(np.stack([numbered_frame(env_id, 99, 0) for env_id in env_ids]))
    nothing = [False] * memory.num_envs
    for step in range(length):
        frames = np.stack([numbered_frame(env_id, 99, step + 1) for env_id in env_ids])
        memory.append([step] * memory.num_envs, [step] * memory.num_envs, nothing, nothing, frames)


def damaged(folder: Path, make_sampler: MakeSampler, num_changed: int) -> ReplayMemory:
    """Opened to be read after that many of its bytes were changed, and every damaged segment was skipped."""
    with numbered_memory(1000, directory=folder, flush_every=None, frames_per_segment=16) as memory:
        for episode in range(60):
            play_episode(memory, episode, length=20, truncated=True)
    log = log_file(folder, "frames")
    content = np.fromfile(log, np.uint8)
    content[np.random.default_rng(4).choice(len(content), num_changed, replace=False)] ^= 1
    content.tofile(log)
    memory = ReplayMemory.open(folder, on_damage="skip", sampler=make_sampler(), seed=0)
    while True:
        try:
            memory.get(memory.sampleable_indices())
        except NothingToSampleError:  # some were damaged, and are not there now
            continue
        return memory
