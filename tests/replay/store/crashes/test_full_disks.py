"""Disks that are full for the operating system: a limit of the file size, a small tmpfs."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from framestow.replay.memory import ReplayMemory
from oracles.fixed_play import FixedPlay
from oracles.store_files import unaccounted
from replay.store.crashes.saved_play import SAVED_AT, first_save
from training.full_disk import no_file_larger_than

SCRIPT = "replay.store.crashes.save_on_a_full_disk"


def test_a_file_that_cannot_grow_is_named_and_costs_nothing(tmp_path: Path, record_property) -> None:
    play, folder = FixedPlay(SAVED_AT[1] + 5), tmp_path / "memory"
    first_save(play, folder)
    memory = ReplayMemory.load(folder)
    at = SAVED_AT[1]
    play.record(memory, SAVED_AT[0], at)
    limits = [*range(0, 3000, 500), *range(3000, 30_000, 3000)]
    for limit in limits:
        with no_file_larger_than(limit), pytest.raises(OSError, match=str(folder)) as raised:
            memory.save(folder)

        assert raised.value.errno == errno.EFBIG
        assert play.check_newest(ReplayMemory.load(folder)) == SAVED_AT[0]
        assert at == play.check_newest(memory)
    record_property("file size limits", len(limits))
    memory.save(folder)
    assert at == play.check_newest(ReplayMemory.load(folder))
    assert not unaccounted(folder)


def test_a_full_tmpfs_is_named_and_costs_nothing(tmp_path: Path, record_property) -> None:
    mount = f"mount -t tmpfs -o size=400k tmpfs {tmp_path}"
    unshared = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*unshared, mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("nobody may mount a tmpfs here")
    script = f"{mount} && exec {sys.executable} -m {SCRIPT} {tmp_path}"
    run = subprocess.run(
        [*unshared, script], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3]
    )

    assert (0, "") == (run.returncode, run.stderr)
    assert len(run.stdout.splitlines()) > 3
    record_property("saves to a full disk", len(run.stdout.splitlines()))
