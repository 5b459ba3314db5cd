"""The memory of a process's own pages, measured in a new process, whose heap no other test has used."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from framestow.process import live_bytes


def own_bytes() -> int:
    """Return the resident bytes without pages of libraries and files: the system drops them and reads them again."""
    info = psutil.Process().memory_info()  # one reading: the two change together
    return int(info.rss - info.shared)


def own_live_bytes() -> int:
    """Return :func:`own_bytes` after the C library has returned freed memory to the system."""
    live_bytes()
    return own_bytes()


def figures_of(script: str, *arguments: str, variables: Mapping[str, str]) -> list[float]:
    """Run a Python script in a new process with these environment variables, and return the numbers that it prints."""
    environment = os.environ | variables | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", script, *arguments]
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [float(number) for number in printed.split()]
