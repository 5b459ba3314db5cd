"""Train on a custom environment whose observations are a Dict of colour pixels and numbers.

python examples/dict_pixels.py --steps 20000

A dot has to reach a target. The picture shows both; the numbers are the dot's velocity. The memory stores the pictures
packed and the numbers beside them. Needs: pip install "framestow[torch,gymnasium]".
"""

import argparse

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from framestow import ReplayMemory
from framestow.envs import Recorder, SerialVectorEnv
from framestow.torch import scale_pixels, to_tensors

SIDE, STACK, NUM_ENVS, BATCH_SIZE = 32, 2, 4, 32
PUSHES = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)])


class ReachTheTarget(gymnasium.Env):
    """A dot that is pushed in four directions, and a target."""

    observation_space = spaces.Dict(
        {
            "pixels": spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8),
            "velocity": spaces.Box(-3, 3, (2,), np.float32),
        }
    )
    action_space = spaces.Discrete(len(PUSHES))

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        """Place dot and target at random."""
        super().reset(seed=seed)
        self.dot, self.target = self.np_random.integers(2, SIDE - 2, (2, 2))
        self.velocity = np.zeros(2, int)
        self.num_steps = 0
        return self.observation(), {}

    def step(self, action):
        """Push the dot; reaching the target ends the episode with a reward of 1."""
        self.num_steps += 1
        self.velocity = np.clip(self.velocity + PUSHES[action], -3, 3)
        self.dot = np.clip(self.dot + self.velocity, 2, SIDE - 3)
        is_there = bool(np.abs(self.dot - self.target).max() <= 2)
        return self.observation(), float(is_there), is_there, self.num_steps >= 100, {}

    def observation(self):
        """Return the picture and the velocity."""
        pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
        for (row, column), colour in ((self.target, (0, 200, 0)), (self.dot, (240, 240, 60))):
            pixels[row - 2 : row + 3, column - 2 : column + 3] = colour
        return {"pixels": pixels, "velocity": self.velocity.astype(np.float32)}


class Network(nn.Module):
    """The value of each action, from stacked pictures and velocities."""

    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(
            *(nn.Conv2d(3 * STACK, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 16, 4, 2), nn.ReLU(), nn.Flatten())
        )
        self.decide = nn.Sequential(nn.Linear(16 * 6 * 6 + 2 * STACK, 128), nn.ReLU(), nn.Linear(128, len(PUSHES)))

    def forward(self, observation):
        """Return (B, actions) from pixels (B, STACK, SIDE, SIDE, 3) and velocities (B, STACK, 2)."""
        pixels = scale_pixels(observation["pixels"]).permute(0, 1, 4, 2, 3).flatten(1, 2)
        return self.decide(torch.cat([self.see(pixels), observation["velocity"].flatten(1)], 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2_000, help="steps of four environments each")
    options = parser.parse_args()
    torch.manual_seed(0)
    generator = np.random.default_rng(0)

    env = SerialVectorEnv([ReachTheTarget] * NUM_ENVS)
    memory = ReplayMemory(
        *(100_000, env.single_observation_space, env.single_action_space), stack=STACK, num_envs=NUM_ENVS, seed=0
    )
    env = Recorder(env, memory)
    q, target_q = Network(), Network()
    optimizer = torch.optim.Adam(q.parameters(), lr=3e-4)
    observations, _ = env.reset(seed=0)
    rewards = []
    for step in range(1, options.steps + 1):
        with torch.no_grad():
            best = q({key: torch.from_numpy(np.asarray(array)) for key, array in observations.items()}).argmax(1)
        is_random = generator.random(NUM_ENVS) < max(0.05, 1 - step / (0.5 * options.steps))
        actions = np.where(is_random, generator.integers(len(PUSHES), size=NUM_ENVS), best.numpy())
        observations, reward, _, _, _ = env.step(actions)
        rewards.append(reward.mean())
        if step % 200 == 1:
            target_q.load_state_dict(q.state_dict())
        if step > 100:
            batch = to_tensors(memory.sample(BATCH_SIZE), "cpu")
            with torch.no_grad():
                target = batch.reward + batch.discount * target_q(batch.next_observation).amax(1)
            chosen = q(batch.observation).gather(1, batch.action[:, None])[:, 0]
            loss = nn.functional.smooth_l1_loss(chosen, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 500 == 0 or step == options.steps:
            reached = 100 * NUM_ENVS * np.mean(rewards[-500:])
            print(f"{step:,} steps: {reached:.1f} targets in 100 steps of the four environments")
    env.close()
    print(memory.report())


if __name__ == "__main__":
    main()
