"""Kills a writer of a log at each operation on the disk; prints what was found each time.

A script of its own, because it forks. For each kill a line: the commit that was promised, and the one that was found.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from oracles.killing_disk import MOMENTS, KillingDisk
from oracles.log_course import found, go_on, held_at, left_over
from oracles.watched_disk import WatchedDisk

COMMITS_BEFORE, COMMITS = 3, 2  # the fourth compacts, both roll and remove


def promised_by_a_killed_writer(folder: Path, at: int, moment: str) -> tuple[int, bool]:
    """Run a writer until it is killed; return the last commit that it was told of, and whether it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        go_on(folder, KillingDisk(at, moment), COMMITS, lambda commit: os.write(writing, bytes([commit])))
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    return max(told, default=COMMITS_BEFORE), os.WIFSIGNALED(status)


def main(work: Path, every: int) -> None:
    before = work / "before"
    go_on(before, WatchedDisk(), COMMITS_BEFORE, lambda _: None)
    for moment in MOMENTS:
        at, was_killed = 0, True
        while was_killed:
            folder = work / "killed"
            shutil.copytree(before, folder)
            promised, was_killed = promised_by_a_killed_writer(folder, at, moment)
            commit, blocks = found(folder)
            assert blocks == held_at(commit), "blocks are not those of the commit"
            go_on(folder, WatchedDisk(), 1, lambda _: None)
            assert (commit + 1, held_at(commit + 1)) == found(folder), "it cannot go on"
            assert not list(left_over(folder)), f"left over: {list(left_over(folder))}"
            shutil.rmtree(folder)
            if was_killed:
                sys.stdout.write(f"{promised} {commit}\n")
            at += every


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
