"""Run the ``framestow`` command. Each subcommand is a module of this package."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from framestow.cli.output import FAILED, OutputClosedError, discard_output, say

INTERRUPTED = 130  # exit code after Ctrl-C, as of a shell
UNREAD = 141  # exit code where the reader of a pipe has gone, as of a shell


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command on ``arguments`` and return its exit code.

    Arguments:
        arguments: The command-line arguments; ``None`` takes those of the process.
    """
    limit_spinning()
    given = sys.argv[1:] if arguments is None else list(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # its encoding may lack a character of a name or a table
    code = 0
    try:
        from framestow.cli.command_line import run_command_line  # noqa: PLC0415 -- Ctrl-C during an import ends up here

        code = run_command_line(given)
        say("", end="")  # Python would print a traceback if what is left to write failed at the end of the process
        return code
    except KeyboardInterrupt as stopped:  # its text says what is there
        say(": ".join(["stopped", *map(str, stopped.args)]), sys.stderr)
        return INTERRUPTED
    except OutputClosedError:
        discard_output(sys.stdout)
        discard_output(sys.stderr)
        return UNREAD
    except OSError as error:  # of the output: a full disk. A command that failed by it has said so
        discard_output(sys.stdout)
        if not code:
            with contextlib.suppress(OSError, OutputClosedError):
                say(f"error: the output cannot be written: {error.strerror}", sys.stderr)
        return code or FAILED


def limit_spinning() -> None:
    """Let PyTorch's OpenMP threads spin only briefly while they wait for one another; call it before importing torch.

    By default they spin for milliseconds and starve threads that share their cores. Beside a busy process, short
    spinning gives many more steps a second; on idle cores it costs a few (docs/benchmarks.md). ``GOMP_SPINCOUNT`` in
    the environment wins.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
