"""Kill a process that saves a memory at each operation on the disk.

A separate script, because it forks: each child has its parent's memory. Prints a line for each kill: the steps that a
returned save had covered, and the steps found.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from oracles.fixed_play import FixedPlay
from oracles.killed_child import killed_child
from oracles.killing_disk import MOMENTS, KillingDisk
from oracles.store_files import log_files_of
from oracles.watched_disk import as_the_disk
from replay.store.crashes.saved_play import LOG_BYTES, SAVED_AT, check_stored, first_save, save_more


def main(work: Path, every: int) -> None:
    play, folder, before = FixedPlay(max(SAVED_AT)), work / "memory", work / "before"
    memory = first_save(play, folder)
    shutil.copytree(folder, before)
    for moment in MOMENTS:
        at, was_killed = 0, True
        while was_killed:
            shutil.rmtree(folder)
            shutil.copytree(before, folder)
            with as_the_disk(KillingDisk(at, moment)):
                report, was_killed = killed_child(lambda report: save_more(play, memory, folder, report))
            promised = report or SAVED_AT[0]
            found = check_stored(play, folder, promised)
            if was_killed:
                sys.stdout.write(f"{promised} {found}\n")
            at += every


if __name__ == "__main__":
    with log_files_of(LOG_BYTES):
        main(Path(sys.argv[1]), int(sys.argv[2]))
