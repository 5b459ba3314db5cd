"""Drop-ins for older replay buffers that are not on PyPI, and for the vector environments of OpenAI Baselines.

================================  ==================================================================================
``DummyVecEnv``                   from OpenAI Baselines (2017): steps environments in this process
``SubprocVecEnv``                 from OpenAI Baselines: steps them in workers, which are replaced if they die
``MemoryEfficientAtariBuffer``    from nnabla-rl 0.15 (Sony): takes and returns stacked observations
``ReplayBuffer``                  from Berkeley's deep RL course (2016 to 2018, homework 3): frames in, stacks out
================================  ==================================================================================

None of these libraries is required; the vector environments need Gymnasium. All are tested against plain
reimplementations of the originals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framestow.interface import lazy_names

if TYPE_CHECKING:
    from framestow.integrations.classic.frame_history import ReplayBuffer
    from framestow.integrations.classic.memory_efficient_atari import MemoryEfficientAtariBuffer
    from framestow.integrations.classic.vec_envs import DummyVecEnv, SubprocVecEnv

__all__ = ["DummyVecEnv", "MemoryEfficientAtariBuffer", "ReplayBuffer", "SubprocVecEnv"]

_VEC_ENVS = {"DummyVecEnv": "vec_envs", "SubprocVecEnv": "vec_envs"}
_BUFFERS = {"MemoryEfficientAtariBuffer": "memory_efficient_atari", "ReplayBuffer": "frame_history"}

__getattr__, __dir__ = lazy_names(__name__, _BUFFERS | _VEC_ENVS, dict.fromkeys(_VEC_ENVS, "gymnasium"))
