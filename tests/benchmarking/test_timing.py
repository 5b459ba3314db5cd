"""Candidates are timed in turn, beside a bare copy."""

import numpy as np

from framestow.benchmarking.timing import BareCopy, measure_medians
from oracles.numbered_play import numbered_play


def test_every_candidate_has_its_calls_in_every_round_and_warming_up_is_not_counted():
    called: list[str] = []
    candidates = {name: lambda name=name: called.append(name) for name in ("one", "two")}

    medians = measure_medians(candidates, rounds=3, calls=2, warmup_rounds=1)

    assert ["one", "one", "two", "two"] * 4 == called
    assert {"one", "two"} == set(medians)
    assert all(median > 0 for median in medians.values())


def test_the_bare_copy_copies_consecutive_frames_of_the_play():
    play = numbered_play()
    bare = BareCopy(play, 3_000)

    first = bare.copy(16, 4)[:, :, 1, 1].astype(int)

    assert 100 == bare.num_frames
    assert (16, 4) == first.shape
    assert np.all(np.diff(first, axis=1) % len(play.frames) == 1)
