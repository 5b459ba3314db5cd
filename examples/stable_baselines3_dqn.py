"""Train Stable-Baselines3's DQN on an Atari game with a million transitions in memory.

    pip install "framestow[stable-baselines3,atari]"
    python examples/stable_baselines3_dqn.py --steps 5000                        a first try
    python examples/stable_baselines3_dqn.py --game Pong --envs 8 --steps 2000000
    python examples/stable_baselines3_dqn.py --steps 5000 --save run             save model and memory
    python examples/stable_baselines3_dqn.py --steps 5000 --resume run           resume from both

One line differs from a script without framestow: ``replay_buffer_class=ReplayBuffer``. The same seed gives the same
weights. Stable-Baselines3's own buffer would reserve 56 GB for a million transitions.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ale_py
import gymnasium
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

from framestow.integrations.stable_baselines3 import ReplayBuffer
from framestow.process import live_bytes

STACK = 4
PAIR_BYTES = 2 * STACK * 84 * 84  # observation and next observation, as Stable-Baselines3 stores them


class Progress(BaseCallback):
    """Prints the progress of the training and the size of the memory every ``every`` steps."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.printed_at = every, 0

    def _on_step(self) -> bool:
        if self.num_timesteps - self.printed_at >= self.every:
            self.printed_at = self.num_timesteps
            memory = self.model.replay_buffer.memory
            scores = [episode["r"] for episode in self.model.ep_info_buffer]
            score = f"mean score {sum(scores) / len(scores):.1f}" if scores else "no game finished yet"
            print(
                f"{self.num_timesteps:>10,} steps   {score}   {len(memory):,} transitions in "
                f"{memory.report().describe_bytes()}; as stacked pairs {len(memory) * PAIR_BYTES / 2**20:,.0f} MiB",
                flush=True,
            )
        return True


def make_model(arguments: argparse.Namespace) -> DQN:
    """Return a new model, or the saved model with its memory."""
    gymnasium.register_envs(ale_py)
    env = make_atari_env(f"{arguments.game}NoFrameskip-v4", n_envs=arguments.envs, seed=arguments.seed)
    env = VecFrameStack(env, STACK)
    if arguments.resume:
        model = DQN.load(arguments.resume / "model", env=env)
        model.load_replay_buffer(arguments.resume / "memory")
        print(f"resuming after {model.num_timesteps:,} steps, with {model.replay_buffer.size():,} rows")
        return model
    return DQN(
        "CnnPolicy",
        env,
        buffer_size=arguments.capacity,
        replay_buffer_class=ReplayBuffer,
        learning_rate=1e-4,
        learning_starts=arguments.learning_starts,
        batch_size=32,
        train_freq=4,
        target_update_interval=1000,
        exploration_fraction=0.1,
        exploration_final_eps=0.01,
        seed=arguments.seed,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Breakout", help="name of the Atari game: Breakout, Pong, SpaceInvaders, ...")
    parser.add_argument("--steps", type=int, default=5000, help="agent steps, all environments together")
    parser.add_argument("--envs", type=int, default=1, help="number of environments")
    parser.add_argument("--capacity", type=int, default=1_000_000, help="maximum number of transitions in the buffer")
    parser.add_argument("--learning-starts", type=int, default=1000, help="steps before the first update")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="folder into which model and memory are saved")
    parser.add_argument("--resume", type=Path, help="folder that --save wrote; its capacity is used")
    arguments = parser.parse_args()

    model = make_model(arguments)
    model.learn(
        arguments.steps,
        callback=Progress(every=max(arguments.steps // 10, 100)),
        reset_num_timesteps=arguments.resume is None,
    )
    print(model.replay_buffer.memory.report())
    print(f"the process takes {live_bytes() / 2**20:,.0f} MiB")
    if arguments.save:
        model.save(arguments.save / "model")
        model.save_replay_buffer(arguments.save / "memory")
        saved = (arguments.save / "memory.pkl").stat().st_size
        print(f"saved in {arguments.save}: the memory takes {saved / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
