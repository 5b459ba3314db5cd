"""Train Stable-Baselines3's DQN with its zoo's Atari settings for some hours of processor time; write a line a game.

    python benchmarks/stable_baselines3_learning.py Pong --core-hours 0.7 --out benchmarks/results/learning/sb3_pong.csv

The settings are those of rl-baselines3-zoo's hyperparams/dqn.yml for Atari: of a training of 10 million steps, whose
exploration ends after a million. One PyTorch thread, since a second one costs more processor time than it saves.
The columns are agent steps, unclipped score of a whole game, and processor seconds of the process since its start.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

STEPS = 10_000_000


class Games(BaseCallback):
    """Writes a line per finished game and stops after the hours of processor time."""

    def __init__(self, path: Path, core_hours: float) -> None:
        super().__init__()
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(["agent_steps", "score", "cpu_s"])
        self._seconds = 3_600 * core_hours

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self._writer.writerow([self.num_timesteps, info["episode"]["r"], round(time.process_time(), 1)])
                self._file.flush()
        return time.process_time() < self._seconds

    def _on_training_end(self) -> None:
        self._file.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game")
    parser.add_argument("--core-hours", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    gymnasium.register_envs(ale_py)
    env = VecFrameStack(make_atari_env(f"{arguments.game}NoFrameskip-v4", seed=arguments.seed), n_stack=4)
    settings: dict[str, Any] = {
        "buffer_size": 100_000,
        "learning_rate": 1e-4,
        "batch_size": 32,
        "learning_starts": 100_000,
        "target_update_interval": 1_000,
        "train_freq": 4,
        "gradient_steps": 1,
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.01,
        "optimize_memory_usage": False,
    }
    model = DQN("CnnPolicy", env, seed=arguments.seed, device="cpu", **settings)
    model.learn(STEPS, callback=Games(arguments.out, arguments.core_hours))
    print(json.dumps({"agent_steps": model.num_timesteps, "core_hours": time.process_time() / 3_600}))


if __name__ == "__main__":
    main()
