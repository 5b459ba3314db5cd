"""Measure packed segments of other lengths: their bytes, and a window from RAM and from a file.

    python benchmarks/segment_lengths.py             the ten games, results/segment_lengths.json
    python benchmarks/segment_lengths.py --rounds 2  quicker, printed only

19,200 frames of sticky random play of each game (atari_frames.py) are packed into one environment of a store, with
segments of 320, 640 and 1,280 frames. Each store is there twice: in RAM, and with its segments in a file that is in the
page cache. One thread reads 32 windows of 5 frames of one game at random positions, store after store, so that none
stays in the processor's cache. `window_us` is the median processor time of a window, `seal_us` that of the append which
ends a segment, `append_us` the mean of all appends.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from atari_frames import GAMES, recording
from framestow._core import FrameStore
from framestow.benchmarking.result_files import write_result

RESULTS = Path(__file__).parent / "results"
LENGTHS = 320, 640, 1_280  # frames of a segment
NUM_FRAMES = 19_200
WINDOWS, LENGTH, BATCHES = 32, 5, 6
FRAME_BYTES = 84 * 84


def packed_store(frames_per_segment: int) -> tuple[FrameStore, list[list[float]]]:
    """Return a store with a game in each environment, and the processor times of the appends of each."""
    store = FrameStore(len(GAMES), [(84, 84, 1)], frames_per_segment)
    seconds: list[list[float]] = []
    for env_id, game in enumerate(GAMES):
        numbers, of_game = np.full(1, env_id, np.int32), []
        for frame in recording(game).frames[:NUM_FRAMES].reshape(NUM_FRAMES, 1, FRAME_BYTES):
            start = time.process_time()
            store.append(numbers, frame)
            of_game.append(time.process_time() - start)
        seconds.append(of_game)
    return store, seconds


def move_to_file(store: FrameStore, path: Path) -> list[int]:
    """Move all segments of ``store`` to a file; return the bytes of each environment."""
    bytes_of_envs = []
    for env_id in range(len(GAMES)):
        segments = [store.segment(env_id, number) for number in range(NUM_FRAMES // store.frames_per_segment)]
        with path.open("ab") as file:
            offsets = [file.tell() + sum(map(len, segments[:number])) for number in range(len(segments))]
            file.write(b"".join(segments))
        for number, (segment, offset) in enumerate(zip(segments, offsets, strict=True)):
            store.move_to_file(env_id, number, os.fsencode(path), offset, len(segment))
        bytes_of_envs.append(sum(map(len, segments)))
    return bytes_of_envs


def window_seconds(stores: list[FrameStore], env_id: int, rounds: int) -> list[float]:
    """Return the median processor time of a window from each of ``stores``, which take turns."""
    random, out = np.random.default_rng(env_id), np.empty((WINDOWS, LENGTH, FRAME_BYTES), np.uint8)
    env_ids, counts = np.full(WINDOWS, env_id, np.int32), np.full(WINDOWS, LENGTH, np.int32)
    seconds: list[list[float]] = [[] for _ in stores]
    for _ in range(rounds):
        lasts = random.integers(LENGTH - 1, NUM_FRAMES, (BATCHES, WINDOWS))
        for store, of_store in zip(stores, seconds, strict=True):
            start = time.process_time()
            for each in lasts:
                store.windows(env_ids, each, counts, out)
            of_store.append((time.process_time() - start) / lasts.size)
    return [float(np.median(of_store)) for of_store in seconds]


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=0, help="of 6 batches; the result is written for the default")
    arguments = parser.parse_args()
    stores: list[FrameStore] = []
    rows: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        for length in LENGTHS:
            in_ram, seconds = packed_store(length)
            in_file, _ = packed_store(length)
            bytes_of_games = move_to_file(in_file, Path(folder, f"{length}.log"))
            stores += [in_ram, in_file]
            rows[str(length)] = {
                "bytes": {game: size / NUM_FRAMES for game, size in zip(GAMES, bytes_of_games, strict=True)},
                "append_us": 1e6 * float(np.mean(seconds)),
                "seal_us": 1e6 * geometric_mean([float(np.median(one[length - 1 :: length])) for one in seconds]),
            }
        times = np.array([window_seconds(stores, env_id, arguments.rounds or 15) for env_id in range(len(GAMES))])
    for number, (length, row) in enumerate(rows.items()):
        ram, file = (1e6 * times[:, 2 * number + where] for where in range(2))
        row["window_us"] = dict(zip(GAMES, ram.tolist(), strict=True))
        row["window_from_file_us"] = dict(zip(GAMES, file.tolist(), strict=True))
        means = {name: geometric_mean(list(row[name].values())) for name in row if isinstance(row[name], dict)}
        row |= {f"mean_{name}": mean for name, mean in means.items()}
        print(length, {name: round(value, 1) for name, value in row.items() if isinstance(value, float)}, flush=True)
    if not arguments.rounds:
        print("written:", write_result(RESULTS / "segment_lengths.json", {"frames_per_segment": rows}).name)


if __name__ == "__main__":
    main()
