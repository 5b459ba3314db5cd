"""Kills a process at each fsync of a checkpoint's writing and looks at what is left; writes old or new for each.

A script of its own, because it forks.
"""

import os
import signal
import sys
from pathlib import Path

from framestow.training.checkpoint import newest_checkpoint, read_checkpoint, remove_unfinished, write_checkpoint
from training.checkpoint_states import run_state

OLD, NEW = 40, 80


def write_and_die(folder: Path, calls_before: int) -> None:
    real_fsync = os.fsync
    calls = 0

    def deadly_fsync(descriptor: int) -> None:
        nonlocal calls
        if calls == calls_before:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        real_fsync(descriptor)

    os.fsync = deadly_fsync
    write_checkpoint(folder, run_state(NEW))


def main(folder: Path) -> int:
    for calls_before in range(100):
        write_checkpoint(folder, run_state(OLD))
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            write_and_die(folder, calls_before)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        remove_unfinished(folder)
        newest = newest_checkpoint(folder)
        if newest is None or [newest] != list(folder.iterdir()):
            sys.stdout.write(f"left over: {list(folder.iterdir())}\n")
            return 1
        agent_steps = read_checkpoint(newest, "cpu").agent_steps
        sys.stdout.write("old\n" if agent_steps == OLD else "new\n")
        if agent_steps == NEW:
            return 0 if os.WIFSIGNALED(status) else 1  # killed right after the rename
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
