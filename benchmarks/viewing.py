"""Measure ``framestow view --serve`` on a store of a million transitions.

    python benchmarks/viewing.py                      Breakout, results/viewing.json
    python benchmarks/viewing.py --transitions N      another size, printed only

The store is the one of benchmarks/saving.py, with a prioritized sampler. ``first_page_s`` is from the start of the
command to the last byte that the first page needs: the page, the table of all episodes, one episode and its first
frames. A jump reads an episode and the frames around one of its steps, chosen at random. The peak is that of the server
(VmHWM), after all jumps and with the charts of what is drawn.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from pathlib import Path

import numpy as np

from atari_frames import Player
from figures import publish
from framestow import Prioritized
from saving import GAME, filled_memory, peak_bytes

JUMPS = 200


class Served:
    """Asks the server for resources."""

    def __init__(self, address: str) -> None:
        self.address = address
        page = urllib.request.urlopen(address).read().decode()
        self.source = page.partition('data-source="')[2].partition('"')[0]

    def read(self, name: str) -> tuple[dict, dict[str, np.ndarray]]:
        """Return the values and the arrays of a resource."""
        with urllib.request.urlopen(f"{self.address}{self.source}/{name}") as answer:
            content = zlib.decompress(answer.read())
        (length,) = struct.unpack_from("<I", content)
        header = json.loads(content[4 : 4 + length])
        arrays = {
            array: np.frombuffer(content, dtype, int(np.prod(shape)), 4 + length + offset).reshape(shape)
            for array, (dtype, shape, offset) in header["arrays"].items()
        }
        return header["values"], arrays


def measured(folder: Path) -> dict[str, object]:
    start = time.perf_counter()
    command = [sys.executable, "-m", "framestow", "view", str(folder), "--serve"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        served = Served(server.stdout.readline().strip())
        summary, _ = served.read("memory")
        _, table = served.read("episodes")
        served.read("episode/0")
        served.read("frames/0/0")
        first_page_s = time.perf_counter() - start
        random = np.random.default_rng(0)
        jumps = []
        for number in random.integers(len(table["number"]), size=JUMPS).tolist():
            step = int(random.integers(int(table["length"][number]) + 1))
            piece = (step + int(table["history"][number])) // summary["frames_per_piece"]
            jump_start = time.perf_counter()
            served.read(f"episode/{number}")
            served.read(f"frames/{number}/{piece}")
            jumps.append(time.perf_counter() - jump_start)
        before_charts = peak_bytes(server.pid)
        charts_start = time.perf_counter()
        served.read("distribution")
        return {
            "episodes": len(table["number"]),
            "first_page_s": round(first_page_s, 2),
            "jump_s": {
                "median": round(float(np.median(jumps)), 3),
                "p95": round(float(np.quantile(jumps, 0.95)), 3),
                "longest": round(max(jumps), 3),
            },
            "charts_s": round(time.perf_counter() - charts_start, 2),
            "peak_mib": {"before charts": before_charts >> 20, "with charts": peak_bytes(server.pid) >> 20},
        }
    finally:
        server.kill()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "store"
        memory = filled_memory(arguments.transitions, Player(), label=GAME, sampler=Prioritized())
        indices = memory.sampleable_indices()
        memory.update_priorities(indices, np.random.default_rng(0).exponential(size=len(indices)))
        memory.save(folder)
        result: dict[str, object] = {"game": GAME, "transitions": len(memory), **measured(folder)}
    publish("viewing", result, arguments.transitions == parser.get_default("transitions"))


if __name__ == "__main__":
    main()
