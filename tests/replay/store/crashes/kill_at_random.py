"""Kills a process that records, samples and flushes, at random moments, and goes on where it was, again and again.

A script of its own, because it forks. A line a kill: the steps that a returned flush had covered, and those found. The
memory also flushes in the background, so more may be found than any call had promised.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from framestow.replay.memory import ReplayMemory
from framestow.storage.files.manifest import generations
from oracles.killed_child import killed_child
from oracles.recorded_course import NUM_STREAMS, RecordedCourse
from oracles.store_files import log_files_of, unaccounted
from replay.store.crashes.flushed_course import CAPACITY, LOG_BYTES, lasting_memory

LONGEST_LIFE_S = 0.4


def live(course: RecordedCourse, folder: Path, found: int, random: np.random.Generator, settings: dict, tell) -> None:
    """Go on from step ``found`` until a timer kills this process; what a flush covers is noted before it is told."""
    timer = threading.Timer(random.random() * LONGEST_LIFE_S, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    if random.random() < 0.3:
        timer.start()  # so that opening is killed too
    flush_every_steps = random.choice([20, 60, 10**9])
    memory = lasting_memory(folder, flush_every=0.02, **settings)
    if not timer.is_alive():
        timer.start()
    for at in itertools.count(found, 10):
        course.record(memory, at, at + 10)
        memory.sample(8)
        if (at + 10) % flush_every_steps == 0:
            memory.flush()
            note = folder.with_suffix(".new")
            note.write_text(json.dumps(course.check_any(memory)))
            note.replace(folder.with_suffix(f".{at + 10}"))
            tell(at + 10)
        time.sleep(0.001)


def check_what_is_left(course: RecordedCourse, folder: Path, promised: int, settings: dict) -> int:
    """Raise unless the folder holds what was promised, but for what had to make room since; return its steps."""
    if not generations(folder):
        assert not promised
        return 0
    reader = ReplayMemory.open(folder)
    numbers = course.check_any(reader)
    stop = numbers[-1] + 1 if numbers else 0
    if not settings:
        assert list(range(max(0, stop - CAPACITY), stop)) == numbers
    found = stop // NUM_STREAMS
    assert promised <= found, f"promised {promised}, found {found}"
    note = folder.with_suffix(f".{promised}")
    if note.exists():
        covered = json.loads(note.read_text())
        assert {number for number in numbers if number < promised * NUM_STREAMS} <= set(covered)
        assert found > promised or numbers == covered
    return found


def main(folder: Path, num_kills: int, seed: int, settings: dict) -> None:
    course, found, random = RecordedCourse(0), 0, np.random.default_rng(seed)
    for _ in range(num_kills):
        course.reopen(found)
        course.extend(found + 1000)
        of_child = random.spawn(1)[0]
        told, was_killed = killed_child(
            lambda tell, found=found, of_child=of_child: live(course, folder, found, of_child, settings, tell)
        )
        assert was_killed
        promised = max(found, told)
        found = check_what_is_left(course, folder, promised, settings)
        sys.stdout.write(f"{promised} {found}\n")
    with lasting_memory(folder, **settings):
        pass
    assert not unaccounted(folder), unaccounted(folder)


if __name__ == "__main__":
    with log_files_of(LOG_BYTES):
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
