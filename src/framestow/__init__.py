"""Replay memory for deep reinforcement learning from pixels.

A million Atari transitions of random play take 50 to 500 MB, lossless, instead of the 56 GB of stacked observation
pairs.

==========================  ===============================================================
``ReplayMemory``            stores transitions and samples batches
``Batch``                   a batch of transitions
``SequenceBatch``           a batch of sequences or of whole episodes
``Uniform``                 samples every transition with the same probability
``Prioritized``             samples in proportion to priorities (TD errors)
``EmphasizeRecent``         samples from fewer and fewer of the newest transitions (ERE)
``ByAge``                   samples newer transitions more often, by a half-life
``Mixture``                 samples a share of each batch by each of several samplers
``Sampler``, ``Draw``       base class of your own samplers, and the result of its ``draw``
``HindsightGoals``          samples batches with a share of the goals replaced (HER)
``ReplayEnsemble``          samples a share of each batch from each of several memories
``MemoryReport``            number of bytes of each part of a memory
``Summed``                  an extra field that is summed over n steps, such as a cost
``FrameSpec``               shape and dtype of one frame, without Gymnasium
``envs``                    environments that feed a memory (``pip install "framestow[atari]"``)
``torch``, ``jax``          batches as tensors on the device (``framestow[torch]``, ``framestow[jax]``)
``offline``                 import and export of Minari and Dopamine datasets (``framestow[offline]``)
``training``                the DQN trainer (``framestow[train]``)
``integrations``            buffers for Stable-Baselines3, CleanRL, Tianshou, TorchRL, Gymnasium
``distributed``             a memory in shards on Ray (``framestow[ray]``)
``errors``                  every error that framestow raises
==========================  ===============================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framestow import errors
from framestow.interface import lazy_names

if TYPE_CHECKING:
    from framestow import envs
    from framestow.frames.frame_spec import FrameSpec
    from framestow.replay.ensemble import ReplayEnsemble
    from framestow.replay.memory import ReplayMemory
    from framestow.replay.reading.batch import Batch, SequenceBatch
    from framestow.replay.reading.hindsight import HindsightGoals
    from framestow.replay.reports.memory_report import MemoryReport
    from framestow.replay.samplers.by_age import ByAge
    from framestow.replay.samplers.emphasize_recent import EmphasizeRecent
    from framestow.replay.samplers.mixture import Mixture
    from framestow.replay.samplers.prioritized import Prioritized
    from framestow.replay.samplers.sampler import Draw, Sampler
    from framestow.replay.samplers.uniform import Uniform
    from framestow.replay.settings.step_fields import Summed

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
    "ReplayEnsemble",
    "ReplayMemory",
    "Sampler",
    "SequenceBatch",
    "Summed",
    "Uniform",
    "envs",
    "errors",
]
__version__ = "0.1.0"

# Imported on first use: packages may need an extra, and the command line can handle Ctrl-C before NumPy is loaded.
_PACKAGES = {
    "distributed": "",
    "envs": "",
    "integrations": "",
    "jax": "jax",
    "offline": "",
    "torch": "torch",
    "training": "",
}  # with the library that the import of each needs
_MODULES = {
    "Batch": "replay.reading.batch",
    "ByAge": "replay.samplers.by_age",
    "Draw": "replay.samplers.sampler",
    "EmphasizeRecent": "replay.samplers.emphasize_recent",
    "FrameSpec": "frames.frame_spec",
    "HindsightGoals": "replay.reading.hindsight",
    "MemoryReport": "replay.reports.memory_report",
    "Mixture": "replay.samplers.mixture",
    "Prioritized": "replay.samplers.prioritized",
    "ReplayEnsemble": "replay.ensemble",
    "ReplayMemory": "replay.memory",
    "Sampler": "replay.samplers.sampler",
    "SequenceBatch": "replay.reading.batch",
    "Summed": "replay.settings.step_fields",
    "Uniform": "replay.samplers.uniform",
}
__getattr__, __dir__ = lazy_names(__name__, _MODULES, packages=_PACKAGES)
