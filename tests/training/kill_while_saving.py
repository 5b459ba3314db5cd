"""Kills a process before each step of a checkpoint's writing that touches the disk; writes old or new for what is left.

A script of its own, because it forks. ``kill_while_saving.py FOLDER EVERY`` takes one step of so many only, with a
memory in RAM, then with one in files.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from framestow.training.checkpoint import newest_checkpoint, remove_unfinished, write_checkpoint
from training.checkpoint_states import grown, read_checkpoint, run_state
from training.kills.killable import die_before_disk_operation
from training.kills.run_contents import contents, differences, strangers

OLD, NEW = 40, 80
MAX_OPERATIONS = 300


def die_at_each_stage(folder: Path, on_disk: bool, every: int) -> int:
    checkpoints = folder / "checkpoints"
    first = run_state(OLD)
    expected = {OLD: contents(first), NEW: contents(grown(first, NEW))}
    for number in range(0, MAX_OPERATIONS, every):
        in_a_child(lambda: write_old(folder, on_disk))
        status = in_a_child(lambda number=number: write_new(folder, on_disk, number))
        remove_unfinished(checkpoints)
        newest = newest_checkpoint(checkpoints)
        if newest is None or strangers(folder):
            sys.stdout.write(f"left over: {strangers(folder)}\n")
            return 1
        if not os.WIFSIGNALED(status):
            return os.waitstatus_to_exitcode(status)  # it finished: every step was died before
        found = read_checkpoint(newest, on_disk)
        if changed := differences(expected[found.agent_steps], contents(found)):
            sys.stdout.write(f"the checkpoint of step {found.agent_steps} is not what was saved: {changed}\n")
            return 1
        if on_disk:
            found.memory.close()
        sys.stdout.write("old\n" if found.agent_steps == OLD else "new\n")
        for path in folder.iterdir():
            shutil.rmtree(path)
    return 1


def write_old(folder: Path, on_disk: bool) -> None:
    write_checkpoint(folder / "checkpoints", run_state(OLD, folder / "memory" if on_disk else None))


def write_new(folder: Path, on_disk: bool, steps_before: int) -> None:
    old = newest_checkpoint(folder / "checkpoints")
    assert old is not None
    state = grown(read_checkpoint(old, on_disk), NEW)
    die_before_disk_operation(steps_before, folder)
    write_checkpoint(folder / "checkpoints", state)


def in_a_child(write: Callable[[], None]) -> int:
    """Fork, write, and return the child's status."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            write()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    base, step = Path(sys.argv[1]), int(sys.argv[2])
    sys.exit(die_at_each_stage(base / "ram", False, step) or die_at_each_stage(base / "files", True, step))
