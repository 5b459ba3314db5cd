"""The memory of a drop-in: in RAM or in a folder, and in pickles, deep copies and state dicts.

Of a memory in RAM they have the files that ``ReplayMemory.save`` writes. ``PickledMemory`` passes them on in pieces, so
that a pickle takes no second copy of the memory in RAM. A memory that lives in a folder is named (``MemoryInFolder``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from framestow.checks import folder_path
from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.interface import plural, warn_caller
from framestow.replay.memory import ReplayMemory
from framestow.replay.steps.ring_steps import SPAN
from framestow.replay.steps.step_store import steps_in_pieces
from framestow.replay.store.open_store import start_over
from framestow.replay.store.other_settings import describe_difference
from framestow.replay.store.reader import StoredMemory, read_frames_per_segment, read_settings

PIECE_BYTES = 1 << 14  # an unpickler has a thousand pieces in RAM at once
PREFIX = "framestow-"  # of temporary folders
STEPS_PER_PIECE = 1 << 18  # whose environments are read at once
FLUSH_EVERY_S = 5.0  # between two flushes, as of ``ReplayMemory``

# The memories of drop-ins that live in a folder, with their ``flush_every``.
_in_folders: WeakKeyDictionary[ReplayMemory, float | None] = WeakKeyDictionary()


def make_memory(*, resumes: bool = True, **arguments: Any) -> ReplayMemory:
    """Return a new ``ReplayMemory``. With a ``directory`` that has one, it resumes that one, and warns of it.

    Raises:
        IncompatibleError: ``resumes`` is false, and the directory has a memory; or it has another ``capacity``,
            ``n_step`` or ``discount``, or steps that are not whole rows.
    """
    if arguments.get("directory") is not None:
        if not resumes:
            refuse_used(arguments["directory"])
        refuse_other_settings(arguments)
    memory = ReplayMemory(**arguments)
    if memory.directory is not None:
        try:
            refuse_other_rows(memory)
        except IncompatibleError:
            memory.close()
            raise
        _in_folders[memory] = arguments.get("flush_every", FLUSH_EVERY_S)
        if len(memory):
            warn_caller(
                f"memory {memory.directory} has {len(memory):,} transitions: the buffer resumes it; give another "
                "directory to begin an empty one",
                RuntimeWarning,
            )
    return memory


def refuse_used(folder: Path) -> None:
    """Raise ``IncompatibleError`` if ``folder`` has a memory: a buffer with fields of its own cannot resume it."""
    if read_frames_per_segment(folder) is not None:
        raise IncompatibleError(
            f"memory {folder} has the observations of another buffer: what that buffer saved has its actions and "
            "rewards; load that, or give another directory"
        )


def refuse_other_settings(arguments: Mapping[str, Any]) -> None:
    """Raise ``IncompatibleError`` if the memory in a ``directory`` has another size or other returns.

    ``ReplayMemory`` itself would take some of these, but a buffer numbers its rows by its own size.
    """
    folder = folder_path("directory", arguments["directory"])
    stored = read_settings(folder)
    for name in ("capacity", "n_step", "discount"):
        if stored is not None and name in arguments and arguments[name] != getattr(stored, name):
            raise IncompatibleError(describe_difference(name, arguments[name], getattr(stored, name), folder))


def refuse_other_rows(memory: ReplayMemory) -> None:
    """Raise ``IncompatibleError`` unless each row of a memory in a folder has one step of each environment, in order.

    A memory that steps were imported into, or a ``Recorder`` wrote to, has the steps of one environment in a row.
    """
    steps, num_envs = memory.inner.steps, memory.num_envs
    if num_envs == 1:
        return
    are_rows = steps.next_index % num_envs == 0  # type: ignore[union-attr]  # of a ring
    for indices in steps_in_pieces(steps, STEPS_PER_PIECE):
        windows, _ = steps.resolve_steps(indices, with_extras=False)
        are_rows = are_rows and bool((windows.env_ids == indices % num_envs).all())
    if not are_rows:
        raise IncompatibleError(
            f"memory {memory.directory} has rows without a step of each of its {plural(num_envs, 'environment')}: the "
            "buffer numbers steps by row and environment; give another directory, or use a ReplayMemory"
        )


def close_and_remove(memory: ReplayMemory) -> None:
    """Close a memory that lives in a folder, and remove it there; its buffer replaces it by an empty one."""
    if memory.directory is not None:
        memory.close()
        start_over(memory.directory, keeps_pinned=True)


class MemoryInFolder(NamedTuple):
    """What a folder has of a memory that lives there, and how it was opened."""

    folder: str
    store: str
    """Its id; a copy of the folder has the same."""
    generation: int
    num_steps: int
    """Number of steps ever added."""
    num_transitions: int
    threads: int = 1
    flush_every: float | None = None

    @classmethod
    def flushed(cls, memory: ReplayMemory) -> MemoryInFolder:
        """Flush a memory, and return what its folder then has."""
        memory.flush()
        threads, flush_every = memory.inner.settings.threads, _in_folders.get(memory)
        return cls._read(str(memory.directory))._replace(threads=threads, flush_every=flush_every)

    @classmethod
    def _read(cls, folder: str) -> MemoryInFolder:
        with StoredMemory.open(Path(folder)) as stored:
            commit, num_steps = stored.commit, int(stored.arrays[SPAN][1])
            return cls(folder, commit.id, commit.generation, num_steps, commit.num_transitions)

    def load(self) -> ReplayMemory:
        """Return the memory of this process that lives in this store, or open the folder to go on with it.

        Raises:
            IncompatibleError: the store is another one, steps were added since, or another process has it open.
            FileNotFoundError: the folder has no store.
        """
        living = self._find_living()
        try:
            now = self._read(self.folder) if living is None else MemoryInFolder.flushed(living)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(
                f"{self.folder} has no memory: that of the saved buffer was there; build a buffer with the directory "
                "where it is now, then load the saved one again"
            ) from error
        if now.store != self.store or (now.num_steps, now.num_transitions) != (self.num_steps, self.num_transitions):
            newer = "the store was replaced by another one" if now.store != self.store else "only the newest stays"
            raise IncompatibleError(
                f"the buffer was saved with generation {self.generation} of {now.folder} ({self.num_steps:,} steps), "
                f"which now has generation {now.generation} ({now.num_steps:,} steps): {newer}; build a buffer with "
                "this directory to go on with what it has"
            )
        if living is None:
            living = ReplayMemory.open(self.folder, read_only=False, threads=self.threads, flush_every=self.flush_every)
            _in_folders[living] = self.flush_every
        return living

    def _find_living(self) -> ReplayMemory | None:
        """Return the open memory of this process whose folder has the store, wherever the folder is now."""
        for memory in list(_in_folders):
            directory = memory.inner.directory
            with suppress(OSError):  # of a folder that was removed
                if directory and directory.is_open and self._read(str(directory.path)).store == self.store:
                    return memory
        return None


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
        if self._memory.directory is not None:
            return MemoryInFolder, tuple(MemoryInFolder.flushed(self._memory))
        pieces = self._pieces(has_integers=protocol >= 2)
        return ReceivedMemory, (next(pieces), self._memory.inner.settings.threads), None, pieces

    def __deepcopy__(self, memo: Any) -> ReceivedMemory:
        if self._memory.directory is not None:
            raise InvalidSettingsError(
                f"a buffer in {self._memory.directory} was copied: one memory lives in a folder; call "
                "memory.save(another_folder), and give that as the directory of another buffer"
            )
        kind, arguments, _, pieces = self.__reduce_ex__(2)
        received: ReceivedMemory = kind(*arguments)
        received.extend(pieces)
        return received

    def load(self) -> ReplayMemory:
        """Return another memory with the same content, for a shallow copy."""
        return self.__deepcopy__(None).load()

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
