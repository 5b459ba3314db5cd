"""Decide how many samples a replay may give for each inserted step, and who waits for whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from framestow.checks import INT64_MAX, real_number, whole_number
from framestow.errors import InvalidSettingsError
from framestow.keywords import suggests_keywords


@suggests_keywords
@dataclass(frozen=True)
class SampleToInsertRatio:
    """Keep the number of sampled rows near ``samples_per_insert`` times the number of inserted steps.

    The formulas are those of Reverb's ``SampleToInsertRatio`` (Cassirer et al. 2021). ``inserts`` and ``samples`` count
    over the lifetime of the replay; ``size`` is the number of transitions that can be sampled now, or the capacity once
    every shard evicts::

        sample n   if  size >= min_size  and  inserts * samples_per_insert - samples - n >= low
        insert n   if  size + n <= min_size  or  (inserts + n) * samples_per_insert - samples <= high

        low, high = samples_per_insert * min_size -+ error

    >>> from framestow.distributed import SampleToInsertRatio
    >>> limiter = SampleToInsertRatio(samples_per_insert=8, min_size=100, error=400)
    >>> (
    ...     limiter.may_sample(32, inserts=99, samples=0, size=99),
    ...     limiter.may_sample(32, inserts=100, samples=0, size=100),
    ... )
    (False, True)
    >>> limiter.inserts_left(inserts=100, samples=0, size=100)
    50

    Arguments:
        samples_per_insert: Rows sampled for each inserted step: the batch size over the steps between two updates.
        min_size: Transitions before the first sample; a full memory is enough.
        error: Half the width of the band, in rows; infinity for none. At least ``max(1, samples_per_insert)``.
    """

    samples_per_insert: float
    min_size: int
    error: float

    def __post_init__(self) -> None:
        rule = "it must be above 0; give the number of samples for each inserted step"
        real_number("samples_per_insert", self.samples_per_insert, 0, rule=rule, is_least_excluded=True)
        whole_number("min_size", self.min_size, 1, rule="at least 1 step is stored before the first sample")
        least = max(1.0, self.samples_per_insert)
        rule = (
            f"below {least:g}, inserting and sampling would block each other; raise it, for example to the rows of 10 "
            "batches"
        )
        real_number("error", self.error, least, rule=rule, may_be_infinite=True)

    @property
    def low(self) -> float:
        """Lowest difference of allowed and taken samples after a sample."""
        return self.samples_per_insert * self.min_size - self.error

    @property
    def high(self) -> float:
        """Highest difference of allowed and taken samples after an insert."""
        return self.samples_per_insert * self.min_size + self.error

    def may_sample(self, num_rows: int, inserts: int, samples: int, size: int) -> bool:
        """Return whether ``num_rows`` may be sampled now."""
        return size >= self.min_size and inserts * self.samples_per_insert - samples - num_rows >= self.low

    def inserts_left(self, inserts: int, samples: int, size: int) -> int:
        """Return how many steps may be inserted now; 0 or less means that none may."""
        within_band = math.floor(min(self.high + samples, INT64_MAX) / self.samples_per_insert) - inserts
        return max(self.min_size - size, within_band)


@dataclass
class ReplayCounts:
    """Counts of a replay since it was built, or since the run that it resumes began."""

    inserted: int = 0  # steps that shards reported
    sampled: int = 0  # rows
    batches: int = 0
    ignored_updates: int = 0  # priorities of transitions that were evicted or lost, as of the last ``report()``
    lost_shards: int = 0  # shards that died or did not answer
    lost_transitions: int = 0  # that a shard had before, and did not have after its restart


class RateLimiter:
    """Holds the counts of a replay within the band of ``ratio``; without a ratio it holds back nobody.

    Each shard has an *insert limit*: the number of steps that it may have inserted. Writers wait at that number. A
    limit travels to its shard with a question or a draw, and counts for one epoch of the shard. The limits of all
    shards together stay within the band, however old their answers are: a limit that was sent counts until the shard
    has answered a later question.

    Raises:
        InvalidSettingsError: ``ratio`` is something else, or its ``min_size`` is above ``capacity``.
    """

    def __init__(self, ratio: SampleToInsertRatio | None, counts: ReplayCounts, num_shards: int, capacity: int) -> None:
        if ratio is not None and not isinstance(ratio, SampleToInsertRatio):
            raise InvalidSettingsError(
                f"rate_limiter is {ratio!r}: it must be a SampleToInsertRatio or None; give one such as "
                "SampleToInsertRatio(8, 20_000, 40_000)"
            )
        if ratio is not None and ratio.min_size > capacity:
            raise InvalidSettingsError(
                f"rate_limiter has min_size {ratio.min_size}: the replay stores {capacity} transitions; lower it, or "
                "raise capacity"
            )
        self.ratio, self._counts = ratio, counts
        self._largest = [self.first_limit] * num_shards  # by shard: the largest insert limit that may be in force
        self._newest = [self.first_limit] * num_shards  # the same, without those that the pending question replaces

    @property
    def first_limit(self) -> float:
        """Insert limit of a shard that starts."""
        return math.inf if self.ratio is None else 0.0

    def may_sample(self, num_rows: int, size: int) -> bool:
        """Return whether ``num_rows`` may be sampled now from ``size`` transitions."""
        if self.ratio is None:
            return size > 0
        return size > 0 and self.ratio.may_sample(num_rows, self._counts.inserted, self._counts.sampled, size)

    def who_waits(self, size: int) -> str:
        """Return ``"learner"``, ``"actors"`` or ``"nobody"`` of a replay of ``size`` transitions."""
        if self.ratio is None:
            return "nobody"
        if self._inserts_left(size) <= 0:
            return "actors"
        can_sample = self.ratio.may_sample(1, self._counts.inserted, self._counts.sampled, size)
        return "nobody" if can_sample else "learner"

    def renew_limit(self, shard: int, inserted: Sequence[int | None], size: int) -> float:
        """Return the insert limit that a question gives to a shard.

        It is an equal part of what all may insert, but no more than the limits of the other shards leave.

        Arguments:
            shard: Number of the shard, which is not lost.
            inserted: By shard, the steps that it has inserted; ``None`` while it is lost.
            size: Transitions of all shards.
        """
        return self._record(shard, self._limit(shard, inserted, size))

    def raise_limit(self, shard: int, inserted: Sequence[int | None], size: int) -> float:
        """Return the insert limit that a draw gives to a shard; it never lowers the last one."""
        return self._record(shard, max(self._limit(shard, inserted, size), self._newest[shard]))

    def record_answer(self, shard: int) -> None:
        """Use the limits from before the question no longer: calls are executed in order."""
        self._largest[shard] = self._newest[shard]

    def begin_epoch(self, shard: int) -> None:
        """Note that a shard has started, with ``first_limit``."""
        self._largest[shard] = self._newest[shard] = self.first_limit

    def _record(self, shard: int, limit: float) -> float:
        self._newest[shard] = limit
        self._largest[shard] = max(self._largest[shard], limit)
        return limit

    def _limit(self, shard: int, inserted: Sequence[int | None], size: int) -> float:
        mine = inserted[shard]
        if self.ratio is None or mine is None:
            return self.first_limit
        left, limits = self._inserts_left(size), zip(self._largest, inserted, strict=True)
        all_left = sum(max(0, limit - each) for limit, each in limits if each is not None)
        others = all_left - max(0, self._largest[shard] - mine)
        return mine + max(0, min(math.ceil(left / len(inserted)), left - others))

    def _inserts_left(self, size: int) -> int:
        assert self.ratio is not None
        return self.ratio.inserts_left(self._counts.inserted, self._counts.sampled, size)
