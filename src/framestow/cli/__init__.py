"""Run the ``framestow`` command. Each subcommand is a module of this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from framestow.cli.output import OutputClosedError, say

INTERRUPTED = 130  # exit code after Ctrl-C, as of a shell
UNREAD = 141  # exit code where the reader of a pipe has gone, as of a shell


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command on ``arguments`` and return its exit code.

    Arguments:
        arguments: The command-line arguments; ``None`` takes those of the process.
    """
    limit_spinning()
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        from framestow.cli.command_line import run_command_line  # noqa: PLC0415 -- Ctrl-C during an import ends up here

        code = run_command_line(given)
        say("", end="")  # Python would print a traceback if what is left to write failed at the end of the process
        return code
    except KeyboardInterrupt:
        say("stopped", sys.stderr)
        return INTERRUPTED
    except OutputClosedError:
        for file in sys.stdout, sys.stderr:  # Python writes at the end what they still hold
            os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
        return UNREAD


def limit_spinning() -> None:
    """Let PyTorch's OpenMP threads spin only briefly while they wait for one another; call it before importing torch.

    By default they spin for milliseconds and starve threads that share their cores. Beside a busy process, short
    spinning gives many more steps a second; on idle cores it costs a few (docs/benchmarks.md). ``GOMP_SPINCOUNT`` in
    the environment wins.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
