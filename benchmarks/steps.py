"""Measure a step compared with packing its frame, and a batch compared with reading its windows.

    python benchmarks/steps.py                   Breakout, results/steps.json
    python benchmarks/steps.py --game pong       another game, printed only

Frames: 20,000 of sticky random play (atari_frames.py), recorded once. A memory of 84x84 frames, stack 4, is filled
until its ring has wrapped, so that every append also evicts a transition. An append gets arrays as Gymnasium returns
them (int64 actions, float64 rewards, bool flags), or lists of Python numbers, as in a loop over one environment. In
turn with it, a bare packed store takes the same frames, and add takes whole observations of one environment: stacks of
4 on the first axis or the last, and a Dict of such a picture and a vector of 17 floats. append of whole observations
takes the next ones alone. In turn with sample(32), a bare store reads 32 windows of 5 into a reused output; with
returns of 3 steps, 32 windows of 7. Medians of single calls, so that other work of the machine hardly affects them;
neither includes sealing a segment, once in 64 frames.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atari_frames import FRAME_SIDE, GAMES, recorded
from figures import publish
from framestow import ReplayMemory
from framestow._core import FrameStore
from framestow.benchmarking.timing import measure_turns
from framestow.frames.frame_spec import FrameSpec

CAPACITY = 20_000  # transitions
STACK, BATCH = 4, 32
N_STEP = 3  # rewards per return, for n-step returns
SHAPE = (FRAME_SIDE, FRAME_SIDE)
NUM_BATCHES = 257  # different batches of the bare store


def bare_store(num_envs: int) -> FrameStore:
    return FrameStore(num_envs, [(FRAME_SIDE, FRAME_SIDE, 1)])


def rows_of(frames: NDArray[np.uint8], num_envs: int) -> list[NDArray[np.uint8]]:
    """Yield ``(num_envs, 84, 84)`` per step, each environment from another frame of the game."""
    starts = np.arange(num_envs) * (len(frames) // num_envs)
    return [frames[(starts + step) % len(frames)] for step in range(len(frames) // num_envs)]


def appending(memory: ReplayMemory, rows: list[NDArray[np.uint8]], as_lists: bool) -> Callable[[], object]:
    """Return a call that stores one step of every environment, with occasional ends of episodes."""
    count = memory.num_envs
    going = np.zeros(count, np.bool_)
    steps = [(np.full(count, step % 4), np.full(count, step % 3 - 1.0), going, going) for step in range(12)]
    calls = cycle([tuple(column.tolist() for column in step) for step in steps] if as_lists else steps)
    frames = cycle(rows)
    memory.begin(rows[0])
    return lambda: memory.append(*next(calls), next(frames))


def adding(frames: NDArray[np.uint8], axis: int, has_vector: bool = False) -> Callable[[], object]:
    """Return a call that adds one step of one environment, given with whole observations."""
    count = len(frames) - STACK
    observations: list[Any] = [np.ascontiguousarray(np.stack(frames[t : t + STACK], axis)) for t in range(count)]
    space: Any = FrameSpec(observations[0].shape)
    if has_vector:
        vectors = np.random.default_rng(0).random((count, 17), np.float32)
        observations = [{"picture": one, "vector": vectors[t]} for t, one in enumerate(observations)]
        space = {"picture": space, "vector": FrameSpec((17,), np.float32)}
    memory = ReplayMemory(CAPACITY, space, 4, seed=0)
    steps = cycle(range(count - 1))

    def add() -> None:
        t = next(steps)
        memory.add(observations[t], t % 4, t % 3 - 1.0, observations[t + 1], False, t == count - 2)

    return add


def appending_whole(frames: NDArray[np.uint8]) -> Callable[[], object]:
    """Return a call that appends one step of one environment with its next observation."""
    observations = [np.ascontiguousarray(frames[t : t + STACK])[None] for t in range(len(frames) - STACK)]
    memory = ReplayMemory(CAPACITY, FrameSpec((STACK, *SHAPE)), 4, seed=0)
    steps = cycle(range(len(observations) - 1))

    def append() -> None:
        t = next(steps)
        if t == 0:
            memory.begin(observations[0])
        memory.append([t % 4], [t % 3 - 1.0], [False], [False], observations[t + 1])

    return append


def packing(num_envs: int, rows: list[NDArray[np.uint8]]) -> Callable[[], object]:
    """Return a call that appends the same frames to a bare store of the memory's length."""
    store, env_ids, frames = bare_store(num_envs), np.arange(num_envs, dtype=np.int32), cycle(rows)
    kept = CAPACITY // num_envs

    def pack() -> None:
        store.append(env_ids, next(frames))
        next_position = store.next_position(0)
        if next_position % 64 == 0:
            for env_id in range(num_envs):
                store.evict(env_id, next_position - kept)

    for _ in range(kept):
        pack()
    return pack


def reading(frames: NDArray[np.uint8], n_step: int = 1) -> Callable[[], object]:
    store, zeros = bare_store(1), np.zeros(BATCH, np.int32)
    for frame in frames[:CAPACITY]:
        store.append(zeros[:1], frame[None])
    random, length = np.random.default_rng(0), STACK + n_step
    lasts = cycle(random.integers(STACK - 1 + n_step, CAPACITY, (NUM_BATCHES, BATCH)))
    env_ids, counts = np.zeros(BATCH, np.int32), np.full(BATCH, length, np.int32)
    out = np.empty((BATCH, length, *SHAPE), np.uint8)
    return lambda: store.windows(env_ids, next(lasts), counts, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=GAMES, default="breakout")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()

    frames = recorded(arguments.game)
    candidates: dict[str, Callable[[], object]] = {}
    kinds = (1, False, 1), (1, False, N_STEP), (1, True, 1), (8, False, 1), (8, False, N_STEP)
    for num_envs, as_lists, n_step in kinds:
        rows = rows_of(frames, num_envs)
        memory = ReplayMemory(CAPACITY, FrameSpec(SHAPE), 4, stack=STACK, num_envs=num_envs, n_step=n_step, seed=0)
        append = appending(memory, rows, as_lists)
        for _ in range(CAPACITY // num_envs + 100):
            append()
        given = ("lists" if as_lists else "arrays") + (f", n_step: {n_step}" if n_step > 1 else "")
        candidates[f"append, environments: {num_envs}, {given}"] = append
        if not as_lists and n_step == 1:
            candidates[f"packing alone, environments: {num_envs}"] = packing(num_envs, rows)
    some = frames[: len(frames) // 10]  # whole observations take five times as many bytes
    whole: dict[str, Callable[[], object]] = {
        "add, first axis": adding(some, 0),
        "add, last axis": adding(some, -1),
        "add, Dict": adding(some, 0, has_vector=True),
        "append, whole observations": appending_whole(some),
    }
    for store in whole.values():
        for _ in range(CAPACITY + 100):
            store()
    candidates |= whole
    for n_step, name in ((1, ""), (N_STEP, f", n_step: {N_STEP}")):
        sampled = ReplayMemory(CAPACITY, FrameSpec(SHAPE), 4, stack=STACK, n_step=n_step, seed=0)
        fill = appending(sampled, rows_of(frames, 1), as_lists=False)
        for _ in range(CAPACITY):
            fill()
        candidates[f"sample({BATCH}){name}"] = partial(sampled.sample, BATCH)
        candidates[f"reading alone{name}"] = reading(frames, n_step)

    turns = measure_turns(candidates, arguments.rounds, calls=50)
    medians = {name: 1e6 * float(np.median(times)) for name, times in turns.items()}  # of single calls
    packing_1, packing_8 = (medians[f"packing alone, environments: {count}"] for count in (1, 8))
    beside = {"append of lists, 1 environment": medians["append, environments: 1, lists"] - packing_1}
    for name in ("", f", n_step: {N_STEP}"):
        beside[f"append, 1 environment{name}"] = medians[f"append, environments: 1, arrays{name}"] - packing_1
        beside[f"append, 8 environments, a step{name}"] = (
            medians[f"append, environments: 8, arrays{name}"] - packing_8
        ) / 8
        beside[f"sample({BATCH}){name}"] = medians[f"sample({BATCH}){name}"] - medians[f"reading alone{name}"]
    times_append = {name: medians[name] / medians["append, environments: 1, arrays"] for name in whole}
    figures = {"microseconds": medians, "microseconds_beside": beside, "times_append": times_append}
    publish("steps", {"game": arguments.game, **figures}, arguments.game == parser.get_default("game"))


if __name__ == "__main__":
    main()
