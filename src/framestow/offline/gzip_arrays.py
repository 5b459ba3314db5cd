"""NumPy arrays in gzip files, read and written a piece at a time: what is in RAM is one piece."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError

SKIPPED_AT_ONCE = 1 << 20  # bytes
LONGEST_HEADER = 10_000  # bytes
HEADER = re.compile(
    rb"\{'descr': '(?P<dtype>[<>|=]?[biuf]\d+)', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>(\d+L?(, ?)?)*)\), ?\}\s*"
)
DAMAGES = (gzip.BadGzipFile, EOFError, zlib.error, ValueError, TypeError)


class GzipArrayReader:
    """An array of ``numpy.save`` in a gzip file, read from its first item on.

    Nothing is unpickled. Raises ``DamagedDataError``, naming the file, for bytes that are no such array, ``OSError``
    where the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        try:
            self._gzip = gzip.GzipFile(fileobj=self._file, mode="rb")
            self.shape, self.dtype = self._read_header()
        except DAMAGES as error:
            self._file.close()
            raise self._damaged(error) from error
        except BaseException:
            self._file.close()
            raise
        self._left = self.shape[0] if self.shape else 1
        self._item_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize

    def __enter__(self) -> GzipArrayReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def compressed_bytes_read(self) -> int:
        """Bytes of the file that were read so far."""
        return self._file.tell()

    def read(self, count: int | None = None) -> npt.NDArray[Any]:
        """Give the next ``count`` items, all that are left by default or where there are fewer, in a fresh array."""
        wanted = self._left if count is None else min(count, self._left)
        items = np.empty((wanted, *self.shape[1:]), self.dtype)
        view = items.view(np.uint8).reshape(-1).data
        try:
            done = 0
            while done < len(view):
                read = self._gzip.readinto(view[done:])
                if not read:
                    raise EOFError(f"it ends within the array of shape {self.shape}")
                done += read
        except DAMAGES as error:
            raise self._damaged(error) from error
        self._left -= wanted
        return items

    def skip(self, count: int) -> None:
        """Go over the next ``count`` items."""
        left = min(count, self._left) * self._item_bytes
        self._left -= min(count, self._left)
        try:
            while left:
                read = len(self._gzip.read(min(left, SKIPPED_AT_ONCE)))
                if not read:
                    raise EOFError(f"it ends within the array of shape {self.shape}")
                left -= read
        except DAMAGES as error:
            raise self._damaged(error) from error

    def finish(self) -> None:
        """Read to the end, where the file's checksum is compared; raise ``DamagedDataError`` if it is another one."""
        self.skip(self._left)
        try:
            rest = self._gzip.read(1)
        except DAMAGES as error:
            raise self._damaged(error) from error
        if rest:
            raise self._damaged(ValueError(f"it goes on behind the array of shape {self.shape}"))

    def _read_header(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        # NumPy's own reader evaluates the header as Python, which fails in many ways where bytes are damaged.
        start = self._gzip.read(8)
        if start[:6] != b"\x93NUMPY" or start[6:7] not in (b"\x01", b"\x02"):
            raise ValueError(f"it begins with {start!r}")
        length = int.from_bytes(self._gzip.read(2 if start[6] == 1 else 4), "little")
        header = self._gzip.read(min(length, LONGEST_HEADER))
        told = HEADER.fullmatch(header)
        if told is None:
            raise ValueError(f"its header reads {header!r}")
        shape = tuple(int(side) for side in re.findall(rb"\d+", told["shape"]))
        if told["fortran"] == b"True" and len(shape) > 1:
            raise ValueError("it is in Fortran's order")
        return shape, np.dtype(told["dtype"].decode())

    def _damaged(self, error: Exception) -> DamagedDataError:
        return DamagedDataError(
            f"{self.path}: it must be a NumPy array in gzip, whole, and is not: {error}; fetch it again"
        )


class GzipArrayWriter:
    """Writes what ``GzipArrayReader`` and ``numpy.load`` read, some items at a time; the shape is known before.

    The same items make the same bytes: no time and no name is written.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike, compression_level: int) -> None:
        self._file = path.open("xb")
        try:
            self._gzip = gzip.GzipFile("", "wb", compression_level, self._file, mtime=0)
            header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(self._gzip, header)
        except BaseException:
            self._file.close()
            raise
        self._dtype, self._item_shape = np.dtype(dtype), shape[1:]
        self._left = math.prod(shape[:1])

    def __enter__(self) -> GzipArrayWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._gzip.close()
        finally:
            self._file.close()
        if kind is None and self._left:
            raise AssertionError(f"{self._left} of the items announced were not written")

    def write(self, items: npt.NDArray[Any]) -> None:
        """Write the next ``items``, ``(n, *item)``, cast to the array's dtype where that keeps every value."""
        if items.shape[1:] != self._item_shape or len(items) > self._left:
            raise AssertionError(f"items of shape {items.shape} where {self._left} of {self._item_shape} are to come")
        self._gzip.write(np.ascontiguousarray(items, self._dtype).data)
        self._left -= len(items)

    def write_one(self, item: npt.ArrayLike) -> None:
        """Write the whole of an array without axes."""
        self._gzip.write(np.asarray(item, self._dtype).tobytes())
        self._left -= 1
