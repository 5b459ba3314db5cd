"""Train a DQN on an Atari game in one file, in CleanRL's style, with framestow's buffer.

    pip install "framestow[atari,torch]"
    python examples/cleanrl_dqn_atari.py --steps 5000
    python examples/cleanrl_dqn_atari.py --steps 10_000_000 --capacity 1_000_000 --learning-starts 80_000

Only the import of ``ReplayBuffer`` differs from a script with CleanRL's own buffer. Gymnasium 1.1 and newer need
``AutoresetMode.SAME_STEP``: an episode is then reset in the step that ends it, as in Gymnasium 0.29.
"""

import argparse
import random
import time

import ale_py
import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from framestow.integrations.cleanrl import ReplayBuffer, ReplayBufferSamples

gym.register_envs(ale_py)

GAMMA = 0.99
BATCH_SIZE = 32
TRAIN_EVERY = 4  # steps
REPORT_EVERY = 1000  # steps


def read_arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="DQN on an Atari game, from a packed replay buffer.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--game", default="Breakout", help="name of the Atari game")
    parser.add_argument("--steps", type=int, default=5000, help="agent steps, of four emulator frames each")
    parser.add_argument("--capacity", type=int, default=100_000, help="maximum number of transitions in the buffer")
    parser.add_argument("--learning-starts", type=int, default=1000, help="steps before the first update")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="learning rate of Adam")
    parser.add_argument("--target-every", type=int, default=1000, help="steps between copies to the target network")
    parser.add_argument("--truncate-after", type=int, default=27_000, help="maximum number of steps per episode")
    parser.add_argument("--seed", type=int, default=1, help="seed; on one machine the same seed gives the same run")
    return parser.parse_args(given)


def make_env(game: str, truncate_after: int) -> gym.Env:
    env = gym.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
    env = gym.wrappers.AtariPreprocessing(env, terminal_on_life_loss=True)
    env = gym.wrappers.TransformReward(env, np.sign)
    env = gym.wrappers.TimeLimit(env, truncate_after)
    return gym.wrappers.FrameStackObservation(env, 4)


class QNetwork(nn.Module):
    """The Nature CNN: the value of each action for uint8 stacks of four frames."""

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3)]
        self.layers = nn.Sequential(
            *convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, num_actions)
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return self.layers(observations / 255.0)


def learn(
    network: QNetwork, target_network: QNetwork, optimizer: torch.optim.Optimizer, data: ReplayBufferSamples
) -> float:
    with torch.no_grad():
        best = target_network(data.next_observations).amax(dim=1)
        targets = data.rewards.flatten() + GAMMA * best * (1 - data.dones.flatten())
    values = network(data.observations).gather(1, data.actions).squeeze(1)
    loss = functional.mse_loss(values, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(args: argparse.Namespace, buffer_class: type = ReplayBuffer) -> tuple[QNetwork, ReplayBuffer]:
    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002 -- the buffer samples with it, as CleanRL's does
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    envs = gym.vector.SyncVectorEnv(
        [lambda: make_env(args.game, args.truncate_after)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    envs.action_space.seed(args.seed)
    network, target_network = (QNetwork(envs.single_action_space.n).to(device) for _ in range(2))
    target_network.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), args.learning_rate)
    spaces = envs.single_observation_space, envs.single_action_space
    rb = buffer_class(args.capacity, *spaces, device, optimize_memory_usage=True, handle_timeout_termination=False)

    started, scores, loss = time.monotonic(), [0.0], float("nan")
    obs, _ = envs.reset(seed=args.seed)
    for step in range(1, args.steps + 1):
        if random.random() < max(0.01, 1.0 - 5 * step / args.steps):
            actions = envs.action_space.sample()
        else:
            with torch.no_grad():
                actions = network(torch.as_tensor(obs, device=device)).argmax(dim=1).cpu().numpy()
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        scores[-1] += rewards[0]

        real_next_obs = next_obs.copy()
        for env in np.flatnonzero(terminations | truncations):
            real_next_obs[env] = infos["final_obs"][env]
            scores.append(0.0)
        rb.add(obs, real_next_obs, actions, rewards, terminations, infos)
        obs = next_obs

        if step > args.learning_starts and step % TRAIN_EVERY == 0:
            loss = learn(network, target_network, optimizer, rb.sample(BATCH_SIZE))
        if step % args.target_every == 0:
            target_network.load_state_dict(network.state_dict())
        if step % REPORT_EVERY == 0:
            rate, recent = step / (time.monotonic() - started), np.mean(scores[-21:-1] or [0.0])
            learned = "collecting" if np.isnan(loss) else f"loss {loss:.4f}"
            print(f"step {step:,}: {rate:.0f} steps per second, the last lives scored {recent:.2f} each, {learned}")
    envs.close()
    return network, rb


if __name__ == "__main__":
    _, buffer = train(read_arguments())
    report = buffer.memory.report()
    print(report)
    each = report.all_bytes / buffer.size()
    print(f"{each:.0f} bytes per transition, with all work space; its two stacks take {2 * 4 * 84 * 84:,}")
