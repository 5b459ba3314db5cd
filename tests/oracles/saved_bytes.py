"""The bytes of a saved memory, to compare two of them."""

from __future__ import annotations

import json
from pathlib import Path

DIFFERS = ("commit",)  # a random name


def saved_bytes(folder: Path) -> dict[str, object]:
    """Return the bytes of each file by name; of manifests all fields except the random name of the commit."""
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and file.name != "LOCK"]
    assert files, f"{folder} is empty"
    return {
        file.name: _manifest_fields(file) if file.name.startswith("MANIFEST") else file.read_bytes() for file in files
    }


def _manifest_fields(manifest: Path) -> dict[str, object]:
    content = json.loads(manifest.read_bytes().partition(b"\n")[2])
    return {name: value for name, value in content.items() if name not in DIFFERS}
