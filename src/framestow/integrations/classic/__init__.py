"""The calls of two older buffers, neither of which is on PyPI, before a packed memory.

==============================  ==================================================================================
`MemoryEfficientAtariBuffer`    of nnabla-rl (Sony), as of its release 0.15: stacked observations in, and out
`ReplayBuffer`                  of Berkeley's deep RL course (2016 to 2018, homework 3): frames in, stacks out
==============================  ==================================================================================

Neither library is needed, nor looked for: these are their calls, tested against plain re-implementations of them.
"""

from framestow.integrations.classic.frame_history import ReplayBuffer
from framestow.integrations.classic.memory_efficient_atari import MemoryEfficientAtariBuffer

__all__ = ["MemoryEfficientAtariBuffer", "ReplayBuffer"]
