"""Play Super Mario Bros at random, store the play in framestow's Berkeley-style ReplayBuffer, and sample from it.

    make mario                                                   install the game and run this script
    python examples/super_mario_bros.py --steps 5000             print the bytes per colour frame
    python examples/super_mario_bros.py --picture stack.png      also draw a sampled transition

gym-super-mario-bros (from PyPI) needs NumPy 1: `pip install -r benchmarks/requirements-mario.txt .`
"""

from __future__ import annotations

import argparse
import time
import warnings

import cv2
import numpy as np
from gym_super_mario_bros import SuperMarioBrosEnv
from gym_super_mario_bros.actions import SIMPLE_MOVEMENT
from nes_py.wrappers import JoypadSpace

from framestow.integrations.classic import ReplayBuffer

FRAME_SKIP, HISTORY, BATCH_SIZE = 4, 4, 32
EPISODE_LIMIT = 400  # agent steps; longer episodes are truncated


def as_frame(screen: np.ndarray, is_grey: bool) -> np.ndarray:
    """Return the frame ``(84, 84, 3)``, or grey ``(84, 84, 1)``, of a screen ``(240, 256, 3)``."""
    small = cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)[..., None] if is_grey else small


def play(buffer: ReplayBuffer, num_steps: int, is_grey: bool) -> None:
    """Store ``num_steps`` steps of random play, with the calls of a training loop."""
    game = JoypadSpace(SuperMarioBrosEnv(), SIMPLE_MOVEMENT)
    generator, action, began_s = np.random.default_rng(0), 0, time.perf_counter()
    frame, length = as_frame(game.reset(), is_grey), 0
    for step in range(num_steps):
        idx = buffer.store_frame(frame)
        buffer.encode_recent_observation()  # (84, 84, 12): the input of a policy
        if generator.random() < 0.25:  # repeat an action for some steps, or Mario does not move on
            action = int(generator.integers(len(SIMPLE_MOVEMENT)))
        reward, done = 0.0, False
        for _ in range(FRAME_SKIP):
            screen, gained, done, _ = game.step(action)
            reward += float(gained)
            if done:
                break
        frame, length = as_frame(screen, is_grey), length + 1
        truncated = length == EPISODE_LIMIT
        buffer.store_effect(idx, action, reward, done, truncated=truncated, last_frame=frame)
        if done or truncated:
            frame, length = as_frame(game.reset(), is_grey), 0
        if (step + 1) % 1000 == 0:
            took_s = time.perf_counter() - began_s
            print(f"{step + 1:,} steps, {(step + 1) / took_s:.0f} a second, {buffer.memory.nbytes:,} bytes", flush=True)
    game.close()


def filmstrip(observation: np.ndarray, next_observation: np.ndarray) -> np.ndarray:
    """Return a picture with one row of frames per observation of a transition, oldest frame first."""
    rows = [np.concatenate(np.split(stack, HISTORY, axis=-1), axis=1) for stack in (observation, next_observation)]
    return np.concatenate(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5_000, help="agent steps to play, of four screens each")
    parser.add_argument("--size", type=int, default=1_000_000, help="maximum number of transitions in the buffer")
    parser.add_argument("--grey", action="store_true", help="store grey frames instead of colour frames")
    parser.add_argument("--picture", help="draw a sampled transition into this .png file")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # of old Gym

    buffer = ReplayBuffer(arguments.size, HISTORY, seed=0)
    play(buffer, arguments.steps, arguments.grey)

    observations, actions, rewards, next_observations, _ = buffer.sample(BATCH_SIZE)
    print(f"a batch: observations {observations.shape} {observations.dtype}, mean reward {rewards.mean():.2f}")
    frame_bytes = observations[0].nbytes // HISTORY
    print(f"{buffer.memory.nbytes / buffer.num_in_buffer:.0f} bytes a frame instead of {frame_bytes:,}, all counted")
    if arguments.picture:
        row = int(np.argmax(observations.reshape(BATCH_SIZE, -1).std(axis=1)))  # no black screen
        picture = filmstrip(observations[row], next_observations[row])
        cv2.imwrite(arguments.picture, cv2.resize(picture[..., ::-1], None, fx=3, fy=3, interpolation=0))
        print(f"{arguments.picture}: action {SIMPLE_MOVEMENT[actions[row]]}, reward {rewards[row]:g}")


if __name__ == "__main__":
    main()
