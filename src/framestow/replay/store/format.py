"""The files of a store: their names, the fields of a commit, and the arrays of its state.

::

    COMMIT.000012                     generation 12: settings, how much of each log belongs to it, and its state
    COMMIT.000012.copy                the same bytes, after a save
    frames-<id>.000001.log .index     sealed segments of frames, by (track, number of the segment)
    steps-<id>.000001.log .index      sealed blocks of steps, by the step store's key
    COMMIT.000013.<id>.<random>.new   a commit being written
    LOCK                              locked by the one writer

The id is random, and made with the store. A commit lists the ids whose files are the store's: its own, and those that
it replaced. Only files with such an id are ever removed. The state is small and changes: open segments, steps of
incomplete blocks, a value for each track.

The commit with the highest number is the newest. A generation exists if its commit is the newest, or in ``kept`` of the
newest. Its copy counts only where the commit itself is damaged or missing. While the newest has no copy, the commit
``before`` it stays too, and answers only if the newest is damaged.
"""

from __future__ import annotations

import errno
import json
import math
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from framestow._core import checksum
from framestow.errors import DamagedDataError, FramestowError, IncompatibleError, InvalidSettingsError
from framestow.interface import cached_property
from framestow.storage.files.block_format import (
    ID_DIGITS,
    INDEX,
    LOG,
    LOG_FILE,
    LogPlace,
    LogState,
    index_bytes,
    repair_hint,
)
from framestow.storage.files.file_system import DISK, FileSystem, ReadFile, temporary_path, write_atomically
from framestow.storage.files.manifest import MOST_MANIFEST_BYTES, unpack_manifest

KIND: Final = "framestow memory"  # of the file; a commit of another kind is refused
VERSION: Final = 1  # of the format; another number is refused
FRAMES, STEPS = "frames", "steps"  # names of the logs, and of their fields in a commit
LINE_BYTES, LAST_BYTES = 18, 4  # of a commit: its first line, and its last checksum
COMMIT: Final = "COMMIT"
COPY: Final = "copy"  # ending of a commit's second file
COMMIT_FILE: Final = re.compile(rf"{COMMIT}\.(\d{{6,15}})(\.{COPY})?")
"""Its groups are the number of the generation, and the ending of a copy."""
_UNFINISHED = re.compile(rf"{COMMIT}\.(\d{{6,15}})\.([0-9a-f]{{{ID_DIGITS}}})\.[0-9a-f]{{16}}\.new")
"""Its groups are the number, and the id of the store."""
MOST_NUMBER: Final = 10**15 - 1  # of a commit: what ``COMMIT_FILE`` finds
SPARE_NUMBERS = 2  # one call writes no more commits
NAME_BYTES = 256  # of a commit, from its beginning: its name is in them
Arrays = dict[str, npt.NDArray[Any]]
Read = TypeVar("Read")

NO_FILES = LogState(files=[], next_file=1)


class Commit(NamedTuple):
    """The front of a commit, with checked fields. It describes one generation."""

    generation: int
    name: str
    """Random; tells apart two commits of one number, of a store and a copy that went on."""
    id: str
    """The store: the id of all files that the commit names."""
    ids: list[str]
    """The ids whose files are the store's: its own, and those that it replaced."""
    memory: dict[str, Any]
    """Settings, sampler and generator, from ``MemoryParts.state``."""
    frames_per_segment: int
    num_transitions: int
    frames: LogState
    steps: LogState
    state_bytes: int
    """Bytes of the state behind the front; 0 if nothing was saved yet."""
    before: int
    """Number of the commit that this one continues; it stays while this one has no copy. 0 for none."""
    kept: list[int]
    """Older generations that later commits keep until ``prune``."""
    is_pinned: bool
    """Whether later commits keep this generation too."""
    is_closed: bool
    """Whether no later step is missing: the memory was closed with this commit, or saved to another folder."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was saved yet, or everything was removed."""
        return not self.state_bytes

    def place(self, folder: Path, name: str) -> LogPlace:
        """Return the place of a log that the commit names."""
        return LogPlace(folder, name, self.id)

    def file_ends(self) -> dict[str, int]:
        """Return the names of all log files that the commit names, each with the bytes that belong to it."""
        ends: dict[str, int] = {}
        for name, log in ((FRAMES, self.frames), (STEPS, self.steps)):
            place = self.place(Path(), name)
            for file in log["files"]:
                ends[place.file_name(file["number"], LOG)] = file["bytes"]
                ends[place.file_name(file["number"], INDEX)] = index_bytes(file["blocks"])
        return ends


def empty_commit(ids: list[str]) -> Commit:
    """Return a commit that says that nothing was saved yet; the last of ``ids`` is the store's own."""
    memory: dict[str, Any] = {"settings": {}}
    return Commit(
        0, new_name(), ids[-1], ids, memory, 1, 0, NO_FILES, NO_FILES, 0, 0, [], is_pinned=False, is_closed=True
    )


def new_name() -> str:
    """Return a random id of a store, or name of a commit."""
    return secrets.token_hex(ID_DIGITS // 2)


def commit_path(folder: Path, generation: int, *, is_copy: bool = False) -> Path:
    """Return the path of a generation's commit, or of its copy.

    >>> commit_path(Path("memory"), 12).name
    'COMMIT.000012'
    >>> commit_path(Path("memory"), 12, is_copy=True).name
    'COMMIT.000012.copy'
    """
    return folder / (f"{COMMIT}.{generation:06d}" + (f".{COPY}" if is_copy else ""))


def pack_commit(commit: Commit, state: bytes) -> tuple[Commit, bytes]:
    """Return a commit with the size of its state, and its bytes."""
    commit = commit._replace(state_bytes=len(state))
    front = json.dumps({"format": KIND, "version": VERSION, **commit._asdict()}).encode()
    content = b"%08x %08x\n" % (checksum(front), len(front)) + front + state
    return commit, content + checksum(content).to_bytes(LAST_BYTES, "little")


def write_packed(folder: Path, commit: Commit, content: bytes, files: FileSystem, *, is_copy: bool = False) -> None:
    """Write the bytes of a commit under its number, or as its copy, also in place of another one."""
    # The name says whose unfinished commit it is: the store's, whose id is listed before its first file.
    new = temporary_path(folder / f"{commit_path(folder, commit.generation).name}.{commit.id}")
    write_atomically(commit_path(folder, commit.generation, is_copy=is_copy), content, files, new=new)


def write_commit(
    folder: Path, commit: Commit, state: bytes, files: FileSystem = DISK, *, is_copy: bool = False
) -> Commit:
    """Pack and write a commit under its number, or as its copy; return it with the size of its state."""
    commit, content = pack_commit(commit, state)
    write_packed(folder, commit, content, files, is_copy=is_copy)
    return commit


def check_is_there(folder: Path, commit: Commit, files: FileSystem = DISK) -> None:
    """Raise ``IncompatibleError`` unless a commit that was written or read is still in its file.

    A folder can be restored beneath the lock of its writer, file by file.
    """
    path, name = commit_path(folder, commit.generation), ""
    with suppress(FileNotFoundError):
        with files.open_to_read(path) as file:
            if f'"name": "{commit.name}"'.encode() in file.read_at(0, NAME_BYTES):
                return
        found = StoredCommit.read(folder, commit.generation, files).commit
        name = found.name if found else ""
    if name != commit.name:
        raise IncompatibleError(
            f"{path}: it is not the commit that this process wrote or read there, so the folder was changed meanwhile, "
            "and nothing is written or removed; open the memory again, or write to another folder"
        )


class Rule(NamedTuple):
    """What a field of a manifest must be, in words for a message, and a function that says whether it is."""

    words: str
    holds: Callable[[Any], bool]


def _is_count(value: Any, low: int = 0) -> bool:
    return type(value) is int and low <= value <= MOST


def _is_list_of(is_one: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, list) and all(map(is_one, value))


MOST = 2**62  # of any integer in a commit
COUNT = Rule(f"an integer from 0 to {MOST}", _is_count)
NUMBER = Rule(f"an integer from 1 to {MOST}", lambda value: _is_count(value, 1))
TEXT = Rule("a string", lambda value: isinstance(value, str))
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
COUNTS = Rule("a list of integers >= 0", lambda value: _is_list_of(_is_count, value))
_ID = re.compile(rf"[0-9a-f]{{{ID_DIGITS}}}")
ID = Rule(f"{ID_DIGITS} hexadecimal digits", lambda value: isinstance(value, str) and bool(_ID.fullmatch(value)))
IDS = Rule("a list of such ids", lambda value: _is_list_of(ID.holds, value))
LOG_FIELDS = {"files": [{"number": NUMBER, "bytes": COUNT, "blocks": COUNT, "checksum": COUNT}], "next_file": NUMBER}
COMMIT_FIELDS: dict[str, Any] = {
    "name": TEXT,
    "id": ID,
    "ids": IDS,
    "memory": {"settings": {}},
    "frames_per_segment": NUMBER,
    "num_transitions": COUNT,
    "frames": LOG_FIELDS,
    "steps": LOG_FIELDS,
    "state_bytes": COUNT,
    "before": COUNT,
    "kept": COUNTS,
    "is_pinned": FLAG,
    "is_closed": FLAG,
}
"""A rule for each field. A dict is the rule of an object with these fields, a list that of a list of such objects.

Every field is required. A new one has a default in ``StoredCommit.read``, which stores without it get.
"""


def check_fields(values: Any, rules: Mapping[str, Any], file: str, path: str = "") -> None:
    """Raise ``DamagedDataError``, naming the field, unless the JSON object ``values`` of ``file`` is as ``rules`` say.

    ``path`` is the dotted name of the object in the file.

    >>> check_fields(
    ...     {"frames": {"bytes": -1}}, {"frames": {"bytes": COUNT}}, "COMMIT.000001"
    ... )
    Traceback (most recent call last):
    ...
    framestow.errors.DamagedDataError: COMMIT.000001: frames.bytes is -1: it must be an integer from 0 to ...
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


def convert_settings(folder: Path, commit: Commit, convert: Callable[[dict[str, Any]], Read]) -> Read:
    """Return ``convert`` of the saved settings, such as ``MemorySettings.from_state``.

    Raises:
        DamagedDataError: a setting is invalid; the message names the commit.
        InvalidSettingsError: this version does not know a value.
    """
    try:
        return convert(commit.memory["settings"])
    except FramestowError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        file = commit_path(folder, commit.generation)
        raise DamagedDataError(f"{file}: settings are damaged ({error}); {repair_hint(folder)}") from error


def pack_arrays(arrays: Arrays) -> bytes:
    r"""Return arrays as bytes: a line of JSON with the dtype and shape of each, then their values, in this order.

    Raises:
        InvalidSettingsError: an array has Python objects or records.

    >>> pack_arrays({"flags": np.array([[1, 2]], np.uint8)})
    b'{"flags": ["|u1", [1, 2]]}\n\x01\x02'
    """
    for name, array in arrays.items():
        if array.dtype.hasobject or array.dtype.names:
            raise InvalidSettingsError(f"{name} has values of {array.dtype}: they cannot be saved; use numbers")
    described = {name: [array.dtype.str, array.shape] for name, array in arrays.items()}
    return b"".join([json.dumps(described).encode(), b"\n", *[array.tobytes() for array in arrays.values()]])


def unpack_arrays(stored: bytes, file: str) -> Arrays:
    """Return the arrays that ``pack_arrays`` packed. Safe for any bytes: nothing is larger than they are.

    Raises:
        DamagedDataError: the content is anything else; the message names the file.

    >>> unpack_arrays(
    ...     pack_arrays({"rewards": np.array([0.5, 2.0])}), "COMMIT.000001"
    ... )
    {'rewards': array([0.5, 2. ])}
    """
    try:
        start = stored.index(b"\n", 0, MOST_MANIFEST_BYTES) + 1
        arrays = {}
        for name, (code, shape) in json.loads(stored[:start]).items():
            dtype, size = np.dtype(str(code)), math.prod(shape)
            if dtype.hasobject or min(shape, default=0) < 0:
                raise ValueError(f"an array has values of {dtype} and the shape {shape}")
            arrays[name] = np.frombuffer(stored, dtype, size, start).reshape(shape).copy()  # aligned
            start += size * dtype.itemsize
        if start != len(stored):
            raise ValueError(f"the arrays have {start:,} of {len(stored):,} bytes")
        return arrays
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedDataError(
            f"{file}: it does not have arrays as framestow writes them ({error}); {repair_hint(Path(file).parent)}"
        ) from error


class StoredCommit(NamedTuple):
    """A commit as it was read: its front and its state, as far as they are whole."""

    path: Path
    commit: Commit | None
    """``None`` if the front is damaged."""
    state: bytes
    problem: str
    """What is wrong; empty for a whole commit."""
    front: bytes = b""
    """Its bytes before the state, if it is whole."""
    warning: str = ""
    """That it is read in place of a damaged one, for the caller; empty for any other."""

    @classmethod
    def read(cls, folder: Path, generation: int, files: FileSystem = DISK, *, is_copy: bool = False) -> StoredCommit:
        """Read a commit, or its copy. It is damaged, too, if it is no file, or if the disk cannot read it.

        Raises:
            FileNotFoundError: there is none.
            OSError: it may not be read.
            DamagedDataError: its checksums are right and a field is invalid.
            IncompatibleError: another version wrote it.
        """
        path = commit_path(folder, generation, is_copy=is_copy)
        is_open = False
        try:
            with files.open_to_read(path) as file:
                is_open = True
                return cls._read(path, file, generation)
        except DamagedDataError as error:
            if is_open:
                raise
            return cls(path, None, b"", str(error).removeprefix(f"{path}: ").rpartition("; ")[0])
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return cls(path, None, b"", f"it cannot be read ({error.strerror})")

    @classmethod
    def _read(cls, path: Path, file: ReadFile, generation: int) -> StoredCommit:
        folder = path.parent
        line = file.read_at(0, LINE_BYTES)
        try:
            num_bytes = int(line[9:17], 16)
        except ValueError:
            num_bytes = 0
        front = file.read_at(len(line), min(num_bytes, MOST_MANIFEST_BYTES))
        if line != b"%08x %08x\n" % (checksum(front), len(front)):
            return cls(path, None, b"", "its checksum is wrong")
        fields = unpack_manifest(path, front, KIND, VERSION, generation, repair_hint(folder))
        check_fields(fields, COMMIT_FIELDS, str(path))
        commit = Commit(generation=generation, **{name: fields[name] for name in COMMIT_FIELDS})
        size = file.size - len(line) - len(front) - LAST_BYTES
        if size != commit.state_bytes:
            return cls(path, commit, b"", f"it has a state of {size:,} bytes, not {commit.state_bytes:,}")
        rest = file.read_at(len(line) + len(front), size + LAST_BYTES)
        state, last = rest[:-LAST_BYTES], rest[-LAST_BYTES:]
        if checksum(line + front + state).to_bytes(LAST_BYTES, "little") != last:
            return cls(path, commit, b"", "the checksum of its state is wrong")
        return cls(path, commit, state, "", line + front)

    def whole(self) -> Commit:
        """Return the commit; raise ``DamagedDataError`` if it is damaged."""
        if self.problem or self.commit is None:
            raise DamagedDataError(f"{self.path}: {self.problem}; {repair_hint(self.path.parent)}")
        return self.commit

    def arrays(self) -> Arrays:
        """Return the arrays of the state of a whole commit."""
        return unpack_arrays(self.state, str(self.path))


class FolderContents:
    """The commits and logs in the folder of a store, from one listing. Each commit is read once, when it is needed."""

    def __init__(self, folder: Path, files: FileSystem = DISK) -> None:
        self.folder, self._disk = folder, files
        self.names = files.names(folder)
        self._there: set[tuple[int, bool]] = set()  # numbers, and whether it is the copy
        self._highest = 0, ""  # number of a commit, or of one that was begun, and the name of the file
        for name in self.names:
            if match := COMMIT_FILE.fullmatch(name) or _UNFINISHED.fullmatch(name):
                number, is_finished = int(match[1]), match.re is COMMIT_FILE
                self._highest = max(self._highest, (number, name))
                if is_finished:
                    self._there.add((number, bool(match[2])))
        self.copies = {number for number, is_copy in self._there if is_copy}
        """Numbers of the commits that have a copy, whole or not."""
        self.numbers = sorted({number for number, _ in self._there})
        """Numbers of all commits and copies, ascending, whether their generations exist or not."""
        self._read: dict[tuple[int, bool], StoredCommit] = {}  # by number, and whether it is the copy

    @property
    def next_number(self) -> int:
        """A number above every commit, and every one that was begun.

        Raises:
            IncompatibleError: there is none.
        """
        number, name = self._highest
        if number > MOST_NUMBER - SPARE_NUMBERS:
            raise IncompatibleError(
                f"{self.folder / name}: its number is too high for another commit, which has at most {MOST_NUMBER:,}; "
                "load the memory, and save it to another folder"
            )
        return number + 1

    def read(self, number: int) -> StoredCommit:
        """Read a commit, as ``StoredCommit.read``; if it is damaged or missing, its copy if that is whole."""
        found = self.read_file(number)
        if found.problem and number in self.copies:
            copy = self.read_file(number, is_copy=True)
            if not copy.problem:
                return copy._replace(
                    warning=f"{found.path}: {found.problem}: its copy has the same content and is read in place of it, "
                    f"so nothing is missing; {repair_hint(self.folder)}"
                )
            found = found if found.commit else copy._replace(path=found.path, problem=found.problem)
        return found

    def read_file(self, number: int, *, is_copy: bool = False) -> StoredCommit:
        """Read a commit alone, or its copy alone; a missing one is damaged."""
        key = number, is_copy
        if key not in self._read:
            if key in self._there:
                self._read[key] = StoredCommit.read(self.folder, number, self._disk, is_copy=is_copy)
            else:
                path = commit_path(self.folder, number, is_copy=is_copy)
                self._read[key] = StoredCommit(path, None, b"", "the file is missing")
        return self._read[key]

    def is_copied(self, number: int) -> bool:
        """Whether a commit has a whole copy of the same content."""
        if number not in self.copies:
            return False
        found = self.read_file(number)
        if found.problem:
            return not self.read_file(number, is_copy=True).problem
        # The bytes are compared, since they need not be checked again.
        with suppress(DamagedDataError, FileNotFoundError), self._open_copy(number) as file:
            size, end = len(found.front), len(found.front) + len(found.state)
            content = memoryview(file.read_at(0, end + LAST_BYTES + 1))
            last = checksum(content[:end]).to_bytes(LAST_BYTES, "little")
            return content[:size] == found.front and content[size:end] == found.state and content[end:] == last
        return False

    def _open_copy(self, number: int) -> ReadFile:
        return self._disk.open_to_read(commit_path(self.folder, number, is_copy=True))

    @cached_property
    def newest(self) -> StoredCommit | None:
        """The newest whole commit; ``None`` if there is none, and no file of a store.

        Raises:
            DamagedDataError: no commit is whole, and files of a store are there.
        """
        numbers = self.numbers[::-1]
        while numbers:
            found = self.read(numbers[0])
            if not found.problem:
                return found
            # Its front may say which commit it continues; otherwise that is the one before it.
            before = (found.commit and found.commit.before) or numbers[0]
            numbers = [number for number in numbers[1:] if number <= before]
        if self.numbers or any(map(LOG_FILE.fullmatch, self.names)):
            newest = self.read(self.numbers[-1]) if self.numbers else None
            why = f" ({newest.path.name}: {newest.problem})" if newest else ""
            raise DamagedDataError(
                f"{self.folder}: it has files of a memory and no whole {COMMIT} file, which alone says what they are; "
                f"nothing is changed{why}; load an older save, or give another folder"
            )
        return None

    @property
    def generations(self) -> list[int]:
        """Numbers of the generations that can be asked for, oldest first."""
        if self.newest is None or self.newest.whole().is_empty:
            return []
        newest = self.newest.whole()
        return [*(number for number in newest.kept if number in self.numbers), newest.generation]

    @property
    def existing(self) -> list[int]:
        """Numbers of the commits that stay: those of the generations, and the one before a newest without a copy."""
        if self.newest is None:
            return []
        newest = self.newest.whole()
        stay = {newest.generation, *newest.kept}
        if not self.is_copied(newest.generation):
            stay.add(newest.before)
        return [number for number in self.numbers if number in stay]

    def find(self, wanted: int | None = None, *, falls_back: bool = True) -> StoredCommit:
        """Return the commit of generation ``wanted``, which is whole; ``None``: of the newest one.

        If the newest is damaged, and so is its copy, this returns the one before it, unless ``falls_back`` is off. The
        caller warns as ``warning`` of the result says, once it has read all.

        Raises:
            FileNotFoundError: nothing was saved there, or the generation does not exist.
            DamagedDataError: the commit is damaged, or all are.
        """
        newest = self.newest.whole() if self.newest else None
        number = 0 if newest is None else newest.generation
        damaged = max((one for one in self.numbers if one > number), default=None)
        if wanted is not None and wanted in self.numbers and (wanted in self.generations or wanted > number):
            self.read(wanted).whole()
            return self.read(wanted)
        if damaged is not None and (not self.generations or not falls_back):
            self.read(damaged).whole()
        if newest is None or not self.generations:
            raise FileNotFoundError(
                f"{self.folder}: no {KIND} was saved in this folder; give the folder that it was saved to"
            )
        if wanted is not None:
            raise FileNotFoundError(
                f"{commit_path(self.folder, wanted)}: there is no generation {wanted}; give one of {self.generations}"
            )
        if damaged is not None:
            return self.read(number)._replace(warning=self._describe_loss(damaged, newest))
        return self.read(number)

    def left_over(self, ids: Iterable[str], commits: Iterable[Commit]) -> list[str]:
        """Return the files of these ids that none of ``commits`` names: logs, indices and unfinished commits."""
        named, owned = {name for commit in commits for name in commit.file_ends()}, set(ids)
        return [name for name in self.names if name not in named and id_of(name) in owned]

    def _describe_loss(self, number: int, instead: Commit) -> str:
        damaged = self.read(number)
        loss = f"what came after generation {instead.generation} is missing"
        if damaged.commit is not None:
            loss += f": it has {instead.num_transitions:,} transitions, and the damaged one had "
            loss += f"{damaged.commit.num_transitions:,}"
        return (
            f"{damaged.path}: {damaged.problem}: generation {instead.generation} is read in place of it; {loss}; "
            f"{repair_hint(self.folder)}"
        )


def id_of(name: str) -> str | None:
    """Return the id in the name of a log, an index or an unfinished commit; ``None`` for other names.

    >>> id_of("frames-00c0ffee00c0ffee.000001.log"), id_of("COMMIT.000012")
    ('00c0ffee00c0ffee', None)
    """
    if log := LOG_FILE.fullmatch(name):
        return log[2] if log[1] in (FRAMES, STEPS) else None
    unfinished = _UNFINISHED.fullmatch(name)
    return unfinished[2] if unfinished else None


def read_while_written(folder: Path, read: Callable[[FolderContents], Read], files: FileSystem = DISK) -> Read:
    """Return ``read(contents)``; call it again if it failed because a writer changed the folder meanwhile."""
    while True:
        contents = FolderContents(folder, files)
        try:
            return read(contents)
        except (FileNotFoundError, DamagedDataError):
            if contents.names == files.names(folder):
                raise
