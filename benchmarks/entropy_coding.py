"""Measure what a general compressor takes off packed segments, and what it would add to a read.

    python benchmarks/entropy_coding.py                     the ten games, results/entropy_coding.json
    python benchmarks/entropy_coding.py --games pong        some of them, printed only

Needs `pip install zstandard`. 12,800 frames of sticky random play (atari_frames.py) are packed into one environment, in
segments of 320 and of 1,280 frames. The last 2,560 frames are compressed with Zstandard, level 6:

    whole         each segment as one piece
    alone         the front of a segment (table of groups, base frame, shared operations), which every window needs,
                  stays as it is; the rest is compressed in blocks of 1.5 KB, with the front as their prefix
    dictionary    the same with a dictionary of 64 KiB for the game, trained on its first 3,840 frames, as their prefix

`bytes a frame` leaves the dictionary out. `read` is a window of 5 frames and the decompression of the blocks that it
needs, in processor time, over the window alone. The blocks are counted from the operations: those of the window's
groups, those that they repeat, and the anchors that they refer to.
"""

from __future__ import annotations

import argparse
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from atari_frames import GAMES, recording
from framestow._core import FrameStore
from framestow.benchmarking.result_files import write_result
from framestow.frames.frame_spec import FrameSpec

RESULTS = Path(__file__).parent / "results"
NUM_FRAMES, TRAINING_FRAMES, COMPRESSED_FRAMES = 12_800, 3_840, 2_560
LENGTHS = 320, 1_280  # frames of a segment
LEVEL, DICTIONARY_BYTES, BLOCK_BYTES = 6, 64 * 1024, 1536
WINDOWS, LENGTH, ROUNDS = 32, 5, 100
HEADER_BYTES, GROUP_FRAMES = 24, 4


def packed_env(frames: NDArray[np.uint8], frames_per_segment: int) -> FrameStore:
    spec = FrameSpec(frames.shape[1:])
    store = FrameStore(1, [(spec.rows, spec.row_bytes, spec.pixel_bytes)], frames_per_segment)
    env_id = np.zeros(1, np.int32)
    for frame in frames.reshape(len(frames), 1, spec.nbytes):
        store.append(env_id, frame)
    return store


def window_seconds(store: FrameStore, frame_bytes: int) -> float:
    """Return the processor time of one window of a batch."""
    random, out = np.random.default_rng(0), np.empty((WINDOWS, LENGTH, frame_bytes), np.uint8)
    env_ids, counts = np.zeros(WINDOWS, np.int32), np.full(WINDOWS, LENGTH, np.int32)
    lasts = random.integers(LENGTH - 1, store.next_position(0), (ROUNDS, WINDOWS))
    return processor_seconds(lambda: [store.windows(env_ids, each, counts, out) for each in lasts]) / lasts.size


def processor_seconds(call: Callable[[], object]) -> float:
    """Return the least processor time of three calls."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


class Segment:
    """The parts of a segment of patches, and what its frames need (docs/packing.md)."""

    def __init__(self, content: bytes) -> None:
        self.num_frames = int.from_bytes(content[8:12], "little")
        num_groups = -(-self.num_frames // GROUP_FRAMES)
        table = content[HEADER_BYTES : HEADER_BYTES + 4 * num_groups]
        self.groups = np.frombuffer(table, "<u4").tolist()
        self.body = content[HEADER_BYTES + 4 * num_groups :]
        self.nbytes, self.front = len(content), self.body[: self.groups[0]]
        rest = self.body[self.groups[0] :]
        self.blocks = [rest[at : at + BLOCK_BYTES] for at in range(0, len(rest), BLOCK_BYTES)]

    def blocks_of_a_window(self) -> float:
        """Return the mean number of blocks that a window of ``LENGTH`` frames needs."""
        edges = [len(self.front) + BLOCK_BYTES * number for number in range(len(self.blocks))]
        blocks_of_frames: list[set[int]] = []
        offset = 0
        for frame in range(self.num_frames):
            begin = offset = self.groups[frame // GROUP_FRAMES] if frame % GROUP_FRAMES == 0 else offset
            needed, code = set(), 0
            while code != 127:
                code, repeated, offset = operation(self.body, offset)
                if code == 124:
                    needed |= blocks_of_frames[repeated[0] * GROUP_FRAMES]
                elif repeated:
                    needed |= set(range(max(bisect_right(edges, repeated[0]) - 1, 0), bisect_left(edges, repeated[1])))
            needed |= set(range(bisect_right(edges, begin) - 1, bisect_left(edges, offset)))
            blocks_of_frames.append(needed)
        starts = range(self.num_frames - LENGTH + 1)
        windows = [blocks_of_frames[at // GROUP_FRAMES * GROUP_FRAMES : at + LENGTH] for at in starts]
        return float(np.mean([len(set().union(*window)) for window in windows]))


def operation(body: bytes, offset: int) -> tuple[int, tuple[int, ...], int]:
    """Return the code of an operation, what it repeats (or the group that it refers to), and where it ends."""
    code, keeps = body[offset] & 127, body[offset] >= 128
    wide = body[offset + 1 : offset + 5]
    end, repeated = offset + 1, ()
    if code < 40:
        end += code + 1
    elif 101 <= code <= 114:
        end, begin, size = offset + 3, int.from_bytes(wide[:2], "little"), code - 97
        repeated = begin, begin + size
    elif 115 <= code <= 122:
        end += 1 + code // 119
        literals = 41 + wide[0] if code == 115 else int.from_bytes(wide[:2], "little") if code == 119 else 0
        end += literals
    elif code in (123, 125):
        end = offset + (4 if code == 123 else 5)
        begin = int.from_bytes(body[offset + 2 : end], "little")
        repeated = begin, begin + wide[0] + (18 if code == 123 else 4)
    elif code == 124:
        end, repeated = offset + 2, (wide[0],)
    if keeps:
        end += {254: 2, 255: 3}.get(body[end], 1)
    return code, repeated, end


def entropy(segments: list[bytes]) -> float:
    """Return the entropy of single bytes, as a share of 8 bits."""
    counts = np.bincount(np.frombuffer(b"".join(segments), np.uint8), minlength=256)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum() / 8)


def measure(game: str, frames_per_segment: int) -> dict[str, float]:
    frames = recording(game).frames[:NUM_FRAMES]
    store = packed_env(frames, frames_per_segment)
    contents = [store.segment(0, number) for number in range(NUM_FRAMES // frames_per_segment)]
    compressed = contents[-COMPRESSED_FRAMES // frames_per_segment :]
    segments = [Segment(content) for content in compressed]
    sample = [
        block for content in contents[: TRAINING_FRAMES // frames_per_segment] for block in Segment(content).blocks
    ]
    trained = zstandard.train_dictionary(min(DICTIONARY_BYTES, sum(map(len, sample)) // 4), sample)
    window = window_seconds(store, frames[0].nbytes)
    needed = float(np.mean([segment.blocks_of_a_window() for segment in segments]))
    figures = {
        "packed": sum(map(len, compressed)) / COMPRESSED_FRAMES,
        "packed_us": window * 1e6,
        "entropy": entropy(compressed),
        "front": float(np.mean([len(segment.front) / segment.nbytes for segment in segments])),
        "blocks_needed": needed,
    }
    whole = [zstandard.ZstdCompressor(level=LEVEL).compress(content) for content in compressed]
    decompress = zstandard.ZstdDecompressor().decompress
    seconds = processor_seconds(lambda: [decompress(each) for each in whole]) / len(whole)
    figures |= {"whole": sum(map(len, whole)) / COMPRESSED_FRAMES, "whole_read": 1 + seconds / window}
    for what in ("alone", "dictionary"):
        num_bytes, seconds, num_blocks = 0, 0.0, 0
        for segment in segments:
            raw = zstandard.ZstdCompressionDict(segment.front, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
            prefix = raw if what == "alone" else trained
            compressor = zstandard.ZstdCompressor(level=LEVEL, dict_data=prefix, write_dict_id=False)
            blocks = [compressor.compress(block) for block in segment.blocks]
            decompress = zstandard.ZstdDecompressor(dict_data=prefix).decompress
            decompress(blocks[0])  # digests the prefix, which a native reader would only point at
            seconds += processor_seconds(lambda: [decompress(each) for each in blocks])  # noqa: B023
            num_bytes += segment.nbytes + sum(map(len, blocks)) - sum(map(len, segment.blocks))
            num_blocks += len(blocks)
        figures |= {what: num_bytes / COMPRESSED_FRAMES, f"{what}_read": 1 + needed * seconds / num_blocks / window}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    games = parser.parse_args().games
    rows: dict[str, dict[str, float]] = {}
    print("                               bytes a frame                   read, times packed       blocks")
    print("game            frames  packed  whole  alone  + dict.    whole  alone  + dict.   needed  front  entropy")
    for length in LENGTHS:
        for game in (*games, "geometric mean"):
            if game in games:
                rows[f"{game}, {length}"] = measure(game, length)
            else:
                of_games = [rows[f"{each}, {length}"] for each in games]
                means = {name: float(np.exp(np.mean([np.log(row[name]) for row in of_games]))) for name in of_games[0]}
                rows[f"{game}, {length}"] = means
            row = rows[f"{game}, {length}"]
            nbytes = " ".join(f"{row[kind]:6.1f}" for kind in ("packed", "whole", "alone", "dictionary"))
            reads = " ".join(f"{row[f'{kind}_read']:6.1f}" for kind in ("whole", "alone", "dictionary"))
            rest = f"{row['blocks_needed']:6.2f} {row['front']:6.2f} {row['entropy']:6.2f}"
            print(f"{game:15s} {length:6d}  {nbytes}     {reads}     {rest}", flush=True)
    if games == list(GAMES):
        print("written:", write_result(RESULTS / "entropy_coding.json", {"rows": rows}).name)


if __name__ == "__main__":
    main()
