"""Reads the arrays of HDF5 and ``.npz`` files. Anyone may have made them: no code runs, and no other file is read.

An array is read in pieces of rows. Before the first one, its header is checked: numbers only, and no more bytes than
the file can hold. In an HDF5 file, nothing is read that is a link, or in another file, or packed by a filter other than
gzip, lzf and shuffle (others are plug-ins). In a ``.npz`` file, nothing is unpickled.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.extras import check_library, missing_extra
from framestow.frames.frame_spec import MAX_FRAME_BYTES, MAX_ITEM_BYTES
from framestow.interface import printable
from framestow.offline.file_settings import FileSettings
from framestow.offline.transfer import MOST_INFLATION, reason

Array = npt.NDArray[Any]

PIECE_BYTES = 4 * 2**20  # of an array, in RAM at once
MOST_AXES = 32  # of an array: NumPy 1 has no more
MOST_CHUNK_BYTES = 64 * 2**20  # of an HDF5 dataset: a chunk is unpacked as a whole

HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@cache  # it is asked for at each array of a file, and looking up a version takes milliseconds
def load_h5py() -> Any:
    """Import h5py; raise ``MissingExtraError`` if it is not installed, or too old."""
    check_library("an HDF5 file", "h5py")
    try:
        import h5py  # type: ignore[import-untyped]  # noqa: PLC0415 -- it comes with an extra
    except ModuleNotFoundError as missing:
        raise missing_extra("an HDF5 file", missing.name, "offline") from missing
    return h5py


def linked(group: Any, name: str) -> Any:
    """Return ``group[name]`` of an HDF5 file; raise ``ValueError`` for a link, which may lead to another file."""
    if not isinstance(group.get(name, getlink=True), load_h5py().HardLink):
        raise ValueError(f"{name!r} is a link")
    return group[name]


def check_dataset(dataset: Any) -> None:
    """Raise ``ValueError`` unless an HDF5 dataset is in its file, and its bytes can be."""
    h5py = load_h5py()
    made = dataset.id.get_create_plist()
    filters = {made.get_filter(number)[0] for number in range(made.get_nfilters())}
    if dataset.is_virtual or dataset.external:
        raise ValueError(f"{dataset.name!r} is stored in other files")
    if filters - {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_LZF}:
        raise ValueError(f"{dataset.name!r} has the filters {sorted(filters)}, and not only gzip, lzf and shuffle")
    if math.prod(dataset.chunks or ()) * dataset.dtype.itemsize > MOST_CHUNK_BYTES:
        raise ValueError(f"{dataset.name!r} has chunks of {dataset.chunks}, of more than {MOST_CHUNK_BYTES:,} bytes")
    stored = dataset.id.get_storage_size()
    if dataset.size and dataset.nbytes > MOST_INFLATION * stored:
        raise ValueError(f"{dataset.name!r} has {dataset.nbytes:,} bytes, of {stored:,} in the file")


@dataclass
class Column:
    """An array of a file: a row for each step, or a single value, of shape ``()``."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    _path: Path
    _source: Any  # an HDF5 dataset, or the open member of a ``.npz`` file
    _offset: int = 0  # of its first row in that member, in bytes
    _first: int = 0  # number of its first row in the file

    def __post_init__(self) -> None:
        if self.dtype.kind not in "biuf" or self.dtype.itemsize > MAX_ITEM_BYTES:
            raise ValueError(f"its dtype is {self.dtype}, and not one of numbers")
        if min(self.shape, default=0) < 0 or len(self.shape) > MOST_AXES:
            raise ValueError(f"its shape is {self.shape}: it has negative sides, or more than {MOST_AXES} axes")
        if not self.row_bytes:
            raise ValueError(f"its shape is {self.shape}: a row has no number")
        if self.row_bytes > MAX_FRAME_BYTES:
            raise ValueError(f"a row has {self.row_bytes:,} bytes")

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def from_row(self, first: int) -> Column:
        """Return the rows from ``first`` on, as an array of their own."""
        return replace(self, shape=(len(self) - first, *self.shape[1:]), _first=self._first + first)

    def pieces(self, start: int, stop: int) -> Iterator[Array]:
        """Yield the rows ``start`` to ``stop`` (excluded) as arrays of this machine's byte order.

        Raises:
            DamagedDataError: they cannot be read.
        """
        step = max(1, PIECE_BYTES // max(1, self.row_bytes))
        for at in range(start, stop, step):
            yield self.read(at, min(at + step, stop))

    def value(self) -> Any:
        """Return the single value, or the first one."""
        return self.read(0, 1).reshape(-1)[0].item()

    def read(self, start: int, stop: int) -> Array:
        """Return these rows, as ``pieces`` does, in one array."""
        shape = (stop - start, *self.shape[1:])
        try:
            if not isinstance(self._source, zipfile.ZipExtFile):
                here = slice(self._first + start, self._first + stop)
                rows = self._source[here] if self.shape else np.asarray(self._source[()])
            else:
                self._source.seek(self._offset + (self._first + start) * self.row_bytes)
                rows = np.frombuffer(self._source.read(len(range(start, stop)) * self.row_bytes), self.dtype)
            return np.ascontiguousarray(rows, self.dtype.newbyteorder("=")).reshape(shape)
        except Exception as error:  # of many kinds, by what is damaged
            raise _damaged(self._path, self.name, error) from error


class ArrayFile:
    """The arrays of an open file, by name. Those in a group of an HDF5 file have names such as ``data/obs``."""

    def __init__(self, path: Path, source: Any, names: frozenset[str]) -> None:
        self.path, self._source = path, source
        self.names = names
        self._members: list[Any] = []  # of a ``.npz`` file: while one is open, so is the file

    def close(self) -> None:
        """Close the arrays that were read."""
        for member in self._members:
            member.close()

    def column(self, name: str) -> Column:
        """Return the array of this name.

        Raises:
            DamagedDataError: there is none, or it is not one of numbers, or not all of it is in the file.
        """
        try:
            if isinstance(self._source, zipfile.ZipFile):
                return self._member(name)
            return self._dataset(name)
        except Exception as error:
            raise _damaged(self.path, name, error) from error

    def names_in(self, group: str) -> list[str]:
        """Return the names of the arrays and groups in a group of an HDF5 file; raise as ``column``."""
        try:
            found = self._find(group)
            if isinstance(found, load_h5py().Dataset):
                raise ValueError("it is an array, and not a group")
            return list(found)
        except Exception as error:
            raise _damaged(self.path, group, error) from error

    def texts(self, name: str) -> list[str]:
        """Return the texts of an array of an HDF5 file; raise as ``column``."""
        try:
            dataset = self._find(name)
            check_dataset(dataset)
            if dataset.dtype.kind not in "SO" or len(dataset.shape) != 1 or dataset.shape[0] > MOST_TEXTS:
                raise ValueError(f"it has shape {dataset.shape} and dtype {dataset.dtype}, and is no list of texts")
            return [text.decode() for text in dataset[()]]
        except Exception as error:
            raise _damaged(self.path, name, error) from error

    @property
    def settings(self) -> FileSettings:
        """What an export wrote of its memory; empty for a file of others.

        Raises:
            DamagedDataError: it is there and cannot be read.
        """
        try:
            if isinstance(self._source, zipfile.ZipFile):
                if SETTINGS not in self.names:
                    return FileSettings()
                text = self._member(SETTINGS)
                return FileSettings.of_text(text.read(0, min(len(text), MOST_SETTINGS_BYTES)).tobytes().decode())
            if SETTINGS not in self._source.attrs:
                return FileSettings()
            if self._source.attrs.get_id(SETTINGS).shape:
                raise ValueError("it is no text")
            return FileSettings.of_text(str(self._source.attrs[SETTINGS]))
        except Exception as error:
            raise _damaged(self.path, SETTINGS, error) from error

    def _dataset(self, name: str) -> Column:
        dataset = self._find(name)
        if not isinstance(dataset, load_h5py().Dataset):
            raise ValueError("it is a group")
        check_dataset(dataset)
        return Column(name, dataset.shape, dataset.dtype, self.path, dataset)

    def _find(self, name: str) -> Any:
        """Return a dataset or group of an HDF5 file; raise ``ValueError`` for a link anywhere on the way."""
        found = self._source
        for part in name.split("/"):
            if part not in found:
                raise ValueError("there is no such array")
            found = linked(found, part)
        return found

    def _member(self, name: str) -> Column:
        if name not in self.names:
            raise ValueError("there is no such array")
        found = self._source.getinfo(f"{name}.npy")
        if found.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("it is packed by another method than deflate")
        member = self._source.open(found)
        self._members.append(member)
        version = np.lib.format.read_magic(member)
        if version not in HEADERS:
            raise ValueError(f"its format is {version}, and not one of {list(HEADERS)}")
        shape, is_fortran, dtype = HEADERS[version](member)
        column = Column(name, shape, dtype, self.path, member, member.tell())
        nbytes = math.prod(shape) * dtype.itemsize
        if is_fortran and len(shape) > 1:
            raise ValueError("it is in Fortran order; save np.ascontiguousarray(array)")
        if found.file_size != nbytes + member.tell() or found.file_size > MOST_INFLATION * found.compress_size:
            raise ValueError(f"it has {nbytes:,} bytes, of {found.compress_size:,} in the file")
        return column


@contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """Open an HDF5 or ``.npz`` file.

    Raises:
        InvalidSettingsError: there is no such file.
        MissingExtraError: h5py is not installed.
        DamagedDataError: it is neither of them, or it was cut short.
    """
    if not path.is_file():
        raise InvalidSettingsError(f"{path}: there is no such file; give an HDF5 or .npz file")
    is_npz = path.suffix == ".npz"
    opened: Any = zipfile.ZipFile if is_npz else partial(load_h5py().File, mode="r", rdcc_nbytes=MOST_CHUNK_BYTES)
    try:
        source = opened(path)
    except Exception as error:  # of many kinds, by what is damaged
        raise _damaged(path, "", error) from error
    with source:
        names = (name[: -len(".npy")] for name in source.namelist() if name.endswith(".npy")) if is_npz else source
        file = ArrayFile(path, source, frozenset(names))
        try:
            yield file
        finally:
            file.close()


def _damaged(path: Path, name: str, error: Exception) -> DamagedDataError:
    what = f"{path}: {printable(name)}" if name else str(path)
    return DamagedDataError(f"{what}: it cannot be read: {reason(error)}; make the file again")


Write: TypeAlias = Callable[[str, tuple[int, ...], Any, Iterable[Array]], None]
"""Writes an array: its name, shape and dtype, and its rows in pieces."""

SETTINGS = "framestow"  # attribute of an HDF5 file, or array of a ``.npz`` file, with ``FileSettings.text``
MOST_SETTINGS_BYTES = 2**16
MOST_TEXTS = 2**20


class _Hdf5Bytes(io.FileIO):
    """The bytes of a new HDF5 file, which keep the first error of the disk, or a Ctrl-C.

    HDF5 ends the process if a write fails while it closes a file, and later if one was interrupted. So every write
    returns as if it had succeeded.
    """

    error: BaseException | None = None

    def write(self, content: Any) -> int:
        try:
            rest = memoryview(content).cast("B")
            while rest:
                rest = rest[super().write(rest) :]
            return len(content)
        except BaseException as error:
            self.error = self.error or error
            return len(content)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except BaseException as error:
            self.error = self.error or error
            return size or 0

    def check(self) -> None:
        """Raise the first error."""
        if self.error is not None:
            raise self.error


@contextmanager
def new_hdf5(path: Path, settings: FileSettings) -> Iterator[Write]:
    """Create an HDF5 file; raise ``MissingExtraError`` if h5py is not installed."""
    h5py = load_h5py()
    with _Hdf5Bytes(path, "x+") as content:
        try:
            with h5py.File(content, "w") as file:
                file.attrs[SETTINGS] = settings.text()

                def write(name: str, shape: tuple[int, ...], dtype: Any, pieces: Iterable[Array]) -> None:
                    if dtype is None or not shape:
                        file.create_dataset(name, data=next(iter(pieces)), dtype=dtype or h5py.string_dtype())
                        return
                    rows = min(shape[0], max(1, 2**20 // (math.prod(shape[1:]) * np.dtype(dtype).itemsize)))
                    packed = {"chunks": (rows, *shape[1:]), "compression": "gzip", "compression_opts": 1}
                    dataset = file.create_dataset(name, shape, dtype, **packed)
                    at = 0
                    for piece in pieces:
                        dataset[at : at + len(piece)] = piece
                        content.check()
                        at += len(piece)

                yield write
        finally:
            content.check()


@contextmanager
def new_npz(path: Path, settings: FileSettings) -> Iterator[Write]:
    """Create a ``.npz`` file."""
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:

        def write(name: str, shape: tuple[int, ...], dtype: Any, pieces: Iterable[Array]) -> None:
            described = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, described)
                for piece in pieces:
                    member.write(np.ascontiguousarray(piece).data)

        text = np.frombuffer(settings.text().encode(), np.uint8)
        write(SETTINGS, text.shape, text.dtype, [text])
        yield write
