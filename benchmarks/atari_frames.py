"""Frames of ale-py games for the benchmarks, recorded once, and a player that feeds them to a memory.

Uniformly random actions of the game's minimal action set, sticky with probability 0.25 (Machado et al. 2018), frame
skip 4, and a new game after each end. A frame is the maximum of a step's last two raw grey screens, resized to 84x84
with OpenCV's INTER_AREA (Mnih et al. 2015). The same seed gives the same frames. They are kept in a folder that git
ignores, or in the one that FRAMES_FOLDER names: ``<game>-<frames>-<seed>.npy``, and the first frames of its episodes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ale_py
import cv2
import numpy as np
from ale_py import roms
from numpy.typing import NDArray

# The first games that packing was measured on (docs/packing.md).
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
# Kaiser et al. 2020, "Model-Based Reinforcement Learning for Atari".
ATARI_100K = (
    "alien",
    "amidar",
    "assault",
    "asterix",
    "bank_heist",
    "battle_zone",
    "boxing",
    "breakout",
    "chopper_command",
    "crazy_climber",
    "demon_attack",
    "freeway",
    "frostbite",
    "gopher",
    "hero",
    "jamesbond",
    "kangaroo",
    "krull",
    "kung_fu_master",
    "ms_pacman",
    "pong",
    "private_eye",
    "qbert",
    "road_runner",
    "seaquest",
    "up_n_down",
)
FRAME_SIDE = 84  # pixels
FRAME_SKIP = 4  # emulator frames per agent step
STICKY_PROBABILITY = 0.25
NUM_FRAMES = 20_000  # of each game
CACHE_FOLDER = Path(os.environ.get("FRAMES_FOLDER", Path(__file__).parent / ".frames"))


@dataclass(frozen=True)
class Recording:
    """Frames in the order of play, ``(num_frames, 84, 84)``."""

    frames: NDArray[np.uint8]
    episode_starts: Sequence[int]  # indices in ``frames``; the first is 0


def record(game: str, num_frames: int, seed: int) -> Recording:
    """Play ``game`` for ``num_frames`` agent steps; frames are ``(num_frames, 84, 84)``."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", STICKY_PROBABILITY)
    ale.loadROM(roms.get_rom_path(game))
    generator = np.random.default_rng(seed)
    actions = ale.getMinimalActionSet()
    height, width = ale.getScreenDims()
    screens = np.zeros((2, height, width), np.uint8)
    frames = np.empty((num_frames, FRAME_SIDE, FRAME_SIDE), np.uint8)
    episode_starts = [0]
    for index in range(num_frames):
        if ale.game_over():
            ale.reset_game()
            episode_starts.append(index)
        action = actions[generator.integers(len(actions))]
        for skip in range(FRAME_SKIP):
            ale.act(action)
            if skip >= FRAME_SKIP - 2:
                ale.getScreenGrayscale(screens[skip - FRAME_SKIP + 2])
        cv2.resize(screens.max(axis=0), (FRAME_SIDE, FRAME_SIDE), dst=frames[index], interpolation=cv2.INTER_AREA)
    return Recording(frames, episode_starts)


def recording(game: str, num_frames: int = NUM_FRAMES, seed: int = 0) -> Recording:
    """Return what ``record`` returns, from the cache folder if it is there."""
    path = CACHE_FOLDER / f"{game}-{num_frames}-{seed}.npy"
    facts = path.with_suffix(".json")
    if path.exists() and facts.exists():
        return Recording(np.load(path), json.loads(facts.read_text())["episode_starts"])
    start = time.monotonic()
    found = record(game, num_frames, seed)
    CACHE_FOLDER.mkdir(exist_ok=True)
    facts.write_text(json.dumps({"episode_starts": list(found.episode_starts)}))
    unfinished = path.with_suffix(".unfinished.npy")  # a file with the final name is complete
    np.save(unfinished, found.frames)
    unfinished.rename(path)
    print(f"recorded {game}: {num_frames:,} frames in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return found


def recorded(game: str, num_frames: int = NUM_FRAMES, seed: int = 0) -> NDArray[np.uint8]:
    """Return the frames of random play, ``(num_frames, 84, 84)``, from the cache folder or played now."""
    return recording(game, num_frames, seed).frames


class Player:
    """Feeds memories with the recorded frames of a game without end, each environment from another frame of it."""

    def __init__(self, game: str = "breakout", num_envs: int = 8, num_actions: int = 4) -> None:
        frames = recorded(game)
        starts = np.arange(num_envs) * (len(frames) // num_envs)
        self._rows = lambda step: frames[(starts + step) % len(frames)]
        self._num_envs, self._num_actions = num_envs, num_actions
        self._random = np.random.default_rng(0)
        self._step = 0

    def play(self, memory: Any, num_transitions: int, episode: int = 1_000) -> None:
        """Append that many transitions over all environments; an episode has ``episode`` steps."""
        for _ in range(num_transitions // self._num_envs):
            if self._step % episode == 0:
                memory.begin(self._rows(self._step))
            self._step += 1
            ends = np.full(self._num_envs, self._step % episode == 0)
            actions = self._random.integers(0, self._num_actions, self._num_envs)
            rewards = self._random.random(self._num_envs)
            memory.append(actions, rewards, ends, ~ends & False, self._rows(self._step))
