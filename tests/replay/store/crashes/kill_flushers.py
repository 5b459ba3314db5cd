"""Kill a process with a memory in a folder at each operation on the disk, from opening to closing.

A separate script, because it forks. Prints a line for each kill: the steps that a returned flush had covered, and the
steps found.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from oracles.killed_child import killed_child
from oracles.killing_disk import BEFORE, MOMENTS, KillingDisk
from oracles.store_files import log_files_of
from oracles.watched_disk import as_the_disk
from replay.store.crashes.flushed_play import FLUSHED_AT, LOG_BYTES, check_stored, first_flush, flush_more

CRASHED_AT = 25  # operations of an earlier process before its kill


def main(work: Path, every: int) -> None:
    folder, before = work / "memory", work / "before"
    play = first_flush(folder)
    with as_the_disk(KillingDisk(CRASHED_AT, BEFORE)):
        assert killed_child(lambda report: flush_more(play, folder, report)) == (0, True)
    shutil.copytree(folder, before)
    for moment in MOMENTS:
        at, was_killed = 0, True
        while was_killed:
            shutil.rmtree(folder)
            shutil.copytree(before, folder)
            with as_the_disk(KillingDisk(at, moment)):
                report, was_killed = killed_child(lambda report: flush_more(play, folder, report))
            promised = report or FLUSHED_AT[0]
            found = check_stored(play, folder, promised)
            if was_killed:
                sys.stdout.write(f"{promised} {found}\n")
            at += every


if __name__ == "__main__":
    with log_files_of(LOG_BYTES):
        main(Path(sys.argv[1]), int(sys.argv[2]))
