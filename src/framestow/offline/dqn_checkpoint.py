"""Checkpoints of Dopamine's replay memory, the files of the DQN Replay Dataset.

``GzipArrayReader`` reads its gzipped arrays. ``Checkpoint`` reads one ring in the order of time.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.interface import Closing
from framestow.offline.transfer import MOST_INFLATION, Progress
from framestow.replay.step_checks import LARGEST_REWARD
from framestow.storage.files.file_system import open_file

SKIPPED_AT_ONCE = 1 << 20  # bytes
LONGEST_HEADER = 10_000  # bytes
KINDS = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"}  # of dtypes, behind their byte order
MOST_AXES, MOST_DIGITS = 4, 12  # of a shape, and of each of its sides
DAMAGES = (gzip.BadGzipFile, EOFError, zlib.error, ValueError, TypeError)  # what reading damaged bytes raises


class GzipArrayReader(Closing):
    """Reads an array of ``numpy.save`` in a gzip file from start to end, without pickle.

    Raises:
        FileNotFoundError: there is no file.
        DamagedDataError: the file is not such an array, or no file but a link, say.
        OSError: reading fails.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.fdopen(open_file(path, os.O_RDONLY), "rb")
        with ExitStack() as on_error:
            on_error.callback(self.close)
            with self._refuse_damage():
                self._gzip = gzip.GzipFile(fileobj=self._file, mode="rb")
                self.shape, self.dtype = self._read_header()
                self._left = self.shape[0] if self.shape else 1  # items that are not read yet
                self._item_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize  # of one entry of the first axis
                file_bytes = os.fstat(self._file.fileno()).st_size
                if self._left * self._item_bytes > MOST_INFLATION * file_bytes:
                    raise ValueError(f"{file_bytes} bytes cannot hold the array of shape {self.shape}")
            on_error.pop_all()

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self._file.close()

    @property
    def compressed_bytes_read(self) -> int:
        """Number of bytes of the file read so far."""
        return self._file.tell()

    def read(self, count: int | None = None) -> npt.NDArray[Any]:
        """Return up to ``count`` next items in a new array; by default all remaining ones."""
        wanted = self._left if count is None else min(count, self._left)
        items = np.empty((wanted, *self.shape[1:]), self.dtype)
        view = items.view(np.uint8).reshape(-1).data
        done = 0
        with self._refuse_damage():
            while done < len(view):
                read = self._gzip.readinto(view[done:])
                if not read:
                    raise EOFError(f"it ends within the array of shape {self.shape}")
                done += read
        self._left -= wanted
        return items

    def skip(self, count: int) -> None:
        """Skip the next ``count`` items."""
        left = min(count, self._left) * self._item_bytes
        self._left -= min(count, self._left)
        with self._refuse_damage():
            while left:
                read = len(self._gzip.read(min(left, SKIPPED_AT_ONCE)))
                if not read:
                    raise EOFError(f"it ends within the array of shape {self.shape}")
                left -= read

    def finish(self) -> None:
        """Read to the end; raise ``DamagedDataError`` if the checksum is wrong or the file continues."""
        self.skip(self._left)
        with self._refuse_damage():
            if self._gzip.read(1):
                raise ValueError(f"it has more bytes than the array of shape {self.shape}")

    def _read_header(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        # NumPy evaluates the header as Python, which fails in many ways for damaged bytes.
        start = self._gzip.read(8)
        if start[:6] != b"\x93NUMPY" or start[6:7] not in (b"\x01", b"\x02"):
            raise ValueError(f"its first bytes are {start!r}")
        length = int.from_bytes(self._gzip.read(2 if start[6] == 1 else 4), "little")
        header = self._gzip.read(min(length, LONGEST_HEADER))
        shape, dtype, is_fortran = _parse_header(header)
        if is_fortran and len(shape) > 1:
            raise ValueError("it is in Fortran order")
        return shape, dtype

    @contextmanager
    def _refuse_damage(self) -> Iterator[None]:
        """Raise ``DamagedDataError`` for an error of damaged bytes."""
        try:
            yield
        except DAMAGES as error:
            raise DamagedDataError(
                f"{self.path}: it is not a complete NumPy array in gzip: {error}; download it again"
            ) from error


def _parse_header(header: bytes) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Return shape, dtype and whether it is in Fortran order, of the one form of header that ``numpy.save`` writes.

    >>> _parse_header(
    ...     b"{'descr': '<i4', 'fortran_order': False, 'shape': (1000000L,), }"
    ... )
    ((1000000,), dtype('int32'), False)
    """
    fields, _, rest = header.decode("latin-1").partition(", 'shape': (")
    sides, _, end = rest.partition(")")
    descr, _, order = fields.partition(", 'fortran_order': ")
    numbers = [side.strip().removesuffix("L") for side in sides.split(",")]
    if numbers[-1] == "":
        numbers.pop()
    dtype = descr.removeprefix("{'descr': '").removesuffix("'")
    is_known = dtype[:1] in "<>|" and dtype[1:] in KINDS and descr == f"{{'descr': '{dtype}'"
    are_sides = all(side.isascii() and side.isdigit() and len(side) <= MOST_DIGITS for side in numbers)
    is_known &= order in ("False", "True") and end.strip() in (", }", ",}", "}")
    if not is_known or not are_sides or len(numbers) > MOST_AXES:
        raise ValueError(f"its header is {header[:200]!r}")
    return tuple(map(int, numbers)), np.dtype(dtype), order == "True"


ELEMENTS = ("observation", "action", "reward", "terminal")  # names of Dopamine's files, one array each
RANGES = {"action": (0, 2**31 - 1), "reward": (-LARGEST_REWARD, LARGEST_REWARD), "terminal": (0, 255)}
SLOTS_AT_ONCE, BYTES_AT_ONCE = 256, 1 << 25  # frames in RAM at once, and their bytes
MOST_SLOTS = 10_000_000  # of a ring; Dopamine's have a million. Actions, rewards and flags of a ring are in RAM
MOST_FRAME_BYTES = 1 << 24


class Slots(NamedTuple):
    """Consecutive slots: frames, the actions and rewards at these frames, and whether the episode ended there."""

    frames: npt.NDArray[Any]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[Any]
    terminals: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Checkpoint:
    """One ring of ``num_slots`` slots, stored as arrays.

    ``add_count`` is the number of slots ever written; modulo ``num_slots`` it is the next slot. The dataset's rings
    were saved one slot before they were full. So ring N has::

        slots 0 to num_slots - 2: its steps, in the order of time
        slot num_slots - 1:       never written in ring 0; otherwise the last step of ring N - 1

    If ``add_count`` is missing (``None``), this is assumed, and the last slot is ignored.
    """

    folder: Path
    number: int
    num_slots: int
    frame: FrameSpec
    add_count: int | None

    @classmethod
    def open(cls, folder: Path, number: int) -> Checkpoint:
        """Open checkpoint ``number`` and read the headers of its files.

        Raises:
            InvalidSettingsError: a file is missing.
            DamagedDataError: a header is invalid.
        """
        shapes, dtypes = {}, {}
        for element in ELEMENTS:
            path = file_of(folder, element, number)
            try:
                with GzipArrayReader(path) as array:
                    shapes[element], dtypes[element] = array.shape, array.dtype
            except FileNotFoundError as error:
                raise InvalidSettingsError(
                    f"{folder}: checkpoint {number} has no file {path.name}: a checkpoint has the arrays "
                    f"{', '.join(ELEMENTS)}; download it, or select other checkpoints"
                ) from error
        num_slots, *frame_shape = shapes["observation"] or (0,)
        is_one_each = num_slots and frame_shape and all(shapes[name] == (num_slots,) for name in ELEMENTS[1:])
        kinds = {name: dtypes[name].kind for name in ELEMENTS[1:]}
        if (
            not is_one_each
            or kinds["action"] not in "iu"
            or kinds["reward"] not in "fiu"
            or kinds["terminal"] not in "iub"
        ):
            found = ", ".join(f"{name} {dtypes[name]} {shapes[name]}" for name in ELEMENTS)
            raise DamagedDataError(
                f"{folder}: checkpoint {number} has {found}: each must have one entry per step; download it again"
            )
        try:
            frame = FrameSpec(tuple(frame_shape), dtypes["observation"])
        except InvalidSettingsError as error:
            raise DamagedDataError(f"{folder}: checkpoint {number}: {error}; download it again") from error
        if num_slots > MOST_SLOTS or frame.nbytes > MOST_FRAME_BYTES:
            raise DamagedDataError(
                f"{folder}: checkpoint {number} has {num_slots:,} slots with frames of {frame.nbytes:,} bytes: at most "
                f"{MOST_SLOTS:,} slots of {MOST_FRAME_BYTES:,} bytes are read, Dopamine writes 1,000,000; import "
                "another one"
            )
        return cls(folder, number, num_slots, frame, _add_count(folder, number))

    @property
    def spans(self) -> list[range]:
        """The slots with steps in the order of time: two spans if the ring was partly overwritten."""
        if self.add_count is None:
            return [range(self.num_slots - 1)]
        if self.add_count < self.num_slots:
            return [range(self.add_count)]
        cursor = self.add_count % self.num_slots
        return [span for span in (range(cursor, self.num_slots), range(cursor)) if span]

    @property
    def begins_a_run(self) -> bool:
        """Whether its first step is the first step of the run."""
        return self.add_count is None or self.add_count <= self.num_slots

    def follows(self, other: Checkpoint) -> bool:
        """Return whether its first step directly follows the last step of ``other``."""
        if self.add_count is None or other.add_count is None:
            return False
        return self.add_count - self.num_slots == other.add_count

    def overlaps(self, other: Checkpoint) -> bool:
        """Return whether it shares steps with ``other``, an older state of the same ring."""
        if self.add_count is None or other.add_count is None or self.num_slots != other.num_slots:
            return False
        return 0 < self.add_count - other.add_count < self.num_slots

    @property
    def file_bytes(self) -> int:
        """Bytes of its arrays on disk."""
        return sum(file_of(self.folder, element, self.number).stat().st_size for element in ELEMENTS)

    @property
    def array_bytes(self) -> int:
        """Bytes of its arrays in RAM, as loaded by Dopamine: each frame, int32, float32 and uint8."""
        return self.num_slots * (self.frame.nbytes + 4 + 4 + 1)

    @property
    def bytes_to_read(self) -> int:
        """Bytes of files that ``slots`` reads; the frames of an overwritten ring are read twice."""
        frame_bytes = file_of(self.folder, "observation", self.number).stat().st_size
        return self.file_bytes + (len(self.spans) - 1) * frame_bytes

    @property
    def may_end_unmarked(self) -> bool:
        """Whether an episode may end without a terminal: Dopamine 4 names such ends in a pickle, which is not read."""
        return count_file_of(self.folder, "episode_end_indices", self.number).is_file()

    def column(self, element: str) -> npt.NDArray[Any]:
        """Return the array ``action``, ``reward`` or ``terminal``, by slot."""
        with GzipArrayReader(file_of(self.folder, element, self.number)) as array:
            column = array.read()
            array.finish()
        least, most = RANGES[element]
        if not ((column >= least) & (column <= most)).all():
            raise DamagedDataError(
                f"{array.path}: it has values from {column.min()} to {column.max()}: they must be from {least} to "
                f"{most}; download it again"
            )
        return column.astype(np.bool_) if element == "terminal" else column

    def slots(self, progress: Progress) -> Iterator[Slots]:
        """Yield the steps in the order of time, some at a time; ``progress`` counts bytes of files."""
        actions, rewards, terminals = (self.column(element) for element in ELEMENTS[1:])
        total = self.bytes_to_read
        path = file_of(self.folder, "observation", self.number)
        frame_bytes, at_once = path.stat().st_size, max(1, min(SLOTS_AT_ONCE, BYTES_AT_ONCE // self.frame.nbytes))
        done = self.file_bytes - frame_bytes
        for number, span in enumerate(self.spans):
            with GzipArrayReader(path) as frames:
                frames.skip(span.start)
                for start in range(span.start, span.stop, at_once):
                    stop = min(start + at_once, span.stop)
                    some = frames.read(stop - start)
                    yield Slots(some, actions[start:stop], rewards[start:stop], terminals[start:stop])
                    progress(done + frames.compressed_bytes_read, total)
                if number == 0:  # once, since the checksum covers the whole file
                    frames.finish()
            done += frame_bytes
        progress(total, total)

    def blank_slots_from(self, firsts: list[int]) -> list[int]:
        """Return the number of consecutive blank (all-zero) slots from each of ``firsts`` on, which ascend."""
        actions, rewards, terminals = (self.column(element) for element in ELEMENTS[1:])
        is_blank = (actions == 0) & (rewards == 0) & ~terminals
        counts = []
        with GzipArrayReader(file_of(self.folder, "observation", self.number)) as frames:
            at = 0
            for first in firsts:
                frames.skip(first - at)
                at = slot = first
                while at < self.num_slots and is_blank[at]:
                    at += 1
                    if frames.read(1).any():
                        break
                    slot += 1
                counts.append(slot - first)
        return counts


def file_of(folder: Path, element: str, number: int) -> Path:
    """Return the path of an array of checkpoint ``number``."""
    return folder / f"$store$_{element}_ckpt.{number}.gz"


def count_file_of(folder: Path, name: str, number: int) -> Path:
    """Return the path of ``add_count``, ``invalid_range`` or ``episode_end_indices`` of checkpoint ``number``."""
    return folder / f"{name}_ckpt.{number}.gz"


def checkpoint_numbers(folder: Path) -> list[int]:
    """Return the numbers of the checkpoints in ``folder``, ascending."""
    start, end = "$store$_observation_ckpt.", ".gz"
    names = [file.name for file in folder.iterdir() if file.name.startswith(start) and file.name.endswith(end)]
    numbers = [name[len(start) : -len(end)] for name in names]
    return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())


def _add_count(folder: Path, number: int) -> int | None:
    path = count_file_of(folder, "add_count", number)
    if not os.path.lexists(path):
        return None
    with GzipArrayReader(path) as array:
        is_one = array.shape in ((), (1,)) and array.dtype.kind in "iu"
        count = int(array.read().reshape(-1)[0]) if is_one else -1
        if count < 0:
            raise DamagedDataError(
                f"{path}: it has {array.dtype} of shape {array.shape}, but must be one integer, at least 0; download "
                "it again"
            )
        array.finish()
        return count
