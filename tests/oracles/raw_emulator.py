"""Oracle of `AtariEnv`'s frames: a second emulator that steps and reads raw frame by raw frame."""

from __future__ import annotations

from typing import NamedTuple

import ale_py
import cv2
import numpy as np
from ale_py import roms

from framestow.envs import AtariEnv


class RawStep(NamedTuple):
    """Result of a repeated action."""

    raw_frames: list[np.ndarray]
    reward: float
    terminated: bool
    truncated: bool
    lives: int


class RawEmulator:
    """Continue from the state of an environment, without sticky actions."""

    def __init__(self, env: AtariEnv, max_episode_frames: int) -> None:
        self.env = env
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("max_num_frames_per_episode", max_episode_frames)
        self.ale.loadROM(roms.get_rom_path(env.rom))
        self.follow()

    def follow(self) -> None:
        """Restore the current state of the environment."""
        self.ale.restoreState(ale_py.ALEState(self.env.state()["emulator"]))

    def repeat(self, action_name: str, num_frames: int, *, until_life_lost: bool = False) -> RawStep:
        action, lives, raw_frames, reward = ale_py.Action[action_name], self.ale.lives(), [], 0.0
        for _ in range(num_frames):
            reward += self.ale.act(action)
            raw_frames.append((self.ale.getScreenGrayscale(), self.ale.getScreenRGB()))
            if self.ale.game_over() or (until_life_lost and self.ale.lives() < lives):
                break
        over, truncated = self.ale.game_over(with_truncation=False), self.ale.game_truncated()
        return RawStep(raw_frames, reward, over, truncated, self.ale.lives())


def frame_in_grey(raw_frames: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return Dopamine's frame: grey, then the maximum of the last two, then the mean over the area."""
    last_two = [grey for grey, _ in raw_frames[-2:]]
    return cv2.resize(np.max(last_two, axis=0), (84, 84), interpolation=cv2.INTER_AREA)


def frame_in_colour(raw_frames: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the frame of the Nature paper: maximum of the last two by colour, luminance, mean over the area."""
    last_two = [rgb for _, rgb in raw_frames[-2:]]
    luminance = cv2.cvtColor(np.max(last_two, axis=0), cv2.COLOR_RGB2GRAY)
    return cv2.resize(luminance, (84, 84), interpolation=cv2.INTER_AREA)
