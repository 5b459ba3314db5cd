"""Measure frames of other dtypes: bytes per frame, and times to append one and to sample 32 transitions of stack 4.

    python benchmarks/dtypes.py                  Breakout and Enduro, results/dtypes.json
    python benchmarks/dtypes.py --games pong     other games, printed only

Frames: the first 10,000 of sticky random play (atari_frames.py), 84x84 grey, as `uint8` and converted to floats as
wrappers do; the last kind is a Dict of such a picture and 17 numbers. Each kind has its own memory, filled through
`ReplayMemory.append`, one step per call. Sampling is timed in turn over all kinds; appending
is the median of the calls.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atari_frames import GAMES, recorded
from framestow import FrameSpec, ReplayMemory
from framestow.benchmarking.result_files import write_result
from framestow.benchmarking.timing import measure_medians
from framestow.frames.observation_spec import AnySpec, observation_spec

RESULTS = Path(__file__).parent / "results"
NUM_FRAMES, RECORDED_FRAMES, BATCH = 10_000, 20_000, 32
OWN_GAMES = ("breakout", "enduro")
NUMBERS_SHAPE = (17,)


def kinds_of(pixels: NDArray[np.uint8]) -> dict[str, tuple[AnySpec, Any, str]]:
    """Return each kind's spec, frames and storage."""
    shape = pixels.shape[1:]
    divided = pixels / np.float32(255)
    centred = pixels / np.float32(127.5) - np.float32(1)
    numbers = np.random.default_rng(0).normal(size=(NUM_FRAMES, *NUMBERS_SHAPE)).astype(np.float32)
    scaled = FrameSpec(shape, np.float32, is_scaled=True)
    return {
        "uint8": (FrameSpec(shape), pixels, "packed"),
        "float32, k / 255": (scaled, divided, "packed"),
        "float16, k / 255": (FrameSpec(shape, np.float16, is_scaled=True), divided.astype(np.float16), "packed"),
        "float32, k * (1 / 255)": (scaled, pixels * np.float32(1 / 255), "packed"),
        "float32, -1 to 1": (FrameSpec(shape, np.float32), centred, "packed"),
        "float32, -1 to 1, raw": (FrameSpec(shape, np.float32), centred, "raw"),
        "17 numbers of float32": (FrameSpec(NUMBERS_SHAPE, np.float32), numbers, "packed"),
        "uint8 and 17 numbers": (
            observation_spec({"camera": FrameSpec(shape), "joints": FrameSpec(NUMBERS_SHAPE, np.float32)}),
            {"camera": pixels, "joints": numbers},
            "packed",
        ),
    }


def frame_at(frames: Any, index: int) -> Any:
    """Return one frame in the form of a step."""
    if isinstance(frames, dict):
        return {key: part[index : index + 1] for key, part in frames.items()}
    return frames[index : index + 1]


def recorded_memory(spec: AnySpec, frames: Any, storage: str) -> tuple[ReplayMemory, float]:
    """Return a memory of one episode of ``frames``, and the median microseconds per append."""
    memory = ReplayMemory(NUM_FRAMES, spec, 4, stack=4, storage=storage, seed=0)
    memory.begin(frame_at(frames, 0))
    seconds = []
    for index in range(1, NUM_FRAMES):
        frame = frame_at(frames, index)
        start = time.perf_counter()
        memory.append([0], [0.0], [False], [False], frame)
        seconds.append(time.perf_counter() - start)
    return memory, float(np.median(seconds)) * 1e6


def stored_bytes(memory: ReplayMemory) -> int:
    """Return the bytes of the frames, without the bytes that do not depend on them."""
    report = memory.report()
    return report.nbytes - sum(report.parts[part] for part in ("steps", "stacks", "output pool"))


def measure(game: str, rounds: int) -> dict[str, dict[str, float]]:
    """Return bytes and microseconds of every kind of frame of one game."""
    kinds = kinds_of(recorded(game, RECORDED_FRAMES)[:NUM_FRAMES])
    memories, rows = {}, {}
    for name, (spec, frames, storage) in kinds.items():
        memories[name], append_us = recorded_memory(spec, frames, storage)
        bytes_per_frame = stored_bytes(memories[name]) / NUM_FRAMES
        rows[name] = {"raw_bytes": spec.nbytes, "bytes_per_frame": bytes_per_frame, "append_us": append_us}
    calls = {name: partial(memory.sample, BATCH) for name, memory in memories.items()}
    for name, median in measure_medians(calls, rounds=rounds, calls=1).items():
        rows[name]["sample_us"] = median
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes and time of frames of other dtypes.")
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(OWN_GAMES))
    parser.add_argument("--rounds", type=int, default=300, help="rounds of a sample of each kind")
    arguments = parser.parse_args()
    results = {}
    for game in arguments.games:
        results[game] = measure(game, arguments.rounds)
        print(f"{game:24s} raw bytes  kept bytes  append, µs  sample(32), µs")
        for name, row in results[game].items():
            print(
                f"{name:24s} {row['raw_bytes']:9,.0f} {row['bytes_per_frame']:11,.1f} {row['append_us']:11.1f} "
                f"{row['sample_us']:15.0f}",
                flush=True,
            )
    if arguments.games == list(OWN_GAMES):
        print("written:", write_result(RESULTS / "dtypes.json", {"games": results}).name)


if __name__ == "__main__":
    main()
