"""How many bytes does a frame take packed, and how long do packing and unpacking take, on ten Atari games?

    python benchmarks/packing.py                 all ten games, results/packing.json
    python benchmarks/packing.py --games pong    some of them, printed only

Frames: 20,000 a game of sticky random play (atari_frames.py), recorded once. They are appended again and again, to
stream after stream, until the packed store holds 64 MB or 1,000,000 frames, so that it does not lie in a cache. A
window is 5 consecutive frames, a batch 32 windows at random places. In turn with every gather, the bare copy takes as
many windows from an uncompressed array of 4 GiB with one np.take into an output that is kept. Medians; `pack` is the
time of one append call with one frame from Python, the binding included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atari_frames import FRAME_SIDE, GAMES, recorded
from framestow._core import PackedStreams
from framestow.benchmarking.interleaved import interleaved_medians
from framestow.benchmarking.result_files import write_result

RESULTS = Path(__file__).parent / "results"

NUM_FRAMES = 20_000  # recorded a game
WINDOWS, LENGTH = 32, 5
FRAME_BYTES = FRAME_SIDE * FRAME_SIDE
STORE_BYTES = 64 * 10**6  # the packed store is grown beyond this
STORE_FRAMES = 1_000_000  # or up to this
BARE_BYTES = 4 * 2**30
NUM_BATCHES = 257  # different batches, taken in turn
# The prototype with 16 frames a segment, another machine: bytes a frame, microseconds a batch (bare copy: 88).
PROTOTYPE = {
    "breakout": (41, 123),
    "pong": (47, 97),
    "space_invaders": (227, 215),
    "qbert": (172, 149),
    "seaquest": (140, 200),
    "beam_rider": (218, 302),
    "ms_pacman": (265, 356),
    "enduro": (435, 458),
    "riverraid": (241, 224),
    "freeway": (435, 342),
}
PROTOTYPE_BARE = 88  # microseconds


def filled_store(frames: NDArray[np.uint8]) -> tuple[PackedStreams, int, float]:
    """Packed store of ``frames`` in as many streams as needed, their number, and microseconds an append."""
    most_streams = STORE_FRAMES // len(frames)
    packed = PackedStreams(most_streams, FRAME_SIDE, FRAME_SIDE, 1)
    seconds = []
    num_streams = 0
    while num_streams < most_streams and packed.sealed_nbytes < STORE_BYTES:
        stream = np.array([num_streams], np.int32)
        for index in range(len(frames)):
            frame = frames[index : index + 1]
            start = time.perf_counter()
            packed.append(stream, frame)
            seconds.append(time.perf_counter() - start)
        num_streams += 1
    return packed, num_streams, float(np.median(seconds)) * 1e6


def gathering(packed: PackedStreams, num_streams: int, num_frames: int) -> Callable[[], None]:
    """Return a call that gathers the next batch of random windows."""
    rng = np.random.default_rng(0)
    counts = np.full(WINDOWS, LENGTH, np.int32)
    out = np.empty((WINDOWS, LENGTH, FRAME_BYTES), np.uint8)
    batches: Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]] = cycle(
        [
            (
                rng.integers(num_streams, size=WINDOWS).astype(np.int32),
                rng.integers(LENGTH - 1, num_frames, WINDOWS),
            )
            for _ in range(NUM_BATCHES)
        ]
    )

    def gather() -> None:
        streams, last_positions = next(batches)
        packed.gather(streams, last_positions, counts, out)

    return gather


def bare_copying() -> Callable[[], None]:
    """Return a call that copies as many random windows from an uncompressed array."""
    frames = np.ones((BARE_BYTES // FRAME_BYTES, FRAME_BYTES), np.uint8)
    rng = np.random.default_rng(1)
    out = np.empty((WINDOWS, LENGTH, FRAME_BYTES), np.uint8)
    firsts = rng.integers(0, len(frames) - LENGTH, (NUM_BATCHES, WINDOWS, 1))
    batches = cycle(list(firsts + np.arange(LENGTH)))

    def copy() -> None:
        np.take(frames, next(batches), axis=0, out=out, mode="clip")

    return copy


def measure(game: str, bare_copy: Callable[[], None], rounds: int) -> dict[str, float]:
    """Bytes a frame and microseconds of one game."""
    frames = recorded(game, NUM_FRAMES)
    packed, num_streams, pack_us = filled_store(frames)
    gather = gathering(packed, num_streams, len(frames))
    medians = interleaved_medians({"gather": gather, "bare": bare_copy}, rounds=rounds, calls=5)
    return {
        "bytes_per_frame": (packed.sealed_nbytes + packed.index_nbytes) / (num_streams * len(frames)),
        "gather_us": medians["gather"],
        "bare_copy_us": medians["bare"],
        "ratio_to_bare_copy": medians["gather"] / medians["bare"],
        "pack_us": pack_us,
        "store_frames": num_streams * len(frames),
    }


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def print_row(name: str, row: dict[str, float], prototype: tuple[float, float, float]) -> None:
    print(
        f"{name:15s} {row['bytes_per_frame']:7.1f} {prototype[0]:7.0f} | {row['gather_us']:7.1f} {prototype[1]:7.0f} | "
        f"{row['ratio_to_bare_copy']:6.2f} {prototype[2]:7.2f} | {row['pack_us']:6.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes and time of packed frames on ten Atari games.")
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument("--rounds", type=int, default=300, help="rounds of 5 gathers and 5 bare copies a game")
    arguments = parser.parse_args()
    bare_copy = bare_copying()
    print(f"{'':15s} bytes a frame   | batch, µs       | to bare copy   | pack, µs")
    print(f"{'':15s}    here   K=16 |    here    K=16 |   here    K=16 |")
    rows = {}
    for game in arguments.games:
        rows[game] = measure(game, bare_copy, arguments.rounds)
        print_row(game, rows[game], (*PROTOTYPE[game], PROTOTYPE[game][1] / PROTOTYPE_BARE))
    means = {name: geometric_mean([row[name] for row in rows.values()]) for name in next(iter(rows.values()))}
    prototype = [geometric_mean([float(PROTOTYPE[game][column]) for game in rows]) for column in range(2)]
    print_row("geometric mean", means, (prototype[0], prototype[1], prototype[1] / PROTOTYPE_BARE))
    if arguments.games == list(GAMES):
        del means["store_frames"]
        print("written:", write_result(RESULTS / "packing.json", {"games": rows, "geometric_mean": means}).name)


if __name__ == "__main__":
    main()
