"""Load a memory, or open it read-only, repeatedly while another process writes to its folder.

A separate process, which runs until its input ends. It compares the last three memories again each time: they must not
change. Prints the number of loads and of different states.
"""

from __future__ import annotations

import select
import sys
from collections import deque
from pathlib import Path

from framestow.replay.memory import ReplayMemory
from oracles.fixed_play import FixedPlay

READERS = {"load": ReplayMemory.load, "open": ReplayMemory.open}
NUM_KEPT = 3


def main(folder: Path, num_steps: int, how: str) -> None:
    play, num_loads, found = FixedPlay(num_steps), 0, [0]
    kept: deque[ReplayMemory] = deque(maxlen=NUM_KEPT)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0)[0] or not num_loads:
        kept.append(READERS[how](folder))
        num_loads += 1
        found.append(play.check_newest(kept[-1]))
        assert found[-len(kept) :] == [play.check_newest(memory) for memory in kept], "a reader's past changed"
        assert found[-1] >= found[-2], f"it went back from {found[-2]} to {found[-1]}"
    sys.stdout.write(f"{num_loads} {len(set(found)) - 1}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
