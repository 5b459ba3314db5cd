"""Saves survive kills, losses of power and failing disks: the folder has the last completed save, or the next one."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from framestow.replay.memory import ReplayMemory
from oracles.failing_disk import FailingDisk
from oracles.fixed_play import FixedPlay
from oracles.power_loss import JournalledDisk, PlayedDisk, check_losses
from oracles.raised_errors import error_of
from oracles.store_files import log_files_of, unaccounted
from oracles.watched_disk import as_the_disk
from replay.store.crashes.saved_play import (
    LOG_BYTES,
    SAVED_AT,
    check_stored,
    first_save,
    save_more,
)

ALL = pytest.param(1, marks=pytest.mark.exhaustive)  # every operation; `make test` tries some


@pytest.fixture(scope="module")
def play() -> FixedPlay:
    return FixedPlay(max(SAVED_AT))


@pytest.fixture(autouse=True)
def small_logs() -> Iterator[None]:
    with log_files_of(LOG_BYTES):
        yield


@pytest.mark.parametrize("every", [37, ALL])
def test_a_process_killed_in_a_save_leaves_the_last_completed_save(every: int, tmp_path: Path, record_property) -> None:
    command = [sys.executable, "-m", "replay.store.crashes.kill_savers", str(tmp_path), str(every)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])

    assert (0, "") == (run.returncode, run.stderr)
    kills = Counter(promised == found for promised, found in map(str.split, run.stdout.splitlines()))
    record_property("kills", kills.total())
    record_property("what was promised was found", kills[True])
    record_property("what came next was found", kills[False])
    assert kills[True] > 100 // every


@pytest.mark.parametrize("every", [37, ALL])
def test_a_loss_of_power_leaves_the_last_completed_save(play, every: int, tmp_path: Path, record_property) -> None:
    folder, after, disk = tmp_path / "memory", tmp_path / "after", JournalledDisk()
    memory = first_save(play, folder)
    played, promised_at = PlayedDisk(folder), {}
    with as_the_disk(disk):
        save_more(play, memory, folder, lambda steps: promised_at.update({len(disk.journal): steps}))

    def check(number: int, survival: str) -> None:
        promised = max((steps for at, steps in promised_at.items() if at <= number), default=SAVED_AT[0])
        check_stored(play, after, promised, resumes=survival == "parts")

    record_property("losses of power", check_losses(disk, played, after, every, check))
    assert len(SAVED_AT) == len(promised_at)


@pytest.mark.parametrize(("error", "lasting"), [(errno.ENOSPC, True), (errno.EIO, False)])
@pytest.mark.parametrize("every", [37, ALL])
def test_a_disk_that_fails_is_named_and_costs_nothing(play, every, error, lasting, tmp_path, record_property) -> None:
    folder, before = tmp_path / "memory", tmp_path / "before"
    first_save(play, folder)
    shutil.copytree(folder, before)
    num_failures, at, has_failed = 0, 0, True
    while has_failed:
        shutil.rmtree(folder)
        shutil.copytree(before, folder)
        memory = ReplayMemory.load(folder)
        play.record(memory, SAVED_AT[0], SAVED_AT[1])
        disk = FailingDisk(at, error, lasting=lasting)
        with as_the_disk(disk):
            raised = error_of(memory.save, folder)
        has_failed = disk.failed is not None
        if raised is not None:
            assert (error, True) == (raised.errno, str(raised.filename).startswith(str(folder)))
            check_stored(play, shutil.copytree(folder, tmp_path / "copy"), SAVED_AT[0])
            shutil.rmtree(tmp_path / "copy")
        play.record(memory, SAVED_AT[1], SAVED_AT[1] + 5)
        memory.sample(3)
        assert SAVED_AT[1] + 5 == play.check_newest(memory)
        memory.save(folder)
        assert SAVED_AT[1] + 5 == play.check_newest(ReplayMemory.load(folder))
        assert not unaccounted(folder)
        num_failures += has_failed
        at += every
    record_property("failed operations", num_failures)
    assert num_failures > 20 // every
