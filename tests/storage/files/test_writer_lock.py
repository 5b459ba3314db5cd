"""A folder has one writer, by a lock that a dead process releases."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from framestow.errors import IncompatibleError
from framestow.storage.files.writer_lock import WriterLock

HOLDER = """
import sys
from framestow.storage.files.writer_lock import WriterLock
from pathlib import Path
lock = WriterLock(Path(sys.argv[1]), "memory", "stop it")
print("locked", flush=True)
sys.stdin.read()
"""

FORKING_HOLDER = """
import os, sys, time
from framestow.storage.files.writer_lock import WriterLock
from pathlib import Path
lock = WriterLock(Path(sys.argv[1]), "memory", "stop it")
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.write(writing, b"1")  # after the fork released its copy
    time.sleep(60)
    os._exit(0)
os.read(reading, 1)
print(child, flush=True)
sys.stdin.read()
"""


def locked(path: Path) -> WriterLock:
    return WriterLock(path, "memory X", "stop that one")


def test_a_second_writer_is_refused_until_the_first_unlocks(tmp_path: Path) -> None:
    with locked(tmp_path / "LOCK"):
        message = (
            rf"memory X is being written by process {os.getpid()} on .*: one process may write at a time; stop that one"
        )
        with pytest.raises(IncompatibleError, match=message):
            locked(tmp_path / "LOCK")

    locked(tmp_path / "LOCK").close()


def test_a_lock_that_waits_for_the_garbage_collector_refuses_nobody(tmp_path: Path) -> None:
    gc.disable()
    try:
        left = [WriterLock(tmp_path / "LOCK", "memory", "stop it")]
        left.append(left)  # as a traceback and its frame have each other
        del left

        WriterLock(tmp_path / "LOCK", "memory", "stop it").close()
    finally:
        gc.enable()


def test_a_killed_process_releases_the_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "LOCK")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(IncompatibleError, match=f"by process {holder.pid} on"):
            locked(tmp_path / "LOCK")
        holder.send_signal(signal.SIGKILL)
        holder.wait()

        locked(tmp_path / "LOCK").close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
def test_a_forked_child_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING_HOLDER, str(tmp_path / "LOCK")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            with pytest.raises(IncompatibleError, match=f"by process {parent.pid} on"):
                locked(tmp_path / "LOCK")
            parent.send_signal(signal.SIGKILL)
            parent.wait()

            os.kill(child, 0)  # raises unless it runs
            locked(tmp_path / "LOCK").close()
        finally:
            os.kill(child, signal.SIGKILL)
