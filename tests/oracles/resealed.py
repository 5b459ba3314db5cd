"""``reseal``: change what a saved memory says, so that every checksum is right again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from framestow.replay.store.format import (
    Arrays,
    Manifest,
    read_checked_manifest,
    read_state,
    write_state,
    write_store_manifest,
)


def reseal(folder: Path, change: Callable[[Manifest, Arrays], Manifest], generation: int = 1) -> None:
    manifest = read_checked_manifest(folder, generation)
    arrays = {name: np.array(array) for name, array in read_state(folder, manifest).items()}
    changed = change(manifest, arrays)
    write_store_manifest(folder, write_state(folder, manifest.state["name"], changed, arrays))
