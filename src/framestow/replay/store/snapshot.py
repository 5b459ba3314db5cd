"""What a memory is at one moment: copied under its lock, in a time that does not depend on how much it holds."""

from __future__ import annotations

import io
import json
import math
import re
import secrets
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.frames.codec import checksum
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.store.format import Manifest, manifest_content, manifest_of
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import write_checked

Arrays = dict[str, npt.NDArray[Any]]
SUFFIX = ".npy"  # of each array's name inside the file


def pack_arrays(arrays: Arrays) -> bytes:
    """Bytes of an uncompressed .npz file that holds ``arrays``, which must not hold Python objects.

    >>> unpack_arrays(pack_arrays({"rewards": np.array([0.5, 2.0])}), "state.npz")
    {'rewards': array([0.5, 2. ])}
    """
    stored = io.BytesIO()
    try:
        np.savez(stored, **arrays)  # type: ignore[arg-type]
    except ValueError as error:
        # Ctrl-C within an array: then the archive cannot be closed, and what it raises hides KeyboardInterrupt.
        raise error.__context__ or error from None
    return stored.getvalue()


def unpack_arrays(stored: bytes, name: str) -> Arrays:
    """Give the arrays that ``stored``, the bytes of the file ``name``, holds; they are read-only.

    Nothing is unpickled, nothing is inflated, and no array is larger than the bytes that stand there for it, whatever
    the headers say: so no more than twice the file's size is taken. Raises ``DamagedDataError`` naming the file for
    anything else.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(stored)) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError("its arrays are compressed")
            if sum(member.file_size for member in members) > len(stored):
                raise ValueError("its arrays are larger than it is")
            return {member.filename.removesuffix(SUFFIX): _array_of(archive.read(member)) for member in members}
    except Exception as error:  # what a parser raises for wrong bytes is up to the bytes
        raise DamagedDataError(
            f"{name}: it does not hold arrays as they are written ({error}); take an older save"
        ) from error


def _array_of(content: bytes) -> npt.NDArray[Any]:
    header = io.BytesIO(content)
    if np.lib.format.read_magic(header) != (1, 0):
        raise ValueError("an array has a header of another version")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(header)
    start = header.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - start:
        raise ValueError(f"an array of {dtype} and shape {shape} does not have {len(content) - start} bytes")
    return np.frombuffer(content, dtype, math.prod(shape), start).reshape(shape, order="F" if is_fortran else "C")


OPEN_SEGMENTS, OPEN_SIZES = "frames.open_segments", "frames.open_sizes"
NEXT_POSITIONS, HELD_RUNS, RUN_COUNTS = "frames.next_positions", "frames.held_runs", "frames.run_counts"


class Moment(NamedTuple):
    """Everything of a memory but its sealed segments of frames and its sealed blocks of steps."""

    memory: dict[str, Any]
    """What ``MemoryParts.state`` gave."""
    arrays: Arrays
    """Those of the timeline, those of the sampler, whose names begin with ``sampler.``, and of the storage::

        frames.next_positions   one a stream of frames (``MemorySettings.num_frame_streams``)
        frames.open_sizes       bytes of each one's open segment
        frames.open_segments    those, one behind the other
    """
    num_transitions: int


def take_moment(parts: MemoryParts) -> Moment:
    """Copy what is small; hold ``parts.lock``."""
    storage, streams = parts.storage, range(parts.settings.num_frame_streams)
    open_segments = [_open_segment(parts, stream) for stream in streams]
    arrays: Arrays = {name: np.array(array) for name, array in parts.timeline.state().items()}
    arrays[NEXT_POSITIONS] = np.array([storage.stored_positions(stream).stop for stream in streams], np.int64)
    arrays[OPEN_SIZES] = np.array([len(segment) for segment in open_segments], np.int64)
    arrays[OPEN_SEGMENTS] = np.frombuffer(b"".join(open_segments), np.uint8)
    memory, sampler_arrays = parts.state()
    return Moment(memory, arrays | sampler_arrays, len(parts.timeline))


def _open_segment(parts: MemoryParts, stream: int) -> bytes:
    """The packed frames of the segment of ``stream`` that is being filled; none where it has none yet."""
    number, held = parts.storage.open_segment(stream), parts.storage.stored_positions(stream)
    has_frames = held.stop > number * parts.storage.frames_per_segment
    return parts.storage.segment(stream, number) if has_frames else b""


def held_runs(numbers: list[npt.NDArray[np.int64]]) -> Arrays:
    """Which sealed segments each stream holds: runs of consecutive numbers, as arrays of the state file.

    >>> arrays = held_runs([np.array([3, 4, 5, 9]), np.array([], np.int64)])
    >>> arrays["frames.held_runs"].tolist(), arrays["frames.run_counts"].tolist()
    ([[3, 5], [9, 9]], [2, 0])
    """
    runs = [_runs_of(of_stream) for of_stream in numbers]
    return {HELD_RUNS: np.concatenate(runs), RUN_COUNTS: np.array([len(of_stream) for of_stream in runs], np.int64)}


def _runs_of(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if not len(numbers):
        return np.empty((0, 2), np.int64)
    borders = np.flatnonzero(np.diff(numbers) != 1)
    return np.stack([numbers[np.append(0, borders + 1)], numbers[np.append(borders, len(numbers) - 1)]], axis=1)


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
