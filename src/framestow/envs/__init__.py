"""Atari environments, vector environments of any Gymnasium environments, and the Recorder that fills a memory.

Install with ``pip install "framestow[atari]"`` (Gymnasium, ale-py with its ROMs, OpenCV). Each name is imported on
first use. ``Recorder``, ``SerialVectorEnv`` and ``WorkerVectorEnv`` need Gymnasium alone (``framestow[gymnasium]``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framestow.interface import lazy_names

if TYPE_CHECKING:
    from framestow.envs.atari.atari_env import AtariEnv
    from framestow.envs.atari.presets import PRESETS, Preset, find_preset
    from framestow.envs.atari_by_name import make_atari
    from framestow.envs.recording.recorder import Recorder
    from framestow.envs.recording.step_recording import StepSink
    from framestow.envs.vector.infos import FinishedGame, finished_games, lost_episodes
    from framestow.envs.vector.serial import SerialVectorEnv
    from framestow.envs.workers.worker_vector_env import WorkerVectorEnv

__all__ = [
    "PRESETS",
    "AtariEnv",
    "FinishedGame",
    "Preset",
    "Recorder",
    "SerialVectorEnv",
    "StepSink",
    "WorkerVectorEnv",
    "find_preset",
    "finished_games",
    "lost_episodes",
    "make_atari",
]

_MODULES = {
    "PRESETS": "atari.presets",
    "AtariEnv": "atari.atari_env",
    "FinishedGame": "vector.infos",
    "Preset": "atari.presets",
    "Recorder": "recording.recorder",
    "SerialVectorEnv": "vector.serial",
    "StepSink": "recording.step_recording",
    "WorkerVectorEnv": "workers.worker_vector_env",
    "find_preset": "atari.presets",
    "finished_games": "vector.infos",
    "lost_episodes": "vector.infos",
    "make_atari": "atari_by_name",
}
_EXTRAS = {name: "atari" if module.startswith("atari") else "gymnasium" for name, module in _MODULES.items()}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, _EXTRAS)
