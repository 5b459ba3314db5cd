"""Oracle of the preset ``baselines``: its documented wrappers over a raw emulator.

Frame skip 4, the maximum of the last two raw frames by colour, luminance, mean over the area. A new game begins with
no-ops. A lost life ends the episode while lives are left, and the next reset plays a no-op step. Then FIRE and the
third action follow, in games with FIRE and three actions. Rewards are their signs. Unlike in Baselines, the frame of a
step that ends early is made from raw frames of that step only.
"""

from __future__ import annotations

from typing import NamedTuple

import ale_py
import cv2
import numpy as np
from ale_py import roms


class WrappedStep(NamedTuple):
    """Result of a step, and the number of its raw frames."""

    frame: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    num_raw_frames: int


class BaselinesWrappers:
    """One game; the caller gives the number of no-ops of each new game."""

    def __init__(self, rom: str, max_episode_frames: int = 108_000, frame_skip: int = 4) -> None:
        self.frame_skip = frame_skip
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("max_num_frames_per_episode", max_episode_frames)
        self.ale.loadROM(roms.get_rom_path(rom))
        self.actions = self.ale.getMinimalActionSet()
        self.fires = len(self.actions) >= 3 and self.actions[1] == ale_py.Action.FIRE
        self.lives = 0
        self.game_is_over = True

    def reset(self, num_noops: int) -> np.ndarray:
        frame = self._begin_episode(num_noops)
        for action in (1, 2) if self.fires else ():
            step = self.step(action)
            frame = step.frame
            if step.terminated or step.truncated:
                frame = self._begin_episode(num_noops)
        return frame

    def step(self, action: int) -> WrappedStep:
        raw_frames, reward = [], 0
        while len(raw_frames) < self.frame_skip and not self.ale.game_over():
            reward += self.ale.act(self.actions[action])
            raw_frames.append(self.ale.getScreenRGB())
        self.game_is_over = self.ale.game_over()
        lives, lives_before = self.ale.lives(), self.lives
        self.lives = lives
        terminated = self.ale.game_over(with_truncation=False) or 0 < lives < lives_before
        frame = warped(np.max(raw_frames[-2:], axis=0))
        return WrappedStep(frame, float(np.sign(reward)), terminated, self.ale.game_truncated(), len(raw_frames))

    def _begin_episode(self, num_noops: int) -> np.ndarray:
        frame = None
        if not self.game_is_over:
            frame = self.step(0).frame
        if self.game_is_over:
            frame = self._new_game(num_noops)
        self.lives = self.ale.lives()
        return frame

    def _new_game(self, num_noops: int) -> np.ndarray:
        self.ale.reset_game()
        self.game_is_over = False
        for _ in range(num_noops):
            self.ale.act(ale_py.Action.NOOP)
            if self.ale.game_over():
                self.ale.reset_game()
        return warped(self.ale.getScreenRGB())


def warped(raw_frame: np.ndarray) -> np.ndarray:
    """Return the luminance, averaged over the area of each of 84x84 pixels."""
    return cv2.resize(cv2.cvtColor(raw_frame, cv2.COLOR_RGB2GRAY), (84, 84), interpolation=cv2.INTER_AREA)
