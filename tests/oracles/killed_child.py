"""A forked child that may be killed, and the numbers that it reported before."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable


def killed_child(run: Callable[[Callable[[int], object]], None]) -> tuple[int, bool]:
    """Fork and run; return the last number that ``run`` reported (0: none), and whether a signal killed it.

    Exits this process if the child ends with an error.
    """
    snapshot, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            run(lambda number: os.write(writing, b"%d\n" % number))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with open(snapshot, "rb") as pipe:
        reported = pipe.read().split()
    _, status = os.waitpid(child, 0)
    was_killed = os.WIFSIGNALED(status)
    if not was_killed and status:
        sys.exit("the child ended with an error, and was not killed")
    return int(reported[-1]) if reported else 0, was_killed
