"""Other processes in a writer's folder: readers see consistent snapshots, a second writer is refused."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from framestow.replay.memory import ReplayMemory
from oracles.fixed_play import FixedPlay
from oracles.store_files import log_files_of, unaccounted
from replay.store.crashes.saved_play import CAPACITY, LOG_BYTES, SAVED_AT, first_save

ALL = pytest.param(30, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize("seconds", [1, ALL])
@pytest.mark.parametrize("how", [pytest.param("load", marks=pytest.mark.exhaustive), "open"])
def test_readers_see_consistent_snapshots_while_another_process_writes(how, seconds, tmp_path, record_property) -> None:
    """For a memory in RAM that is saved, and for a memory in the folder."""
    folder, num_steps = tmp_path / "memory", SAVED_AT[0] + 400 * seconds
    play = FixedPlay(num_steps)
    command = [sys.executable, "-m", "replay.store.crashes.load_during_writes", str(folder), str(num_steps), how]
    with log_files_of(LOG_BYTES), ExitStack() as ends:
        memory = ends.enter_context(first_save(play, folder))
        if how == "open":
            memory = ends.enter_context(ReplayMemory.open(folder, read_only=False, flush_every=0.1))
        readers = [
            ends.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
                )
            )
            for _ in range(2)
        ]
        for reader in readers:
            assert reader.stdout.readline() == "ready\n"
        until, at, num_saves = time.monotonic() + seconds, SAVED_AT[0], 0
        while time.monotonic() < until and at + 40 <= num_steps:
            play.record(memory, at, at + 40)
            at += 40
            memory.save(folder) if how == "load" else memory.flush()
            num_saves += 1
        report = [tuple(map(int, reader.communicate()[0].split())) for reader in readers]
        assert [0, 0] == [reader.returncode for reader in readers]

    loads, states = map(sum, zip(*report, strict=True))
    record_property("loads beside a writer", loads)
    record_property("saves beside readers", num_saves)
    assert loads >= 2
    assert states >= 2
    assert num_saves > 1
    assert CAPACITY == len(memory)


@pytest.mark.parametrize("num_saves", [6, pytest.param(150, marks=pytest.mark.exhaustive)])
def test_one_of_two_writers_is_refused_and_neither_does_harm(num_saves, tmp_path, record_property) -> None:
    folder, script = tmp_path / "memory", "replay.store.crashes.save_from_two_processes"
    commands = [
        [sys.executable, "-m", script, str(folder), str(first), str(num_saves)] for first in (0, 40 * num_saves)
    ]
    with ExitStack() as ends:
        writers = [
            ends.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]))
            for command in commands
        ]
        saved, turned_away = map(sum, zip(*(map(int, one.communicate()[0].split()) for one in writers), strict=True))
        assert [0, 0] == [writer.returncode for writer in writers]

    assert 2 * num_saves == saved + turned_away
    play = FixedPlay(60 * num_saves)
    assert play.check_newest(ReplayMemory.load(folder)) > 0
    assert not unaccounted(folder)
    record_property("saves beside another writer", saved)
    record_property("turned away", turned_away)
