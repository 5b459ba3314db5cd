"""Measure sequences, compared with copying the same frames from an uncompressed array.

    python benchmarks/sequences.py              Breakout, results/sequences.json
    python benchmarks/sequences.py --game pong  another game, printed only

Frames: 20,000 of sticky random play (atari_frames.py), repeated, in a memory of 100,000 transitions, stack 4, of one
environment or eight; an episode has 500 steps. In turn: sequences of 80 steps, masked at the end of an episode, and the
bare copy of as many windows of 84 frames, with one np.take into a reused output. Measured besides: sequences that
overlap by 40 steps, sequences inside an episode, sequences across episodes, where every step has its own window, and as
many single transitions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from atari_frames import FRAME_SIDE, GAMES, recorded
from framestow import ReplayMemory
from framestow.benchmarking.result_files import write_result
from framestow.benchmarking.timing import measure_medians
from framestow.frames.frame_spec import FrameSpec
from retention import EPISODE_STEPS, appending

RESULTS = Path(__file__).parent / "results"
NUM_FRAMES = 20_000  # recorded
CAPACITY, STACK, LENGTH = 100_000, 4, 80
BATCHES = (16, 32)  # sequences
BARE, ONE_WINDOW = "bare copy", ("masked", "overlap of 40", "inside")
NUM_DRAWN = 64  # batches of windows of the bare copy, drawn beforehand


def bare_copy(frames: np.ndarray, batch_size: int) -> Callable[[], object]:
    """Copies windows of a sequence's number of frames."""
    shown = LENGTH + STACK
    firsts = np.random.default_rng(0).integers(len(frames) - shown, size=(NUM_DRAWN, batch_size, 1))
    windows = list(firsts + np.arange(shown))
    out = np.empty((batch_size, shown, *frames.shape[1:]), np.uint8)
    number = 0

    def copy() -> None:
        nonlocal number
        number = (number + 1) % NUM_DRAWN
        np.take(frames, windows[number], axis=0, out=out, mode="clip")

    return copy


def filled(frames: np.ndarray, num_envs: int) -> ReplayMemory:
    """Return a full memory of that game."""
    spec = FrameSpec((FRAME_SIDE, FRAME_SIDE))
    memory = ReplayMemory(CAPACITY, spec, 4, stack=STACK, num_envs=num_envs, seed=0)
    append = appending(memory, frames)
    for _ in range(CAPACITY // num_envs + EPISODE_STEPS):
        append()
    return memory


def candidates_of(memory: ReplayMemory, batch_size: int) -> dict[str, Callable[[], object]]:
    """Return the timed calls of one memory, by name."""

    def sequences(**settings: object) -> Callable[[], object]:
        return lambda: memory.sample_sequences(batch_size, LENGTH, **settings)

    return {
        "masked": sequences(),
        "overlap of 40": sequences(overlap=40),
        "inside": sequences(borders="inside"),
        "across borders": sequences(borders="cross"),
        "single transitions": lambda: memory.sample(batch_size * LENGTH),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=GAMES, default="breakout")
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()

    frames = recorded(arguments.game, NUM_FRAMES)
    raw = frames[np.arange(CAPACITY) % len(frames)]
    microseconds: dict[str, float] = {}
    for num_envs in (1, 8):
        memory = filled(frames, num_envs)
        for batch_size in BATCHES:
            bare = {BARE: bare_copy(raw, batch_size)}
            candidates = candidates_of(memory, batch_size)
            # Batches of five times the size are measured apart: they would evict the others' arrays from the caches.
            for group in (ONE_WINDOW, *((name,) for name in candidates if name not in ONE_WINDOW)):
                timed = bare | {name: candidates[name] for name in group}
                medians = measure_medians(timed, arguments.rounds, calls=10)
                for name, value in medians.items():
                    ratio = value / medians[BARE]
                    print(
                        f"{name:<20} batch {batch_size}, environments: {num_envs} {value:>9.0f} µs, {ratio:.2f} x bare"
                    )
                    microseconds.setdefault(f"{name}, batch {batch_size}, environments: {num_envs}", value)
    if arguments.game == "breakout":
        figures = {"game": arguments.game, "transitions": CAPACITY, "length": LENGTH, "microseconds": microseconds}
        write_result(RESULTS / "sequences.json", figures)


if __name__ == "__main__":
    main()
