"""A log and its manifests survive kills, losses of power and failing disks with their last commit."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from framestow.storage.files.block_log import BlockLogWriter
from framestow.storage.files.file_system import finished_name
from oracles.failing_disk import FailingDisk
from oracles.log_workload import (
    FILE_BYTES,
    blocks_at,
    found,
    make_commit,
    make_commits,
    newest_manifest,
    unneeded_files,
)
from oracles.power_loss import JournalledDisk, PlayedDisk, check_losses
from oracles.raised_errors import error_of
from oracles.watched_disk import WatchedDisk

COMMITS_BEFORE, COMMITS = 3, 2  # the fourth compacts; both start and remove files
ALL = pytest.param(1, marks=pytest.mark.exhaustive)  # every operation; `make test` tries some
DISK = WatchedDisk()  # it syncs nothing


@pytest.mark.parametrize("every", [9, ALL])
def test_a_writer_killed_at_any_operation_leaves_the_last_commit(every, tmp_path: Path, record_property) -> None:
    script = Path(__file__).with_name("kill_log_writers.py")
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(every)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    assert (0, "") == (run.returncode, run.stderr)
    kills = [tuple(map(int, line.split())) for line in run.stdout.splitlines()]
    assert len(kills) > 70 // every
    assert {commit - promised for promised, commit in kills} <= {0, 1}
    record_property("kills", len(kills))


@pytest.mark.parametrize("every", [9, ALL])
def test_the_last_commit_survives_any_loss_of_power(every, tmp_path: Path, record_property) -> None:
    folder, after, disk = tmp_path / "log", tmp_path / "after", JournalledDisk()
    make_commits(folder, DISK, COMMITS_BEFORE, lambda _: None)
    played = PlayedDisk(tmp_path / "log")
    promised_at: list[int] = []  # number of operations when each commit returned
    make_commits(folder, disk, COMMITS, lambda _: promised_at.append(len(disk.journal)))

    def check(number: int, survival: str) -> None:
        promised = COMMITS_BEFORE + sum(at <= number for at in promised_at)
        commit, blocks = found(after)
        assert (0 <= commit - promised <= 1, blocks_at(commit)) == (True, blocks)
        if survival == "parts":
            make_commits(after, DISK, 1, lambda _: None)
            assert (commit + 1, blocks_at(commit + 1)) == found(after)
            assert [] == list(unneeded_files(after))

    record_property("losses of power", check_losses(disk, played, after, every, check))
    assert COMMITS == len(promised_at)


def test_a_loss_of_power_in_the_first_commit_leaves_nothing_or_all_of_it(tmp_path: Path) -> None:
    root, after, disk = tmp_path / "root", tmp_path / "after", JournalledDisk()
    root.mkdir()
    played = PlayedDisk(root)
    make_commits(root / "log", disk, 1, lambda _: None)

    def check(_number: int, _survival: str) -> None:
        commit, blocks = found(after / "log")
        assert commit in (0, 1)
        assert blocks_at(commit) == blocks

    assert check_losses(disk, played, after, 1, check) > 0


@pytest.mark.parametrize("every", [9, ALL])
@pytest.mark.parametrize(("error", "lasting"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_a_writer_continues_after_any_failed_operation(every, error, lasting, tmp_path, record_property) -> None:
    at, disk = 0, FailingDisk(-1, error)
    while at == 0 or disk.failed:
        folder = tmp_path / str(at)
        make_commits(folder, DISK, COMMITS_BEFORE, lambda _: None)
        disk = FailingDisk(-1, error, lasting=lasting)
        state = newest_manifest(folder)["log"]
        with BlockLogWriter.open(folder, "frames", state, file_bytes=FILE_BYTES, files=disk) as writer:
            disk.operations.clear()
            disk.at = at
            last = COMMITS_BEFORE
            for commit in range(COMMITS_BEFORE + 1, COMMITS_BEFORE + COMMITS + 1):
                raised = error_of(make_commit, folder, writer, commit, disk)
                if raised is not None:
                    failed = disk.failed.path
                    named = failed.with_name(finished_name(failed.name) or failed.name)
                    assert (error, str(named)) == (raised.errno, str(raised.filename))
                    after_error, blocks = found(folder)
                    assert last <= after_error <= commit
                    assert blocks_at(after_error) == blocks
                    disk.at, disk.lasting = -1, False
                    make_commit(folder, writer, commit, disk)
                last = commit
                assert (last, blocks_at(last)) == found(folder)
        assert [] == list(unneeded_files(folder))
        at += every
    assert at > 50
    record_property("failed operations", at // every)
