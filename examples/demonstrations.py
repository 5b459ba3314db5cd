"""Learn from demonstrations and from online play, half a batch of each (Ball et al. 2023, RLPD).

python examples/demonstrations.py --steps 500

The demonstrations are a store on disk, which is opened read-only. Here a simple rule plays them: it follows the ball.
Needs: pip install "framestow[atari,torch]".
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

from framestow import ReplayEnsemble, ReplayMemory
from framestow.envs import Recorder, make_atari
from framestow.torch import BatchLoader, scale_pixels

FIRE, RIGHT, LEFT = 1, 2, 3


def follow_the_ball(frame: np.ndarray, random: np.random.Generator) -> int:
    """Return the action that moves Breakout's paddle below the ball."""
    ball, paddle = np.argwhere(frame[42:76, 4:80] > 90), np.flatnonzero(frame[78, 4:80] > 90)
    if not len(ball) or not len(paddle) or random.random() < 0.1:
        return FIRE
    return RIGHT if ball[:, 1].mean() > paddle.mean() else LEFT


def play(memory: ReplayMemory, steps: int, choose, title: str) -> None:
    """Append ``steps`` steps of Breakout, with the actions that ``choose(observation)`` returns; print progress."""
    env = Recorder(make_atari("Breakout", num_envs=1, preset="baselines", seed=0), memory, reward_limit=1.0)
    observations, _ = env.reset(seed=0)
    for step in range(1, steps + 1):
        observations, *_ = env.step(np.array([choose(observations)]))
        if step % 100 == 0:
            print(f"{title}: {step:,} of {steps:,} steps", flush=True)
    env.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demonstrations", default="demonstrations", help="folder; played if it does not exist")
    parser.add_argument("--steps", type=int, default=500, help="steps of the demonstrations, and of online play")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # enough for a small network
    random = np.random.default_rng(0)

    env = make_atari("Breakout", num_envs=1, preset="baselines")
    spaces, num_actions = (env.single_observation_space, env.single_action_space), int(env.single_action_space.n)
    env.close()
    if not Path(options.demonstrations).exists():
        demonstrated = ReplayMemory(options.steps, *spaces, stack=4)
        play(
            demonstrated,
            options.steps,
            lambda observations: follow_the_ball(observations[0, -1], random),
            "demonstrations",
        )
        demonstrated.save(options.demonstrations)
    demonstrations = ReplayMemory.open(options.demonstrations, seed=0)
    online = ReplayMemory(1_000_000, *spaces, stack=4, seed=1)

    q, target_q = (
        nn.Sequential(nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Flatten(), nn.Linear(6400, num_actions)) for _ in range(2)
    )
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-4)
    both = ReplayEnsemble([demonstrations, online], [0.5, 0.5], if_empty="others")
    batches = BatchLoader(both, 32)
    counts = torch.zeros(2, dtype=torch.int64)

    def act_and_learn(observations: np.ndarray) -> int:
        batch = next(batches)
        counts.add_(torch.bincount(batch.memory, minlength=2))
        with torch.no_grad():
            target = batch.reward + batch.discount * target_q(scale_pixels(batch.next_observation)).amax(1)
        chosen = q(scale_pixels(batch.observation)).gather(1, batch.action[:, None])[:, 0]
        optimizer.zero_grad()
        nn.functional.smooth_l1_loss(chosen, target).backward()
        optimizer.step()
        if int(counts.sum()) % 3_200 == 0:  # every 100 updates
            target_q.load_state_dict(q.state_dict())
        if random.random() < 0.05:
            return int(random.integers(num_actions))
        with torch.no_grad():
            return int(q(scale_pixels(torch.as_tensor(observations))).argmax())

    play(online, options.steps, act_and_learn, "online play")
    batches.close()
    rewards = [sum(episode.rewards.sum() for episode in memory.episodes()) for memory in (demonstrations, online)]
    print(f"rewards: {rewards[0]:.0f} in the demonstrations, {rewards[1]:.0f} in online play")
    print(f"rows of the batches: {counts.tolist()}")


if __name__ == "__main__":
    main()
