"""Players that read the game's state from the emulator's 128 bytes of RAM and score clearly better than random play.

The RAM addresses are from the Atari Annotated RAM Interface (Anand et al. 2019, "Unsupervised State Representation
Learning in Atari"); the strategies are ours. A player is called once per agent step with the RAM and a generator, and
returns the action; it may remember the step before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from ale_py import Action
from numpy.typing import NDArray

Player = Callable[[NDArray[np.uint8], np.random.Generator], Action]  # of the 128 bytes of RAM


class BreakoutPlayer:
    """Keeps the paddle where the ball will fall, and hits it with a random part of the paddle each time."""

    BALL_X, BALL_Y, PADDLE_X = 99, 101, 72
    LEFT_WALL, RIGHT_WALL, PADDLE_Y = 55, 200, 180  # in the units of BALL_X and BALL_Y
    MIDDLE = -8  # PADDLE_X less BALL_X where the ball meets the paddle's middle
    FARTHEST_AIM, REACH = 4, 5  # a paddle this near does not move

    def __init__(self) -> None:
        self._last_x, self._last_y, self._aim = 0, 0, 0

    def __call__(self, ram: NDArray[np.uint8], generator: np.random.Generator) -> Action:
        """Give the action of the next step."""
        x, y = int(ram[self.BALL_X]), int(ram[self.BALL_Y])
        x_step, y_step = x - self._last_x, y - self._last_y
        self._last_x, self._last_y = x, y
        if y == 0:  # no ball in play
            return Action.FIRE
        target = float(x)
        if y_step > 0:
            target = self._reflected(x + x_step * max(0, self.PADDLE_Y - y) / y_step)
        elif y_step < 0:
            self._aim = int(generator.integers(-self.FARTHEST_AIM, self.FARTHEST_AIM + 1))
        distance = target + self.MIDDLE + self._aim - int(ram[self.PADDLE_X])
        if abs(distance) <= self.REACH:
            return Action.NOOP
        return Action.RIGHT if distance > 0 else Action.LEFT

    def _reflected(self, x: float) -> float:
        """Return the place between the walls of a ball that would fly to ``x`` without them."""
        width = self.RIGHT_WALL - self.LEFT_WALL
        unfolded = (x - self.LEFT_WALL) % (2 * width)
        return self.LEFT_WALL + min(unfolded, 2 * width - unfolded)


class PongPlayer:
    """Keeps the paddle near the height that the ball will have in the next step."""

    BALL_Y, PADDLE_Y = 54, 51
    MIDDLE = -4  # PADDLE_Y less BALL_Y where the ball meets the paddle's middle
    FARTHEST_AIM, REACH = 3, 3

    def __init__(self) -> None:
        self._last_y = 0

    def __call__(self, ram: NDArray[np.uint8], generator: np.random.Generator) -> Action:
        """Give the action of the next step."""
        y = int(ram[self.BALL_Y])
        y_step = y - self._last_y
        self._last_y = y
        if y == 0:  # no ball in play
            return Action.FIRE
        aim = int(generator.integers(-self.FARTHEST_AIM, self.FARTHEST_AIM + 1))
        distance = y + y_step + self.MIDDLE + aim - int(ram[self.PADDLE_Y])
        if abs(distance) <= self.REACH:
            return Action.NOOP
        return Action.LEFT if distance > 0 else Action.RIGHT  # left is down here


class SpaceInvadersPlayer:
    """Follows the invaders to one side of their middle, and shoots all the time."""

    INVADERS_X, CANNON_X = 26, 28
    ASIDE, REACH = 40, 3

    def __call__(self, ram: NDArray[np.uint8], _: np.random.Generator) -> Action:
        """Give the action of the next step."""
        distance = int(ram[self.INVADERS_X]) + self.ASIDE - int(ram[self.CANNON_X])
        if abs(distance) <= self.REACH:
            return Action.FIRE
        return Action.RIGHTFIRE if distance > 0 else Action.LEFTFIRE


class SeaquestPlayer:
    """Stays deep, shoots to both sides at random, and surfaces when the oxygen runs out."""

    SUBMARINE_Y, OXYGEN = 97, 102
    DEEP_Y = 100
    LOW_OXYGEN, ENOUGH_OXYGEN = 12, 60

    def __init__(self) -> None:
        self._is_surfacing = False

    def __call__(self, ram: NDArray[np.uint8], generator: np.random.Generator) -> Action:
        """Give the action of the next step."""
        oxygen = int(ram[self.OXYGEN])
        self._is_surfacing = oxygen < (self.ENOUGH_OXYGEN if self._is_surfacing else self.LOW_OXYGEN)
        if self._is_surfacing:
            return Action.UPFIRE
        if ram[self.SUBMARINE_Y] < self.DEEP_Y:
            return Action.DOWNFIRE
        return Action.RIGHTFIRE if generator.random() < 0.5 else Action.LEFTFIRE


class MostlyPlayer:
    """Repeats one useful action, and takes another in one step of five, so that games differ."""

    OTHERWISE = 0.2

    def __init__(self, action: Action, others: tuple[Action, ...]) -> None:
        self._action, self._others = action, others

    def __call__(self, _: NDArray[np.uint8], generator: np.random.Generator) -> Action:
        """Give the action of the next step."""
        if generator.random() < self.OTHERWISE:
            return self._others[generator.integers(len(self._others))]
        return self._action


# The constructor of a player for each game, by the name of its ROM.
SCRIPTED_PLAYERS: dict[str, Callable[[], Player]] = {
    "breakout": BreakoutPlayer,
    "pong": PongPlayer,
    "space_invaders": SpaceInvadersPlayer,
    "seaquest": SeaquestPlayer,
    "enduro": partial(MostlyPlayer, Action.FIRE, (Action.LEFTFIRE, Action.RIGHTFIRE)),  # fire is the accelerator
    "freeway": partial(MostlyPlayer, Action.UP, (Action.NOOP,)),
    "road_runner": partial(MostlyPlayer, Action.LEFT, (Action.UPLEFT, Action.DOWNLEFT)),
}
