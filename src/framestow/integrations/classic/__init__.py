"""Drop-ins for two older replay buffers that are not on PyPI, with a packed memory.

==============================  ==================================================================================
``MemoryEfficientAtariBuffer``    from nnabla-rl 0.15 (Sony): takes and returns stacked observations
``ReplayBuffer``                  from Berkeley's deep RL course (2016 to 2018, homework 3): frames in, stacks out
==============================  ==================================================================================

Neither library is required. The buffers are tested against plain reimplementations of the originals.
"""

from framestow.integrations.classic.frame_history import ReplayBuffer
from framestow.integrations.classic.memory_efficient_atari import MemoryEfficientAtariBuffer
from framestow.interface import public_names

__all__ = ["MemoryEfficientAtariBuffer", "ReplayBuffer"]
__dir__ = public_names(__name__)
