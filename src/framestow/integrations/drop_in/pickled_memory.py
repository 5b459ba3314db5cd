"""A memory in pickles, deep copies and state dicts: the files that ``ReplayMemory.save`` writes.

``PickledMemory`` passes them on in pieces, so that a pickle takes no second copy of the memory in RAM.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.replay.memory import ReplayMemory

PIECE_BYTES = 1 << 14  # an unpickler has a thousand pieces in RAM at once
PREFIX = "framestow-"  # of temporary folders


def memory_to_arrays(memory: ReplayMemory) -> dict[str, npt.NDArray[np.uint8]]:
    """Return the files of ``memory.save`` by name."""
    with _saved(memory) as files:
        return {path.name: np.fromfile(path, np.uint8) for path in files}


def memory_from_arrays(files: Mapping[str, npt.NDArray[np.uint8]], threads: int = 1) -> ReplayMemory:
    """Return the memory of ``memory_to_arrays``, with its random generator and open episodes.

    ``threads``: number of unpacking threads, which is not saved. Raises ``DamagedDataError`` if the bytes are damaged.
    """
    with TemporaryDirectory(prefix=PREFIX) as folder:
        for name, content in files.items():
            content.tofile(_path_in(folder, name))
        return _load(folder, threads)


class PickledMemory:
    """What a pickle has in place of a memory; unpickled, or copied, it is a ``ReceivedMemory``."""

    def __init__(self, memory: ReplayMemory) -> None:
        self._memory = memory

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        pieces = self._pieces(has_integers=protocol >= 2)
        return ReceivedMemory, (next(pieces), self._memory.inner.settings.threads), None, pieces

    def load(self) -> ReplayMemory:
        """Return another memory with the same content, for a shallow copy."""
        received: ReceivedMemory = copy.deepcopy(self)  # type: ignore[assignment]  # see the class
        return received.load()

    def _pieces(self, has_integers: bool) -> Iterator[Any]:
        """Yield names and sizes of the files, then the pieces of each.

        Pieces are integers, which pickle stores as bytes: a pickler and an unpickler keep each ``bytes`` object that
        they have seen to the end, but no integer. Protocols 0 and 1 would write integers in decimal.
        """
        with _saved(self._memory) as files:
            yield [(path.name, path.stat().st_size) for path in files]
            for path in files:
                with path.open("rb") as file:
                    while piece := file.read(PIECE_BYTES):
                        yield int.from_bytes(piece, "little") if has_integers else piece


class ReceivedMemory:
    """The files of a memory in a temporary folder, as their pieces arrive."""

    def __init__(self, files: list[tuple[str, int]], threads: int) -> None:
        self._folder, self._threads = TemporaryDirectory(prefix=PREFIX), threads
        self._files = [(_path_in(self._folder.name, name), size) for name, size in reversed(files)]  # still to come
        self._size = sum(size for _, size in files)
        self._file: IO[bytes] | None = None
        self._left = 0  # bytes of the newest file that are still to come

    def append(self, piece: int | bytes) -> None:
        """Write the next piece."""
        while not self._left and self._files:
            self._begin_file()
        if self._file is None or not self._left:
            raise DamagedDataError(f"a pickled memory goes on after its {self._size:,} bytes; load another copy of it")
        size = min(self._left, PIECE_BYTES)
        self._file.write(piece if isinstance(piece, bytes) else piece.to_bytes(size, "little"))
        self._left -= size

    def extend(self, pieces: Iterable[int | bytes]) -> None:
        """Write the next pieces."""
        for piece in pieces:
            self.append(piece)

    def load(self) -> ReplayMemory:
        """Return the memory, with its random generator and open episodes, and remove the files.

        Raises:
            DamagedDataError: the bytes are damaged.
        """
        while self._files:
            self._begin_file()
        if self._file is not None:
            self._file.close()
        with self._folder as folder:
            return _load(folder, self._threads)

    def _begin_file(self) -> None:
        if self._file is not None:
            self._file.close()
        path, self._left = self._files.pop()
        self._file = path.open("xb")


@contextmanager
def _saved(memory: ReplayMemory) -> Iterator[list[Path]]:
    """Yield the files of ``memory.save`` in a temporary folder."""
    with TemporaryDirectory(prefix=PREFIX) as folder:
        memory.save(folder)
        yield sorted(Path(folder).iterdir())


def _path_in(folder: str, name: str) -> Path:
    if name in ("", ".", "..") or Path(name).name != name:
        raise DamagedDataError(f"a file of the memory is {name!r}: it must be a plain name; use another copy of it")
    return Path(folder, name)


def _load(folder: str, threads: int) -> ReplayMemory:
    try:
        return ReplayMemory.load(folder, threads=threads)
    except DamagedDataError as error:  # its way out is a repair of the folder, which will be gone
        reason = str(error).replace(folder + os.sep, "").replace(folder, "the memory").partition(";")[0]
        raise DamagedDataError(f"{reason}: the saved buffer is damaged; load another copy of it") from error
