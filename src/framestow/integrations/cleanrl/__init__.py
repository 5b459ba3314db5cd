"""Replay buffers for CleanRL's single-file scripts, in about a hundredth of the memory. Needs PyTorch alone.

One import changes. With the same seed ``dqn_atari.py`` learns the same weights, bit for bit, until an episode is
truncated: then CleanRL's buffer gives the next episode's first observation (its issue 460), and this one the true last.

===========================  =====================================================================================
``ReplayBuffer``             of ``dqn_atari.py``, ``c51_atari.py``, ``sac_atari.py`` and their like, in place of that of
                             ``cleanrl_utils.buffers`` or ``stable_baselines3.common.buffers``
``PrioritizedReplayBuffer``  of ``rainbow_atari.py``, which defines its own: import this one behind it
===========================  =====================================================================================

Tested with these scripts as of CleanRL 2.0.0b1, which pins Gymnasium 0.29.1, and with the buffer of Stable-Baselines3
2.0.0 that they had before. docs/libraries.md has figures, what behaves better, and what newer Gymnasiums ask for.
"""

from framestow.errors import MissingExtraError

try:
    import torch  # noqa: F401
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"framestow.integrations.cleanrl needs {missing.name}: CleanRL's scripts have it; run: pip install "
        '"framestow[torch]"'
    ) from missing

from framestow.integrations.cleanrl.prioritized_buffer import PrioritizedBatch, PrioritizedReplayBuffer
from framestow.integrations.cleanrl.replay_buffer import ReplayBuffer, ReplayBufferSamples

__all__ = ["PrioritizedBatch", "PrioritizedReplayBuffer", "ReplayBuffer", "ReplayBufferSamples"]
