"""One checkpoint of Dopamine's replay memory, of which the DQN Replay Dataset is made: its files and their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.offline.gzip_arrays import GzipArrayReader
from framestow.offline.transfer import Progress

ELEMENTS = ("observation", "action", "reward", "terminal")
SLOTS_AT_ONCE = 256  # frames that are in RAM together, a few times over while they are unpacked


class Slots(NamedTuple):
    """Some consecutive slots: a frame, what was done then, what that gave, and whether it ended the episode."""

    frames: npt.NDArray[Any]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[Any]
    terminals: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Checkpoint:
    """The arrays of one ring of ``num_slots`` slots.

    Dopamine's ``add_count`` says how many slots were ever written: it is where the next one goes, modulo the slots.
    The dataset's rings were written out one slot before they were full, so that of the N-th one::

        slots      0 .. num_slots - 2      what was played then, in the order of time
        slot       num_slots - 1           of ring 0: never written; of ring N: the last step of ring N - 1

    Where ``add_count`` is not there (``None``), that is what is assumed, and the last slot is left alone.
    """

    folder: Path
    number: int
    num_slots: int
    frame: FrameSpec
    add_count: int | None

    @classmethod
    def open(cls, folder: Path, number: int) -> Checkpoint:
        """Read what the headers say.

        Raises ``InvalidSettingsError`` where a file is missing, ``DamagedDataError`` where one is not as it must be.
        """
        shapes, dtypes = {}, {}
        for element in ELEMENTS:
            path = file_of(folder, element, number)
            if not path.is_file():
                raise InvalidSettingsError(
                    f"{folder}: checkpoint {number} has no file {path.name}: a checkpoint is made of "
                    f"{', '.join(ELEMENTS)}; fetch it, or choose other checkpoints"
                )
            with GzipArrayReader(path) as array:
                shapes[element], dtypes[element] = array.shape, array.dtype
        num_slots = shapes["observation"][0] if shapes["observation"] else 0
        is_one_each = len(shapes["observation"]) > 1 and all(shapes[name] == (num_slots,) for name in ELEMENTS[1:])
        kinds = {name: dtypes[name].kind for name in ELEMENTS[1:]}
        if (
            not is_one_each
            or kinds["action"] not in "iu"
            or kinds["reward"] not in "fiu"
            or kinds["terminal"] not in "iub"
        ):
            told = ", ".join(f"{name} {dtypes[name]} {shapes[name]}" for name in ELEMENTS)
            raise DamagedDataError(
                f"{folder}: checkpoint {number} has {told}: each has one entry a step; fetch it again"
            )
        frame = FrameSpec(shapes["observation"][1:], dtypes["observation"])
        return cls(folder, number, num_slots, frame, _add_count(folder, number))

    @property
    def spans(self) -> list[range]:
        """The slots that hold steps, in the order of time: two spans where the ring has been overwritten partly."""
        if self.add_count is None:
            return [range(self.num_slots - 1)]
        if self.add_count < self.num_slots:
            return [range(self.add_count)]
        cursor = self.add_count % self.num_slots
        return [span for span in (range(cursor, self.num_slots), range(cursor)) if span]

    @property
    def begins_a_run(self) -> bool:
        """Whether its first slot is the first that was ever written."""
        return self.add_count is None or self.add_count <= self.num_slots

    def follows(self, other: Checkpoint) -> bool:
        """Whether its first step comes right after the last one of ``other``."""
        if self.add_count is None or other.add_count is None:
            return False
        return self.add_count - self.num_slots == other.add_count

    def overlaps(self, other: Checkpoint) -> bool:
        """Whether it holds steps that ``other``, an older state of the same ring, holds too."""
        if self.add_count is None or other.add_count is None or self.num_slots != other.num_slots:
            return False
        return 0 < self.add_count - other.add_count < self.num_slots

    @property
    def file_bytes(self) -> int:
        """Bytes of its arrays on disk."""
        return sum(file_of(self.folder, element, self.number).stat().st_size for element in ELEMENTS)

    @property
    def array_bytes(self) -> int:
        """Bytes of its arrays when Dopamine has loaded them: int32, float32 and uint8 beside each frame."""
        return self.num_slots * (self.frame.nbytes + 4 + 4 + 1)

    @property
    def bytes_to_read(self) -> int:
        """Bytes of files that ``slots`` reads: the frames of an overwritten ring are gone through twice."""
        frame_bytes = file_of(self.folder, "observation", self.number).stat().st_size
        return self.file_bytes + (len(self.spans) - 1) * frame_bytes

    def column(self, element: str) -> npt.NDArray[Any]:
        """Give all of ``action``, ``reward`` or ``terminal``, slot by slot."""
        with GzipArrayReader(file_of(self.folder, element, self.number)) as array:
            column = array.read()
            array.finish()
        return column.astype(np.bool_) if element == "terminal" else column

    def slots(self, progress: Progress) -> Iterator[Slots]:
        """Give the steps in the order of time, ``SLOTS_AT_ONCE`` at a time; ``progress`` counts bytes of files."""
        actions, rewards, terminals = (self.column(element) for element in ELEMENTS[1:])
        total = self.bytes_to_read
        path = file_of(self.folder, "observation", self.number)
        frame_bytes = path.stat().st_size
        done = self.file_bytes - frame_bytes
        for number, span in enumerate(self.spans):
            with GzipArrayReader(path) as frames:
                frames.skip(span.start)
                for start in range(span.start, span.stop, SLOTS_AT_ONCE):
                    stop = min(start + SLOTS_AT_ONCE, span.stop)
                    some = frames.read(stop - start)
                    yield Slots(some, actions[start:stop], rewards[start:stop], terminals[start:stop])
                    progress(done + frames.compressed_bytes_read, total)
                if number == 0:  # once: the checksum is that of the whole file
                    frames.finish()
            done += frame_bytes
        progress(total, total)

    def blank_slots_from(self, firsts: list[int]) -> list[int]:
        """Count, for each of ``firsts`` in ascending order, how many slots from it on are blank: all zeros."""
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
    """Path of one of the arrays of checkpoint ``number``."""
    return folder / f"$store$_{element}_ckpt.{number}.gz"


def count_file_of(folder: Path, name: str, number: int) -> Path:
    """Path of ``add_count`` or ``invalid_range`` of checkpoint ``number``."""
    return folder / f"{name}_ckpt.{number}.gz"


def checkpoint_numbers(folder: Path) -> list[int]:
    """Numbers of the checkpoints in ``folder``, in ascending order."""
    pattern = re.compile(r"\$store\$_observation_ckpt\.(\d+)\.gz")
    found = (pattern.fullmatch(file.name) for file in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def _add_count(folder: Path, number: int) -> int | None:
    path = count_file_of(folder, "add_count", number)
    if not path.is_file():
        return None
    with GzipArrayReader(path) as array:
        if array.shape not in ((), (1,)) or array.dtype.kind not in "iu":
            raise DamagedDataError(
                f"{path}: it holds {array.dtype} of shape {array.shape}, not one number; fetch it again"
            )
        count = int(array.read().reshape(-1)[0])
        array.finish()
        return count
