"""Measure saving a million transitions, saving them again with 10,000 more, and loading them.

    python benchmarks/saving.py                      Breakout, results/saving.json
    python benchmarks/saving.py --transitions N      another size, printed only
    python benchmarks/saving.py --folder FOLDER      on the disk of that folder; of the temporary files otherwise

Eight environments fill the memory with 20,000 recorded frames of sticky random play (atari_frames.py), repeated, each
environment from another frame of the game. Every save ends with its bytes on disk (fsync). Peaks are the operating
system's peak of the process's memory (VmHWM), above its memory before the save, or after loading.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from atari_frames import FRAME_SIDE, Player
from figures import publish
from framestow import ReplayMemory
from framestow.frames.frame_spec import FrameSpec
from framestow.process import live_bytes

GAME, NUM_ENVS = "breakout", 8
NEW_STEPS, NUM_SAVES = 10_000, 7


def filled_memory(num_transitions: int, player: Player, **settings: Any) -> ReplayMemory:
    """Return a memory of that many transitions, all played by ``player``."""
    space = FrameSpec((FRAME_SIDE, FRAME_SIDE))
    memory = ReplayMemory(num_transitions, space, 4, stack=4, num_envs=NUM_ENVS, seed=0, **settings)
    player.play(memory, num_transitions)
    return memory


def peak_bytes(process: int | str = "self") -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def measured(call: Callable[[], object]) -> tuple[float, int]:
    """Return the seconds of ``call`` and the peak growth of the process."""
    before = live_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    return seconds, peak_bytes() - before


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def run(num_transitions: int, folder: Path) -> dict[str, float]:
    player = Player()
    memory = filled_memory(num_transitions, player)
    first_s, first_peak = measured(partial(memory.save, folder))
    first_bytes = folder_bytes(folder)
    again, again_peaks = [], []
    for _ in range(NUM_SAVES):
        player.play(memory, NEW_STEPS)
        seconds, peak = measured(partial(memory.save, folder))
        again.append(seconds)
        again_peaks.append(peak)
    expected = memory.sample(256)
    del memory
    loaded: list[ReplayMemory] = []
    before = live_bytes()
    load_s, load_peak = measured(lambda: loaded.append(ReplayMemory.load(folder)))
    live = live_bytes() - before
    assert num_transitions == len(loaded[0])
    assert expected.observation.shape == loaded[0].sample(256).observation.shape
    return {
        "transitions": num_transitions,
        "store_bytes": first_bytes,
        "first_save_s": first_s,
        "first_save_peak_bytes": first_peak,
        "new_steps": NEW_STEPS,
        "save_again_s_median": statistics.median(again),
        "save_again_s_worst": max(again),
        "save_again_peak_bytes": max(again_peaks),
        "load_s": load_s,
        "loaded_bytes": live,
        "load_peak_over_loaded_bytes": load_peak - live,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the store is written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        figures = run(arguments.transitions, Path(scratch) / "memory")
    publish("saving", figures, arguments.transitions == parser.get_default("transitions"))


if __name__ == "__main__":
    main()
