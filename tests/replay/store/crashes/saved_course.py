"""A memory that is recorded and saved to one folder again and again, and what has to be found there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from framestow.replay.memory import ReplayMemory
from oracles.recorded_course import RecordedCourse, course_memory
from oracles.store_files import unaccounted
from oracles.watched_disk import WatchedDisk, as_the_disk

CAPACITY = 2600  # some four segments a stream and two blocks of steps
SAVED_AT = (1500, 1900, 2000, 2400)  # steps
OF_ANOTHER = 10  # steps of the memory that is saved there last
LOG_BYTES = 9000
ORDER = (*SAVED_AT, OF_ANOTHER)


def first_saved(course: RecordedCourse, folder: Path) -> ReplayMemory:
    """A memory that was recorded and saved once."""
    memory = course_memory(CAPACITY)
    course.record(memory, 0, SAVED_AT[0])
    with as_the_disk(WatchedDisk()):
        memory.save(folder)
    return memory


def save_on(course: RecordedCourse, memory: ReplayMemory, folder: Path, told: Callable[[int], object]) -> None:
    """Record and save: beside what was saved, over it, and, from another memory, without it."""
    at = SAVED_AT[0]
    for number, steps in enumerate(SAVED_AT[1:]):
        course.record(memory, at, steps)
        at = steps
        generation = memory.save(folder, keep_previous=number == 0)
        told(steps)
        if number == 0:
            memory.prune(folder, generation)
    other = course_memory(CAPACITY)
    course.record(other, 0, OF_ANOTHER)
    other.save(folder)
    told(OF_ANOTHER)


def check_what_is_left(course: RecordedCourse, folder: Path, promised: int, *, goes_on: bool = True) -> int:
    """Raise unless the folder holds what was promised, or what came next; return what it holds."""
    memory = ReplayMemory.load(folder)
    found = course.check_newest(memory)
    assert found in ORDER[ORDER.index(promised) :][:2], f"promised {promised}, found {found}"
    if goes_on:
        with as_the_disk(WatchedDisk()):
            memory.save(folder)
        assert found == course.check_newest(ReplayMemory.load(folder))
        assert not unaccounted(folder), unaccounted(folder)
    return found
