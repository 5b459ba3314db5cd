"""Replay buffers for Stable-Baselines3 that need about a hundredth of the memory, and its two vector environments.

Tested with versions 2.7 to 2.9.

::

    DQN("CnnPolicy", env)  # before
    DQN("CnnPolicy", env, replay_buffer_class=ReplayBuffer)  # after

With the same seed, the agent learns the same weights, bit for bit. docs/libraries/stable-baselines3.md has differences.

===========================  ====================================================================================
``ReplayBuffer``             for all off-policy algorithms, array or Dict observations, any number of environments
``DictReplayBuffer``         the same, as a subclass of Stable-Baselines3's ``DictReplayBuffer``
``NStepReplayBuffer``        n-step returns: ``replay_buffer_kwargs={"n_steps": 3, "gamma": 0.99}``
``PrioritizedReplayBuffer``  priorities, for an algorithm that uses weights and gives TD errors back
``HerReplayBuffer``          hindsight goals, for environments with ``achieved_goal`` and ``desired_goal``
``DummyVecEnv``              steps environments in this process
``SubprocVecEnv``            steps environments in workers, which are replaced if they die or hang
===========================  ====================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framestow.integrations.tested_versions import warn_of_untested_version
from framestow.interface import lazy_names

warn_of_untested_version("stable-baselines3", newest="2.9")

from framestow.integrations.stable_baselines3.replay_buffers import (  # noqa: E402 -- after the check that names the extra
    DictReplayBuffer,
    HerReplayBuffer,
    NStepReplayBuffer,
    PrioritizedReplayBuffer,
    PrioritizedReplayBufferSamples,
    ReplayBuffer,
)

if TYPE_CHECKING:
    from framestow.integrations.stable_baselines3.vec_envs import DummyVecEnv, SubprocVecEnv

__all__ = [
    "DictReplayBuffer",
    "DummyVecEnv",
    "HerReplayBuffer",
    "NStepReplayBuffer",
    "PrioritizedReplayBuffer",
    "PrioritizedReplayBufferSamples",
    "ReplayBuffer",
    "SubprocVecEnv",
]

# The buffers also work beside an older Gymnasium.
_VEC_ENVS = {"DummyVecEnv": "vec_envs", "SubprocVecEnv": "vec_envs"}

__getattr__, __dir__ = lazy_names(__name__, _VEC_ENVS, dict.fromkeys(_VEC_ENVS, "gymnasium"))
