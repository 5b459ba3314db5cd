"""Kill a process at random moments while it records, samples and flushes; resume it each time.

A separate script, because it forks. Prints a line for each kill: the steps that a returned flush had covered, and the
steps found. The memory also flushes in the background, so more steps may be found than promised.
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
from oracles.fixed_play import NUM_ENVS, FixedPlay
from oracles.killed_child import killed_child
from oracles.store_files import generations, log_files_of, unaccounted
from replay.store.crashes.flushed_play import CAPACITY, LOG_BYTES, memory_in_folder

LONGEST_LIFE_S = 0.4


def live(play: FixedPlay, folder: Path, found: int, random: np.random.Generator, settings: dict, report) -> None:
    """Continue from step ``found`` until a timer kills this process; note each flush before reporting it."""
    timer = threading.Timer(random.random() * LONGEST_LIFE_S, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    if random.random() < 0.3:
        timer.start()  # kills in the opening too
    flush_every_steps = random.choice([20, 60, 10**9])
    memory = memory_in_folder(folder, flush_every=0.02, **settings)
    if not timer.is_alive():
        timer.start()
    for at in itertools.count(found, 10):
        play.record(memory, at, at + 10)
        memory.sample(8)
        if (at + 10) % flush_every_steps == 0:
            memory.flush()
            note = folder.with_suffix(".new")
            note.write_text(json.dumps(play.check_any(memory)))
            note.replace(folder.with_suffix(f".{at + 10}"))
            report(at + 10)
        time.sleep(0.001)


def check_stored(play: FixedPlay, folder: Path, promised: int, settings: dict) -> int:
    """Raise unless the folder has the promised steps, except evicted ones; return its steps."""
    if not generations(folder):
        assert not promised
        return 0
    reader = ReplayMemory.open(folder)
    numbers = play.check_any(reader)
    stop = numbers[-1] + 1 if numbers else 0
    if not settings:
        assert list(range(max(0, stop - CAPACITY), stop)) == numbers
    found = stop // NUM_ENVS
    assert promised <= found, f"promised {promised}, found {found}"
    note = folder.with_suffix(f".{promised}")
    if note.exists():
        covered = json.loads(note.read_text())
        assert {number for number in numbers if number < promised * NUM_ENVS} <= set(covered)
        assert found > promised or numbers == covered
    return found


def main(folder: Path, num_kills: int, seed: int, settings: dict) -> None:
    play, found, random = FixedPlay(0), 0, np.random.default_rng(seed)
    for _ in range(num_kills):
        play.reopen(found)
        play.extend(found + 1000)
        of_child = random.spawn(1)[0]
        report, was_killed = killed_child(
            lambda report, found=found, of_child=of_child: live(play, folder, found, of_child, settings, report)
        )
        assert was_killed
        promised = max(found, report)
        found = check_stored(play, folder, promised, settings)
        sys.stdout.write(f"{promised} {found}\n")
    with memory_in_folder(folder, **settings):
        pass
    assert not unaccounted(folder), unaccounted(folder)


if __name__ == "__main__":
    with log_files_of(LOG_BYTES):
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
