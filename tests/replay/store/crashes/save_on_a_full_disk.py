"""Save a memory to a full disk, free some space, and save again.

A separate script; its argument is a folder on a small tmpfs. Prints a line for each amount of free space: the bytes,
and the error of the save.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from framestow.replay.memory import ReplayMemory
from oracles.fixed_play import FixedPlay, memory_of_play
from oracles.raised_errors import error_of
from oracles.store_files import log_files_of, unaccounted
from replay.store.crashes.saved_play import CAPACITY, LOG_BYTES, SAVED_AT

PAGE = 4096


def free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def fill_except(folder: Path, num_bytes: int) -> None:
    """Fill the disk, except for ``num_bytes``."""
    (folder / "ballast").unlink(missing_ok=True)
    with (folder / "ballast").open("wb", buffering=0) as ballast:
        while free_bytes(folder) > num_bytes:
            ballast.write(bytes(PAGE))


def main(disk: Path) -> None:
    play, memory, folder = FixedPlay(max(SAVED_AT)), memory_of_play(CAPACITY), disk / "memory"
    at = SAVED_AT[0]
    play.record(memory, 0, at)
    memory.save(folder)
    saved, free, is_full = at, 0, True
    while is_full:
        at += 20
        play.record(memory, at - 20, at)
        fill_except(disk, free)
        error = error_of(memory.save, folder)
        if error is None:
            is_full, saved = False, at
        else:
            assert (errno.ENOSPC, True) == (error.errno, str(error.filename).startswith(str(folder))), repr(error)
            sys.stdout.write(f"{free}: {error}\n")
        found = play.check_newest(ReplayMemory.load(folder))
        assert found in (saved, at)  # the new one, if only its second commit found no room
        saved = found
        assert at == play.check_newest(memory)
        free += PAGE
        if free % (4 * PAGE) == 0:
            (disk / "ballast").unlink()
            memory.save(folder)
            assert at == play.check_newest(ReplayMemory.load(folder))
            assert not unaccounted(folder)
            saved = at


if __name__ == "__main__":
    with log_files_of(LOG_BYTES):
        main(Path(sys.argv[1]))
