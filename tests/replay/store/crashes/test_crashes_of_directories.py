"""A memory in a folder survives kills, losses of power and failing disks with its last flush."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from framestow.replay.memory import ReplayMemory
from oracles.failing_disk import FailingDisk
from oracles.power_loss import JournalledDisk, PlayedDisk, check_losses
from oracles.raised_errors import error_of
from oracles.store_files import log_files_of, unaccounted
from oracles.watched_disk import as_the_disk
from replay.store.crashes.flushed_play import (
    FLUSHED_AT,
    LOG_BYTES,
    check_stored,
    first_flush,
    flush_more,
    memory_in_folder,
)

ALL = pytest.param(1, marks=pytest.mark.exhaustive)  # every operation; `make test` tries some


@pytest.fixture(autouse=True)
def small_logs() -> Iterator[None]:
    with log_files_of(LOG_BYTES):
        yield


def lines_of(script: str, *arguments: object) -> list[list[int]]:
    command = [sys.executable, "-m", f"replay.store.crashes.{script}", *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert (0, "") == (run.returncode, run.stderr)
    return [list(map(int, line.split())) for line in run.stdout.splitlines()]


@pytest.mark.parametrize("every", [47, ALL])
def test_a_process_killed_at_any_operation_leaves_the_last_flush(every: int, tmp_path: Path, record_property) -> None:
    kills = Counter(promised == found for promised, found in lines_of("kill_flushers", tmp_path, every))

    record_property("kills", kills.total())
    record_property("what was promised was found", kills[True])
    record_property("what came next was found", kills[False])
    assert kills[True] > 100 // every


@pytest.mark.parametrize("settings", [{}, {"retention": "random"}], ids=["fifo", "random"])
@pytest.mark.parametrize("num_kills", [3, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_a_process_killed_at_a_random_moment_resumes(num_kills, settings, tmp_path: Path, record_property) -> None:
    kills = lines_of("kill_at_random", tmp_path / "memory", num_kills, 0, json.dumps(settings))

    assert num_kills == len(kills)
    assert kills == sorted(kills)
    record_property("kills", num_kills)
    record_property("steps recorded through all of them", kills[-1][1])


@pytest.mark.parametrize("every", [47, ALL])
def test_a_loss_of_power_leaves_the_last_flush(every: int, tmp_path: Path, record_property) -> None:
    folder, after, disk = tmp_path / "memory", tmp_path / "after", JournalledDisk()
    play = first_flush(folder)
    played, promised_at = PlayedDisk(folder), {}
    with as_the_disk(disk):
        flush_more(play, folder, lambda steps: promised_at.update({len(disk.journal): steps}))

    def check(number: int, survival: str) -> None:
        promised = max((steps for at, steps in promised_at.items() if at <= number), default=FLUSHED_AT[0])
        check_stored(play, after, promised, resumes=survival == "parts")

    record_property("losses of power", check_losses(disk, played, after, every, check))
    assert len(FLUSHED_AT) - 1 == len(promised_at)


@pytest.mark.parametrize(("error", "lasting"), [(errno.ENOSPC, True), (errno.EIO, False)])
@pytest.mark.parametrize("every", [47, ALL])
def test_a_disk_that_fails_is_named_and_costs_nothing(every, error, lasting, tmp_path, record_property) -> None:
    folder, before = tmp_path / "memory", tmp_path / "before"
    play = first_flush(folder)
    shutil.copytree(folder, before)
    num_failures, at, has_failed = 0, 0, True
    while has_failed:
        shutil.rmtree(folder)
        shutil.copytree(before, folder)
        with memory_in_folder(folder) as memory:
            play.record(memory, FLUSHED_AT[0], FLUSHED_AT[1])
            disk = FailingDisk(at, error, lasting=lasting)
            with as_the_disk(disk):
                raised = error_of(memory.flush)
            has_failed = disk.failed is not None
            if raised is not None:
                assert (error, True) == (raised.errno, str(raised.filename).startswith(str(folder)))
                check_stored(play, shutil.copytree(folder, tmp_path / "copy"), FLUSHED_AT[0])
                shutil.rmtree(tmp_path / "copy")
            disk.at, disk.lasting = -1, False  # the disk has free space again
            assert FLUSHED_AT[1] == play.check_newest(memory)
            play.record(memory, FLUSHED_AT[1], FLUSHED_AT[1] + 5)
            memory.sample(3)
            memory.flush()
            assert FLUSHED_AT[1] + 5 == play.check_newest(ReplayMemory.load(folder))
        assert not unaccounted(folder)
        num_failures += has_failed
        at += every
    record_property("failed operations", num_failures)
    assert num_failures > 20 // every
