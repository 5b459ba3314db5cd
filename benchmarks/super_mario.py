"""Compare Super Mario Bros recorded through Berkeley's calls with the plain ReplayBuffer, and measure framestow's.

    make mario            .venv-mario with framestow in it, then this and examples/super_mario_bros.py

gym-super-mario-bros (Kauten 2018) is played at random: one of the seven actions of SIMPLE_MOVEMENT, repeated with
probability 0.75, for four screens per step. Each frame goes into framestow's ``ReplayBuffer`` and into the tests' plain
one: as 84x84 grey and in colour, resized with OpenCV's INTER_AREA, and as the whole screen, 240x256 in colour. The
newest observation of both is read after each frame, and every 50 steps both sample 32 transitions with the same seed.
In the end every transition is compared. A difference is an error.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from figures import publish
from framestow.integrations.classic import ReplayBuffer

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from oracles.plain_frame_history import PlainFrameHistory

HISTORY, BATCH_SIZE, FRAME_SKIP = 4, 32, 4
STEPS_BETWEEN_DRAWS = 50
CHUNK = 250  # transitions compared at once

Step = tuple[NDArray[np.uint8], int, float, bool]  # screen, action, reward, whether the game ended


def played(seed: int) -> Iterator[Step]:
    """Yield steps of Super Mario Bros; after a game's last step follows the next game's first screen."""
    from gym_super_mario_bros import SuperMarioBrosEnv
    from gym_super_mario_bros.actions import SIMPLE_MOVEMENT
    from nes_py.wrappers import JoypadSpace

    env, generator, action = JoypadSpace(SuperMarioBrosEnv(), SIMPLE_MOVEMENT), np.random.default_rng(seed), 0
    screen, has_ended = env.reset(), False
    while True:
        if generator.random() >= 0.75:
            action = int(generator.integers(len(SIMPLE_MOVEMENT)))
        shown, reward = screen.copy(), 0.0
        for _ in range(FRAME_SKIP):
            screen, gained, has_ended, _ = env.step(action)
            reward += float(gained)
            if has_ended:
                break
        yield shown, action, reward, bool(has_ended)
        if has_ended:
            screen = env.reset()


def colour(screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.asarray(cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA), np.uint8)


def grey(screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return cv2.cvtColor(colour(screen), cv2.COLOR_RGB2GRAY)[..., None]


def whole(screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return screen


def channels_last(stacks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return stacks ``(n, HISTORY, H, W, C)`` in Berkeley's form, ``(n, H, W, HISTORY * C)``."""
    return np.concatenate(np.moveaxis(stacks, 1, 0), axis=-1)


class Pair:
    """Both buffers, fed and compared."""

    def __init__(self, frame_of: Callable[[NDArray[np.uint8]], NDArray[np.uint8]], num_steps: int) -> None:
        self.frame_of = frame_of
        self.mine, self.plain = ReplayBuffer(num_steps + 1, HISTORY), PlainFrameHistory(num_steps + 1, HISTORY)
        self.num_compared = self.num_frames = 0

    def store(self, step: Step) -> None:
        """Store a step in both, and compare the newest observations and sometimes a draw of the same seed."""
        screen, action, reward, done = step
        frame = self.frame_of(screen)
        for buffer in (self.mine, self.plain):
            buffer.store_effect(buffer.store_frame(frame), action, reward, done)
        self.num_frames += 1
        newest = self.mine.encode_recent_observation()
        np.testing.assert_array_equal(self.plain.encode_recent_observation(), newest)
        if self.num_frames % STEPS_BETWEEN_DRAWS == 0:
            batches = []
            for buffer in (self.plain, self.mine):
                random.seed(self.num_frames)
                batches.append(buffer.sample(BATCH_SIZE))
            self.compare(*batches)

    def compare_all(self) -> None:
        """Compare every transition, number by number."""
        for first in range(0, self.num_frames - 1, CHUNK):
            numbers = np.arange(first, min(first + CHUNK, self.num_frames - 1))
            observations, actions, rewards, next_observations, done = self.plain.transitions(numbers.tolist())
            batch = self.mine.memory.get(numbers)
            going_on = ~batch.terminated  # after an end the plain one returns the next game's frames
            mine, mine_next = map(channels_last, (batch.observation, batch.next_observation))
            self.compare(
                (observations, actions, rewards, next_observations[going_on], done),
                (mine, batch.action, batch.reward, mine_next[going_on], batch.terminated.astype(np.float32)),
            )

    def compare(self, expected: tuple[NDArray[Any], ...], given: tuple[NDArray[Any], ...]) -> None:
        """Raise ``AssertionError`` unless all arrays are equal, dtype included."""
        for one, other in zip(expected, given, strict=True):
            assert one.dtype == other.dtype, (one.dtype, other.dtype)
            np.testing.assert_array_equal(one, other)
        self.num_compared += len(expected[0])

    def figures(self) -> dict[str, Any]:
        """Return both buffers' bytes per frame, framestow's without its output arrays."""
        parts = self.mine.memory.report().parts
        return {
            "frames": self.num_frames,
            "bytes a frame, plain": self.plain.frames[0].nbytes,
            "bytes a frame": round((sum(parts.values()) - parts["output pool"]) / self.num_frames, 1),
            "transitions compared, all equal": self.num_compared,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4_000)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # old Gym's
    frames_of = {"84x84 grey": grey, "84x84 colour": colour, "240x256 colour": whole}
    pairs = {name: Pair(frame_of, arguments.steps) for name, frame_of in frames_of.items()}
    for _, step in zip(range(arguments.steps), played(seed=0), strict=False):
        for pair in pairs.values():
            pair.store(step)
    for pair in pairs.values():
        pair.compare_all()
    figures = {name: pair.figures() for name, pair in pairs.items()}
    game = "Super Mario Bros (gym-super-mario-bros 7.4.0)"
    publish("super_mario", {"game": game, "numpy": np.__version__, "kinds": figures})


if __name__ == "__main__":
    main()
