"""A memory that is recorded and saved to one folder repeatedly, and the check of its content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from framestow.replay.memory import ReplayMemory
from oracles.fixed_play import FixedPlay, memory_of_play
from oracles.store_files import unaccounted
from oracles.watched_disk import WatchedDisk, as_the_disk

CAPACITY = 2600  # about four segments for each track, and two blocks of steps
SAVED_AT = (1500, 1900, 2000, 2400)  # steps
OF_ANOTHER = 10  # steps of another memory, saved last
LOG_BYTES = 9000
ORDER = (*SAVED_AT, OF_ANOTHER)


def first_save(play: FixedPlay, folder: Path) -> ReplayMemory:
    """Return a memory that was recorded and saved once."""
    memory = memory_of_play(CAPACITY)
    play.record(memory, 0, SAVED_AT[0])
    with as_the_disk(WatchedDisk()):
        memory.save(folder)
    return memory


def save_more(play: FixedPlay, memory: ReplayMemory, folder: Path, report: Callable[[int], object]) -> None:
    """Record and save: beside older generations, over them, and from another memory."""
    at = SAVED_AT[0]
    for number, steps in enumerate(SAVED_AT[1:]):
        play.record(memory, at, steps)
        at = steps
        generation = memory.save(folder, keep_previous=number == 0)
        report(steps)
        if number == 0:
            memory.prune(folder, generation)
    other = memory_of_play(CAPACITY)
    play.record(other, 0, OF_ANOTHER)
    other.save(folder)
    report(OF_ANOTHER)


def check_stored(play: FixedPlay, folder: Path, promised: int, *, resumes: bool = True) -> int:
    """Raise unless the folder has the promised steps or the next ones; return its steps."""
    memory = ReplayMemory.load(folder)
    found = play.check_newest(memory)
    assert found in ORDER[ORDER.index(promised) :][:2], f"promised {promised}, found {found}"
    if resumes:
        with as_the_disk(WatchedDisk()):
            memory.save(folder)
        assert found == play.check_newest(ReplayMemory.load(folder))
        assert not unaccounted(folder), unaccounted(folder)
    return found
