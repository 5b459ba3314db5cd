"""Learn from a recorded store by PyTorch's DataLoader: two workers read it, in epochs over all transitions.

python examples/data_loader.py --steps 4000 --epochs 2

Needs: pip install "framestow[atari,torch]".
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

from framestow import ReplayMemory
from framestow.envs import Recorder, make_atari
from framestow.torch import TransitionDataset, scale_pixels


def record(folder: str, steps: int) -> None:
    """Save ``steps`` random steps of Breakout in ``folder``."""
    env = make_atari("Breakout", num_envs=1, seed=0)
    memory = ReplayMemory(steps, env.single_observation_space, env.single_action_space, stack=4)
    recorder = Recorder(env, memory)
    recorder.reset(seed=0)
    for _ in range(steps):
        recorder.step(env.action_space.sample())
    recorder.close()
    memory.save(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="breakout", help="folder of the store; recorded if it does not exist")
    parser.add_argument("--steps", type=int, default=4_000, help="steps to record")
    parser.add_argument("--epochs", type=int, default=2, help="passes over all transitions")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    options = parser.parse_args()
    if not Path(options.store).exists():
        record(options.store, options.steps)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Flatten(), nn.Linear(6400, 18))  # predicts the action
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    dataset = TransitionDataset(options.store, 32, seed=0, each_once=True)
    loader = DataLoader(dataset, batch_size=None, num_workers=options.workers)
    for epoch in range(options.epochs):
        count, total = 0, 0.0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(scale_pixels(batch.observation)), batch.action)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count, total = count + len(batch), total + loss.item() * len(batch)
        print(f"epoch {epoch}: {count:,} transitions, loss {total / count:.3f}")


if __name__ == "__main__":
    main()
