"""Saves a memory to a disk that is full, makes room, and saves again.

A script of its own, because it wants a disk of its own: its argument is a folder that is a small tmpfs. For each amount
of room from none on a line: the bytes, and what the save raised.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from framestow.replay.memory import ReplayMemory
from oracles.raised_errors import error_of
from oracles.recorded_course import RecordedCourse, course_memory
from oracles.store_files import log_files_of, unaccounted
from replay.store.crashes.saved_course import CAPACITY, LOG_BYTES, SAVED_AT

PAGE = 4096


def free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def leave(folder: Path, num_bytes: int) -> None:
    """Fill the disk but for ``num_bytes``."""
    (folder / "ballast").unlink(missing_ok=True)
    with (folder / "ballast").open("wb", buffering=0) as ballast:
        while free_bytes(folder) > num_bytes:
            ballast.write(bytes(PAGE))


def main(disk: Path) -> None:
    course, memory, folder = RecordedCourse(max(SAVED_AT)), course_memory(CAPACITY), disk / "memory"
    at = SAVED_AT[0]
    course.record(memory, 0, at)
    memory.save(folder)
    saved, room, is_full = at, 0, True
    while is_full:
        at += 20
        course.record(memory, at - 20, at)
        leave(disk, room)
        error = error_of(memory.save, folder)
        if error is None:
            is_full, saved = False, at
        else:
            assert (errno.ENOSPC, True) == (error.errno, str(error.filename).startswith(str(folder))), repr(error)
            sys.stdout.write(f"{room}: {error}\n")
        assert saved == course.check_newest(ReplayMemory.load(folder))
        assert at == course.check_newest(memory)
        room += PAGE
        if room % (4 * PAGE) == 0:
            (disk / "ballast").unlink()
            memory.save(folder)
            assert at == course.check_newest(ReplayMemory.load(folder))
            assert not unaccounted(folder)
            saved = at


if __name__ == "__main__":
    with log_files_of(LOG_BYTES):
        main(Path(sys.argv[1]))
