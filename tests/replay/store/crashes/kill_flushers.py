"""Kills a process whose memory lives in a folder, at each operation on the disk from opening to closing.

A script of its own, because it forks. For each kill a line: the steps that a returned flush had covered, and those that
were found.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from oracles.killed_child import killed_child
from oracles.killing_disk import BEFORE, MOMENTS, KillingDisk
from oracles.store_files import log_files_of
from oracles.watched_disk import as_the_disk
from replay.store.crashes.flushed_course import FLUSHED_AT, LOG_BYTES, check_what_is_left, first_flushed, flush_on

LEFT_BY_A_CRASH = 25  # operations after which the one process before these was killed


def main(work: Path, every: int) -> None:
    folder, before = work / "memory", work / "before"
    course = first_flushed(folder)
    with as_the_disk(KillingDisk(LEFT_BY_A_CRASH, BEFORE)):
        assert killed_child(lambda tell: flush_on(course, folder, tell)) == (0, True)
    shutil.copytree(folder, before)
    for moment in MOMENTS:
        at, was_killed = 0, True
        while was_killed:
            shutil.rmtree(folder)
            shutil.copytree(before, folder)
            with as_the_disk(KillingDisk(at, moment)):
                told, was_killed = killed_child(lambda tell: flush_on(course, folder, tell))
            promised = told or FLUSHED_AT[0]
            found = check_what_is_left(course, folder, promised)
            if was_killed:
                sys.stdout.write(f"{promised} {found}\n")
            at += every


if __name__ == "__main__":
    with log_files_of(LOG_BYTES):
        main(Path(sys.argv[1]), int(sys.argv[2]))
