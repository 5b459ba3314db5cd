"""Write a benchmark's figures with the command that measured them and the machine."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from framestow.storage.files.file_system import write_atomically


def machine() -> dict[str, Any]:
    """Return processor, cores, memory and versions; nothing names the host."""
    processor = platform.processor() or platform.machine()
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.is_file():
        names = [line.split(":", 1)[1].strip() for line in cpu_info.read_text().splitlines() if "model name" in line]
        processor = names[0] if names else processor
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def command_line(arguments: Sequence[str]) -> str:
    """Return ``arguments``, in the form of ``sys.argv``, as a user would type them, without the path to the program.

    >>> (
    ...     command_line(["/opt/bin/framestow", "bench", "Pong"]),
    ...     command_line(["/src/benchmarks/packing.py"]),
    ... )
    ('framestow bench Pong', 'python benchmarks/packing.py')
    """
    program = Path(arguments[0])
    if program.suffix != ".py":
        start = program.name
    elif program.name == "__main__.py":
        start = "framestow"
    else:
        start = f"python {program.parent.name or 'benchmarks'}/{program.name}"
    return " ".join([start, *map(shlex.quote, arguments[1:])])


def source(result: Path | None = None) -> dict[str, str]:
    """Return the date, and the commit of the checkout: ``-dirty`` marks one with changes, not of results.

    The checkout of framestow is the one that will have ``result``, else the one of this package; there may be none.
    """
    found = {"date": datetime.datetime.now().astimezone().date().isoformat()}
    folders = [*(result.absolute().parents if result else ()), *Path(__file__).parents]
    checkout = next((each for each in folders if (each / ".git").exists() and (each / "src/framestow").is_dir()), None)
    if checkout is not None and (git := shutil.which("git")):
        here = [git, "-C", str(checkout)]
        name = subprocess.run([*here, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=False)
        changes = [*here, "diff", "--quiet", "HEAD", "--", ".", ":!*.json", ":!benchmarks/results"]
        is_dirty = subprocess.run(changes, capture_output=True, check=False).returncode != 0
        found["commit"] = name.stdout.strip() + ("-dirty" if is_dirty else "")
    return found


def write_result(path: Path, figures: dict[str, Any], command: str | None = None) -> Path:
    """Write ``figures`` to ``path`` as JSON, with machine, date, commit and command (this process's by default).

    Creates missing folders and replaces the file as a whole. Returns ``path``; raises ``OSError``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    command = command_line(sys.argv) if command is None else command
    entries = {"command": command, **source(path), "machine": machine(), **figures}
    write_atomically(path, (json.dumps(entries, indent=1) + "\n").encode(), is_durable=False)
    return path
