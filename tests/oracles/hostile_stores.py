"""Small stores that claim to be large, or contradict themselves, with valid checksums everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.store.format import Arrays, Commit, pack_arrays, write_commit
from oracles.store_files import read_commit

Change = Callable[[Commit, Arrays], Commit]


def rewrite(folder: Path, change: Change, generation: int | None = None) -> None:
    """Replace a generation, the newest by default, by what ``change`` makes of its commit and arrays, all sealed."""
    commit, arrays = read_commit(folder, generation)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    changed = change(commit, arrays)
    write_commit(folder, changed, pack_arrays(arrays))


def store_black_frames(folder: Path, side: int = 8, num_steps: int = 3, **settings: Any) -> ReplayMemory:
    """Save a memory of black pictures, which take next to nothing in files."""
    settings = {"stack": 2, "num_envs": 1, "seed": 0, **settings}
    memory = ReplayMemory(settings.pop("capacity", 5_000), FrameSpec((side, side)), 4, **settings)
    black = np.zeros((settings["num_envs"], side, side), np.uint8)
    never = np.zeros(settings["num_envs"], np.bool_)
    memory.begin(black)
    for _ in range(num_steps):
        memory.append(never.astype(int), never.astype(float), never, never, black)
    memory.save(folder)
    return memory


def _set(**values: Any) -> Change:
    """Change settings in the commit alone."""

    def change(commit: Commit, _arrays: Arrays) -> Commit:
        settings = commit.memory["settings"] | values
        length = values.get("frames_per_segment", commit.frames_per_segment)
        return commit._replace(memory=commit.memory | {"settings": settings}, frames_per_segment=length)

    return change


def _many_environments(number: int, **values: Any) -> Change:
    """Claim environments without frames, each with an entry in every array that has one for each."""

    def change(commit: Commit, arrays: Arrays) -> Commit:
        for name, array in arrays.items():
            if array.shape == (1,) and name.startswith(("steps.", "frames.")) and name not in OF_EPISODES:
                fill = -1 if name == "steps.newest_positions" else 0
                arrays[name] = np.append(array, np.full(number - 1, fill, array.dtype))
        return _set(num_envs=number, **values)(commit, arrays)

    return change


def _empty_blocks(number: int, length: int) -> Change:
    """Claim sealed blocks of steps without a step."""

    def change(commit: Commit, arrays: Arrays) -> Commit:
        ascending = np.arange(number)
        for name, before in (
            ("numbers", ascending),
            ("segments", ascending),
            ("env_ids", np.zeros(number, int)),
            ("num_steps", np.zeros(number, int)),
            ("are_sealed", np.ones(number, bool)),
        ):
            last = arrays[f"blocks.{name}"][-1:]
            arrays[f"blocks.{name}"] = np.append(before, last + number if before is ascending else last).astype(
                last.dtype
            )
        del arrays["blocks.first_slots"]
        arrays["blocks.next_number"][:] = number + 1
        arrays["steps.newest_positions"] += number * length
        arrays["frames.next_positions"] += number * length
        for name in "steps.episode_starts", "steps.run_starts":
            arrays[name][:] = arrays["steps.newest_positions"]
        return commit

    return change


OF_EPISODES = "steps.oldest_episodes", "steps.episode_frames"
FRAME = {"shape": [2**14, 2**15], "dtype": "uint8", "is_scaled": False}
CLAIMS: dict[str, tuple[dict[str, Any], Change]] = {
    "a million environments": ({}, _set(num_envs=10**6, capacity=10**6)),
    "10**12 environments": ({}, _set(num_envs=10**12, capacity=10**12)),
    "20,000 environments with entries": ({}, _many_environments(20_000, capacity=20_000, stack=200)),
    "stack 256": ({}, _set(stack=256)),
    "frames of 512 MiB": ({}, _set(frame=FRAME)),
    "capacity 2**40": ({}, _set(capacity=2**40)),
    "capacity 2**62": ({"max_bytes": 2**20}, _set(capacity=2**62)),
    "capacity 2**40 with priorities": ({"sampler": Prioritized()}, _set(capacity=2**40)),
    "n_step 255": ({}, _set(n_step=255)),
    "extras of 64 KiB": ({}, _set(extras={"e": ["float32", [16_384]]})),
    "actions of 2**40 numbers": ({}, _set(action={"shape": [2**40], "dtype": "int64", "low": 0, "high": 3})),
    "max_bytes 2**60": ({}, _set(max_bytes=2**60)),
    "max_bytes 1": ({}, _set(max_bytes=1)),
    "segments of 2**24 frames": ({}, _set(frames_per_segment=2**24)),
    "as many labels as environments": ({}, _set(num_envs=10**5, labels=["x"] * 10**5, capacity=10**6)),
    "raw black frames": ({"storage": "raw", "side": 512, "num_steps": 300, "frames_per_segment": 64}, _set()),
    "a stack of 64 black frames": ({"side": 1024, "stack": 64}, _set()),
    "blocks without steps": (
        {"retention": "random", "capacity": 10**7, "frames_per_segment": 2**15},
        _empty_blocks(2_000, 2**15),
    ),
}
"""By name, how to store a few black frames, and what is changed then."""


def store_claim(name: str, folder: Path) -> None:
    """Save one of ``CLAIMS`` to ``folder``."""
    how, change = CLAIMS[name]
    store_black_frames(folder, **how)
    rewrite(folder, change)
