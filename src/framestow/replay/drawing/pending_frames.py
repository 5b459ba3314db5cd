"""What is drawn and looked up, and whose frames are not unpacked yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedSegmentError
from framestow.frames.observation_spec import Frames
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.timelines.timeline import Columns
from framestow.storage.frame_storage import Reading

Given = TypeVar("Given")


class PendingFrames(ABC, Generic[Given]):
    """Steps that are drawn and looked up, and whose frames are not unpacked yet.

    What they are is settled: neither steps nor evictions change what ``gather`` gives. It is called once, from any
    thread. Until then, or until ``stop``, frames that leave the memory stay for it, and a writer that lets much go
    waits for it (docs/threads.md): whoever draws ahead sees to it that some thread gathers.
    """

    __slots__ = ("_parts", "columns", "frames", "reading", "windows")

    windows: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32]]
    columns: Columns
    frames: Frames

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self.reading: Reading | None = None

    @abstractmethod
    def look_up(self) -> None:
        """Choose the steps, and take down what they carry and where their frames lie; takes the memory's lock."""

    @abstractmethod
    def _batch(self) -> Given:
        """What the frames, now unpacked, are part of."""

    def gather(self) -> Given:
        """Unpack; where a damaged segment is skipped, what is drawn anew, among what is left.

        Raises ``DamagedSegmentError`` where a memory that raises for damage meets some.
        """
        while True:
            try:
                return self.unpack()
            except DamagedSegmentError as error:
                self.draw_anew(error)

    def unpack(self) -> Given:
        """Unpack without the memory's lock, for a thread that others wait for.

        Any damage raises ``DamagedSegmentError``. Whoever drew then calls ``draw_anew``, in a thread and at a moment
        of its own, which settles what comes of it.
        """
        reading: Reading | None = None
        try:  # it is taken, so that no stop() ends it while it is read
            reading, self.reading = self.reading, None
            if reading is None:
                raise ValueError("what is drawn ahead is gathered once, and not after stop(): draw another one")
            reading.windows(*self.windows, self.frames, self._parts.settings.stack_padding)
        finally:
            if reading is not None:
                reading.stop()
        return self._batch()

    def draw_anew(self, error: DamagedSegmentError) -> None:
        """Draw again, without the segment that ``unpack`` raised ``error`` for; a memory that skips none raises it."""
        with self._parts.lock:
            self._parts.damage.skip(error)
            self.look_up()

    def stop(self) -> None:
        """Let go of the frames, unless some thread unpacks them; a batch that was gathered stays as it is."""
        reading, self.reading = self.reading, None
        if reading is not None:
            reading.stop()


Looked = TypeVar("Looked", bound="PendingFrames[Any]")


def looked_up(pending: Looked) -> Looked:
    """Give it looked up; whatever interrupts that, at whatever line: a reading that stays makes the writer wait."""
    try:
        pending.look_up()
        return pending
    except BaseException:
        pending.stop()
        raise


def gathered(pending: PendingFrames[Given]) -> Given:
    """Look it up and gather it, with the same care."""
    try:
        pending.look_up()
        return pending.gather()
    finally:
        pending.stop()
