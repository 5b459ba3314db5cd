"""Writes a benchmark's figures with the machine that they were measured on."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Processor, cores, memory and versions; nothing that names the host."""
    processor = platform.processor() or platform.machine()
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.is_file():
        names = [line.split(":", 1)[1].strip() for line in cpu_info.read_text().splitlines() if "model name" in line]
        processor = names[0] if names else processor
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def write_result(name: str, figures: dict[str, Any]) -> Path:
    """Write ``figures`` to ``results/<name>.json``, with the command and the machine; gives the path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    path.write_text(json.dumps({"command": command, "machine": machine(), **figures}, indent=1) + "\n")
    return path
