"""A folder has one writer, by a lock that a dead process releases."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from framestow.errors import IncompatibleError
from framestow.storage.files.file_system import DISK
from framestow.storage.files.writer_lock import LockedFiles, WriterLock, check_lock

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


def test_a_lock_whose_file_was_moved_removed_or_replaced_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    with locked(folder / "LOCK") as lock:
        lock.check()

        folder.rename(tmp_path / "elsewhere")
        with pytest.raises(IncompatibleError, match=r"^memory X: its folder was moved or removed while this"):
            lock.check()
        shutil.copytree(tmp_path / "elsewhere", folder)
        with pytest.raises(IncompatibleError, match="its folder was replaced by another one"):
            lock.check()
        shutil.rmtree(folder)
        folder.write_text("a file")
        with pytest.raises(IncompatibleError, match="moved or removed"):
            lock.check()

        folder.unlink()
        (tmp_path / "elsewhere").rename(folder)
        lock.check()


def test_whoever_writes_beside_a_lock_of_this_process_can_have_it_checked(tmp_path: Path) -> None:
    check_lock(tmp_path / "LOCK")  # not locked by this process
    with locked(tmp_path / "LOCK"):
        check_lock(tmp_path / "LOCK")
        (tmp_path / "LOCK").unlink()
        with pytest.raises(IncompatibleError, match="moved or removed"):
            check_lock(tmp_path / "LOCK")

    check_lock(tmp_path / "LOCK")


def test_files_of_a_locked_folder_are_changed_only_while_it_is_that_folder(tmp_path: Path) -> None:
    with locked(tmp_path / "LOCK") as lock:
        files = LockedFiles(DISK, lock)
        files.create(tmp_path / "one").close()
        (tmp_path / "LOCK").unlink()
        changes = {
            "create": lambda: files.create(tmp_path / "two"),
            "open_at": lambda: files.open_at(tmp_path / "one", 0),
            "replace": lambda: files.replace(tmp_path / "one", tmp_path / "two"),
            "remove": lambda: files.remove(tmp_path / "one"),
            "make_folder": lambda: files.make_folder(tmp_path / "two"),
        }
        for name, change in changes.items():
            with pytest.raises(IncompatibleError):
                pytest.fail(f"{name} was done: {change()}")

        assert ["one"] == files.names(tmp_path)
        assert b"" == files.read(tmp_path / "one")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_is_named_with_a_way_out(error: int, tmp_path: Path, monkeypatch) -> None:
    import fcntl  # noqa: PLC0415 -- not on Windows

    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", refuse)
    message = rf"^{tmp_path}/LOCK: its file system has no locks \(flock: .*; write to a folder on a local disk and copy"
    with pytest.raises(IncompatibleError, match=message):
        locked(tmp_path / "LOCK")


def test_a_read_only_file_system_is_named_with_a_way_out(tmp_path: Path, monkeypatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    message = rf"^{tmp_path}/\w+: its file system is read-only, so nothing can be written there; give another"
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(IncompatibleError, match=message):
            locked(tmp_path / "LOCK")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(IncompatibleError, match=message):
            DISK.make_folder(tmp_path / "memory")
