"""Replay memory and rollouts beyond one machine, on Ray.

Needs the extra ``framestow[ray]``. docs/distributed.md has a script, and what to secure.

=========================  ==========================================================================
``ShardedReplay``          a replay memory in several actors, sampled as one
``SampleToInsertRatio``    holds the number of samples for each insert within a band
``Rollouts``               actors that play environments and store the steps
``PolicyStep``             actions of an actor's policy, with the values for initial priorities
``ShardWriter``            stores the steps of your own actor's environments, in packed chunks
``start_cluster``          joins a running Ray cluster, or starts a local one
``ActorPlacement``         cores and resources that an actor reserves
``start_ray_shards``       starts each shard as a Ray actor; the default
``start_ray_rollouts``     starts each rollout as a Ray actor; the default
``start_local_shards``     starts the shards in this process, without a cluster
=========================  ==========================================================================
"""

from framestow.distributed.limiter import SampleToInsertRatio
from framestow.distributed.ray import ActorPlacement, start_cluster
from framestow.distributed.replay import ShardedReplay
from framestow.distributed.rollouts import PolicyStep, Rollouts, start_ray_rollouts
from framestow.distributed.shard import start_local_shards, start_ray_shards
from framestow.distributed.writer import ShardWriter
from framestow.interface import public_names

__all__ = [
    "ActorPlacement",
    "PolicyStep",
    "Rollouts",
    "SampleToInsertRatio",
    "ShardWriter",
    "ShardedReplay",
    "start_cluster",
    "start_local_shards",
    "start_ray_rollouts",
    "start_ray_shards",
]

__dir__ = public_names(__name__)
