"""Kills a process before each step of a checkpoint's writing that touches the disk; writes old or new for what is left.

A script of its own, because it forks.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from framestow.training.checkpoint import newest_checkpoint, read_checkpoint, remove_unfinished, write_checkpoint
from training.checkpoint_states import run_state

OLD, NEW = 40, 80
DISK_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}


def write_and_die(folder: Path, steps_before: int) -> None:
    state = run_state(NEW)
    real_fsync = os.fsync
    steps = 0

    def count() -> None:
        nonlocal steps
        if steps == steps_before:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

    def counted_fsync(descriptor: int) -> None:
        count()
        real_fsync(descriptor)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in DISK_EVENTS:
            count()

    os.fsync = counted_fsync
    sys.addaudithook(hook)
    write_checkpoint(folder, state)


def main(folder: Path) -> int:
    for steps_before in range(200):
        write_checkpoint(folder, run_state(OLD))
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            write_and_die(folder, steps_before)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        remove_unfinished(folder)
        newest = newest_checkpoint(folder)
        if newest is None or [newest] != list(folder.iterdir()):
            sys.stdout.write(f"left over: {list(folder.iterdir())}\n")
            return 1
        if not os.WIFSIGNALED(status):
            return os.waitstatus_to_exitcode(status)  # it finished: every step was died before
        agent_steps = read_checkpoint(newest, "cpu").agent_steps
        sys.stdout.write("old\n" if agent_steps == OLD else "new\n")
        if agent_steps == NEW:
            newest.rename(folder / "gone")
            remove_everything(folder / "gone")
    return 1


def remove_everything(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
