"""Environments that tell the truth, and the Recorder that feeds a memory from them.

Needs the extra ``framestow[atari]`` (Gymnasium, ale-py with its ROMs, OpenCV).
"""

from framestow.errors import MissingExtraError

try:
    import ale_py  # noqa: F401
    import cv2  # noqa: F401
    import gymnasium  # noqa: F401
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"framestow.envs needs {missing.name}: it is part of the extra 'atari', which is not installed; "
        'run: pip install "framestow[atari]"'
    ) from missing

from framestow.envs.atari.atari_env import AtariEnv
from framestow.envs.atari.presets import PRESETS, Preset, find_preset
from framestow.envs.backends.ale import AleVectorEnv
from framestow.envs.backends.envpool import EnvpoolVectorEnv
from framestow.envs.episode_ends import FinishedGame, finished_games, lost_episodes
from framestow.envs.make_atari import make_atari
from framestow.envs.recording.recorder import Recorder
from framestow.envs.recording.step_sink import StepSink
from framestow.envs.vector.serial import SerialVectorEnv
from framestow.envs.workers.worker_vector_env import WorkerVectorEnv

__all__ = [
    "PRESETS",
    "AleVectorEnv",
    "AtariEnv",
    "EnvpoolVectorEnv",
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
