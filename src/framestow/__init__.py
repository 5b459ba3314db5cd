"""Replay memory for deep reinforcement learning from pixels.

A million transitions in a few hundred megabytes, losslessly, sampled as fast as uncompressed memory.

==========================  ===============================================================
``ReplayMemory``            keeps transitions, hands out batches
``Uniform``                 draws every transition with the same probability
``Prioritized``             draws in proportion to priorities (TD errors)
``EmphasizeRecent``         draws from the newest, from fewer of them with every update (ERE)
``ByAge``                   draws the newer the likelier, by a half-life
``Mixture``                 draws a share of each batch by each of several samplers
``Sampler``                 what a sampler of your own derives from; ``Draw`` is what it draws
``Batch``                   what a sample is
``SequenceBatch``           what a sample of sequences is, or of whole episodes
``HindsightGoals``          samples of a goal environment, a share of their goals replaced (HER)
``MemoryReport``            where the bytes are
``FrameSpec``               shape and dtype of one frame, where there is no Gymnasium space
``envs``                    environments that feed a memory (``pip install "framestow[atari]"``)
``torch``, ``jax``          batches as tensors on the device (``framestow[torch]``, ``framestow[jax]``)
``offline``                 datasets of Minari and Dopamine, in and out (``framestow[offline]``)
``training``                the DQN trainer (``framestow[train]``)
``integrations``            buffers for Stable-Baselines3, CleanRL, Tianshou, TorchRL, Gymnasium
``errors``                  every error that framestow raises
==========================  ===============================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from framestow import errors

if TYPE_CHECKING:
    from framestow import envs
    from framestow.frames.frame_spec import FrameSpec
    from framestow.replay.batch import Batch, SequenceBatch
    from framestow.replay.hindsight import HindsightGoals
    from framestow.replay.memory import ReplayMemory
    from framestow.replay.memory_report import MemoryReport
    from framestow.replay.samplers.by_age import ByAge
    from framestow.replay.samplers.emphasize_recent import EmphasizeRecent
    from framestow.replay.samplers.mixture import Mixture
    from framestow.replay.samplers.prioritized import Prioritized
    from framestow.replay.samplers.sampler import Draw, Sampler
    from framestow.replay.samplers.uniform import Uniform

__all__ = [
    "Batch",
    "ByAge",
    "Draw",
    "EmphasizeRecent",
    "FrameSpec",
    "HindsightGoals",
    "MemoryReport",
    "Mixture",
    "Prioritized",
    "ReplayMemory",
    "Sampler",
    "SequenceBatch",
    "Uniform",
    "envs",
    "errors",
]
__version__ = "0.1.0"

# Imported when first asked for: packages may need an extra, and the command can be interrupted before NumPy loads.
_PACKAGES = ("envs", "integrations", "jax", "offline", "torch", "training")
_MODULES = {
    "Batch": "replay.batch",
    "ByAge": "replay.samplers.by_age",
    "Draw": "replay.samplers.sampler",
    "EmphasizeRecent": "replay.samplers.emphasize_recent",
    "FrameSpec": "frames.frame_spec",
    "HindsightGoals": "replay.hindsight",
    "MemoryReport": "replay.memory_report",
    "Mixture": "replay.samplers.mixture",
    "Prioritized": "replay.samplers.prioritized",
    "ReplayMemory": "replay.memory",
    "Sampler": "replay.samplers.sampler",
    "SequenceBatch": "replay.batch",
    "Uniform": "replay.samplers.uniform",
}


def __getattr__(name: str) -> Any:
    """Import the public class or module ``name`` when it is first asked for."""
    if name in _PACKAGES:
        return import_module(f"framestow.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'framestow' has no attribute {name!r}")
    value = getattr(import_module(f"framestow.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
