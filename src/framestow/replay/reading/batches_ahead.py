"""Batches that threads unpack and prepare while the learner runs; the base of all loaders."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from framestow.checks import check_callable, whole_number
from framestow.errors import DamagedSegmentError, ForkedLoaderError, InvalidSettingsError
from framestow.interface import Closing, one_line, plural
from framestow.replay.memory import check_batch_size
from framestow.replay.reading.batch import SequenceBatch
from framestow.replay.reading.sequences import SequenceShape

if TYPE_CHECKING:
    from typing import Self


Drawn_co = TypeVar("Drawn_co", covariant=True)
Drawn = TypeVar("Drawn")
Ready = TypeVar("Ready")

AHEAD_RULE = "at least 1 batch is prepared ahead; to prepare none, call sample()"


class Pending(Protocol[Drawn_co]):
    """A draw that is not unpacked yet, such as ``PendingBatch``."""

    def unpack(self) -> Drawn_co:
        """Unpack in any thread, without waiting; raise ``DamagedSegmentError`` if a segment cannot be read."""

    def redraw(self, error: DamagedSegmentError) -> None:
        """Draw again without the segment of ``error``, or raise ``error``; ``unpack`` can be called again after it."""

    def stop(self) -> None:
        """Release the frames without unpacking them."""


class DrawsAhead(Protocol[Drawn_co]):
    """A source of draws for a loader: ``ReplayMemory``, ``HindsightGoals``."""

    def draw_ahead(self, batch_size: int) -> Pending[Drawn_co]:
        """Draw now, to unpack later."""


class BatchesAhead(Closing, Generic[Drawn, Ready]):
    """Endless iterator over batches; threads prepare the next ``ahead`` of them.

    ==================================  ================================  ===================
    action                              time                              thread
    ==================================  ================================  ===================
    ``draw()`` of batch k               batch k - ahead is requested      the caller's
    ``unpack``, then ``prepare``        at any time after that            one of ``threads``
    ``redraw``, if a damaged segment    batch k is requested              the caller's
    is skipped
    return batch k                      it is requested and prepared      the caller's
    ==================================  ================================  ===================

    The request of batch 0 draws batches 0 to ``ahead``. So the draws depend only on the order of the caller's calls:
    they are the same, bit for bit, for any number of threads.

    A thread neither takes the memory's lock nor waits for the caller, so a writer that waits for open snapshots always
    continues. If a thread raises, the request of that batch raises, and the next request returns the batch after it. A
    Ctrl-C during a request loses no batch.

    One thread at a time may request batches. ``close`` ends the threads, and so does dropping the last reference.
    """

    def __init__(
        self,
        draw: Callable[[], Pending[Drawn]],
        prepare: Callable[[Drawn], Ready],
        ahead: int = 2,
        threads: int = 1,
        where: str = "in RAM",
    ) -> None:
        ahead = whole_number("ahead", ahead, 1, rule=AHEAD_RULE)
        threads = whole_number("threads", threads, 1, rule="at least 1 thread prepares batches; give 1")
        # ``draw`` runs in the caller's thread, ``prepare`` in the pool's.
        self._draw, self._prepare = draw, prepare
        self._num_ahead = ahead  # batches that are drawn beyond the requested one
        # The threads that unpack; None once the loader is closed.
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(threads, "framestow-loader")
        # A forked child has no threads of the pool, so requests there raise.
        self._process = os.getpid()
        # Batches that are drawn but not yet returned, in the order of their draws; at most num_ahead + 1.
        self._in_progress: deque[_BatchInProgress[Drawn, Ready]] = deque()
        # What ``repr`` says of the loader.
        self._details = f"batches {where}", f"{ahead} ahead", plural(threads, "thread")

    def __repr__(self) -> str:
        return one_line(self, lambda: self._details)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Ready:
        """Return the next batch; wait until it is prepared. Raise ``StopIteration`` once closed."""
        if self._executor is None:
            raise StopIteration
        if os.getpid() != self._process:
            raise ForkedLoaderError(
                f"the loader was created in process {self._process}: a forked process, here {os.getpid()}, does not "
                "have its threads; create a loader in this process, and close the first one before forking"
            )
        while len(self._in_progress) <= self._num_ahead:
            self._in_progress.append(self._start_batch(self._executor))
        try:
            ready = self._result_of(self._in_progress[0], self._executor)
        except Exception:  # not Ctrl-C, which leaves the batch for the next call
            if self._in_progress:
                self._in_progress.popleft()
                raise
        if not self._in_progress:  # closed meanwhile, by a signal's handler or another thread
            raise StopIteration
        self._in_progress.popleft()
        return ready

    def _start_batch(
        self,
        executor: ThreadPoolExecutor,
        again: Pending[Drawn] | None = None,
        error: DamagedSegmentError | None = None,
    ) -> _BatchInProgress[Drawn, Ready]:
        """Draw a batch, or ``again`` without the segment of ``error``, and unpack it on a thread."""
        pending = self._draw() if again is None else again
        try:
            check_is_pending(pending)
            if error is not None:
                pending.redraw(error)
            return _BatchInProgress(pending, executor.submit(_unpack_and_prepare, pending, self._prepare))
        except BaseException:  # also Ctrl-C: a lost snapshot would block the writer
            if hasattr(pending, "stop"):
                pending.stop()
            raise

    def _result_of(self, batch: _BatchInProgress[Drawn, Ready], executor: ThreadPoolExecutor) -> Ready:
        """Wait for ``batch`` and return it; draw again if a damaged segment is skipped."""
        while True:
            try:
                return batch.future.result()
            except DamagedSegmentError as error:
                batch.future = self._start_batch(executor, batch.pending, error).future

    def close(self) -> None:
        """End the threads after their current batches; closing again does nothing."""
        executor, self._executor = self._executor, None
        if executor is None:
            return
        try:
            if os.getpid() == self._process:
                executor.shutdown(wait=True, cancel_futures=True)
        finally:
            while self._in_progress:
                self._in_progress.popleft().pending.stop()


@dataclass
class _BatchInProgress(Generic[Drawn, Ready]):
    """A batch between its draw and its return."""

    pending: Pending[Drawn]  # the draw; it keeps its frames from being evicted until it is unpacked or stopped
    future: Future[Ready]  # the prepared batch, or the error of its thread


def draw_function(memory: Any, draw: Any = None) -> Callable[[int], Pending[Any]]:
    """Return ``draw``, or the memory's ``draw_ahead``; raise ``InvalidSettingsError`` if neither can be called."""
    if draw is not None:
        check_callable("draw", draw, "a function of the batch size that returns memory.draw_ahead(batch_size)")
    elif not callable(getattr(memory, "draw_ahead", None)):
        raise InvalidSettingsError(f"memory is {memory!r}: it must be a ReplayMemory; give one")
    function: Callable[[int], Pending[Any]] = memory.draw_ahead if draw is None else draw
    return function


def sequence_draw_function(memory: Any, batch_size: int, shape: SequenceShape) -> Callable[[], Pending[SequenceBatch]]:
    """Return a function that draws sequences ahead; raise ``InvalidSettingsError`` for arguments that cannot work."""
    draw_function(memory)
    batch_size = check_batch_size(batch_size)
    draw: Any = partial(memory.draw_sequences_ahead, overlap=shape.overlap, burn_in=shape.burn_in)
    return partial(draw, batch_size, shape.length, borders=shape.borders)


def check_is_pending(given: Any) -> None:
    """Raise ``InvalidSettingsError`` unless ``given`` is a ``Pending``."""
    methods = getattr(given, "unpack", None), getattr(given, "redraw", None), getattr(given, "stop", None)
    if not all(map(callable, methods)):
        raise InvalidSettingsError(
            f"draw returned {given!r}: it must return a draw that is not unpacked yet; return memory.draw_ahead(...)"
        )


def _unpack_and_prepare(pending: Pending[Any], prepare: Callable[[Any], Ready]) -> Ready:
    # A function, not a method: a working thread must not keep an unreferenced loader alive.
    return prepare(pending.unpack())
