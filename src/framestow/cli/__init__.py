"""The ``framestow`` command, one file a subcommand."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_TRAIN_MODULES = frozenset({"torch", "rich", "tyro", "tensorboard", "psutil", "imageio_ffmpeg", "gymnasium"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on ``arguments``, those of the process by default, and return its exit code.

    This module needs no extra: it tells what to install where one is missing.
    """
    # PyTorch's OpenMP threads wait for one another by spinning. On a machine that does something else besides, the one
    # waited for may not be running: with one busy process on two cores an update took 225 to 565 ms, with spinning
    # cut short 52 to 97, and undisturbed no longer than before. Read when PyTorch is loaded, so set before.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    try:
        from framestow.cli.command_line import run_command_line  # noqa: PLC0415 -- it needs the extra 'train'

        return run_command_line(sys.argv[1:] if arguments is None else list(arguments))
    except ModuleNotFoundError as missing:
        module = (missing.name or "").partition(".")[0]
        if module not in _TRAIN_MODULES:
            raise
        print(
            f"error: the framestow command needs {module}: it is part of the extra 'train', which is not installed; "
            'run: pip install "framestow[train]"',
            file=sys.stderr,
        )
        return 2
