"""What a saved memory is, byte by byte, so that two can be compared."""

from __future__ import annotations

import json
from pathlib import Path

DIFFERS = ("commit",)  # a random name


def saved_bytes(folder: Path) -> dict[str, object]:
    """By name, the bytes of each file, and of manifests all that they say but the random name of their commit."""
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and file.name != "LOCK"]
    assert files, f"{folder} holds nothing"
    return {file.name: _said(file) if file.name.startswith("MANIFEST") else file.read_bytes() for file in files}


def _said(manifest: Path) -> dict[str, object]:
    content = json.loads(manifest.read_bytes().partition(b"\n")[2])
    return {name: value for name, value in content.items() if name not in DIFFERS}
