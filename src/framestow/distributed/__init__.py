"""Replay memory and rollouts beyond one machine, on Ray.

Needs the extra ``framestow[ray]``. docs/distributed.md has a script, and what to secure.

=========================  ==========================================================================
``ShardedReplay``          a replay memory in several actors, sampled as one
``SampleToInsertRatio``    holds the number of samples for each insert within a band
``ShardWriter``            stores the steps of an actor's environments, in packed chunks
``start_ray_shards``       starts each shard of a replay as a Ray actor; the default
``start_local_shards``     starts the shards in this process, without a cluster
=========================  ==========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framestow.lazy_names import lazy_names

if TYPE_CHECKING:
    from framestow.distributed.chunks import ShardWriter
    from framestow.distributed.rate_limiter import SampleToInsertRatio
    from framestow.distributed.sharded_replay import ShardedReplay, start_local_shards

__all__ = ["SampleToInsertRatio", "ShardWriter", "ShardedReplay", "start_local_shards"]

_MODULES = {
    "SampleToInsertRatio": "rate_limiter",
    "ShardWriter": "chunks",
    "ShardedReplay": "sharded_replay",
    "start_local_shards": "sharded_replay",
}

__getattr__ = lazy_names(__name__, _MODULES, extra="ray")
