"""The ``framestow`` command, one file a subcommand."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130
_EXTRA_MODULES = frozenset(
    {"torch", "rich", "tyro", "tensorboard", "psutil", "imageio_ffmpeg", "gymnasium", "matplotlib", "PIL"}
)
_EXTRAS = {"bench": "bench", "import": "offline", "export": "offline"}  # of the other commands it is 'train'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on ``arguments``, those of the process by default, and return its exit code.

    This module needs no extra: it tells what to install where one is missing.
    """
    # PyTorch's OpenMP threads wait for one another by spinning. On a machine that does something else besides, the one
    # waited for may not be running: with one busy process on two cores an update took 225 to 565 ms, with spinning
    # cut short 52 to 97, and undisturbed no longer than before. Read when PyTorch is loaded, so set before.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        from framestow.cli.command_line import run_command_line  # noqa: PLC0415 -- it needs an extra

        return run_command_line(given)
    except KeyboardInterrupt:  # also while the libraries load
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    except ModuleNotFoundError as missing:
        module = (missing.name or "").partition(".")[0]
        if module not in _EXTRA_MODULES:
            raise
        extra = _EXTRAS.get("".join(given[:1]), "train")
        print(
            f"error: the framestow command needs {module}: it is part of the extra '{extra}', which is not installed; "
            f'run: pip install "framestow[{extra}]"',
            file=sys.stderr,
        )
        return 2
