"""The files of a store: their names, the fields of a manifest, and the arrays of a state file.

::

    MANIFEST.000007            manifest of generation 7: settings, and how much of each file belongs to the generation
    MANIFEST.000008.begun.5.3  generation 8 is being written; its new files are frames.000005, steps.000003 and above
    MANIFEST.000006.old        manifest of a superseded generation, until its files are removed
    frames.000001.log .index   sealed segments of frames, by (track, number of the segment)
    steps.000001.log .index    sealed blocks of steps, by the step store's key
    state.000007.npz           small, changing state: open segments, steps of incomplete blocks, a value for each track
    LOCK                       locked by the one writer

A manifest is *lost* if the state file of its generation is there. A generation is *begun* while its writer creates
files that no manifest names yet. ``FolderContents`` says which generations a folder has, also when one is lost.
"""

from __future__ import annotations

import io
import json
import math
import re
import secrets
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from framestow._core import checksum
from framestow.errors import DamagedDataError, FramestowError, IncompatibleError
from framestow.storage.files.block_format import INDEX, LOG, LOG_FILE, LogState, file_name, index_bytes, repair_hint
from framestow.storage.files.file_system import DISK, FileSystem, finished_name
from framestow.storage.files.manifest import (
    MANIFEST,
    ManifestNames,
    is_file_name,
    manifest_path,
    read_checked,
    read_manifest,
    write_checked,
    write_manifest,
)

KIND: Final = "framestow memory"  # of the file; a manifest of another kind is refused
VERSION: Final = 1  # of the format; another number is refused
FRAMES, STEPS = "frames", "steps"  # names of the logs, and of their fields in a manifest
Arrays = dict[str, npt.NDArray[Any]]
Read = TypeVar("Read")


class Manifest(NamedTuple):
    """A manifest with checked fields."""

    generation: int
    commit: str
    """Random name of the commit. It tells apart two memories that save to one folder."""
    memory: dict[str, Any]
    """Settings, sampler and generator, from ``MemoryParts.state``."""
    frames_per_segment: int
    num_transitions: int
    frames: LogState
    steps: LogState
    state: dict[str, Any]
    """Name, size and checksum of the state file."""
    kept: list[int]
    """Older generations that later commits keep until ``prune``."""
    is_pinned: bool
    """Whether later commits keep this generation too."""
    is_closed: bool
    """Whether no later step is missing: the memory was closed with this commit, or saved to another folder."""
    follows: list[str]
    """Commits of the generations that were in the folder; those that are not in ``kept`` are superseded by this one."""

    def file_ends(self) -> dict[str, int]:
        """Return the names of all files that the manifest names, each with the bytes that belong to the generation."""
        ends: dict[str, int] = {self.state["name"]: self.state["bytes"]}
        for name, log in ((FRAMES, self.frames), (STEPS, self.steps)):
            for file in log["files"]:
                ends[file_name(name, file["number"], LOG)] = file["bytes"]
                ends[file_name(name, file["number"], INDEX)] = index_bytes(file["blocks"])
        return ends


def named_files(manifests: Iterable[Manifest]) -> set[str]:
    """Return the names of all files that any of ``manifests`` names."""
    return {name for manifest in manifests for name in manifest.file_ends()}


def write_store_manifest(folder: Path, manifest: Manifest, files: FileSystem = DISK) -> None:
    """Write the manifest of a generation, as ``write_manifest`` does."""
    content = manifest._asdict()
    write_manifest(folder, KIND, VERSION, content, generation=content.pop("generation"), files=files)


def read_checked_manifest(
    folder: Path, generation: int, files: FileSystem = DISK, *, is_superseded: bool = False
) -> Manifest:
    """Read the manifest of a generation and check its fields; ``is_superseded`` reads one that was superseded.

    Raises:
        FileNotFoundError: the generation has no manifest.
        DamagedDataError: the file is damaged or a field is invalid; the message names both.
        IncompatibleError: another version wrote it.
    """
    way_out = repair_hint(folder)
    content = read_manifest(
        folder, KIND, VERSION, generation=generation, is_superseded=is_superseded, files=files, way_out=way_out
    )
    return _manifest_of(content, str(manifest_path(folder, generation)), generation)


def _manifest_of(content: Mapping[str, Any], file: str, generation: int) -> Manifest:
    """Build a ``Manifest`` from the JSON of ``file``; raise ``DamagedDataError`` naming an invalid field."""
    fields = {"follows": [], **content}  # may be missing: docs/store-format.md
    check_fields(fields, MANIFEST_FIELDS, file)
    return Manifest(generation=generation, **{name: fields[name] for name in MANIFEST_FIELDS})


class Rule(NamedTuple):
    """What a field of a manifest must be, in words for a message, and a function that says whether it is."""

    words: str
    holds: Callable[[Any], bool]


def _is_count(value: Any, low: int = 0) -> bool:
    return type(value) is int and low <= value <= MOST


def _is_list_of(is_one: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, list) and all(map(is_one, value))


MOST = 2**62  # of any integer in a manifest
COUNT = Rule(f"an integer from 0 to {MOST}", _is_count)
NUMBER = Rule(f"an integer from 1 to {MOST}", lambda value: _is_count(value, 1))
TEXT = Rule("a string", lambda value: isinstance(value, str))
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
FILE_NAME = Rule("the name of a file in the same folder", is_file_name)
COUNTS = Rule("a list of integers >= 0", lambda value: _is_list_of(_is_count, value))
TEXTS = Rule("a list of strings", lambda value: _is_list_of(lambda one: isinstance(one, str), value))
LOG_FIELDS = {"files": [{"number": NUMBER, "bytes": COUNT, "blocks": COUNT}], "next_file": NUMBER}
MANIFEST_FIELDS: dict[str, Any] = {
    "commit": TEXT,
    "memory": {"settings": {}},
    "frames_per_segment": NUMBER,
    "num_transitions": COUNT,
    "frames": LOG_FIELDS,
    "steps": LOG_FIELDS,
    "state": {"name": FILE_NAME, "bytes": COUNT, "checksum": COUNT},
    "kept": COUNTS,
    "is_pinned": FLAG,
    "is_closed": FLAG,
    "follows": TEXTS,
}
"""A rule for each field. A dict is the rule of an object with these fields, a list that of a list of such objects.

Every field is required. A new one has a default in ``_manifest_of``, which stores without it get.
"""


def check_fields(values: Any, rules: Mapping[str, Any], file: str, path: str = "") -> None:
    """Raise ``DamagedDataError``, naming the field, unless the JSON object ``values`` of ``file`` is as ``rules`` say.

    ``path`` is the dotted name of the object in the file.

    >>> check_fields({"frames": {"bytes": -1}}, {"frames": {"bytes": COUNT}}, "MANIFEST.000001")
    Traceback (most recent call last):
    ...
    framestow.errors.DamagedDataError: MANIFEST.000001: frames.bytes is -1: it must be an integer from 0 to ...
    """
    if not isinstance(values, dict):
        raise _invalid_field(file, path or "it", values, "an object with named fields")
    for name, rule in rules.items():
        value, where = values.get(name, MISSING), f"{path}.{name}" if path else name
        if isinstance(rule, dict):
            check_fields(value, rule, file, where)
        elif isinstance(rule, list):
            if not isinstance(value, list):
                raise _invalid_field(file, where, value, "a list")
            for index, one in enumerate(value):
                check_fields(one, rule[0], file, f"{where}[{index}]")
        elif not rule.holds(value):
            raise _invalid_field(file, where, value, rule.words)


MISSING = Ellipsis  # in place of a field that is missing; no value of JSON
MAX_SHOWN = 60  # characters of a value in an error message


def _invalid_field(file: str, where: str, value: Any, rule: str) -> DamagedDataError:
    text = "missing" if value is MISSING else repr(value)
    shown = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return DamagedDataError(f"{file}: {where} is {shown}: it must be {rule}; {repair_hint(Path(file).parent)}")


def convert_settings(folder: Path, manifest: Manifest, convert: Callable[[dict[str, Any]], Read]) -> Read:
    """Return ``convert`` of the saved settings, such as ``MemorySettings.from_state``.

    Raises:
        DamagedDataError: a setting is invalid; the message names the manifest.
        InvalidSettingsError: this version does not know a value.
    """
    try:
        return convert(manifest.memory["settings"])
    except FramestowError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        file = manifest_path(folder, manifest.generation)
        raise DamagedDataError(f"{file}: settings are damaged ({error}); {repair_hint(folder)}") from error


# Its group is the number of the generation.
STATE_FILE = re.compile(r"state\.(\d{6,})(?:\.repaired)?\.npz")
MOST_STATE_BYTES = 2**32  # of a state file whose manifest is lost
STORE_FILE = re.compile(rf"({FRAMES}|{STEPS})\.\d+\.({LOG}|{INDEX})|{STATE_FILE.pattern}")
"""Logs, their indices, and state files."""
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
    fields = manifest._asdict()
    # The file's own entry is not known yet. The commit's name is random, and equal memories have equal state files.
    del fields["state"], fields["commit"]
    content = pack_arrays(arrays | {MANIFEST_ARRAY: np.frombuffer(json.dumps(fields).encode(), np.uint8)})
    return manifest._replace(state=write_checked(folder / name, content, files))


def read_state(folder: Path, manifest: Manifest, files: FileSystem = DISK) -> Arrays:
    """Return the arrays of the state file that a manifest names; raise ``DamagedDataError`` if it is damaged."""
    content = read_checked(folder, manifest.state, files, way_out=repair_hint(folder))
    return unpack_arrays(content, str(folder / manifest.state["name"]))


def manifest_in_state(folder: Path, generation: int, files: FileSystem = DISK) -> Manifest | None:
    """Rebuild a generation's manifest from its state file, under a new commit name.

    Returns ``None`` if the state file is damaged or missing.
    """
    for is_repaired in (False, True):
        name = state_name(generation, is_repaired=is_repaired)
        path = str(folder / name)
        try:
            content = files.read(folder / name, MOST_STATE_BYTES)
            fields = json.loads(unpack_arrays(content, path)[MANIFEST_ARRAY].tobytes())
            entry = {"name": name, "bytes": len(content), "checksum": checksum(content)}
            if fields["generation"] == generation:
                return _manifest_of(fields | {"state": entry, "commit": secrets.token_hex(16)}, path, generation)
        except (OSError, LookupError, TypeError, ValueError):
            continue
    return None


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


class FolderContents:
    """The files in the folder of a store, by their generations, from one listing."""

    def __init__(self, folder: Path, files: FileSystem = DISK) -> None:
        self._folder, self._disk = folder, files
        self.names = files.names(folder)
        self.manifests = ManifestNames.of(self.names, folder, files)
        self._states = sorted(int(match[1]) for match in map(STATE_FILE.fullmatch, self.names) if match)
        self._log_files = [match for match in map(LOG_FILE.fullmatch, self.names) if match]

    @property
    def free_generation(self) -> int:
        """A number above every generation and every state file."""
        return max(self.manifests.next_generation, 1 + max(self._states, default=0))

    def list_states(self) -> list[int]:
        """Return the generations that have a state file, ascending, except one that is being written."""
        return sorted(set(self._states) - {one.generation for one in self.manifests.begun})

    @property
    def newest_generation(self) -> int | None:
        """The newest generation, or ``None`` if no memory was saved here.

        Raises:
            DamagedDataError: files of a memory are there and the manifest that names them is missing.
        """
        folder, newest = self._folder, max(self.manifests.generations, default=None)
        if newest is None:
            unnamed = self.list_unnamed()
            if unnamed:
                raise DamagedDataError(
                    f"{folder}: {unnamed[0]} is there, and no MANIFEST: a manifest names the files of a memory; "
                    f"{repair_hint(folder)}, or give another folder"
                )
            return None
        lost = max(self.list_lost(), default=0)
        if lost > newest:
            raise DamagedDataError(
                f"{manifest_path(folder, lost)}: the file is missing: it names the newest generation of the memory; "
                f"{repair_hint(folder)}"
            )
        return newest

    def find_generation(self, wanted: int | None = None) -> int:
        """Return ``wanted``, or the newest generation if it is ``None``.

        Raises:
            FileNotFoundError: it is not there.
            DamagedDataError: the newest manifest is missing, as ``newest_generation`` says.
            IncompatibleError: the folder has a manifest of another kind.
        """
        numbers = self.manifests.generations
        if wanted is not None and wanted in numbers:
            return wanted
        newest = self.newest_generation
        if newest is None:
            read_manifest(self._folder, KIND, VERSION, files=self._disk)  # raises: none is there, or of another kind
        if wanted is None and newest is not None:
            return newest
        path = manifest_path(self._folder, wanted)
        raise FileNotFoundError(f"{path}: there is no generation {wanted}; give one of {numbers}")

    def list_unnamed(self) -> list[str]:
        """Return the logs and states of a folder without a manifest.

        Files of an unfinished first save are left out. So are those that superseded manifests name: a writer was killed
        while it removed every generation.
        """
        names = set(filter(STORE_FILE.fullmatch, self.names)) - self.list_leftovers(())
        for number in self.manifests.superseded:
            with suppress(DamagedDataError, IncompatibleError):
                manifest = read_checked_manifest(self._folder, number, self._disk, is_superseded=True)
                names -= manifest.file_ends().keys()
        return sorted(names)

    def list_leftovers(self, manifests: Iterable[Manifest]) -> set[str]:
        """Return the files that dead writers left: of begun generations, those that none of ``manifests`` names."""
        found = {name for name in self.names if _is_of_store(finished_name(name))}
        for begun in self.manifests.begun:
            first_files = dict(zip((FRAMES, STEPS), begun.first_files, strict=False))
            found |= {match[0] for match in self._log_files if int(match[2]) >= first_files.get(match[1], math.inf)}
            found.add(state_name(begun.generation))
        return (found - named_files(manifests)) & set(self.names) if found else found

    def list_lost(self) -> list[int]:
        """Return the generations without a manifest whose state file is whole, ascending.

        Beside manifests, a state file counts only if its memory was saved after or beside one of theirs: files of
        another memory, of an unfinished save, and of a superseded generation are none.
        """
        numbers = self.manifests.generations
        candidates = set(self.list_states()) - set(numbers) - set(self.manifests.superseded)
        known: list[Manifest] = []
        for number in numbers if candidates else ():
            with suppress(DamagedDataError, IncompatibleError, FileNotFoundError):
                known.append(read_checked_manifest(self._folder, number, self._disk))
        lost = []
        for number in sorted(candidates):
            manifest = manifest_in_state(self._folder, number, self._disk)
            if manifest is not None and (not numbers or any(_are_of_one_memory(manifest, other) for other in known)):
                lost.append(number)
        return lost


def _is_of_store(name: str | None) -> bool:
    return name is not None and bool(STORE_FILE.fullmatch(name) or name.startswith(f"{MANIFEST}."))


def _are_of_one_memory(manifest: Manifest, other: Manifest) -> bool:
    return other.commit in manifest.follows or manifest.generation in other.kept


def read_while_written(folder: Path, read: Callable[[FolderContents], Read], files: FileSystem = DISK) -> Read:
    """Return ``read(contents)``; call it again if it failed because a writer changed the folder meanwhile."""
    while True:
        contents = FolderContents(folder, files)
        try:
            return read(contents)
        except (FileNotFoundError, DamagedDataError):
            if contents.names == files.names(folder):
                raise
