"""The band between samples and inserts, and who waits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed.env_steps import NumberedSteps, local_replay
from framestow import FrameSpec
from framestow.distributed import SampleToInsertRatio
from framestow.distributed.limiter import RateLimiter, ReplayCounts
from framestow.errors import InvalidSettingsError


@given(
    st.floats(0.1, 32),
    st.integers(1, 500),
    st.floats(0, 1000),
    st.lists(st.tuples(st.booleans(), st.integers(1, 64)), max_size=200),
)
def test_samples_stay_within_the_band_after_the_minimum_size(ratio, min_size, error, calls):
    limiter = SampleToInsertRatio(ratio, min_size, error + max(1.0, ratio))
    inserts = samples = 0

    for is_insert, number in calls:
        if is_insert and limiter.inserts_left(inserts, samples, inserts) >= number:
            inserts += number
            assert inserts <= min_size or inserts * ratio - samples <= limiter.high + 1e-6
        elif not is_insert and limiter.may_sample(number, inserts, samples, inserts):
            samples += number
            assert inserts >= min_size
            assert inserts * ratio - samples >= limiter.low


@given(st.floats(0.1, 32), st.integers(1, 500), st.integers(0, 2000), st.integers(0, 20_000))
def test_never_do_both_wait_for_a_single_row_or_step(ratio, min_size, inserts, samples):
    limiter = SampleToInsertRatio(ratio, min_size, max(1.0, ratio))

    can_sample = limiter.may_sample(1, inserts, samples, inserts)
    assert can_sample or limiter.inserts_left(inserts, samples, inserts) >= 1


@pytest.mark.parametrize("error", [3.0, math.nan, "x", None], ids=str)
def test_a_band_that_would_block_both_sides_is_refused(error):
    with pytest.raises(InvalidSettingsError, match=f"error is {error!r}: .*below 8, inserting and sampling would bl"):
        SampleToInsertRatio(8.0, 100, error)


def test_an_infinite_band_holds_back_nobody_after_the_minimum_size():
    limiter = SampleToInsertRatio(samples_per_insert=4.0, min_size=20, error=math.inf)
    replay, steps = local_replay(rate_limiter=limiter, shards=2, num_envs=2), NumberedSteps(2)
    said = [(replay.who_waits, replay.may_sample(1))]
    for env_id in (0, 1):
        steps.play(replay, env_id, 20)
    replay.flush()
    said.append((replay.who_waits, replay.may_sample(10**9)))

    assert [("learner", False), ("nobody", True)] == said
    assert all(shard.inserts_left() > 10**9 for shard in replay.group.calls.objects)


@pytest.mark.parametrize("settings", [{"n_step": 5}, {"retention": "random"}, {"max_bytes": "1 MiB"}], ids=str)
def test_a_full_memory_is_sampled_though_it_never_has_the_minimum_size(settings):
    limiter = SampleToInsertRatio(samples_per_insert=1.0, min_size=1_000, error=50.0)
    given = {"capacity": 1_000, "observation_space": FrameSpec((32, 32)), "rate_limiter": limiter} | settings
    replay, said = local_replay(**given), []
    noise = np.random.default_rng(0).integers(0, 256, (2_000, 1, 32, 32), np.uint8)
    replay.begin(noise[0])

    for part in (noise[:900], noise[900:]):
        for frame in part:
            replay.append([0], [0.0], [False], [False], frame)
        replay.flush()
        said.append((replay.who_waits, replay.may_sample(1)))

    assert len(replay) < limiter.min_size
    assert [("learner", False), ("actors", True)] == said


def test_a_limit_that_a_draw_sent_counts_until_a_later_question_is_answered():
    counts = ReplayCounts(inserted=20, sampled=0)
    limiter = RateLimiter(SampleToInsertRatio(samples_per_insert=1.0, min_size=20, error=12.0), counts, 2, 100)

    first = limiter.raise_limit(0, [10, 10], size=20)  # half of the 12 steps that may be inserted
    second = limiter.raise_limit(1, [10, 10], size=20)
    counts.inserted = 26  # all that the first shard may insert
    lowered = limiter.renew_limit(1, [16, 10], size=26)
    before_answer = limiter.raise_limit(0, [16, 10], size=26)
    limiter.record_answer(1)
    after_answer = limiter.raise_limit(0, [16, 10], size=26)

    assert (16, 16) == (first, second)
    assert 13 == lowered  # half of the 6 that are left
    assert 16 == before_answer  # the second shard may still go by its limit of 16
    assert 19 == after_answer


def test_a_shard_that_restarts_leaves_the_others_what_it_might_have_inserted():
    counts = ReplayCounts(inserted=10)
    limiter = RateLimiter(SampleToInsertRatio(samples_per_insert=1.0, min_size=20, error=10.0), counts, 2, 100)
    limiter.raise_limit(0, [5, 5], size=10)

    limiter.begin_epoch(0)

    assert (10 + 5) == limiter.raise_limit(1, [0, 5], size=5)
    assert math.inf == RateLimiter(None, counts, 2, 100).raise_limit(1, [0, 5], size=5)


def test_a_replay_says_who_waits():
    limiter = SampleToInsertRatio(samples_per_insert=4.0, min_size=20, error=40.0)
    replay, steps = local_replay(rate_limiter=limiter), NumberedSteps()
    said = [(replay.who_waits, replay.may_sample(8))]
    steps.play(replay, 0, 20)
    replay.flush()
    said.append((replay.who_waits, replay.may_sample(8)))
    steps.play(replay, 0, 20)
    replay.flush()
    said.append((replay.who_waits, replay.may_sample(8)))
    while replay.may_sample(8):
        replay.sample(8)
    said.append((replay.who_waits, replay.may_sample(8)))

    assert [("learner", False), ("nobody", True), ("actors", True), ("learner", False)] == said


def test_a_writer_waits_at_the_limit_of_its_shard_until_rows_are_sampled(monkeypatch):
    limiter = SampleToInsertRatio(samples_per_insert=4.0, min_size=20, error=40.0)
    replay, steps = local_replay(rate_limiter=limiter, frames_per_segment=5), NumberedSteps()
    writer, slept = replay.writer(), []

    def sample_meanwhile(seconds: float) -> None:
        slept.append(seconds)
        while replay.may_sample(8):
            replay.sample(8)

    monkeypatch.setattr("framestow.distributed.writer.time.sleep", sample_meanwhile)
    for _ in range(60):
        steps.play(writer, 0, 1)
    writer.flush()
    replay.group.refresh()

    assert len(slept) > 1
    assert writer.counts.waited_s > 0
    difference = replay.counts.inserted * 4.0 - replay.counts.sampled
    assert difference <= limiter.high + 4.0 * 3 * 5  # and the chunks in flight
    assert np.isfinite(replay.group.calls.objects[0].inserts_left())


@pytest.mark.parametrize("shares", [(1, 9), (9, 1), (1, 1)], ids=["slow learner", "slow actors", "equal"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2))])
def test_the_limits_of_all_shards_together_stay_within_the_band(monkeypatch, seed, shares):
    monkeypatch.setattr("framestow.distributed.group.REFRESH_S", 1e9)  # the replay's reports are old
    limiter = SampleToInsertRatio(samples_per_insert=4.0, min_size=60, error=100.0)
    replay, steps = local_replay(rate_limiter=limiter, shards=3, num_envs=3, capacity=9_000), NumberedSteps(3)
    writers = [replay.writer([env_id]) for env_id in range(3)]
    shards, generator, most = replay.group.calls.objects, np.random.default_rng(seed), 0.0

    for _ in range(1_500):
        shard = int(generator.integers(3))
        is_sampling = generator.random() < shares[0] / sum(shares)
        if is_sampling and replay.may_sample(8):
            replay.sample(8)
        elif is_sampling:
            replay.group.ask(shard)
            replay.group.take_answer(shard)
        elif shards[shard].inserts_left() > 0:
            steps.play(writers[shard], shard, 1, number=0)
            writers[shard].flush()
        inserted = sum(each.answer().inserted for each in shards)
        if inserted > limiter.min_size:
            most = max(most, inserted * 4.0 - replay.counts.sampled)
            assert most <= limiter.high
        assert not replay.counts.sampled or inserted * 4.0 - replay.counts.sampled >= limiter.low

    assert inserted > 2 * limiter.min_size
