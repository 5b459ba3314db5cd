"""Train Tianshou's DQN on an Atari game, with framestow's replay buffer.

    pip install "framestow[atari,tianshou]"
    python examples/tianshou_dqn.py --steps 5000
    python examples/tianshou_dqn.py --steps 10_000_000 --capacity 1_000_000 --envs 10 --learning-starts 50_000

Only the import of ``VectorReplayBuffer`` differs from a script with Tianshou's own buffer.
"""

import argparse
import time

import ale_py
import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector
from tianshou.env import DummyVectorEnv
from tianshou.env.atari.atari_network import DQNet, ScaledObsInputActionReprNet
from tianshou.trainer import OffPolicyTrainerParams

from framestow.integrations.tianshou import VectorReplayBuffer

gym.register_envs(ale_py)

STEPS_A_COLLECT = 10  # per environment
STEPS_AN_EPOCH = 1000  # then a line about the progress is printed


def read_arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train Tianshou's DQN on an Atari game with framestow's replay buffer.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--game", default="Breakout", help="name of the Atari game")
    parser.add_argument("--steps", type=int, default=5000, help="agent steps, of four emulator frames each")
    parser.add_argument("--envs", type=int, default=2, help="number of environments")
    parser.add_argument("--capacity", type=int, default=100_000, help="maximum number of transitions in the buffer")
    parser.add_argument("--learning-starts", type=int, default=1000, help="random steps before the first update")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="learning rate of Adam")
    parser.add_argument("--n-step", type=int, default=1, help="steps of an n-step return")
    parser.add_argument("--seed", type=int, default=0, help="seed; on one machine the same seed gives the same run")
    return parser.parse_args(given)


def make_env(game: str) -> gym.Env:
    """Return the game with stacks of four frames, ``(4, 84, 84)``; a lost life ends an episode."""
    env = gym.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
    env = gym.wrappers.AtariPreprocessing(env, terminal_on_life_loss=True)
    return gym.wrappers.FrameStackObservation(gym.wrappers.TransformReward(env, np.sign), 4)


def make_algorithm(env: gym.Env, args: argparse.Namespace) -> DQN:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = ScaledObsInputActionReprNet(DQNet(4, 84, 84, int(env.action_space.n))).to(device)
    policy = DiscreteQLearningPolicy(model=network, action_space=env.action_space, eps_training=1.0)
    policy.action_space.seed(args.seed)
    return DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=args.learning_rate),
        n_step_return_horizon=args.n_step,
        target_update_freq=500,
    )


def train(args: argparse.Namespace, buffer_class: type = VectorReplayBuffer) -> tuple[DQN, VectorReplayBuffer]:
    np.random.seed(args.seed)  # noqa: NPY002 -- Tianshou explores with it
    torch.manual_seed(args.seed)
    envs = DummyVectorEnv([lambda: make_env(args.game) for _ in range(args.envs)])
    envs.seed(args.seed)
    algorithm = make_algorithm(make_env(args.game), args)
    buffer = buffer_class(args.capacity, args.envs)
    collector = Collector(algorithm, envs, buffer, exploration_noise=True)
    collector.reset()
    print(f"{args.learning_starts:,} random steps before the first update")
    collector.collect(n_step=args.learning_starts, random=True)

    started = time.monotonic()

    def print_progress(_epoch: int, env_step: int) -> None:
        algorithm.policy.set_eps_training(max(0.05, 1.0 - 5 * env_step / args.steps))
        if env_step and env_step % STEPS_AN_EPOCH < STEPS_A_COLLECT * args.envs:
            rate = env_step / (time.monotonic() - started)
            print(f"step {env_step:,}: {rate:.0f} steps per second, {buffer.done.sum()} lives in the buffer")

    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            training_fn=print_progress,
            max_epochs=max(args.steps // STEPS_AN_EPOCH, 1),
            epoch_num_steps=min(args.steps, STEPS_AN_EPOCH),
            collection_step_num_env_steps=STEPS_A_COLLECT * args.envs,
            update_step_num_gradient_steps_per_sample=0.25,
            batch_size=32,
            verbose=False,
            show_progress=False,
        )
    )
    envs.close()
    return algorithm, buffer


if __name__ == "__main__":
    _, buffer = train(read_arguments())
    report = buffer.memory.report()
    print(report)
    each = report.all_bytes / len(buffer)
    print(f"{each:.0f} bytes per transition, with all work space; its two stacks take {2 * 4 * 84 * 84:,}")
