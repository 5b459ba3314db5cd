"""Catch: a ball falls, a paddle moves, and whoever is under the ball when it lands wins."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

SIDE = 24  # pixels
BALL = 2  # side of the ball, pixels
PADDLE = 4  # width of the paddle, pixels
FALL = 2  # pixels the ball falls in a step
SHIFT = 2  # pixels the paddle moves in a step
STEPS = (SIDE - BALL) // FALL  # of every episode
OPTIMUM = 1.0  # score of an episode; the paddle reaches every column in time


class Catch(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """Actions: 0 left, 1 stay, 2 right. Reward: 0, then +1 for a catch or -1 for a miss in the last step.

    The frame shows where ball and paddle are and not where the paddle is moving, so it can be played from one frame.
    Its whole state, generator included, can be saved.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self) -> None:
        self.observation_space = Box(0, 255, (SIDE, SIDE), np.uint8)
        self.action_space = Discrete(3)
        self._ball_row = self._ball_column = self._paddle = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._ball_row = 0
        self._ball_column = int(self.np_random.integers(SIDE - BALL + 1))
        self._paddle = (SIDE - PADDLE) // 2
        return self._frame(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        self._paddle = min(max(self._paddle + SHIFT * (int(action) - 1), 0), SIDE - PADDLE)
        self._ball_row += FALL
        if self._ball_row < SIDE - BALL:
            return self._frame(), 0.0, False, False, {}
        is_caught = self._paddle - BALL < self._ball_column < self._paddle + PADDLE
        reward = 1.0 if is_caught else -1.0
        return self._frame(), reward, True, False, {"episode": {"r": reward, "l": STEPS}}

    def state(self) -> dict[str, Any]:
        return {
            "ball_row": self._ball_row,
            "ball_column": self._ball_column,
            "paddle": self._paddle,
            "generator": dict(self.np_random.bit_generator.state),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._ball_row, self._ball_column = state["ball_row"], state["ball_column"]
        self._paddle = state["paddle"]
        self.np_random.bit_generator.state = state["generator"]

    def _frame(self) -> NDArray[np.uint8]:
        frame = np.zeros((SIDE, SIDE), np.uint8)
        frame[-BALL:, self._paddle : self._paddle + PADDLE] = 128
        frame[self._ball_row : self._ball_row + BALL, self._ball_column : self._ball_column + BALL] = 255
        return frame
