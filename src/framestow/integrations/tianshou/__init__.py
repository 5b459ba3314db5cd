"""Replay buffers for Tianshou, in about a hundredth of the memory; tested with its versions 2.0.0 and 2.0.1.

Tianshou's collectors, algorithms and trainers take these in the place of its own buffers of the same names: they are
subclasses, take the same arguments and draw the same indices from the same generators. docs/libraries.md has figures,
and what behaves better.

=================================  ====================================================
``ReplayBuffer``                   of one environment
``VectorReplayBuffer``             of several
``PrioritizedReplayBuffer``        with priorities, as Rainbow draws; of one environment
``PrioritizedVectorReplayBuffer``  the same of several
``CachedReplayBuffer``             whole episodes
=================================  ====================================================
"""

from framestow.integrations.tested_versions import warn_of_untested_version

warn_of_untested_version("tianshou", "2.0", "2.0")

from framestow.integrations.tianshou.buffers import (  # noqa: E402 -- behind the check that names the extra
    CachedReplayBuffer,
    PrioritizedReplayBuffer,
    PrioritizedVectorReplayBuffer,
    ReplayBuffer,
    VectorReplayBuffer,
)

__all__ = [
    "CachedReplayBuffer",
    "PrioritizedReplayBuffer",
    "PrioritizedVectorReplayBuffer",
    "ReplayBuffer",
    "VectorReplayBuffer",
]
