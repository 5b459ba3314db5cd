"""Decide how many samples a replay may give for each inserted step, and who waits for whom."""

from __future__ import annotations

import math
from dataclasses import dataclass

from framestow.argument_checks import real_number, whole_number
from framestow.errors import InvalidSettingsError


@dataclass(frozen=True)
class SampleToInsertRatio:
    """Keep the number of sampled rows near ``samples_per_insert`` times the number of inserted steps.

    The formulas are those of Reverb's ``SampleToInsertRatio`` (Cassirer et al. 2021). ``inserts`` and ``samples`` count
    over the lifetime of the replay; ``size`` is the number of steps that are stored now::

        sample n   if  size >= min_size  and  inserts * samples_per_insert - samples - n >= low
        insert n   if  size + n <= min_size  or  (inserts + n) * samples_per_insert - samples <= high

        low, high = samples_per_insert * min_size -+ error

    >>> from framestow.distributed import SampleToInsertRatio
    >>> limiter = SampleToInsertRatio(samples_per_insert=8, min_size=100, error=400)
    >>> limiter.may_sample(32, inserts=99, samples=0, size=99), limiter.may_sample(32, inserts=100, samples=0, size=100)
    (False, True)
    >>> limiter.inserts_left(inserts=100, samples=0, size=100)
    50

    Arguments:
        samples_per_insert: Rows sampled for each inserted step: the batch size over the steps between two updates.
        min_size: Stored steps before the first sample.
        error: Half the width of the band, in rows. At least ``max(1, samples_per_insert)``.
    """

    samples_per_insert: float
    min_size: int
    error: float

    def __post_init__(self) -> None:
        rule = "each inserted step is sampled more than 0 times"
        real_number("samples_per_insert", self.samples_per_insert, 0, rule=rule, is_least_excluded=True)
        whole_number("min_size", self.min_size, 1, rule="at least 1 step is stored before the first sample")
        least = max(1.0, self.samples_per_insert)
        if not self.error >= least:
            raise InvalidSettingsError(
                f"error is {self.error}: a band of less than {least:g} on each side would block both sides at once; "
                "raise it, best to the rows of several batches"
            )

    @property
    def low(self) -> float:
        """Lowest difference of allowed and taken samples after a sample."""
        return self.samples_per_insert * self.min_size - self.error

    @property
    def high(self) -> float:
        """Highest difference of allowed and taken samples after an insert."""
        return self.samples_per_insert * self.min_size + self.error

    def may_sample(self, num_rows: int, inserts: int, samples: int, size: int) -> bool:
        """Return whether ``num_rows`` may be sampled now.

        Arguments:
            num_rows: Rows of the batch.
            inserts: Steps inserted so far.
            samples: Rows sampled so far.
            size: Steps that are stored now.
        """
        return size >= self.min_size and inserts * self.samples_per_insert - samples - num_rows >= self.low

    def inserts_left(self, inserts: int, samples: int, size: int) -> int:
        """Return how many steps may be inserted now; 0 or less means that none may.

        The arguments are those of ``may_sample``.
        """
        within_band = math.floor((self.high + samples) / self.samples_per_insert) - inserts
        return max(self.min_size - size, within_band)
