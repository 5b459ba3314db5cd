"""Train a DQN on an Atari game with TorchRL, and with framestow's storage in its replay buffer.

    pip install "framestow[atari,torchrl]"
    python examples/torchrl_dqn.py --steps 5000

Only the storage of the replay buffer is framestow's, and it stores every frame once. ``--storage torchrl`` uses
TorchRL's LazyTensorStorage instead: the same seed gives the same losses and scores, with 56 KB per step.
"""

import argparse
import time
import warnings

import ale_py
import gymnasium
import torch
from gymnasium.wrappers import AtariPreprocessing
from tensordict.nn import TensorDictSequential
from torch import nn
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import (
    CatFrames,
    Compose,
    GymWrapper,
    RenameTransform,
    RewardSum,
    SerialEnv,
    TransformedEnv,
    UnsqueezeTransform,
)
from torchrl.modules import EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

from framestow.integrations.torchrl import FramestowStorage

with warnings.catch_warnings():  # this import warns about a deprecated class of TorchRL
    warnings.simplefilter("ignore")
    from torchrl.collectors import Collector


def read_arguments():
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description="Train a DQN with TorchRL and framestow's storage.")
    parser.add_argument("--game", default="Breakout", help="name of the Atari game")
    parser.add_argument("--steps", type=int, default=100_000, help="agent steps, all environments together")
    parser.add_argument("--envs", type=int, default=4, help="number of environments")
    parser.add_argument("--capacity", type=int, default=100_000, help="maximum number of steps in the replay buffer")
    parser.add_argument("--warm-up", type=int, default=1000, help="steps before the first update")
    parser.add_argument("--storage", choices=["framestow", "torchrl"], default="framestow", help="storage")
    parser.add_argument("--seed", type=int, default=0, help="seed of the games, the exploration and the network")
    return parser.parse_args()


def make_game(name):
    """Return one game with stacks of four grey 84x84 frames."""
    gymnasium.register_envs(ale_py)
    frames = GymWrapper(AtariPreprocessing(gymnasium.make(f"ALE/{name}-v5", frameskip=1)))
    transforms = Compose(
        RenameTransform(["observation"], ["pixels"]),
        UnsqueezeTransform(-3, in_keys=["pixels"]),
        CatFrames(4, dim=-3, in_keys=["pixels"]),
        RewardSum(),
    )
    return TransformedEnv(frames, transforms)


class QNetwork(nn.Module):
    """The network of Mnih et al. (2015)."""

    def __init__(self, num_actions):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, num_actions),
        )

    def forward(self, pixels):
        """Return the value of every action, ``(..., num_actions)``, for ``(..., 4, 84, 84)``."""
        leading = pixels.shape[:-3]
        return self.layers(pixels.reshape(-1, 4, 84, 84) / 255.0).reshape(*leading, -1)


def main():
    """Train the agent and print its progress."""
    options = read_arguments()
    torch.manual_seed(options.seed)
    env = SerialEnv(options.envs, lambda: make_game(options.game))
    env.set_seed(options.seed)

    actor = QValueActor(QNetwork(env.action_spec.shape[-1]), in_keys=["pixels"], spec=env.action_spec)
    exploration = EGreedyModule(env.action_spec, eps_init=1.0, eps_end=0.05, annealing_num_steps=options.steps // 2)
    loss_of = DQNLoss(actor, action_space="one-hot", delay_value=True)
    target_network = SoftUpdate(loss_of, eps=0.995)
    optimizer = torch.optim.Adam(loss_of.parameters(), lr=1e-4)

    uses_framestow = options.storage == "framestow"
    storage = FramestowStorage(options.capacity) if uses_framestow else LazyTensorStorage(options.capacity)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=32)
    per_batch = 16 * options.envs
    collector = Collector(
        env,
        TensorDictSequential(actor, exploration),
        frames_per_batch=per_batch,
        total_frames=-(-options.steps // per_batch) * per_batch,
        auto_register_policy_transforms=False,
    )
    num_steps, scores, started, printed_at = 0, [], time.monotonic(), 0
    loss = torch.tensor(torch.nan)
    for data in collector:
        num_steps += data.numel()
        exploration.step(data.numel())
        scores += data["next", "episode_reward"][data["next", "done"]].tolist()
        buffer.extend(data.reshape(-1))
        for _ in range(data.numel() // 4 if num_steps > options.warm_up else 0):
            loss = loss_of(buffer.sample())["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            target_network.step()
        if num_steps - printed_at >= 1000 or num_steps >= options.steps:
            printed_at = num_steps
            score = f"{sum(scores[-20:]) / len(scores[-20:]):.1f}" if scores else "none yet"
            rate = num_steps / (time.monotonic() - started)
            print(f"{num_steps:,} steps, {rate:.0f} a second, loss {loss.item():.4f}, score of the last games {score}")
    collector.shutdown()
    if uses_framestow:
        print(storage.report())


if __name__ == "__main__":
    main()
