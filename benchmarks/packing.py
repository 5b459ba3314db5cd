"""Measure the bytes of packed frames and the times of packing and unpacking, for games and other frames.

    python benchmarks/packing.py                             everything of frame_sets.py, results/packing.json
    python benchmarks/packing.py --sets colour               dm_control and Crafter, results/packing_colour.json
    python benchmarks/packing.py --sets "the ten" scenes     some of the sets, printed only
    python benchmarks/packing.py --only pong crafter_colour  some of the frames, printed only
    python benchmarks/packing.py --games                     all games, random and scripted, in one table, printed only
    python benchmarks/packing.py --games krull up_n_down     some games in one table

Frames: 20,000 of each, in the set "colour" 1,280 (atari_frames.py, record_scenes.py, synthetic_frames.py), recorded
once. They are appended to one environment frame by frame. Then its segments are restored into environment after
environment, until the packed store has 64 MB or 1,000,000 frames, too many for a cache. A window is 5 consecutive
frames, a batch 32 windows at random positions. In turn with every read, the bare copy copies as many windows from an
uncompressed array of 4 GiB with one np.take into a reused output. Medians; `pack` is the time of one append of one
frame from Python, as the median and, in processor time, as the mean, which includes occasional work such as sealing.

`of raw` is bytes over uncompressed bytes, headers and index included; `raw` is the share of segments stored as raw
frames, since packing would not make them smaller.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atari_frames import ATARI_100K, GAMES, recording
from frame_sets import FRAME_SETS, NotRecordedError
from framestow._core import FrameStore, inspect_segment
from framestow.benchmarking.result_files import write_result
from framestow.benchmarking.timing import measure_medians
from framestow.frames.frame_spec import FrameSpec
from scripted_players import SCRIPTED_PLAYERS

RESULTS = Path(__file__).parent / "results"

WINDOWS, LENGTH = 32, 5
STORE_BYTES = 64 * 10**6  # the packed store grows beyond this
STORE_FRAMES = 1_000_000  # or up to this
BARE_BYTES = 4 * 2**30
NUM_BATCHES = 257  # different batches, taken in turn
GAME_NAMES = sorted({*GAMES, *ATARI_100K})
SETS_WITHOUT_MEAN = ("synthetic",)  # a mean of noise and a constant means nothing
# The prototype with 16 frames per segment, on another machine: bytes per frame, microseconds per batch.
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


@dataclass(frozen=True)
class FilledStore:
    """The same frames in each of ``num_envs`` environments, and the time of appending them to the first."""

    packed: FrameStore
    num_envs: int
    append_seconds: float  # median
    append_processor_seconds: float  # mean

    @property
    def sealed_frames(self) -> int:
        """Frames in sealed segments, whose bytes are ``sealed_nbytes``."""
        segment_frames = self.packed.frames_per_segment
        return self.num_envs * (self.packed.next_position(0) // segment_frames * segment_frames)

    @property
    def raw_share(self) -> float:
        """Share of segments that are stored as raw frames."""
        segments = (self.packed.segment(0, number) for number in segment_numbers(self.packed))
        return float(np.mean([inspect_segment(segment)["encoding"] == "raw" for segment in segments]))


def segment_numbers(packed: FrameStore) -> range:
    """Return the segments of the first environment, the open one included."""
    return range(-(-packed.next_position(0) // packed.frames_per_segment))


def filled_store(frames: NDArray[np.uint8]) -> FilledStore:
    spec = FrameSpec(frames.shape[1:])
    most_envs = STORE_FRAMES // len(frames)
    packed = FrameStore(most_envs, [(spec.rows, spec.row_bytes, spec.pixel_bytes, False, 0, spec.has_colour_planes)])
    rows = frames.reshape(len(frames), spec.nbytes)
    first_env_id = np.zeros(1, np.int32)
    seconds = np.empty(len(frames))
    processor_start = time.process_time()
    for index in range(len(frames)):
        frame = rows[index : index + 1]
        start = time.perf_counter()
        packed.append(first_env_id, frame)
        seconds[index] = time.perf_counter() - start
    processor_seconds = (time.process_time() - processor_start) / len(frames)
    num_envs = 1
    while num_envs < most_envs and packed.sealed_nbytes < STORE_BYTES:
        for number in segment_numbers(packed):
            packed.restore(num_envs, number, packed.segment(0, number))
        num_envs += 1
    return FilledStore(packed, num_envs, float(np.median(seconds)), processor_seconds)


def reading(store: FilledStore, frame_bytes: int) -> Callable[[], None]:
    """Return a call that reads the next batch of random windows."""
    rng = np.random.default_rng(0)
    counts = np.full(WINDOWS, LENGTH, np.int32)
    out = np.empty((WINDOWS, LENGTH, frame_bytes), np.uint8)
    num_frames = store.packed.next_position(0)
    batches: Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]] = cycle(
        [
            (
                rng.integers(store.num_envs, size=WINDOWS).astype(np.int32),
                rng.integers(LENGTH - 1, num_frames, WINDOWS),
            )
            for _ in range(NUM_BATCHES)
        ]
    )

    def read() -> None:
        env_ids, last_positions = next(batches)
        store.packed.windows(env_ids, last_positions, counts, out)

    return read


def bare_copying(uncompressed: NDArray[np.uint8], frame_bytes: int) -> Callable[[], None]:
    """Return a call that copies equally many random windows of ``uncompressed``, an array of bytes."""
    num_frames = len(uncompressed) // frame_bytes
    frames = uncompressed[: num_frames * frame_bytes].reshape(num_frames, frame_bytes)
    rng = np.random.default_rng(1)
    out = np.empty((WINDOWS, LENGTH, frame_bytes), np.uint8)
    firsts = rng.integers(0, num_frames - LENGTH, (NUM_BATCHES, WINDOWS, 1))
    batches = cycle(list(firsts + np.arange(LENGTH)))

    def copy() -> None:
        np.take(frames, next(batches), axis=0, out=out, mode="clip")

    return copy


def measure(frames: NDArray[np.uint8], uncompressed: NDArray[np.uint8], rounds: int) -> dict[str, float]:
    """Return bytes per frame and microseconds of one recording."""
    frame_bytes = int(np.prod(frames.shape[1:]))
    store = filled_store(frames)
    candidates = {"read": reading(store, frame_bytes), "bare": bare_copying(uncompressed, frame_bytes)}
    medians = measure_medians(candidates, rounds=rounds, calls=5)
    bytes_per_frame = (store.packed.sealed_nbytes + store.packed.index_nbytes) / store.sealed_frames
    return {
        "frame_bytes": frame_bytes,
        "bytes_per_frame": bytes_per_frame,
        "of_raw": bytes_per_frame / frame_bytes,
        "read_us": medians["read"],
        "bare_copy_us": medians["bare"],
        "ratio_to_bare_copy": medians["read"] / medians["bare"],
        "pack_us": store.append_seconds * 1e6,
        "pack_mean_us": store.append_processor_seconds * 1e6,
        "raw_segments": store.raw_share,
        "store_frames": store.num_envs * len(frames),
    }


def geometric_means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the geometric means of the figures that are never 0."""
    names = ("bytes_per_frame", "of_raw", "read_us", "bare_copy_us", "ratio_to_bare_copy", "pack_us", "pack_mean_us")
    return {name: float(np.exp(np.mean([np.log(row[name]) for row in rows]))) for name in names}


def prototype_of(names: Sequence[str]) -> tuple[float, float] | None:
    """Return geometric means of the prototype's bytes and microseconds, if it was measured on all of these."""
    if not all(name in PROTOTYPE for name in names):
        return None
    nbytes, microseconds = np.exp(np.mean(np.log([PROTOTYPE[name] for name in names]), axis=0))
    return float(nbytes), float(microseconds)


def print_row(name: str, row: dict[str, float], prototype: tuple[float, float] | None) -> None:
    nbytes, microseconds, ratio = ("", "", "")
    if prototype:
        nbytes, microseconds = (f"{value:.0f}" for value in prototype)
        ratio = f"{prototype[1] / PROTOTYPE_BARE:.2f}"
    raw = f"{row['raw_segments']:4.0%}" if "raw_segments" in row else ""
    print(
        f"{name:31s} {row['bytes_per_frame']:8.1f} {nbytes:>5s} {row['of_raw']:7.2%} {raw:>5s} | "
        f"{row['read_us']:7.1f} {microseconds:>5s} | {row['ratio_to_bare_copy']:5.2f} {ratio:>5s} | "
        f"{row['pack_us']:6.2f} {row['pack_mean_us']:6.2f}",
        flush=True,
    )


def measured_sets(chosen: dict[str, list[str]], rounds: int) -> dict[str, dict[str, float]]:
    """Measure and print the ``chosen`` names of each set; those of two sets are measured once."""
    uncompressed = np.ones(BARE_BYTES, np.uint8)
    rows: dict[str, dict[str, float]] = {}
    for set_name, names in chosen.items():
        print(f"\n{set_name:31s} bytes K=16  of raw   raw | batch, µs K=16 | to bare K=16 | pack, µs: median, mean")
        for name in names:
            try:
                if name not in rows:
                    rows[name] = measure(FRAME_SETS[set_name][name](), uncompressed, rounds)
            except NotRecordedError as missing:
                print(f"{name:31s} left out: {missing}")
            else:
                print_row(name, rows[name], prototype_of([name]))
        present = [name for name in names if name in rows]
        if present and set_name not in SETS_WITHOUT_MEAN:
            print_row("geometric mean", geometric_means([rows[name] for name in present]), prototype_of(present))
    return rows


def print_games(games: Sequence[str], rounds: int) -> None:
    """Print a table of games, random and scripted play: bytes a frame, packing in µs, and reads to the bare copy."""
    uncompressed = np.ones(BARE_BYTES, np.uint8)
    rows: dict[str, dict[str, float]] = {}
    print(f"{'':24s} bytes a frame   pack, µs: median, mean   to bare copy")
    for game in games:
        for name in (game, f"{game}-scripted"):
            if frames := next((names[name] for names in FRAME_SETS.values() if name in names), None):
                rows[name] = measure(frames(), uncompressed, rounds)
                print_game(name, rows[name])
    for title, names in {"the ten": GAMES, "Atari-100k": ATARI_100K, "all": tuple(rows)}.items():
        if all(name in rows for name in names):
            print_game(f"geometric mean, {title}", geometric_means([rows[name] for name in names]))


def print_game(name: str, row: dict[str, float]) -> None:
    print(
        f"{name:28s} {row['bytes_per_frame']:9.1f} {row['pack_us']:16.2f} {row['pack_mean_us']:8.2f} "
        f"{row['ratio_to_bare_copy']:14.2f}",
        flush=True,
    )


def summary(rows: dict[str, dict[str, float]]) -> dict[str, dict[str, object]]:
    """Of each set, the names that were measured, those that were left out, and geometric means."""
    sets: dict[str, dict[str, object]] = {}
    for set_name, names in FRAME_SETS.items():
        measured = [name for name in names if name in rows]
        sets[set_name] = {"names": measured, "left_out": [name for name in names if name not in rows]}
        if measured and set_name not in SETS_WITHOUT_MEAN:
            sets[set_name]["geometric_mean"] = geometric_means([rows[name] for name in measured])
    return sets


def mean_scores() -> dict[str, dict[str, float]]:
    """What the scripted players score beside random play: their frames are of games that are being played."""
    return {
        game: {"random": recording(game).mean_score, "scripted": recording(game, is_scripted=True).mean_score}
        for game in SCRIPTED_PLAYERS
    }


def main() -> None:
    every_name = [name for names in FRAME_SETS.values() for name in names]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=FRAME_SETS, default=list(FRAME_SETS))
    parser.add_argument("--only", nargs="+", choices=every_name, default=every_name, metavar="NAME")
    parser.add_argument("--games", nargs="*", choices=GAME_NAMES, metavar="GAME", help="one table; none: all games")
    parser.add_argument("--rounds", type=int, default=300, help="rounds of 5 reads and 5 bare copies of each")
    arguments = parser.parse_args()
    if arguments.games is not None:
        print_games(arguments.games or GAME_NAMES, arguments.rounds)
        return
    chosen = {
        set_name: [name for name in FRAME_SETS[set_name] if name in arguments.only] for set_name in arguments.sets
    }
    chosen = {set_name: names for set_name, names in chosen.items() if names}
    rows = measured_sets(chosen, arguments.rounds)
    if "scripted" in chosen:
        print("\nmean score a game       random play   scripted play")
        for game, scores in mean_scores().items():
            print(f"{game:22s} {scores['random']:12.1f} {scores['scripted']:15.1f}")
    if arguments.sets == list(FRAME_SETS) and arguments.only == every_name:
        figures = {"frames": rows, "sets": summary(rows), "mean_scores": mean_scores()}
        print("written:", write_result(RESULTS / "packing.json", figures).name)
    elif arguments.sets == ["colour"] and arguments.only == every_name:
        print("written:", write_result(RESULTS / "packing_colour.json", {"frames": rows}).name)


if __name__ == "__main__":
    main()
