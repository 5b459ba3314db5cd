"""Saves memories to a folder that another process saves to as well; prints how often it did, and was turned away.

A script of its own, because the other writer is another process. Its memories have more than ``LEAST`` steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

from framestow.errors import IncompatibleError
from oracles.recorded_course import RecordedCourse, course_memory
from oracles.store_files import log_files_of


def main(folder: Path, first: int, num_saves: int) -> None:
    course, memory = RecordedCourse(first + 20 * num_saves), course_memory(1000)
    course.record(memory, 0, first)
    saved = turned_away = 0
    for at in range(first, first + 20 * num_saves, 20):
        course.record(memory, at, at + 20)
        try:
            memory.save(folder)
            saved += 1
        except IncompatibleError as error:
            if "is being written by" not in str(error):
                raise
            turned_away += 1
    sys.stdout.write(f"{saved} {turned_away}\n")


if __name__ == "__main__":
    with log_files_of(5000):
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
