"""Measure inspecting, verifying and repairing a store of a million transitions.

    python benchmarks/verifying.py                      Breakout, results/verifying.json
    python benchmarks/verifying.py --transitions N      another size, printed only

The store is the one of benchmarks/saving.py. Each command runs in its own process; peaks are the process's peak memory
(VmHWM) above that of a process with the same imports. Before the repair one bit is flipped in a segment and in a block
of steps.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from framestow.benchmarking.result_files import write_result
from saving import GAME, Player, filled_memory, folder_bytes

RESULTS = Path(__file__).parent / "results"
CALLS = {
    "import": "pass",
    "inspect": "inspect_memory(folder)",
    "verify": "assert verify_store(folder).is_intact",
    "repair": "assert not repair_store(folder).found.is_intact",
}
CODE = """
import sys, time
from pathlib import Path
from framestow.replay.inspection import inspect_memory
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
folder = Path(sys.argv[1])
start = time.perf_counter()
{call}
seconds = time.perf_counter() - start
print(seconds, int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024)
"""


def measured(call: str, folder: Path) -> tuple[float, int]:
    """Return seconds and peak bytes of a process that runs ``call``."""
    command = [sys.executable, "-c", CODE.format(call=call), str(folder)]
    seconds, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), int(peak)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "store"
        memory = filled_memory(arguments.transitions, Player(), label=GAME)
        memory.save(folder)
        result: dict[str, object] = {
            "game": GAME,
            "transitions": len(memory),
            "memory_bytes": memory.nbytes,
            "store_bytes": folder_bytes(folder),
        }
        del memory
        base = 0
        for name, call in CALLS.items():
            if name == "repair":
                flip(folder / "frames.000001.log")
                flip(folder / "steps.000001.log")
            seconds, peak = measured(call, folder)
            base = base or peak
            result[name] = {"seconds": round(seconds, 2), "peak_bytes": peak - base}
            print(name, result[name])
    if arguments.transitions == 1_000_000:
        write_result(RESULTS / "verifying.json", result)


if __name__ == "__main__":
    main()
