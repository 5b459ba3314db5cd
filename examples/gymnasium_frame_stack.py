"""Store the same play of Breakout in a deque of LazyFrames and in a ReplayMemory, and compare their sizes.

    python examples/gymnasium_frame_stack.py --steps 5000

The script plays at random with FrameStack, stores every step in both, checks that both return the same transitions,
and prints the bytes of each. Needs: pip install "framestow[atari]".
"""

from __future__ import annotations

import argparse
import sys
from collections import deque

import ale_py
import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing

from framestow import ReplayMemory
from framestow.integrations.gymnasium import FrameStack, LazyFrames

STACK = 4


def bytes_of(transitions: deque) -> int:
    """Return the bytes of all frames, each counted once, and of the objects that reference them."""
    frames, total = {}, sys.getsizeof(transitions)
    for transition in transitions:
        total += sys.getsizeof(transition)
        for part in transition:
            if isinstance(part, LazyFrames):
                frames |= {id(frame): frame for frame in part}
    observations = {id(part) for transition in transitions for part in transition if isinstance(part, LazyFrames)}
    lazy_frames_bytes = 200  # one LazyFrames with its tuple
    return total + lazy_frames_bytes * len(observations) + sum(map(sys.getsizeof, frames.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5_000, help="steps to play, of four emulator frames each")
    parser.add_argument("--game", default="Breakout", help="name of the Atari game, such as MsPacman")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    gymnasium.register_envs(ale_py)
    frames = AtariPreprocessing(gymnasium.make(f"ALE/{arguments.game}-v5", frameskip=1), noop_max=30)
    env = FrameStack(frames, STACK)
    env.action_space.seed(arguments.seed)

    transitions = deque(maxlen=arguments.steps)
    memory = ReplayMemory(arguments.steps, frames.observation_space, env.action_space, stack=STACK, seed=arguments.seed)

    observation, _ = env.reset(seed=arguments.seed)
    memory.begin(observation.frame(-1)[None])
    for step in range(1, arguments.steps + 1):
        action = env.action_space.sample()
        following, reward, terminated, truncated, _ = env.step(action)
        transitions.append((observation, action, reward, terminated, following))
        memory.append([action], [reward], [terminated], [truncated], following.frame(-1)[None])
        observation = following
        if terminated or truncated:
            observation, _ = env.reset()
            memory.begin(observation.frame(-1)[None])
        if step % 1000 == 0:
            print(f"{step:,} of {arguments.steps:,} steps played", flush=True)

    batch = memory.sample(32)
    for row, index in enumerate(batch.index):
        kept_observation, _, _, kept_terminated, kept_following = transitions[index]
        assert np.array_equal(kept_observation, batch.observation[row])
        assert np.array_equal(kept_following, batch.next_observation[row])
        assert kept_terminated == batch.terminated[row]
    print("32 sampled transitions: deque and ReplayMemory return the same, bit for bit")

    whole_stacks = arguments.steps * 2 * np.asarray(observation).nbytes
    for name, taken in (
        ("arrays of stacks would take", whole_stacks),
        ("the deque of LazyFrames takes", bytes_of(transitions)),
        ("the ReplayMemory takes", memory.nbytes),
    ):
        print(f"{name:32s} {taken / 2**20:8,.1f} MiB, {taken / arguments.steps:8,.0f} bytes per transition")


if __name__ == "__main__":
    main()
