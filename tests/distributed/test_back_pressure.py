"""Slow shards and slow learners: how many calls wait for an answer, and how much is stored, at most."""

from __future__ import annotations

import time
from functools import partial

import pytest

from distributed.env_steps import NumberedSteps, arguments
from distributed.test_rollouts import FixedPolicy, make_env
from distributed.thread_calls import start_rollouts_in_threads, start_shards_in_threads
from framestow.distributed import Rollouts, SampleToInsertRatio, ShardedReplay
from framestow.distributed.shard import Shard

LENGTH = 5  # frames of a chunk


class SlowShard(Shard):
    def take(self, chunks):
        time.sleep(0.01)
        return super().take(chunks)


def slow_replay(**settings) -> ShardedReplay:
    start = partial(start_shards_in_threads, shard=SlowShard)
    return ShardedReplay(start=start, **arguments(frames_per_segment=LENGTH, **settings))


@pytest.mark.parametrize("max_in_flight", [1, 4])
def test_a_slow_shard_has_no_more_chunks_to_take_than_a_writer_may_send_ahead(max_in_flight):
    replay, steps = slow_replay(), NumberedSteps()
    writer = replay.writer(max_in_flight=max_in_flight)

    steps.play(writer, 0, 40 * LENGTH)
    writer.flush()
    replay.group.refresh()

    assert max_in_flight == replay.group.calls.most_unanswered
    assert replay.counts.inserted == 40 * LENGTH
    assert writer.counts.blocked_s > 0
    replay.close()


def test_a_learner_that_never_samples_stops_all_actors_at_the_band():
    limiter = SampleToInsertRatio(samples_per_insert=2.0, min_size=40, error=40.0)
    replay = slow_replay(shards=2, num_envs=4, rate_limiter=limiter)
    rollouts = Rollouts(replay, make_env, FixedPolicy, 2, steps_per_call=200, start=start_rollouts_in_threads)
    most = limiter.high / limiter.samples_per_insert + 4 * 2 * LENGTH  # and the chunks in flight

    inserted = []
    while len(inserted) < 40 or inserted[-1] > inserted[-40]:
        rollouts.poll(0.02)
        replay.group.refresh()
        inserted.append(replay.counts.inserted)

    assert 40 <= inserted[-1] <= most, inserted
    assert replay.who_waits == "actors"
    assert rollouts.calls.most_unanswered == 1
    assert replay.group.calls.most_unanswered <= 2 * 2 + 2 + 1  # chunks and a report of two writers, and of the replay
    rollouts.close()
    replay.close()
