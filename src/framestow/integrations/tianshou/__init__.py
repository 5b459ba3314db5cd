"""Replay buffers for Tianshou that need about a hundredth of the memory. Tested with versions 2.0.0 and 2.0.1.

::

    from tianshou.data import VectorReplayBuffer  # before
    from framestow.integrations.tianshou import VectorReplayBuffer  # after

The buffers subclass Tianshou's buffers of the same names. They take the same arguments and draw the same indices from
the same generators. docs/libraries/tianshou.md has differences.

=================================  =============================================
``ReplayBuffer``                   for one environment
``VectorReplayBuffer``             for several environments
``PrioritizedReplayBuffer``        by priority, for one environment
``PrioritizedVectorReplayBuffer``  by priority, for several environments
=================================  =============================================
"""

from framestow.integrations.tested_versions import warn_of_untested_version
from framestow.interface import public_names

warn_of_untested_version("tianshou", newest="2.0")

from framestow.integrations.tianshou.buffers import (  # noqa: E402 -- after the check that names the extra
    PrioritizedReplayBuffer,
    PrioritizedVectorReplayBuffer,
    ReplayBuffer,
    VectorReplayBuffer,
)

__all__ = [
    "PrioritizedReplayBuffer",
    "PrioritizedVectorReplayBuffer",
    "ReplayBuffer",
    "VectorReplayBuffer",
]
__dir__ = public_names(__name__)
