"""Batches that are unpacked on threads while the learner runs."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from framestow.argument_checks import check_callable, whole_number
from framestow.errors import DamagedSegmentError, ForkedLoaderError, InvalidSettingsError
from framestow.replay.batch import Batch, SequenceBatch

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


Drawn_co = TypeVar("Drawn_co", covariant=True)
Drawn = TypeVar("Drawn")
Ready = TypeVar("Ready")

AHEAD_RULE = "at least 1 batch is prepared ahead; without, call sample()"


class Pending(Protocol[Drawn_co]):
    """Something that is drawn and not unpacked yet, as ``PendingBatch`` is."""

    def unpack(self) -> Drawn_co:
        """Unpack, in any thread, waiting for nobody; raises ``DamagedSegmentError`` where a segment cannot be read."""

    def draw_anew(self, error: DamagedSegmentError) -> None:
        """Draw again without the segment that ``error`` tells of, or raise ``error``; then it may be unpacked again."""

    def stop(self) -> None:
        """Let go of what was to be unpacked."""


class DrawsAhead(Protocol[Drawn_co]):
    """What a loader draws from: a ``ReplayMemory``."""

    def _draw_ahead(self, batch_size: int) -> Pending[Drawn_co]:
        """Draw now what is unpacked later."""


class BatchesAhead(Generic[Drawn, Ready]):
    """An endless iterator over batches, the next ``ahead`` of which are prepared on threads.

    ========================  =======================================  =================================
    what                      when                                     in which thread
    ========================  =======================================  =================================
    ``draw()`` of batch k     batch k - ahead is asked for             the caller's
    its ``unpack``, then      at any time from then on                 one of ``threads``
    ``prepare(drawn)``
    a draw anew, where a      batch k is asked for                     the caller's
    damaged segment is
    skipped
    the hand-over             batch k is asked for, and is prepared    the caller's
    ========================  =======================================  =================================

    The first batch asks for the draws of batches 0 to ``ahead``. So what is drawn follows from the order of the
    caller's calls alone: it is the same, bit for bit, for any number of threads and however they run.

    A thread neither takes the memory's lock nor waits for the caller, so whoever waits for readings, as a writer does
    that lets much go, has them end. What a thread raises reaches the caller when it asks for that batch; the next call
    gives the batch after it. A Ctrl-C while the caller waits loses no batch.

    One thread at a time may ask for batches. ``close`` ends the threads, and so does dropping the last reference.
    """

    def __init__(
        self, draw: Callable[[], Pending[Drawn]], prepare: Callable[[Drawn], Ready], ahead: int = 2, threads: int = 1
    ) -> None:
        ahead = whole_number("ahead", ahead, 1, rule=AHEAD_RULE)
        threads = whole_number("threads", threads, 1, rule="batches are prepared on at least 1 thread; give 1")
        self._draw, self._prepare, self._num_ahead = draw, prepare, ahead
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(threads, "framestow-loader")
        self._process = os.getpid()
        self._underway: deque[_Underway[Drawn, Ready]] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Ready:
        """Give the next batch, and wait for it where it is not prepared yet; once closed, there is none."""
        if self._executor is None:
            raise StopIteration
        if os.getpid() != self._process:
            raise ForkedLoaderError(
                f"the loader was made in process {self._process}: its threads are not in this one, {os.getpid()}; make "
                "a loader here, and close the other before forking"
            )
        while len(self._underway) <= self._num_ahead:
            self._underway.append(self._drawn_batch(self._executor))
        try:
            ready = self._handed_over(self._underway[0], self._executor)
        except Exception:  # but a Ctrl-C leaves the batch for the next call
            self._underway.popleft()
            raise
        self._underway.popleft()
        return ready

    def _drawn_batch(self, executor: ThreadPoolExecutor) -> _Underway[Drawn, Ready]:
        pending = self._draw()
        try:
            check_is_drawn(pending)
            return _Underway(pending, executor.submit(_unpack_and_prepare, pending, self._prepare))
        except BaseException:  # a reading that nobody ends would make the writer wait for ever
            if hasattr(pending, "stop"):
                pending.stop()
            raise

    def _handed_over(self, batch: _Underway[Drawn, Ready], executor: ThreadPoolExecutor) -> Ready:
        """Wait for ``batch``; where damage is skipped, see to another in its place."""
        while True:
            try:
                return batch.future.result()
            except DamagedSegmentError as error:
                try:
                    batch.pending.draw_anew(error)
                    batch.future = executor.submit(_unpack_and_prepare, batch.pending, self._prepare)
                except BaseException:
                    batch.pending.stop()
                    raise

    def close(self) -> None:
        """End the threads, once each has finished the batch it is at; closing again does nothing."""
        executor, self._executor = self._executor, None
        if executor is None:
            return
        try:
            if os.getpid() == self._process:
                executor.shutdown(wait=True, cancel_futures=True)
        finally:
            while self._underway:
                self._underway.popleft().pending.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@dataclass
class _Underway(Generic[Drawn, Ready]):
    """One batch from its draw to its hand-over."""

    pending: Pending[Drawn]
    future: Future[Ready]


def draw_of(memory: Any, draw: Any = None) -> Callable[[int], Pending[Any]]:
    """Give what draws: ``draw``, or the memory's ``draw_ahead``; ``InvalidSettingsError`` for what cannot."""
    if draw is not None:
        check_callable("draw", draw, "a function of the batch size that returns memory._draw_ahead(batch_size)")
    elif not callable(getattr(memory, "_draw_ahead", None)):
        raise InvalidSettingsError(f"memory is {memory!r}: batches are drawn from a ReplayMemory; give one")
    drawing: Callable[[int], Pending[Any]] = memory._draw_ahead if draw is None else draw
    return drawing


def check_is_drawn(given: Any) -> None:
    """Raise ``InvalidSettingsError`` for what is no ``Pending``."""
    if not all(callable(getattr(given, name, None)) for name in ("unpack", "draw_anew", "stop")):
        raise InvalidSettingsError(
            f"draw gave {given!r}: it must give what is drawn and not unpacked yet; return memory._draw_ahead(...)"
        )


def checked_batch(given: Any) -> Batch | SequenceBatch:
    """Give what was unpacked back; ``InvalidSettingsError`` for what is no batch."""
    if not isinstance(given, (Batch, SequenceBatch)):
        raise InvalidSettingsError(f"draw gave what unpacks to {given!r}: it must be a Batch or a SequenceBatch")
    return given


def _unpack_and_prepare(pending: Pending[Any], prepare: Callable[[Any], Ready]) -> Ready:
    # A function, not a method: a thread that is at work must not keep a forgotten loader alive.
    return prepare(pending.unpack())
