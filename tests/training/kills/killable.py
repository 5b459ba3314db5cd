"""``framestow train`` in a process group of its own, to be killed at any moment of it."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DISK_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"}
PATIENCE_S = 300.0


class Training:
    """A running training process: its output so far, and its exit status.

    ``is_forked`` runs the command in a fork of this interpreter, which has PyTorch loaded; otherwise in a new process.
    A fork kills itself before the disk operation number ``die_before`` (from 0) in the folder ``run``.
    """

    def __init__(self, arguments: Sequence[str], run: Path, is_forked: bool, die_before: int | None = None) -> None:
        snapshot, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(arguments, run, is_forked, die_before, writing)
        os.close(writing)
        os.set_blocking(snapshot, False)
        self._snapshot = snapshot
        self.printed = ""
        self.status: int | None = None

    def await_line(self, start: Sequence[str]) -> str | None:
        """Return the first line that begins with one of ``start``; None if the process ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for line in self.printed.splitlines():
                if line.startswith(tuple(start)):
                    return line
            if self.has_ended():
                return None
            select.select([self._snapshot], [], [], 0.05)
            self._read()
        raise TimeoutError(f"the training says nothing for {PATIENCE_S:.0f} s:\n{self.printed}")

    def await_end(self, seconds: float = PATIENCE_S, until: Callable[[], bool] = lambda: False) -> None:
        """Wait for the process to end, for ``seconds``, or for ``until``."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.has_ended() and not until():
            self._read()
            time.sleep(min(0.001, max(0.0, deadline - time.monotonic())))

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._end(status)
        return self.status is not None

    def pause(self) -> None:
        """Stop the whole group where it is."""
        os.killpg(self.pid, signal.SIGSTOP)

    def unpause(self) -> None:
        """Let a paused group go on."""
        os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the whole group at once, wherever it is."""
        if not self.has_ended():
            os.killpg(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self._end(status)

    @property
    def was_killed(self) -> bool:
        """Whether it ended by SIGKILL."""
        assert self.status is not None
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL

    @property
    def exit_code(self) -> int:
        """What it ended with, if not killed."""
        assert self.status is not None
        return os.waitstatus_to_exitcode(self.status)

    def _end(self, status: int) -> None:
        self.status = status
        self._read()
        os.close(self._snapshot)
        self._snapshot = -1

    def _read(self) -> None:
        while self._snapshot >= 0:
            try:
                content = os.read(self._snapshot, 65_536)
            except BlockingIOError:
                return
            if not content:
                return
            self.printed += content.decode(errors="replace")


def _become(arguments: Sequence[str], run: Path, is_forked: bool, die_before: int | None, writing: int) -> None:
    """Turn a forked child into the training; does not return."""
    code = 1
    try:
        os.setsid()
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.environ["COLUMNS"] = "300"
        if not is_forked:
            os.execv(sys.executable, [sys.executable, "-m", "framestow", *arguments])
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False, encoding="utf-8")
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False, encoding="utf-8")
        if die_before is not None:
            die_before_disk_operation(die_before, run)
        from framestow.cli import main  # noqa: PLC0415 -- not needed by a new process

        code = main(list(arguments))
        sys.stdout.flush()
    finally:
        os._exit(code)


def die_before_disk_operation(number: int, folder: Path) -> None:
    """Let this process kill itself before the operation ``number`` (from 0) in ``folder`` that changes the disk.

    Counted are opening, making, renaming, cutting and removing there, and every fsync.
    """
    left = number
    inside = str(folder)
    real_fsync = os.fsync

    def count() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def counted_fsync(descriptor: Any) -> None:
        count()
        real_fsync(descriptor)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in DISK_EVENTS and any(inside in str(argument) for argument in arguments[:2]):
            count()

    os.fsync = counted_fsync
    sys.addaudithook(hook)
