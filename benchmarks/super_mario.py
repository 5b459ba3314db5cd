"""Compare Super Mario Bros recorded through Berkeley's calls with the plain ReplayBuffer, and measure both.

    make mario            .venv-scenes with framestow in it, then this and examples/super_mario_bros.py

gym-super-mario-bros (Kauten 2018) is played at random: one of the seven actions of SIMPLE_MOVEMENT, repeated with
probability 0.75, for four screens per step. Each frame goes into framestow's ``ReplayBuffer`` and into the plain one
(plain_classics.py): as 84x84 grey and in colour, resized with OpenCV's INTER_AREA, and as the whole screen, 240x256 in
colour, of which a plain ring can store only a few. The newest observation of both is read after each frame, and every
50 steps both sample 32 transitions with the same seed. Every sampled stack, action, reward and flag must be equal, and
in the end every transition; a difference is an error.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from framestow.benchmarking.result_files import write_result
from framestow.benchmarking.timing import measure_medians
from framestow.integrations.classic import ReplayBuffer
from plain_classics import PlainFrameHistory
from record_scenes import FRAME_SKIP, PersistentActions, resized

RESULT = Path(__file__).parent / "results" / "super_mario.json"
HISTORY, BATCH_SIZE = 4, 32
STEPS_BETWEEN_DRAWS = 50
CHUNK = 250  # transitions compared at once

Step = tuple[NDArray[np.uint8], int, float, bool]  # screen, action, reward, whether the game ended


def played(seed: int) -> Iterator[Step]:
    """Yield steps of Super Mario Bros; after a game's last step follows the next game's first screen."""
    from gym_super_mario_bros import SuperMarioBrosEnv
    from gym_super_mario_bros.actions import SIMPLE_MOVEMENT
    from nes_py.wrappers import JoypadSpace

    env = JoypadSpace(SuperMarioBrosEnv(), SIMPLE_MOVEMENT)
    actions = PersistentActions(len(SIMPLE_MOVEMENT), np.random.default_rng(seed))
    screen, has_ended = env.reset(), False
    while True:
        shown, action, reward = screen.copy(), actions.draw(), 0.0
        for _ in range(FRAME_SKIP):
            screen, gained, has_ended, _ = env.step(action)
            reward += float(gained)
            if has_ended:
                break
        yield shown, action, reward, bool(has_ended)
        if has_ended:
            screen = env.reset()


def grey(screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return cv2.cvtColor(resized(screen), cv2.COLOR_RGB2GRAY)[..., None]


def channels_last(stacks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return stacks ``(n, HISTORY, H, W, C)`` in Berkeley's form, ``(n, H, W, HISTORY * C)``."""
    return np.concatenate(np.moveaxis(stacks, 1, 0), axis=-1)


class Kind(NamedTuple):
    """How a screen is stored, and the maximum number of steps."""

    frame_of: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]
    most_steps: int


KINDS = {
    "84x84 grey": Kind(grey, 10**9),
    "84x84 colour": Kind(resized, 10**9),
    "240x256 colour": Kind(lambda screen: screen, 4_000),
}


class Pair:
    """Both buffers, fed and compared."""

    def __init__(self, kind: Kind, num_steps: int) -> None:
        self.kind, self.num_steps = kind, min(num_steps, kind.most_steps)
        self.mine = ReplayBuffer(self.num_steps + 1, HISTORY)
        shape = kind.frame_of(np.zeros((240, 256, 3), np.uint8)).shape
        self.plain = PlainFrameHistory(self.num_steps + 1, HISTORY, shape)
        self.num_compared = self.num_frames = 0

    def store(self, step: Step) -> None:
        """Store a step in both, and compare the newest observations."""
        if self.num_frames == self.num_steps:
            return
        screen, action, reward, done = step
        frame = self.kind.frame_of(screen)
        for buffer in (self.mine, self.plain):
            idx = buffer.store_frame(frame)
            buffer.store_effect(idx, action, reward, done)
        self.num_frames += 1
        expected = self.plain.encode_recent_observation()
        np.testing.assert_array_equal(expected, self.mine.encode_recent_observation())
        if self.num_frames % STEPS_BETWEEN_DRAWS == 0:
            self.compare_draws()

    def compare_draws(self) -> None:
        """Sample from both with one seed, and compare."""
        random.seed(self.num_frames)
        expected = self.plain.sample(BATCH_SIZE)
        random.seed(self.num_frames)
        self.compare(expected, self.mine.sample(BATCH_SIZE))

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
        """Return both buffers' bytes per frame, without their output arrays, and microseconds per batch."""
        times = {
            "framestow": lambda: self.mine.sample(BATCH_SIZE),
            "plain": lambda: self.plain.sample(BATCH_SIZE),
        }
        sample_us = measure_medians(times, rounds=200, calls=1)
        frame_bytes, parts = self.plain.frames[0].nbytes, self.mine.memory.report().parts
        return {
            "frames": self.num_frames,
            "bytes a frame, plain": frame_bytes,
            "bytes a frame": round((sum(parts.values()) - parts["output pool"]) / self.num_frames, 1),
            "bytes a frame, packed frames alone": round(parts["frames"] / self.num_frames, 1),
            "transitions compared, all equal": self.num_compared,
            "sample(32), microseconds": {system: round(us) for system, us in sample_us.items()},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # old Gym's
    pairs = {name: Pair(kind, arguments.steps) for name, kind in KINDS.items()}
    began_s, num_ends = time.perf_counter(), 0
    for number, step in enumerate(played(seed=0), start=1):
        for pair in pairs.values():
            pair.store(step)
        num_ends += step[3]
        if number % 1_000 == 0:
            print(f"{number:,} of {arguments.steps:,} steps, {time.perf_counter() - began_s:.0f} s", flush=True)
        if number == arguments.steps:
            break
    figures = {}
    for name, pair in pairs.items():
        pair.compare_all()
        figures[name] = pair.figures()
        print(name, figures[name], flush=True)
    game = "Super Mario Bros (gym-super-mario-bros 7.4.0)"
    write_result(RESULT, {"game": game, "numpy": np.__version__, "games ended": num_ends, "kinds": figures})


if __name__ == "__main__":
    main()
