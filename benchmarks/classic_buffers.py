"""Measure the bytes and times of nnabla-rl's and Berkeley's buffer calls, over a packed memory and over a plain buffer.

    python benchmarks/classic_buffers.py                            both, two games, results/classic_buffers.json

Recorded frames (atari_frames.py: 20,000 of random play, 84x84 grey) go into framestow's buffer and into a plain one
with the behaviour of the original (plain_classics.py). Berkeley's takes single frames ``(84, 84, 1)``, and the newest
observation is read between a frame and its effect. nnabla-rl's takes stacks of four floats, k / 255, with an info of
two numbers. Both store --transitions, and are full before the timing.

- *bytes a transition*: growth of the resident set, after freed memory is returned.
- *store*: microseconds per step, medians of stretches of 64 in turn, without the time to make the stacks.
- *sample*: microseconds of a batch of 32, medians of single calls in turn.

Before the timing, the samples of both are compared, transition by transition.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from atari_frames import recording
from framestow.benchmarking.result_files import write_result
from framestow.benchmarking.timing import measure_medians, measure_turns
from framestow.integrations.classic import MemoryEfficientAtariBuffer, ReplayBuffer
from framestow.process_memory import live_bytes
from plain_classics import PlainFrameHistory, PlainPixelPairs
from recorded_frames import Recording

RESULT = Path(__file__).parent / "results" / "classic_buffers.json"
GAMES = ("breakout", "ms_pacman")
STACK, BATCH_SIZE, STRETCH = 4, 32, 64

Step = tuple[NDArray[np.uint8], int, float, bool]  # frame, action, reward, whether the episode ended


class Calls(NamedTuple):
    """The timed calls of a buffer, and the contents of some transitions."""

    store: Callable[[Any], object]
    sample: Callable[[], object]
    given: Callable[[], list[Any]]


@cache
def kept_recording(game: str) -> Recording:
    """Read the recording once, so that its own memory is not measured."""
    return recording(game)


def played(game: str) -> Iterator[Step]:
    """Yield the recording repeatedly; each round begins an episode."""
    recorded = kept_recording(game)
    frames, starts = recorded.frames, set(recorded.episode_starts)
    generator = np.random.default_rng(0)
    while True:
        for index, frame in enumerate(frames):
            done = index + 1 == len(frames) or index + 1 in starts
            yield frame, int(generator.integers(4)), float(generator.integers(2)), done


def with_channel(steps: Iterator[Step]) -> Iterator[Step]:
    """Yield the steps in the form of Berkeley's buffer."""
    for frame, *effect in steps:
        yield frame[..., None], *effect


def experiences(steps: Iterator[Step]) -> Iterator[tuple[Any, ...]]:
    """Yield the steps in the form of nnabla-rl's explorer; the frame after an end begins an episode."""
    frame, *effect = next(steps)
    stack = np.stack([frame] * STACK)
    for number, (following, *next_effect) in enumerate(steps):
        action, reward, done = effect
        after = np.concatenate((stack[1:], following[None]))
        scaled, scaled_after = (part.astype(np.float32) / 255 for part in (stack, after))
        info = {"lives": 5, "episode_frame_number": 4 * number}
        yield scaled, np.array([action]), reward, 0.0 if done else 1.0, scaled_after, info
        stack, effect = np.stack([following] * STACK) if done else after, next_effect


def frame_history(buffer: ReplayBuffer | PlainFrameHistory) -> Calls:
    def store(step: Step) -> None:
        frame, action, reward, done = step
        idx = buffer.store_frame(frame)
        buffer.encode_recent_observation()
        buffer.store_effect(idx, action, reward, done)

    def given() -> list[Any]:
        random.seed(1)  # both draw by Python's generator
        return list(buffer.sample(BATCH_SIZE))

    return Calls(store, lambda: buffer.sample(BATCH_SIZE), given)


def pixel_pairs(buffer: MemoryEfficientAtariBuffer | PlainPixelPairs) -> Calls:
    def given() -> list[Any]:
        chosen = [buffer[index] for index in range(0, len(buffer), len(buffer) // BATCH_SIZE)]
        return [part for experience in chosen for part in experience]

    return Calls(buffer.append, lambda: buffer.sample(BATCH_SIZE), given)


BUFFERS: dict[str, tuple[Callable[[Iterator[Step]], Iterator[Any]], dict[str, Callable[[int], Calls]]]] = {
    "Berkeley's ReplayBuffer": (
        with_channel,
        {
            "framestow": lambda size: frame_history(ReplayBuffer(size, STACK)),
            "plain": lambda size: frame_history(PlainFrameHistory(size, STACK, (84, 84, 1))),
        },
    ),
    "nnabla-rl's MemoryEfficientAtariBuffer": (
        experiences,
        {
            "framestow": lambda size: pixel_pairs(MemoryEfficientAtariBuffer(size, STACK, seed=0)),
            "plain": lambda size: pixel_pairs(PlainPixelPairs(size, STACK)),
        },
    ),
}


def measured(name: str, game: str, num_transitions: int, rounds: int) -> dict[str, Any]:
    """Compare both buffers, and time them in turn."""
    kept_recording(game)
    taken_by, builders = BUFFERS[name]
    calls: dict[str, Calls] = {}
    figures: dict[str, Any] = {"transitions": num_transitions}
    for system, build in builders.items():
        before = live_bytes()
        calls[system] = build(num_transitions)
        for step in islice(taken_by(played(game)), num_transitions - 1):
            calls[system].store(step)
        figures[system] = {"bytes a transition": round((live_bytes() - before) / num_transitions, 1)}
    for mine, other in zip(*(each.given() for each in calls.values()), strict=True):
        np.testing.assert_array_equal(mine, other)

    env_ids = {system: taken_by(played(game)) for system in calls}
    waiting: dict[str, list[Any]] = {system: [] for system in calls}

    def fill(system: str) -> None:
        waiting[system][:] = reversed(list(islice(env_ids[system], STRETCH)))

    turns = measure_turns(
        {system: partial(lambda system: calls[system].store(waiting[system].pop()), system) for system in calls},
        rounds,
        STRETCH,
        before_turn={system: partial(fill, system) for system in calls},
    )
    sample_us = measure_medians({system: each.sample for system, each in calls.items()}, rounds, 1)
    for system in calls:
        figures[system] |= {
            "store, microseconds": round(statistics.median(map(statistics.fmean, turns[system])) * 1e6, 1),
            "sample(32), microseconds": round(sample_us[system]),
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    for name in BUFFERS:
        for game in GAMES:
            figures.setdefault(name, {})[game] = measured(name, game, arguments.transitions, arguments.rounds)
            print(name, game, figures[name][game], flush=True)
    write_result(RESULT, {"buffers": figures})


if __name__ == "__main__":
    main()
