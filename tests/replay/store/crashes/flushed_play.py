"""A memory in a folder that is recorded, sampled, flushed and closed, and the check of its content."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from framestow.replay.memory import ReplayMemory
from oracles.fixed_play import FixedPlay, memory_of_play
from oracles.store_files import unaccounted
from oracles.watched_disk import WatchedDisk, as_the_disk

CAPACITY = 2600  # about four segments for each track, and two blocks of steps
FLUSHED_AT = (1500, 1900, 1910, 2300)  # steps
LOG_BYTES = 9000


def memory_in_folder(folder: Path, **settings) -> ReplayMemory:
    """Open the memory in ``folder``, without the warning of a crash."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*was not closed", RuntimeWarning)
        return memory_of_play(**({"capacity": CAPACITY, "directory": folder, "flush_every": None} | settings))


def first_flush(folder: Path) -> FixedPlay:
    """Create a memory in ``folder`` and close it; return its play."""
    play = FixedPlay(0)
    with as_the_disk(WatchedDisk()), memory_in_folder(folder) as memory:
        play.record(memory, 0, FLUSHED_AT[0])
    assert len(list(folder.glob("frames-*.log"))) > 1, "no log has rolled"
    play.reopen(FLUSHED_AT[0])
    play.extend(FLUSHED_AT[-1])
    return play


@cache
def afterwards(found: int) -> FixedPlay:
    """Return the play of a memory that was reopened with ``found`` steps."""
    play = FixedPlay(FLUSHED_AT[0])
    play.reopen(FLUSHED_AT[0])
    play.reopen(found)
    return play


def flush_more(play: FixedPlay, folder: Path, report: Callable[[int], object]) -> None:
    """Open the folder; record and flush each part; close."""
    at = FLUSHED_AT[0]
    with memory_in_folder(folder) as memory:
        for steps in FLUSHED_AT[1:]:
            play.record(memory, at, steps)
            memory.sample(4)
            memory.flush()
            report(steps)
            at = steps


def check_stored(play: FixedPlay, folder: Path, promised: int, *, resumes: bool = True) -> int:
    """Raise unless the folder has the promised steps or the next ones, and can be resumed; return its steps."""
    found = play.check_newest(ReplayMemory.open(folder))
    assert found in FLUSHED_AT[FLUSHED_AT.index(promised) :][:2], f"promised {promised}, found {found}"
    if resumes:
        with as_the_disk(WatchedDisk()):
            with memory_in_folder(folder) as memory:
                afterwards(found).record(memory, found, found + 30)
            assert found + 30 == afterwards(found).check_newest(ReplayMemory.open(folder))
        assert not unaccounted(folder), unaccounted(folder)
    return found
