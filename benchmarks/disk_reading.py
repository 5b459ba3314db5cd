"""Measure a batch whose segments lie in a file instead of in RAM.

    python benchmarks/disk_reading.py             results/disk_reading.json
    python benchmarks/disk_reading.py --rounds 1  quicker, printed only

A packed store of 128 MB of segments of a recorded game (filled as in packing.py, with more environments) is read from
RAM, and from one file of the same segments in the same order. Batches of 32 and 256 windows of five frames at random
places are read by one thread and by two, in turn. *Warm*: the file is in the system's page cache. *Cold*: the cache is
dropped before each batch, so that every segment is read from the disk; `read_mib` is the amount read per batch. Medians
of wall time and of the process's processor time, in microseconds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atari_frames import recorded
from figures import publish
from framestow._core import FrameStore
from packing import NUM_BATCHES, reading, segment_numbers

GAMES = ("breakout", "enduro")
STORE_BYTES = 128 * 2**20
BATCHES = (32, 256)
THREADS = (1, 2)
MIB = 2**20


class Stores:
    """The same segments twice: in RAM, and in a file."""

    def __init__(self, frames: NDArray[np.uint8], path: Path) -> None:
        side = frames.shape[1]
        first = FrameStore(1, [(side, side, 1)])
        first.append(np.zeros(len(frames), np.int32), frames.reshape(len(frames), -1))
        segments = [first.segment(0, number) for number in segment_numbers(first)][:-1]  # the last one is open
        self.num_envs = -(-STORE_BYTES // sum(map(len, segments)))
        self.num_frames = len(segments) * first.frames_per_segment
        self.in_ram, self.in_file = (FrameStore(self.num_envs, [(side, side, 1)]) for _ in range(2))
        self.path, self.frame_bytes = path, side * side
        with path.open("wb") as file:
            for env_id in range(self.num_envs):
                for number, segment in enumerate(segments):
                    self.in_ram.restore(env_id, number, segment)
                    self.in_file.restore_in_file(env_id, number, os.fsencode(path), file.tell(), len(segment))
                    file.write(segment)
            file.flush()
            os.fsync(file.fileno())

    def drop_from_page_cache(self) -> None:
        """Drop the file from the system's page cache."""
        descriptor = os.open(self.path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)

    def reading(self, packed: FrameStore, num_windows: int, threads: int) -> Callable[[], None]:
        """Return a call that reads the next batch of random windows."""
        return reading(packed, self.num_envs, self.num_frames, self.frame_bytes, num_windows, threads)


def bytes_read_from_disk() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def timed(call: Callable[[], None]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor


def measured(stores: Stores, num_windows: int, threads: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return microseconds per batch, by source; the sources alternate batch by batch."""
    ram = stores.reading(stores.in_ram, num_windows, threads)
    file = stores.reading(stores.in_file, num_windows, threads)
    for _ in range(NUM_BATCHES):
        ram(), file()
    times: dict[str, list[tuple[float, float]]] = {"ram": [], "warm": [], "cold": []}
    for _ in range(rounds * NUM_BATCHES):
        times["ram"].append(timed(ram))
        times["warm"].append(timed(file))
    before = bytes_read_from_disk()
    for _ in range(rounds * 33):
        stores.drop_from_page_cache()
        times["cold"].append(timed(file))
    read = (bytes_read_from_disk() - before) / len(times["cold"])
    rows = {
        way: {"wall_us": round(1e6 * float(wall), 1), "processor_us": round(1e6 * float(processor), 1)}
        for way, (wall, processor) in ((way, np.median(both, axis=0)) for way, both in times.items())
    }
    rows["cold"]["read_mib"] = round(read / MIB, 3)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=0, help="of 257 batches; the result is written for the default")
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    for game in GAMES:
        with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
            stores = Stores(recorded(game), Path(folder, "segments.log"))
            for num_windows in BATCHES:
                for threads in THREADS:
                    rows = measured(stores, num_windows, threads, arguments.rounds or 3)
                    figures[f"{game}, {num_windows} windows, {threads} threads"] = rows
    publish("disk_reading", {"figures": figures}, not arguments.rounds)


if __name__ == "__main__":
    main()
