"""The state file of a generation: arrays, and what its manifest says, so that either can be told by the other.

A manifest has the checksum of the state file, the arrays of the state file have checksums of their own (those of a zip
file). So of a store whose manifest is damaged nothing is lost while its state file is whole.
"""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path

import numpy as np

from framestow.frames.codec import checksum
from framestow.replay.saving.array_file import Arrays, pack_arrays, unpack_arrays
from framestow.replay.saving.store_format import Manifest, manifest_content, manifest_of
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import write_checked

_STATE = re.compile(r"state\.(\d{6,})(?:\.repaired)?\.npz")
OF_MANIFEST = "manifest"  # array of the JSON of what a manifest says, without its state file and the commit's name


def state_name(generation: int, *, is_repaired: bool = False) -> str:
    """Name of the state file of a generation; another one for its repair, so that both are there for a moment.

    >>> state_name(7), state_name(7, is_repaired=True)
    ('state.000007.npz', 'state.000007.repaired.npz')
    """
    return f"state.{generation:06d}{'.repaired' if is_repaired else ''}.npz"


def write_state(folder: Path, name: str, manifest: Manifest, arrays: Arrays, files: FileSystem = DISK) -> Manifest:
    """Write the state file ``name``, lasting when this returns; give ``manifest`` with what it says of that file."""
    told = {"generation": manifest.generation} | manifest_content(manifest)
    del told["state"], told["commit"]  # not known yet; random, and equal memories are saved as equal bytes
    content = pack_arrays(arrays | {OF_MANIFEST: np.frombuffer(json.dumps(told).encode(), np.uint8)})
    return manifest._replace(state=write_checked(folder / name, content, files))


def generations_by_state(folder: Path, files: FileSystem = DISK) -> list[int]:
    """The generations whose state files lie in ``folder``, ascending: what is left where all manifests are gone."""
    return sorted({int(name[1]) for name in map(_STATE.fullmatch, files.names(folder)) if name})


def manifest_in_state(folder: Path, generation: int, files: FileSystem = DISK) -> Manifest | None:
    """Give the manifest of a generation by its state file, as another commit; None where that is damaged or gone."""
    for is_repaired in (False, True):
        name = state_name(generation, is_repaired=is_repaired)
        try:
            content = files.read(folder / name)
            told = json.loads(unpack_arrays(content, name)[OF_MANIFEST].tobytes())
            entry = {"name": name, "bytes": len(content), "checksum": checksum(content)}
            if told["generation"] == generation:
                return manifest_of(told | {"state": entry, "commit": secrets.token_hex(16)}, name, generation)
        except (OSError, LookupError, TypeError, ValueError):
            continue
    return None
