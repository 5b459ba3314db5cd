"""Kills a process that saves a memory, at each operation on the disk; prints what was found each time.

A script of its own, because it forks: each child has the memory as its parent had it. For each kill a line: the steps
that a returned save had covered, and those that were found.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from oracles.killed_child import killed_child
from oracles.killing_disk import MOMENTS, KillingDisk
from oracles.recorded_course import RecordedCourse
from oracles.store_files import log_files_of
from oracles.watched_disk import as_the_disk
from replay.store.crashes.saved_course import LOG_BYTES, SAVED_AT, check_what_is_left, first_saved, save_on


def main(work: Path, every: int) -> None:
    course, folder, before = RecordedCourse(max(SAVED_AT)), work / "memory", work / "before"
    memory = first_saved(course, folder)
    shutil.copytree(folder, before)
    for moment in MOMENTS:
        at, was_killed = 0, True
        while was_killed:
            shutil.rmtree(folder)
            shutil.copytree(before, folder)
            with as_the_disk(KillingDisk(at, moment)):
                told, was_killed = killed_child(lambda tell: save_on(course, memory, folder, tell))
            promised = told or SAVED_AT[0]
            found = check_what_is_left(course, folder, promised)
            if was_killed:
                sys.stdout.write(f"{promised} {found}\n")
            at += every


if __name__ == "__main__":
    with log_files_of(LOG_BYTES):
        main(Path(sys.argv[1]), int(sys.argv[2]))
