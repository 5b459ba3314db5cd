"""Measure the portable code beside the vector code: how much longer do a step and a batch take without vectors?

    python benchmarks/portable.py                 ten games, results/portable.json
    python benchmarks/portable.py --games pong    some of them, printed only

The native module is built once more in build/portable, with -DFRAMESTOW_PORTABLE=ON. It has the code of arm64: the
compiler alone chooses vector instructions. Its bytes are the same (native_tests/processor_tests.cpp).

Each module runs in a process of its own, and the two take turns. A process stores 20,000 steps of random play
(atari_frames.py) in a memory of 10,000 transitions of 84x84 frames, stack 4, one environment. Then it appends steps and
samples batches of 32. Frames of Breakout are stored as float32, k / 255, too. Medians of single calls.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atari_frames import FRAME_SIDE, GAMES, recorded

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "portable"
NUM_STEPS, CAPACITY = 20_000, 10_000
NUM_FRAMES = 5_000  # different ones
STACK, BATCH, CALLS = 4, 32, 50
MODULE = "framestow._core._native"

calls: dict[str, Callable[[], object]] = {}  # of a process: what it measures


def build_portable() -> Path:
    """Build the native module without vector instructions; return its path."""
    settings = ["-C", "cmake.define.FRAMESTOW_PORTABLE=ON", "-C", f"build-dir={BUILD / 'objects'}"]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", BUILD, *settings, ROOT]
    for wheel in BUILD.glob("*.whl"):
        wheel.unlink()  # of an earlier version
    subprocess.run(command, check=True)
    [wheel] = BUILD.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if Path(name).name.startswith("_native") and "pyi" not in name]
        return Path(archive.extract(name, BUILD))


def fill(module: Path | None, frames: NDArray[np.generic]) -> None:
    """Fill a memory in this process, with the native module of that file if there is one."""
    if module is not None:
        spec = spec_from_file_location(MODULE, module)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[MODULE] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[MODULE])
    from framestow import FrameSpec, ReplayMemory

    frame_spec = FrameSpec(frames.shape[1:], frames.dtype, is_scaled=frames.dtype.kind == "f")
    memory = ReplayMemory(CAPACITY, frame_spec, 4, stack=STACK, seed=0)
    memory.begin(frames[:1])
    rows = cycle([frames[index : index + 1] for index in range(1, len(frames))])
    step = np.ones(1, np.int64), np.zeros(1), np.zeros(1, np.bool_), np.zeros(1, np.bool_)
    calls.update(append=lambda: memory.append(*step, next(rows)), sample=lambda: memory.sample(BATCH))
    for _ in range(NUM_STEPS):
        calls["append"]()


def take_turn() -> dict[str, list[float]]:
    """Return the seconds of single calls."""
    from framestow.benchmarking.timing import measure_turns

    return {name: times[0] for name, times in measure_turns(calls, 1, CALLS, warmup_rounds=0).items()}


def measure(portable: Path, frames: NDArray[np.generic], rounds: int) -> dict[str, dict[str, float]]:
    """Return the median microseconds of each call, with vectors and without, measured in turn."""
    context = multiprocessing.get_context("spawn")
    processes = {
        name: ProcessPoolExecutor(1, context, initializer=fill, initargs=(module, frames))
        for name, module in (("vector", None), ("portable", portable))
    }
    times: dict[str, dict[str, list[float]]] = {name: {"append": [], "sample": []} for name in processes}
    for _ in range(rounds):
        for name, process in processes.items():
            for call, seconds in process.submit(take_turn).result().items():
                times[name][call] += seconds
    for process in processes.values():
        process.shutdown()
    return {
        call: {name: 1e6 * float(np.median(seconds[call])) for name, seconds in times.items()}
        for call in ("append", "sample")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=GAMES)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()

    portable = build_portable()
    kinds = {game: recorded(game)[:NUM_FRAMES] for game in arguments.games}
    if "breakout" in kinds:
        kinds["breakout, float32"] = kinds["breakout"] / np.float32(255)
    results = {kind: measure(portable, frames, arguments.rounds) for kind, frames in kinds.items()}
    times = {
        call: {kind: result[call]["portable"] / result[call]["vector"] for kind, result in results.items()}
        for call in ("append", "sample")
    }
    for kind in results:
        print(f"{kind:<20} times as long: append {times['append'][kind]:5.2f}, sample {times['sample'][kind]:5.2f}")
    if tuple(arguments.games) == GAMES:
        from framestow.benchmarking.result_files import write_result

        side = {"frame_side": FRAME_SIDE, "batch_size": BATCH}
        write_result(ROOT / "benchmarks/results/portable.json", {**side, "microseconds": results, "times": times})


if __name__ == "__main__":
    main()
