"""Loads a memory, or opens it to be read, again and again, from a folder that is written meanwhile.

A script of its own, because a reader is another process; it goes on until its input ends. The last three that were
opened are looked at again each time: they have to stay what they were. Prints how often it did, and how many states it
saw.
"""

from __future__ import annotations

import select
import sys
from collections import deque
from pathlib import Path

from framestow.replay.memory import ReplayMemory
from oracles.recorded_course import RecordedCourse

READERS = {"load": ReplayMemory.load, "open": ReplayMemory.open}
NUM_KEPT = 3


def main(folder: Path, num_steps: int, how: str) -> None:
    course, num_loads, found = RecordedCourse(num_steps), 0, [0]
    kept: deque[ReplayMemory] = deque(maxlen=NUM_KEPT)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0)[0] or not num_loads:
        kept.append(READERS[how](folder))
        num_loads += 1
        found.append(course.check_newest(kept[-1]))
        assert found[-len(kept) :] == [course.check_newest(memory) for memory in kept], "a reader's past changed"
        assert found[-1] >= found[-2], f"it went back from {found[-2]} to {found[-1]}"
    sys.stdout.write(f"{num_loads} {len(set(found)) - 1}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
