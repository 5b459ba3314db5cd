"""A memory that lives in a folder: recorded, sampled, flushed and closed, and what has to be found there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from framestow.replay.memory import ReplayMemory
from oracles.recorded_course import RecordedCourse, course_memory
from oracles.store_files import unaccounted
from oracles.watched_disk import WatchedDisk, as_the_disk

CAPACITY = 2600  # some four segments a stream and two blocks of steps
FLUSHED_AT = (1500, 1900, 1910, 2300)  # steps
LOG_BYTES = 9000


def lasting_memory(folder: Path, **settings) -> ReplayMemory:
    """The memory that lives in ``folder``; what a crash left there is told by a warning, which is no news here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*was not closed", RuntimeWarning)
        return course_memory(**({"capacity": CAPACITY, "directory": folder, "flush_every": None} | settings))


def first_flushed(folder: Path) -> RecordedCourse:
    """Make a memory that lives in ``folder``, and close it; return its course."""
    course = RecordedCourse(0)
    with as_the_disk(WatchedDisk()), lasting_memory(folder) as memory:
        course.record(memory, 0, FLUSHED_AT[0])
    assert len(list(folder.glob("frames.*.log"))) > 1, "no log has rolled"
    course.reopen(FLUSHED_AT[0])
    course.extend(FLUSHED_AT[-1])
    return course


@cache
def afterwards(found: int) -> RecordedCourse:
    """The course of a memory that was opened again with ``found`` steps."""
    course = RecordedCourse(FLUSHED_AT[0])
    course.reopen(FLUSHED_AT[0])
    course.reopen(found)
    return course


def flush_on(course: RecordedCourse, folder: Path, told: Callable[[int], object]) -> None:
    """Open the folder, record, flush after each part, close."""
    at = FLUSHED_AT[0]
    with lasting_memory(folder) as memory:
        for steps in FLUSHED_AT[1:]:
            course.record(memory, at, steps)
            memory.sample(4)
            memory.flush()
            told(steps)
            at = steps


def check_what_is_left(course: RecordedCourse, folder: Path, promised: int, *, goes_on: bool = True) -> int:
    """Raise unless the folder holds what was promised, or what came next, and goes on; return what it held."""
    found = course.check_newest(ReplayMemory.open(folder))
    assert found in FLUSHED_AT[FLUSHED_AT.index(promised) :][:2], f"promised {promised}, found {found}"
    if goes_on:
        with as_the_disk(WatchedDisk()):
            with lasting_memory(folder) as memory:
                afterwards(found).record(memory, found, found + 30)
            assert found + 30 == afterwards(found).check_newest(ReplayMemory.open(folder))
        assert not unaccounted(folder), unaccounted(folder)
    return found
