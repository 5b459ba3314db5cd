"""Frames for the benchmarks, recorded from ale-py once and kept in a folder that git ignores.

Play: uniformly random actions of the game's minimal action set, sticky actions with probability 0.25
(Machado et al. 2018), frame skip 4, game restarted at its end. A frame is the maximum of the last two raw grey
screens of a step, resized to 84x84 with OpenCV's INTER_AREA (Mnih et al. 2015). Same seed, same frames.
"""

from __future__ import annotations

from pathlib import Path

import ale_py
import cv2
import numpy as np
from ale_py import roms
from numpy.typing import NDArray

GAMES = (
    "breakout",
    "pong",
    "space_invaders",
    "qbert",
    "seaquest",
    "beam_rider",
    "ms_pacman",
    "enduro",
    "riverraid",
    "freeway",
)
FRAME_SIDE = 84  # pixels
FRAME_SKIP = 4  # emulator frames an agent step
STICKY_PROBABILITY = 0.25
CACHE_FOLDER = Path(__file__).parent / ".frames"


def record(game: str, num_frames: int, seed: int) -> NDArray[np.uint8]:
    """Play ``game`` at random and return ``num_frames`` frames, shape ``(num_frames, 84, 84)``."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", STICKY_PROBABILITY)
    ale.loadROM(roms.get_rom_path(game))
    actions = ale.getMinimalActionSet()
    generator = np.random.default_rng(seed)
    height, width = ale.getScreenDims()
    screens = np.zeros((2, height, width), np.uint8)
    frames = np.empty((num_frames, FRAME_SIDE, FRAME_SIDE), np.uint8)
    for index in range(num_frames):
        if ale.game_over():
            ale.reset_game()
        action = actions[generator.integers(len(actions))]
        for skip in range(FRAME_SKIP):
            ale.act(action)
            if skip >= FRAME_SKIP - 2:
                ale.getScreenGrayscale(screens[skip - FRAME_SKIP + 2])
        cv2.resize(screens.max(axis=0), (FRAME_SIDE, FRAME_SIDE), dst=frames[index], interpolation=cv2.INTER_AREA)
    return frames


def recorded(game: str, num_frames: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return the frames of ``record``, from the cache folder if an earlier call left them there."""
    CACHE_FOLDER.mkdir(exist_ok=True)
    path = CACHE_FOLDER / f"{game}-{num_frames}-{seed}.npy"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished.npy")
        np.save(unfinished, record(game, num_frames, seed))
        unfinished.rename(path)
    frames: NDArray[np.uint8] = np.load(path)
    return frames
