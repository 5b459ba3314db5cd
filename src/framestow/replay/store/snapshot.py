"""Copy a memory's small, changing state and store it in the state file of a generation.

A snapshot is taken under the memory's lock. Its time does not depend on the number of stored transitions: sealed
segments of frames and sealed blocks of steps never change, and the logs store them.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.store.format import Manifest, manifest_content
from framestow.storage.files.block_format import BlockKey, repair_hint, split_keys
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import write_checked

Arrays = dict[str, npt.NDArray[Any]]

# Names of arrays in the state file; they are part of the format.
OPEN_SEGMENTS, OPEN_SIZES = "frames.open_segments", "frames.open_sizes"
NEXT_POSITIONS, SEGMENT_RUNS, RUN_COUNTS = "frames.next_positions", "frames.runs", "frames.run_counts"


class Snapshot(NamedTuple):
    """A memory without its sealed segments of frames and sealed blocks of steps."""

    memory: dict[str, Any]
    """Settings, sampler and generator from ``MemoryParts.state``."""
    arrays: Arrays
    """Arrays of the step store, of the sampler (names begin with ``sampler.``) and of the storage::

        frames.next_positions   next position of each track of frames (``MemorySettings.num_tracks``)
        frames.open_sizes       bytes of each track's open segment
        frames.open_segments    the open segments, concatenated
        frames.runs             sealed segments, as runs of consecutive numbers (``segment_runs``)
        frames.run_counts       number of runs of each track
    """
    num_transitions: int


def take_snapshot(parts: MemoryParts, sealed: npt.NDArray[np.int64]) -> Snapshot:
    """Copy the small state of a memory with these sealed segments (packed keys). The caller holds ``parts.lock``."""
    storage, length = parts.storage, parts.storage.frames_per_segment
    positions = [storage.next_position(track) for track in range(parts.settings.num_tracks)]
    open_segments = [
        storage.segment(track, position // length) if position % length else b""
        for track, position in enumerate(positions)
    ]
    memory, sampler_arrays = parts.state()
    step_arrays = {name: np.array(array) for name, array in parts.steps.state().items()}
    arrays = step_arrays | frame_arrays(positions, open_segments, sealed) | sampler_arrays
    return Snapshot(memory, arrays, len(parts.steps))


def frame_arrays(positions: npt.ArrayLike, open_segments: list[bytes], sealed: npt.NDArray[np.int64]) -> Arrays:
    """Return the arrays of frames: next positions and open segments by track, and the packed keys of sealed ones."""
    return {
        NEXT_POSITIONS: np.array(positions, np.int64),
        OPEN_SIZES: np.array([len(segment) for segment in open_segments], np.int64),
        OPEN_SEGMENTS: np.frombuffer(b"".join(open_segments), np.uint8),
        **segment_runs(sealed, len(open_segments)),
    }


def segment_runs(keys: npt.NDArray[np.int64], num_tracks: int) -> Arrays:
    """Encode the packed keys of sealed segments, ascending, as runs of consecutive numbers, for the state file.

    >>> from framestow.storage.files.block_format import pack_keys
    >>> arrays = segment_runs(pack_keys([0, 0, 0, 0, 1], np.array([3, 4, 5, 9, 7])), num_tracks=3)
    >>> arrays["frames.runs"].tolist(), arrays["frames.run_counts"].tolist()
    ([[3, 5], [9, 9], [7, 7]], [2, 1, 0])
    """
    breaks = np.flatnonzero(np.diff(keys) != 1)
    tracks, firsts = split_keys(keys[np.append(0, breaks + 1)[: len(keys)]])
    _, lasts = split_keys(keys[np.append(breaks, -1)[: len(keys)]])
    return {SEGMENT_RUNS: np.stack([firsts, lasts], axis=1), RUN_COUNTS: np.bincount(tracks, minlength=num_tracks)}


def open_segments(arrays: Arrays) -> list[tuple[int, npt.NDArray[np.uint8]]]:
    """Return for each track of frames its next position and its open segment, which is empty if it has none.

    >>> open_segments(frame_arrays([2, 8], [b"a", b""], np.zeros(0, np.int64)))
    [(2, array([97], dtype=uint8)), (8, array([], dtype=uint8))]
    """
    segments = np.split(arrays[OPEN_SEGMENTS], np.cumsum(arrays[OPEN_SIZES])[:-1])
    return list(zip(arrays[NEXT_POSITIONS].tolist(), segments, strict=True))


def iterate_sealed_segments(arrays: Arrays) -> Iterator[BlockKey]:
    """Yield the sealed segments that a state file names, by track of frames and number.

    >>> from framestow.storage.files.block_format import pack_keys
    >>> arrays = segment_runs(pack_keys([0, 0, 1], np.array([3, 4, 9])), num_tracks=2)
    >>> [tuple(key) for key in iterate_sealed_segments(arrays)]
    [(0, 3), (0, 4), (1, 9)]
    """
    tracks = np.repeat(np.arange(len(arrays[RUN_COUNTS])), arrays[RUN_COUNTS])
    for track, (first, last) in zip(tracks.tolist(), arrays[SEGMENT_RUNS].tolist(), strict=True):
        yield from (BlockKey(track, number) for number in range(first, last + 1))


# Its group is the number of the generation.
STATE_FILE = re.compile(r"state\.(\d{6,})(?:\.repaired)?\.npz")
# Array with the manifest's JSON, without the entry of the state file and without the name of the commit.
MANIFEST_ARRAY = "manifest"


def state_name(generation: int, *, is_repaired: bool = False) -> str:
    """Return the name of a generation's state file. A repaired one has another name, so that both can exist.

    >>> state_name(7), state_name(7, is_repaired=True)
    ('state.000007.npz', 'state.000007.repaired.npz')
    """
    return f"state.{generation:06d}{'.repaired' if is_repaired else ''}.npz"


def write_state(folder: Path, name: str, manifest: Manifest, arrays: Arrays, files: FileSystem = DISK) -> Manifest:
    """Write and sync the state file ``name``; return ``manifest`` with the entry of that file."""
    fields = {"generation": manifest.generation} | manifest_content(manifest)
    # The file's own entry is not known yet. The commit's name is random, and equal memories have equal state files.
    del fields["state"], fields["commit"]
    content = pack_arrays(arrays | {MANIFEST_ARRAY: np.frombuffer(json.dumps(fields).encode(), np.uint8)})
    return manifest._replace(state=write_checked(folder / name, content, files))


def pack_arrays(arrays: Arrays) -> bytes:
    """Return the bytes of an uncompressed .npz file of ``arrays``, which must not contain Python objects.

    >>> unpack_arrays(pack_arrays({"rewards": np.array([0.5, 2.0])}), "state.npz")
    {'rewards': array([0.5, 2. ])}
    """
    stored = io.BytesIO()
    try:
        np.savez(stored, **arrays)  # type: ignore[arg-type]
    except ValueError as error:
        # After a Ctrl-C within an array, closing the archive raises a ValueError that hides KeyboardInterrupt.
        raise error.__context__ or error from None
    return stored.getvalue()


def unpack_arrays(stored: bytes, name: str) -> Arrays:
    """Return the arrays in the bytes of the .npz file ``name``; they are read-only.

    Safe for damaged or hostile files: nothing is unpickled or decompressed, and no array is larger than its bytes in
    the file. Uses at most twice the file's size.

    Raises:
        DamagedDataError: the content is anything else; the message names the file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(stored)) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError("its arrays are compressed")
            if sum(member.file_size for member in members) > len(stored):
                raise ValueError("its arrays are larger than the file")
            arrays = {}
            for member in members:
                content = archive.read(member)
                header = io.BytesIO(content)
                if np.lib.format.read_magic(header) != (1, 0):
                    raise ValueError("an array has a header of another version")
                shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(header)
                size, start = math.prod(shape), header.tell()
                if dtype.hasobject or size * dtype.itemsize != len(content) - start:
                    raise ValueError(f"an array of {dtype} and shape {shape} has {len(content) - start} bytes")
                array = np.frombuffer(content, dtype, size, start).reshape(shape, order="F" if is_fortran else "C")
                arrays[member.filename.removesuffix(".npy")] = array
            return arrays
    except Exception as error:  # zipfile and NumPy raise many types for damaged bytes
        raise DamagedDataError(
            f"{name}: the file does not contain arrays as framestow writes them ({error}); "
            f"{repair_hint(Path(name).parent)}"
        ) from error
