"""Does the rate limiter hold its band with actors and shards in processes, if the learner or the actors are slow?

    python tests/distributed/cluster/band.py

This process samples, so between two samples the counts of the shards' reports are those of one moment.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

from distributed.cluster.counted_play import ACTORS, ENVS, LENGTH, AnyPolicy, MakeCounted, check_batch, counted_replay
from framestow.distributed import Rollouts, SampleToInsertRatio, start_cluster

BATCH = 32
LIMITER = SampleToInsertRatio(samples_per_insert=4.0, min_size=200, error=600.0)
IN_FLIGHT = 2 * ACTORS * ENVS * LENGTH  # steps of two calls of each actor to each shard
BATCHES = 150


class SlowPolicy(AnyPolicy):
    def __init__(self, pause_s: float, number: int, seed: int) -> None:
        super().__init__(number, seed)
        self._pause_s = pause_s

    def act(self, observations):
        time.sleep(self._pause_s)
        return super().act(observations)


def check_band(pause_of_learner: float, pause_of_actors: float, who_waits: str) -> None:
    with tempfile.TemporaryDirectory(prefix="framestow-band-") as name:
        replay = counted_replay(rate_limiter=LIMITER)
        policy = partial(SlowPolicy, pause_of_actors)
        rollouts = Rollouts(replay, MakeCounted(Path(name), ENVS), policy, ACTORS, steps_per_call=1_000)
        waiting, most, least = dict.fromkeys(("actors", "learner", "nobody"), 0), 0.0, float("inf")
        try:
            while replay.counts.batches < BATCHES:
                rollouts.poll(0.01)
                replay.group.refresh()
                counts = replay.counts
                difference = counts.inserted * LIMITER.samples_per_insert - counts.sampled
                most = max(most, difference)
                assert difference <= LIMITER.high + IN_FLIGHT * LIMITER.samples_per_insert, (difference, counts)
                if counts.sampled:
                    # A batch may have to wait where a single row, which ``who_waits`` asks for, need not.
                    waiting[replay.who_waits if replay.may_sample(BATCH) else "learner"] += 1
                    least = min(least, difference)
                    assert difference >= LIMITER.low, (difference, counts)
                if replay.may_sample(BATCH):
                    check_batch(replay.sample(BATCH))
                    time.sleep(pause_of_learner)
            print(
                f"{who_waits} wait: {least:g} to {most:g} of {LIMITER.low:g} to {LIMITER.high:g}, {waiting}", flush=True
            )
            assert waiting[who_waits] > 0, waiting
        finally:
            rollouts.close()
            replay.close()


if __name__ == "__main__":
    start_cluster()
    check_band(0.1, 0.0, "actors")
    check_band(0.0, 0.02, "learner")
