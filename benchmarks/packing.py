"""Measure packing: bytes a frame, and times to pack frames and to read them back, compared with a bare copy.

    python benchmarks/packing.py                             everything, results/packing.json
    python benchmarks/packing.py --sets synthetic            one set, printed only
    python benchmarks/packing.py --only pong krull           some frames, printed only

Frames: 20,000 of each, recorded once (atari_frames.py). Each is put into a packed store of one environment, whose
segments are then given to more environments until the store has 64 MB or a million frames: more than the caches, like a
large memory. Then, in turn: 32 windows of five frames from the store, and the bare copy of as many windows from an
uncompressed array of 4 GiB, with one np.take into a reused output.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from atari_frames import ATARI_100K, FRAME_SIDE, GAMES, NUM_FRAMES, recorded
from figures import publish
from framestow import FrameSpec
from framestow._core import FrameStore
from framestow.benchmarking.timing import measure_medians

WINDOWS, LENGTH = 32, 5
STORE_BYTES = 64 * 10**6  # the packed store grows beyond this
STORE_FRAMES = 1_000_000  # or up to this
BARE_BYTES = 4 * 2**30
NUM_BATCHES = 257  # different batches, taken in turn

Frames = NDArray[np.uint8]  # (num_frames, *frame)


def noise() -> Frames:
    """Return frames that cannot be packed."""
    return np.random.default_rng(0).integers(0, 256, (NUM_FRAMES, FRAME_SIDE, FRAME_SIDE), np.uint8)


def constant() -> Frames:
    """Return frames of one shade."""
    return np.full((NUM_FRAMES, FRAME_SIDE, FRAME_SIDE), 87, np.uint8)


# For each set and name a function that returns the frames. A name in two sets means the same frames.
FRAME_SETS: dict[str, dict[str, Callable[[], Frames]]] = {
    "the ten": {game: partial(recorded, game) for game in GAMES},
    "Atari-100k": {game: partial(recorded, game) for game in ATARI_100K},
    "synthetic": {"noise": noise, "constant": constant},
}
SETS_WITHOUT_MEAN = ("synthetic",)  # a mean of noise and a constant means nothing


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


def segment_numbers(packed: FrameStore) -> range:
    """Return the segments of the first environment, the open one included."""
    return range(-(-packed.next_position(0) // packed.frames_per_segment))


def filled_store(frames: Frames) -> FilledStore:
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


def reading(
    packed: FrameStore, num_envs: int, num_frames: int, frame_bytes: int, windows: int = WINDOWS, threads: int = 1
) -> Callable[[], None]:
    """Return a call that reads the next batch of random windows."""
    rng = np.random.default_rng(0)
    counts = np.full(windows, LENGTH, np.int32)
    out = np.empty((windows, LENGTH, frame_bytes), np.uint8)
    env_ids = cycle(list(rng.integers(num_envs, size=(NUM_BATCHES, windows)).astype(np.int32)))
    last_positions = cycle(list(rng.integers(LENGTH - 1, num_frames, (NUM_BATCHES, windows))))
    return lambda: packed.windows(next(env_ids), next(last_positions), counts, out, threads=threads)


def bare_copying(uncompressed: Frames, frame_bytes: int, windows: int = WINDOWS) -> Callable[[], object]:
    """Return a call that copies equally many random windows of ``uncompressed``, an array of bytes."""
    num_frames = len(uncompressed) // frame_bytes
    frames = uncompressed[: num_frames * frame_bytes].reshape(num_frames, frame_bytes)
    out = np.empty((windows, LENGTH, frame_bytes), np.uint8)
    firsts = np.random.default_rng(1).integers(0, num_frames - LENGTH, (NUM_BATCHES, windows, 1))
    batches = cycle(list(firsts + np.arange(LENGTH)))
    return lambda: np.take(frames, next(batches), axis=0, out=out, mode="clip")


def measure(frames: Frames, uncompressed: Frames, rounds: int) -> dict[str, float]:
    """Return bytes per frame and microseconds of one recording."""
    frame_bytes = frames[0].nbytes
    store = filled_store(frames)
    read = reading(store.packed, store.num_envs, store.packed.next_position(0), frame_bytes)
    candidates = {"read": read, "bare": bare_copying(uncompressed, frame_bytes)}
    medians = measure_medians(candidates, rounds=rounds, calls=5)
    bytes_per_frame = (store.packed.sealed_nbytes + store.packed.index_nbytes) / store.sealed_frames
    return {
        "bytes_per_frame": bytes_per_frame,
        "of_raw": bytes_per_frame / frame_bytes,
        "read_us": medians["read"],
        "bare_copy_us": medians["bare"],
        "ratio_to_bare_copy": medians["read"] / medians["bare"],
        "pack_us": store.append_seconds * 1e6,
        "pack_mean_us": store.append_processor_seconds * 1e6,
    }


def geometric_mean(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    listed = list(rows)
    return {name: float(np.exp(np.mean([np.log(row[name]) for row in listed]))) for name in listed[0]}


def measured_sets(chosen: dict[str, list[str]], rounds: int) -> tuple[dict[str, dict[str, float]], dict[str, object]]:
    """Measure the ``chosen`` names of each set; return the rows, and the names and the mean of each set."""
    uncompressed = np.ones(BARE_BYTES, np.uint8)
    rows: dict[str, dict[str, float]] = {}
    sets: dict[str, object] = {}
    for set_name, names in chosen.items():
        for name in names:
            if name not in rows:
                rows[name] = measure(FRAME_SETS[set_name][name](), uncompressed, rounds)
        sets[set_name] = {"names": names}
        if set_name not in SETS_WITHOUT_MEAN:
            mean = geometric_mean(rows[name] for name in names)
            sets[set_name] = {"names": names, "geometric_mean": mean}
    return rows, sets


def main() -> None:
    every_name = list(dict.fromkeys(name for names in FRAME_SETS.values() for name in names))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=FRAME_SETS, default=list(FRAME_SETS))
    parser.add_argument("--only", nargs="+", choices=every_name, default=every_name, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=300, help="rounds of 5 reads and 5 bare copies of each")
    arguments = parser.parse_args()
    chosen = {
        set_name: [name for name in FRAME_SETS[set_name] if name in arguments.only] for set_name in arguments.sets
    }
    rows, sets = measured_sets({name: names for name, names in chosen.items() if names}, arguments.rounds)
    publish(
        "packing", {"frames": rows, "sets": sets}, arguments.sets == list(FRAME_SETS) and arguments.only == every_name
    )


if __name__ == "__main__":
    main()
