"""Small memories that were saved once, and the plays that they hold.

::

    stores/FORMAT/NAME/         what ReplayMemory.save wrote, by the version of the store's format
    stores/FORMAT/draws.json    what each memory draws next: indices of the three batches after it was saved

`make golden` writes the folder of today's format only. That of a released format is never written again: its stores
are what the readers of later versions are tested with.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from frames.test_codec import colours_of_every_operation, frames_of_every_operation
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.store.format import VERSION
from oracles.evicting_memory import EvictingListMemory, ObservedMemory
from oracles.list_memory import ListMemory
from oracles.observations_of_bytes import NUM_BYTES, SPACE, MemoryOfBytes

FORMATS = Path(__file__).parent / "stores"
STORES = FORMATS / str(VERSION)
DRAWS = "draws.json"
BATCH_SIZES = (8, 1, 5)  # of what is drawn after a memory was saved
SAMPLED_BEFORE = 5  # so that a memory's generator has moved on

Frames = Callable[[int, int], np.ndarray]  # of an environment and how many frames it has had
Play = tuple["ReplayMemory | MemoryOfBytes", "ListMemory | GivenSteps"]


class GivenSteps(NamedTuple):
    """Steps as ``add`` got them, by their index: the arguments of ``add`` without ``env_ids``."""

    steps: list[tuple[Any, ...]]


def pixels(env_id: int, number: int) -> np.ndarray:
    """A dot that walks over a picture of 20 x 30."""
    frame = np.full((20, 30), 40 + 3 * env_id, np.uint8)
    frame[number % 20, (7 * number) % 30] = number % 251
    return frame


def colours(env_id: int, number: int) -> np.ndarray:
    return ((np.arange(60) * (number % 5 + 1) + env_id) % 256).astype(np.uint8).reshape(5, 4, 3)


def walking_square(env_id: int, number: int) -> np.ndarray:
    """A square of one colour that walks over a gradient."""
    frame = np.empty((10, 12, 3), np.uint8)
    frame[:] = np.arange(36).reshape(12, 3) * (env_id + 5)
    frame[number % 8 : number % 8 + 3, number % 9 : number % 9 + 4] = (200, number % 251, 30)
    return frame


def scaled(env_id: int, number: int) -> np.ndarray:
    """Pixels over 255, and every seventh frame something else."""
    levels = (np.arange(42, dtype=np.float32).reshape(6, 7) + number % 100) / np.float32(255)
    return levels * np.float32(0.7) if number % 7 == 3 else levels


def vectors(env_id: int, number: int) -> np.ndarray:
    return np.array([env_id, number / 3, -number], np.float64)


def bytes_of_arrays(env_id: int, number: int) -> np.ndarray:
    return np.random.default_rng((env_id, number // 3)).integers(0, 256, NUM_BYTES, dtype=np.uint8)


def count_actions(number: int) -> int:
    return number % 4


def arm_actions(number: int) -> np.ndarray:
    return np.array([number / 8, -number], np.float32)


def joint_actions(number: int) -> np.ndarray:
    return np.array([number % 3 - 1, number % 300], np.int64)


def extras_of(number: int) -> dict[str, np.ndarray]:
    return {
        "log_prob": np.array([-number / 8], np.float32),
        "state": np.array([[number, -number]], np.float64),
        "is_greedy": np.array([number % 3 == 0]),
    }


def packed_pixels() -> Play:
    """Two environments, the ring gone round, one episode open and one ended."""
    return _played(700, FrameSpec((20, 30)), pixels, num_envs=2, num_steps=500)


def every_operation() -> Play:
    """One environment, with every kind of operation in its sealed segment."""
    return _played_frames(frames_of_every_operation(), num_steps=260)


def every_operation_on_pixels() -> Play:
    """The same in colour."""
    return _played_frames(colours_of_every_operation(), num_steps=140)


def _played_frames(frame_sequence: np.ndarray, num_steps: int) -> Play:
    options: dict[str, Any] = {"num_envs": 1, "num_steps": num_steps, "frames_per_segment": len(frame_sequence)}
    return _played(
        300,
        FrameSpec(frame_sequence.shape[1:]),
        lambda _, number: frame_sequence[(number - 1) % len(frame_sequence)],
        **options,
    )


def packed_colours() -> Play:
    """Two environments in colour, of several segments each."""
    return _played(300, FrameSpec((10, 12, 3)), walking_square, num_envs=2, num_steps=200, frames_per_segment=64)


def packed_planes() -> Play:
    """The same with channels first."""
    options: dict[str, Any] = {"num_envs": 2, "num_steps": 200, "frames_per_segment": 64}
    return _played(300, FrameSpec((3, 10, 12)), lambda *at: walking_square(*at).transpose(2, 0, 1), **options)


def random_retention() -> Play:
    """Two environments, with segments evicted at random among those that stayed."""
    return _played(300, FrameSpec((20, 30)), pixels, num_envs=2, num_steps=300, retention="random")


def raw_colours() -> Play:
    """One environment, uncompressed, shorter than a segment, padded by zeros."""
    options = {"storage": "raw", "stack_padding": "zeros", "stack": 3}
    return _played(50, FrameSpec((5, 4, 3)), colours, num_envs=1, num_steps=80, **options)


def scaled_floats() -> Play:
    """Three environments of floats, frames among them that are no pixels."""
    return _played(150, FrameSpec((6, 7), np.float32, is_scaled=True), scaled, num_envs=3, num_steps=90)


def vectors_and_arms() -> Play:
    """Vectors of numbers, and actions that are arrays."""
    options = {"action": ActionSpec((2,), "float32"), "actions": arm_actions, "stack": 1}
    return _played(60, FrameSpec((3,), np.float64), vectors, num_envs=2, num_steps=70, **options)


def several_arrays() -> Play:
    """Dicts and tuples of pictures, floats, vectors and numbers, each made from a few bytes."""
    return _played(90, FrameSpec((NUM_BYTES,)), bytes_of_arrays, num_envs=2, num_steps=70, frames_per_segment=16)


def extra_columns() -> Play:
    """Numbers that were declared by name, and actions of several integers."""
    declared = {"log_prob": np.float32, "state": (np.float64, (2,)), "is_greedy": np.bool_}
    action = ActionSpec((2,), "int64", (-1, 0), (1, 299))
    options = {"action": action, "actions": joint_actions, "extras_of": extras_of, "extras": declared, "stack": 2}
    return _played(1200, FrameSpec((20, 30)), pixels, num_envs=1, num_steps=1050, **options)


def just_begun() -> Play:
    """An episode open on one environment, nothing on the other, no step yet."""
    return _played(10, FrameSpec((20, 30)), pixels, num_envs=2, num_steps=0)


def prioritized_pixels() -> Play:
    """Two environments, the ring gone round, drawn by priorities; some are zero, and β is on its way."""
    sampler = Prioritized(alpha=0.5, beta=0.4, final_beta=1.0, annealed_over=10, epsilon=0.0)
    memory, oracle = _played(300, FrameSpec((20, 30)), pixels, num_envs=2, num_steps=250, sampler=sampler)
    stored = memory.sampleable_indices()
    memory.update_priorities(stored, stored % 7)
    memory.sample(SAMPLED_BEFORE)
    return memory, oracle


def stretches_with_their_own_padding() -> Play:
    """Two environments of several stacks, shown by ``add``; stretches begin with lead-ins, zeros and usual padding."""
    space = {"camera": FrameSpec((20, 30, 4)), "joints": FrameSpec((3,), np.float64)}
    space["seen"] = FrameSpec((3, 6, 7), np.float32, is_scaled=True)
    options: dict[str, Any] = {"stack_axis": {"camera": -1, "seen": 0}, "frames_per_segment": 32}
    memory = ReplayMemory(150, space, 4, num_envs=2, discount=0.9, seed=7, **options)
    given = GivenSteps([])
    counts, shown = [0, 0], [[0, 0, 0, 0], [0, 0, 0, 0]]

    def new_frames(env_id: int, count: int) -> list[int]:
        counts[env_id] += count
        return list(range(counts[env_id] - count + 1, counts[env_id] + 1))

    def observed(env_id: int, numbers: list[int]) -> dict[str, np.ndarray]:
        stacks = {
            name: [frame(env_id, number) * (number > 0) for number in numbers]
            for name, frame in (("camera", pixels), ("seen", scaled), ("joints", vectors))
        }
        return {
            "camera": np.stack(stacks["camera"], -1),
            "joints": stacks["joints"][-1],
            "seen": np.stack(stacks["seen"][-3:]),
        }

    for number in range(240):
        env_id = number % 2
        [newest] = new_frames(env_id, 1)
        before, after = shown[env_id], [*shown[env_id][1:], newest]
        following, terminated, truncated = after, False, False
        if number % 7 == 3:  # frames were skipped
            after = following = new_frames(env_id, 4)
        elif number % 11 == 5:  # a reset without a flag, padded with zeros
            following = [0, 0, 0, *new_frames(env_id, 1)]
        elif number % 13 == 6:  # the next observation is that of the next episode
            terminated, after = True, new_frames(env_id, 4)
            following = after
        elif number % 17 == 8:
            truncated, following = True, new_frames(env_id, 1) * 4
        elif number % 19 == 9:  # within its episode a stretch begins with zeros
            after = following = [0, 0, 0, newest]
        shown[env_id] = following
        action, reward = count_actions(number), number / 4
        step = (observed(env_id, before), action, reward, observed(env_id, after), terminated, truncated)
        memory.add(*step, env_ids=env_id)
        given.steps.append(step)
    memory.sample(SAMPLED_BEFORE)
    return memory, given


PLAYS: dict[str, Callable[[], Play]] = {
    play.__name__: play
    for play in (
        *(packed_pixels, raw_colours, scaled_floats, vectors_and_arms, several_arrays, extra_columns, just_begun),
        *(prioritized_pixels, every_operation, every_operation_on_pixels, packed_colours),
        packed_planes,
        random_retention,
        stretches_with_their_own_padding,
    )
}


def loaded(folder: Path, name: str) -> ReplayMemory | MemoryOfBytes:
    """The memory of a golden store in ``folder``, in the form that its play has."""
    memory = ReplayMemory.load(folder / name)
    return MemoryOfBytes(memory) if name == several_arrays.__name__ else memory


def draws_of(memory: ReplayMemory | MemoryOfBytes) -> list[list[int]]:
    return [memory.sample(batch_size).index.tolist() for batch_size in BATCH_SIZES] if len(memory) else []


def write() -> None:
    """Write the stores of today's format again: before its release, after a deliberate change, and never else."""
    shutil.rmtree(STORES, ignore_errors=True)
    draws = {}
    for name, play in PLAYS.items():
        memory, _ = play()
        memory.save(STORES / name)
        (STORES / name / "LOCK").unlink()  # it says who wrote
        draws[name] = draws_of(memory)
    (STORES / DRAWS).write_text(json.dumps(draws, indent=2) + "\n")


def _played(
    capacity: int,
    frame: FrameSpec,
    frames: Frames,
    *,
    num_envs: int,
    num_steps: int,
    action: Any = 4,
    actions: Callable[[int], Any] = count_actions,
    extras_of: Callable[[int], Any] = lambda _: {},
    **options: Any,
) -> Play:
    space = SPACE if frames is bytes_of_arrays else frame
    is_random = options.get("retention") == "random"
    kind, kind_of_oracle = (ObservedMemory, EvictingListMemory) if is_random else (ReplayMemory, ListMemory)
    memory: Any = kind(capacity, space, action, num_envs=num_envs, discount=0.9, seed=7, **{"stack": 4} | options)
    if frames is bytes_of_arrays:
        memory = MemoryOfBytes(memory)
    shape = {"stack": memory.stack, "discount": 0.9, "stack_padding": memory.inner.settings.stack_padding}
    oracle = kind_of_oracle(capacity, num_envs, **shape)
    if is_random:
        memory.observe_evictions(oracle.frames_evicted)
    counts = [0] * num_envs

    def next_frame(env_id: int) -> np.ndarray:
        counts[env_id] += 1
        return frames(env_id, counts[env_id])[None]

    def begin(env_id: int) -> None:
        first = next_frame(env_id)
        memory.begin(first, [env_id])
        oracle.begin(first, [env_id])

    begin(0)
    for step in range(num_steps):
        for env_id in range(num_envs):
            if not oracle.is_open[env_id]:
                begin(env_id)
            number = step * num_envs + env_id
            terminated, truncated = number % 37 == 36, number % 53 == 52
            row = ([actions(number)], [number / 4], [terminated], [truncated], next_frame(env_id), [env_id])
            memory.append(*row, extras_of(number))
            oracle.append(*row, extras_of(number))
    if num_steps:
        memory.sample(SAMPLED_BEFORE)
    return memory, oracle
