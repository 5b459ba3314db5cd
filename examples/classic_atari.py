"""Train a DQN on Atari in the style of Berkeley's homework, with framestow's packed ReplayBuffer.

    python examples/classic_atari.py                        20,000 steps of Breakout
    python examples/classic_atari.py --game Pong --steps 5000

The loop is that of the homework: store a frame, encode the newest observation, act, store the effect, and learn every
fourth step. One argument is new: ``truncated`` marks a game that the time limit ends, so that it bootstraps.

Needs `pip install ".[atari,torch]"`.
"""

from __future__ import annotations

import argparse
import random
import time

import ale_py
import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import AtariPreprocessing
from torch import nn

from framestow.integrations.classic import ReplayBuffer

HISTORY, BATCH_SIZE, DISCOUNT = 4, 32, 0.99
STEPS_PER_UPDATE, STEPS_PER_TARGET = 4, 2_000


def make_game(name: str) -> gymnasium.Env:
    """Return the game with uint8 frames ``(84, 84, 1)`` and at most 27,000 steps per episode."""
    gymnasium.register_envs(ale_py)
    game = gymnasium.make(f"ALE/{name}-v5", frameskip=1, max_episode_steps=108_000)
    return AtariPreprocessing(game, grayscale_newaxis=True)


def network(num_actions: int) -> nn.Module:
    """Return the network of Mnih et al. (2015)."""
    return nn.Sequential(
        *(nn.Conv2d(HISTORY, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()),
        nn.Linear(512, num_actions),
    )


def as_input(observations: np.ndarray) -> torch.Tensor:
    """Return uint8 observations ``(B, 84, 84, 4)`` as float pictures for PyTorch, ``(B, 4, 84, 84)``."""
    return torch.from_numpy(observations).permute(0, 3, 1, 2).float() / 255


def update(values: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, buffer: ReplayBuffer) -> float:
    """Make one update from a sampled batch and return the loss."""
    observations, actions, rewards, next_observations, done_mask = buffer.sample(BATCH_SIZE)
    with torch.no_grad():
        following = target(as_input(next_observations)).max(dim=1).values
    wanted = torch.from_numpy(rewards) + DISCOUNT * (1 - torch.from_numpy(done_mask)) * following
    chosen = values(as_input(observations))[torch.arange(BATCH_SIZE), torch.from_numpy(actions).long()]
    loss = nn.functional.smooth_l1_loss(chosen, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Breakout", help="name of the Atari game")
    parser.add_argument("--steps", type=int, default=20_000, help="agent steps, of four emulator frames each")
    parser.add_argument("--learning-starts", type=int, default=1_000, help="random steps before the first update")
    parser.add_argument("--size", type=int, default=1_000_000, help="maximum number of transitions in the buffer")
    arguments = parser.parse_args()
    random.seed(0)  # the buffer samples with this generator, as in the homework
    torch.manual_seed(0)

    game = make_game(arguments.game)
    num_actions = int(game.action_space.n)
    values, target = network(num_actions), network(num_actions)
    target.load_state_dict(values.state_dict())
    optimizer = torch.optim.Adam(values.parameters(), lr=1e-4)
    buffer = ReplayBuffer(arguments.size, HISTORY)
    frame, _ = game.reset(seed=0)
    began_s, score, scores, loss = time.perf_counter(), 0.0, [], float("nan")
    for step in range(1, arguments.steps + 1):
        idx = buffer.store_frame(frame)
        epsilon = 1.0 if step < arguments.learning_starts else max(0.1, 1 - step / (0.5 * arguments.steps))
        if random.random() < epsilon:
            action = random.randrange(num_actions)
        else:
            with torch.no_grad():
                action = int(values(as_input(buffer.encode_recent_observation()[None])).argmax())
        frame, reward, terminated, truncated, _ = game.step(action)
        buffer.store_effect(idx, action, np.sign(reward), terminated, truncated=truncated, last_frame=frame)
        score += float(reward)
        if terminated or truncated:
            scores.append(score)
            (frame, _), score = game.reset(), 0.0
        if step > arguments.learning_starts and step % STEPS_PER_UPDATE == 0 and buffer.can_sample(BATCH_SIZE):
            loss = update(values, target, optimizer, buffer)
        if step % STEPS_PER_TARGET == 0:
            target.load_state_dict(values.state_dict())
        if step % 1_000 == 0:
            mean = np.mean(scores[-20:]) if scores else float("nan")
            rate = step / (time.perf_counter() - began_s)
            print(f"{step:,} steps, {rate:.0f} a second; last games {mean:.1f}; loss {loss:.4f}", flush=True)
    print(buffer.memory.report())


if __name__ == "__main__":
    main()
