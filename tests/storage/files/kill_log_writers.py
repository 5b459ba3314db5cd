"""Kill a writer of a log at each operation on the disk.

A separate script, because it forks. Prints a line for each kill: the last reported commit, and the one found.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from oracles.killed_child import killed_child
from oracles.killing_disk import MOMENTS, KillingDisk
from oracles.log_workload import blocks_at, found, make_commits, unneeded_files
from oracles.watched_disk import WatchedDisk

COMMITS_BEFORE, COMMITS = 3, 2  # the fourth compacts; both start and remove files


def killed_writer(folder: Path, disk: KillingDisk) -> tuple[int, bool]:
    """Run a writer until it is killed; return its last reported commit, and whether it was killed."""
    return killed_child(lambda report: make_commits(folder, disk, COMMITS, report))


def main(work: Path, every: int) -> None:
    before = work / "before"
    make_commits(before, WatchedDisk(), COMMITS_BEFORE, lambda _: None)
    for moment in MOMENTS:
        at, was_killed = 0, True
        while was_killed:
            folder = work / "killed"
            shutil.copytree(before, folder)
            reported, was_killed = killed_writer(folder, KillingDisk(at, moment))
            promised = reported or COMMITS_BEFORE
            commit, blocks = found(folder)
            assert blocks == blocks_at(commit), "blocks are not those of the commit"
            make_commits(folder, WatchedDisk(), 1, lambda _: None)
            assert (commit + 1, blocks_at(commit + 1)) == found(folder), "it cannot be continued"
            assert not list(unneeded_files(folder)), f"left over: {list(unneeded_files(folder))}"
            shutil.rmtree(folder)
            if was_killed:
                sys.stdout.write(f"{promised} {commit}\n")
            at += every


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
