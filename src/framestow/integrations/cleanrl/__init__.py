"""Replay buffers for CleanRL's single-file scripts that need about a hundredth of the memory. Needs only PyTorch.

::

    from cleanrl_utils.buffers import ReplayBuffer  # before
    from framestow.integrations.cleanrl import ReplayBuffer  # after

With the same seed, ``dqn_atari.py`` learns the same weights, bit for bit, until an episode is truncated. For the last
step of a truncated episode CleanRL's buffer returns the first observation of the next episode (CleanRL issue 460);
this one returns the true last observation.

===========================  =====================================================================================
``ReplayBuffer``             for ``dqn_atari.py``, ``c51_atari.py``, ``sac_atari.py`` and similar scripts, instead of
                             ``cleanrl_utils.buffers`` or ``stable_baselines3.common.buffers``
``PrioritizedReplayBuffer``  for ``rainbow_atari.py``: import it after the script's class of that name
===========================  =====================================================================================

Tested with the scripts of CleanRL 2.0.0b1, which pins Gymnasium 0.29.1, and with the buffer of Stable-Baselines3 2.0.0
that they used before. docs/libraries/cleanrl.md has differences, and notes for newer versions of Gymnasium.
"""

from framestow.errors import MissingExtraError
from framestow.extras import check_library

try:
    check_library(__name__, "torch")
    import torch  # noqa: F401
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"framestow.integrations.cleanrl needs {missing.name}: CleanRL's scripts use it, too; run: pip install "
        '"framestow[torch]"'
    ) from missing

from framestow.integrations.cleanrl.prioritized_buffer import PrioritizedBatch, PrioritizedReplayBuffer
from framestow.integrations.cleanrl.replay_buffer import ReplayBuffer, ReplayBufferSamples
from framestow.interface import public_names

__all__ = ["PrioritizedBatch", "PrioritizedReplayBuffer", "ReplayBuffer", "ReplayBufferSamples"]
__dir__ = public_names(__name__)
