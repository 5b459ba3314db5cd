"""``ShardGroup``: calls to the shards of a replay, what each of them reported last, and which are lost."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from framestow.distributed.calls import START_S, Calls
from framestow.distributed.chunks import ShardReport
from framestow.distributed.merging import Masses
from framestow.distributed.rate_limiter import RateLimiter, ReplayCounts
from framestow.errors import ActorLostError
from framestow.replay.memory_report import MemoryReport

REFRESH_S = 0.25  # age of a report at which a shard is asked again


@dataclass
class _ShardState:
    """What the group knows of a shard."""

    report: ShardReport | None = None  # the last one; None while the shard is lost
    reported_at: float = 0.0  # by time.monotonic; of a shard that starts, when it was started
    lost_with: int | None = None  # transitions that it had when it was lost; None once it is back
    question: Any = None  # handle of a report that was asked for
    counted: tuple[int, int, int] = (-1, 0, 0)  # epoch, inserted steps and ignored updates that the counts include


class ShardGroup:
    """The shards of a replay, by number. A shard that dies or hangs is *lost* until it reports again.

    Every answer of a shard has a report. The group counts what is new in it, and asks shards whose report is old.
    Any thread may call the methods; waiting for rows happens without ``lock``.

    Arguments:
        calls: Calls to the shards. The group ends them, also if a shard cannot be built.
        limiter: Gives the insert limits that travel with questions.
        counts: Counts of the replay, which the group adds to.
        timeout_s: Seconds until a shard that does not answer is lost.
    """

    def __init__(self, calls: Calls, limiter: RateLimiter, counts: ReplayCounts, timeout_s: float) -> None:
        self.calls, self.timeout_s = calls, timeout_s
        self.lock = threading.RLock()
        """Held for every change of what the replay knows of its shards."""
        self._limiter, self._counts = limiter, counts
        self._states = [_ShardState() for _ in range(calls.num_objects)]
        with contextlib.ExitStack() as unless_built:
            unless_built.callback(calls.close)
            for shard in range(len(self._states)):
                self.ask(shard)
            for shard, state in enumerate(self._states):
                handle, state.question = state.question, None
                self.record(shard, calls.result(handle, max(timeout_s, START_S)))
            unless_built.pop_all()
        if limiter.is_active:
            self.refresh()

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self._states)

    @property
    def reports(self) -> list[ShardReport | None]:
        """The last report of each shard; ``None`` while it is lost."""
        return [state.report for state in self._states]

    @property
    def inserted(self) -> list[int | None]:
        """Steps that each shard has inserted; ``None`` while it is lost."""
        return [None if report is None else report.inserted for report in self.reports]

    @property
    def transitions(self) -> int:
        """Number of transitions of all shards."""
        return sum(report.transitions for report in self.reports if report is not None)

    @property
    def nbytes(self) -> int:
        """Number of bytes in RAM of all shards' memories."""
        return sum(report.nbytes for report in self.reports if report is not None)

    def epoch(self, shard: int) -> int:
        """Return the epoch of a shard; -1 while it is lost."""
        report = self._states[shard].report
        return -1 if report is None else report.epoch

    def masses(self) -> tuple[Masses, Masses]:
        """Return the mass of each shard, 0 if it is lost, and that of one transition, infinity if it has none."""
        reports = self.reports
        return (
            np.array([0.0 if report is None else report.mass for report in reports]),
            np.array([math.inf if report is None else report.smallest for report in reports]),
        )

    # Questions and answers

    def refresh(self) -> None:
        """Ask all shards for their reports, and wait for those that are not lost."""
        with self.lock:
            for shard in range(len(self)):
                self.ask(shard)
            for shard, report in enumerate(self.reports):
                self.take_answer(shard, wait=report is not None)

    def refresh_old(self) -> None:
        """Ask shards whose report is old, without waiting; use the answers that arrived."""
        with self.lock:
            now = time.monotonic()
            for shard, state in enumerate(self._states):
                self.take_answer(shard, wait=False)
                if now - state.reported_at > REFRESH_S:
                    self.ask(shard)
                    self.take_answer(shard, wait=False)

    def ask(self, shard: int) -> None:
        """Ask a shard for its report, unless a question waits for its answer."""
        with self.lock:
            state = self._states[shard]
            if state.question is None:
                limit = self._limiter.renew_limit(shard, self.inserted, self.transitions)
                state.question = self.calls.call(shard, "report", self.epoch(shard), limit)

    def take_answer(self, shard: int, wait: bool = True) -> None:
        """Use the answer to ``ask``, if there is one or ``wait``."""
        with self.lock:
            state = self._states[shard]
            if state.question is None or not (wait or self.calls.wait([state.question])):
                return
            handle, state.question = state.question, None
            with contextlib.suppress(ActorLostError):
                self.record(shard, self.result(shard, handle))
                self._limiter.record_answer(shard)

    def result(self, shard: int, handle: Any) -> Any:
        """Wait for the answer to a call and return it; a shard without an answer is lost.

        Raises:
            ActorLostError: there is none.
        """
        try:
            return self.calls.result(handle, self.timeout_s)
        except ActorLostError as error:
            with self.lock:
                self._lose(shard, error)
            raise

    def call_all(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of all shards that are not lost; return the answers."""
        self.refresh_old()
        alive = [shard for shard, report in enumerate(self.reports) if report is not None]
        handles = [self.calls.call(shard, method, *arguments) for shard in alive]
        answers = []
        for shard, handle in zip(alive, handles, strict=True):
            with contextlib.suppress(ActorLostError):
                answers.append(self.result(shard, handle))
        return answers

    def call_each(self, method: str, arguments: Callable[[int], Sequence[Any]]) -> list[Any]:
        """Call a method that writes of every shard, with the arguments for its number; return all answers.

        Raises:
            ActorLostError: a shard does not answer within ten times ``timeout_s``.
        """
        handles = [self.calls.call(shard, method, *arguments(shard)) for shard in range(len(self))]
        return [self.calls.result(handle, 10 * self.timeout_s) for handle in handles]

    def memory_report(self, capacity: int) -> MemoryReport:
        """Return the sum of the reports of all shards that answer.

        Raises:
            ActorLostError: none does.
        """
        reports: list[MemoryReport] = self.call_all("memory_report")
        if not reports:
            raise ActorLostError("no shard answers: their memories cannot be reported; try again when they are back")
        return replace(
            reports[0],
            transitions=sum(each.transitions for each in reports),
            capacity=capacity,
            parts=_sum_by_name([each.parts for each in reports]),
            frames=_sum_by_name([each.frames for each in reports]),
            max_bytes=None,
            share_used=0.0,
            disk_bytes=sum(each.disk_bytes for each in reports),
            skipped_segments=sum(each.skipped_segments for each in reports),
            skipped_transitions=sum(each.skipped_transitions for each in reports),
            frame_bytes_by_key=_sum_by_name([each.frame_bytes_by_key for each in reports]),
            open_frames=sum(each.open_frames for each in reports),
        )

    # Health

    def record(self, shard: int, report: ShardReport) -> None:
        """Record a report; those of an earlier epoch or moment are ignored."""
        with self.lock:
            state, counts = self._states[shard], self._counts
            before = state.report
            if before is not None and (report.epoch, report.inserted) < (before.epoch, before.inserted):
                return
            if before is not None and before.epoch != report.epoch:  # restarted between two answers
                self._count_lost(state, before)
            if state.lost_with is not None:
                counts.lost_transitions += max(0, state.lost_with - report.transitions)
                state.lost_with = None
            epoch, inserted, ignored = state.counted
            is_same = epoch == report.epoch
            counts.inserted += report.inserted - (inserted if is_same else 0)
            counts.ignored_updates += report.ignored_updates - (ignored if is_same else 0)
            state.counted = report.epoch, report.inserted, report.ignored_updates
            if state.report is None:
                self._limiter.begin_epoch(shard, report.insert_limit)
            state.report, state.reported_at = report, time.monotonic()

    def _lose(self, shard: int, error: ActorLostError) -> None:
        """Sample from the other shards until this one answers again; end one that does not answer."""
        state = self._states[shard]
        is_starting = state.report is None and time.monotonic() - state.reported_at <= START_S
        if error.is_silent and not is_starting:
            self.calls.replace(shard)
            state.reported_at = time.monotonic()  # one that starts gets the time to do so
        if state.report is not None:
            self._count_lost(state, state.report)
        self.ask(shard)

    def _count_lost(self, state: _ShardState, before: ShardReport) -> None:
        state.lost_with, state.report = before.transitions, None
        self._counts.lost_shards += 1

    @property
    def num_lost(self) -> int:
        """Number of shards that are lost now."""
        self.refresh_old()
        return self.reports.count(None)

    def close(self) -> None:
        """Close the memories of the shards, and end them."""
        self.call_all("close")
        self.calls.close()


def _sum_by_name(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}
