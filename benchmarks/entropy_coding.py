"""Measure what a general compressor takes off packed segments, and what it would add to a read.

    python benchmarks/entropy_coding.py                     the ten games, results/entropy_coding.json
    python benchmarks/entropy_coding.py --games pong        some of them, printed only

Needs `pip install zstandard`. 12,800 frames of sticky random play (atari_frames.py) are packed into one stream. The
later half of its segments is compressed with Zstandard, level 19: whole segments, and blocks of a tenth of one, which a
window of 5 frames needs one of. `+ dictionary`: one dictionary of at most 110 KiB for the game, from the earlier half.
`entropy` is that of single bytes, the bound of a coder without context such as a static rANS.

`of packed` is bytes over those of the packed segments, dictionary not included. `read` is a window of 5 frames and the
decompression of what it needs, in processor time, over the window alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from atari_frames import GAMES, recording
from framestow._core import FrameStore
from framestow.benchmarking.result_files import write_result
from framestow.frames.frame_spec import FrameSpec

RESULTS = Path(__file__).parent / "results"
NUM_FRAMES, LEVEL, DICTIONARY_BYTES = 12_800, 19, 110 * 1024
BLOCKS = 10  # of a segment
WINDOWS, LENGTH, ROUNDS = 32, 5, 100


def packed_stream(frames: NDArray[np.uint8]) -> FrameStore:
    spec = FrameSpec(frames.shape[1:])
    store = FrameStore(1, [(spec.rows, spec.row_bytes, spec.pixel_bytes)])
    stream = np.zeros(1, np.int32)
    for frame in frames.reshape(len(frames), 1, spec.nbytes):
        store.append(stream, frame)
    return store


def window_seconds(store: FrameStore, frame_bytes: int) -> float:
    """Return the processor time of one window of a batch."""
    random, out = np.random.default_rng(0), np.empty((WINDOWS, LENGTH, frame_bytes), np.uint8)
    streams, counts = np.zeros(WINDOWS, np.int32), np.full(WINDOWS, LENGTH, np.int32)
    lasts = random.integers(LENGTH - 1, store.next_position(0), (ROUNDS, WINDOWS))
    return processor_seconds(lambda: [store.windows(streams, each, counts, out) for each in lasts]) / lasts.size


def processor_seconds(call: Callable[[], object]) -> float:
    """Return the least processor time of three calls."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def blocks_of(segments: Sequence[bytes], num_blocks: int) -> list[bytes]:
    """Cut each segment into ``num_blocks`` blocks of equal size."""
    return [
        segment[len(segment) * number // num_blocks : len(segment) * (number + 1) // num_blocks]
        for segment in segments
        for number in range(num_blocks)
    ]


def entropy(segments: Sequence[bytes]) -> float:
    """Return the entropy of single bytes, as a share of 8 bits."""
    counts = np.bincount(np.frombuffer(b"".join(segments), np.uint8), minlength=256)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum() / 8)


def measure(game: str) -> dict[str, float]:
    frames = recording(game).frames[:NUM_FRAMES]
    store = packed_stream(frames)
    segments = [store.segment(0, number) for number in range(NUM_FRAMES // store.frames_per_segment)]
    earlier, later = segments[: len(segments) // 2], segments[len(segments) // 2 :]
    sample = blocks_of(earlier, BLOCKS)
    dictionary = zstandard.train_dictionary(min(DICTIONARY_BYTES, sum(map(len, earlier)) // 4), sample)
    window = window_seconds(store, frames[0].nbytes)
    packed = sum(map(len, later))
    figures = {"bytes_per_frame": packed / len(later) / store.frames_per_segment, "entropy": entropy(later)}
    for num_blocks, what in ((1, "segment"), (BLOCKS, "block")):
        for suffix, options in (("", {}), ("_with_dictionary", {"dict_data": dictionary})):
            blocks = blocks_of(later, num_blocks)
            compressed = [zstandard.ZstdCompressor(level=LEVEL, **options).compress(block) for block in blocks]
            decompress = zstandard.ZstdDecompressor(**options).decompress
            seconds = processor_seconds(lambda: [decompress(each) for each in compressed]) / len(compressed)  # noqa: B023
            figures[f"{what}{suffix}"] = sum(map(len, compressed)) / packed
            figures[f"{what}{suffix}_read"] = (window + seconds) / window
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    games = parser.parse_args().games
    rows = {}
    print("                  packed          of packed                                   read, times packed")
    print("game             B/frame  entropy segment  + dict.  block  + dict.  segment  + dict.  block  + dict.")
    kinds = "segment", "segment_with_dictionary", "block", "block_with_dictionary"
    for game in (*games, "geometric mean"):
        if game in games:
            rows[game] = measure(game)
        else:
            names = rows[games[0]]
            rows[game] = {name: float(np.exp(np.mean([np.log(rows[each][name]) for each in games]))) for name in names}
        row = rows[game]
        shares = " ".join(f"{row[kind]:7.3f}" for kind in kinds)
        reads = " ".join(f"{row[f'{kind}_read']:7.1f}" for kind in kinds)
        print(f"{game:16s} {row['bytes_per_frame']:7.1f} {row['entropy']:8.3f} {shares}  {reads}", flush=True)
    if games == list(GAMES):
        print("written:", write_result(RESULTS / "entropy_coding.json", {"games": rows}).name)


if __name__ == "__main__":
    main()
