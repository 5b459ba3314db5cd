"""Stable-Baselines3's DQN with prioritized replay (Schaul et al. 2015), beside the plain one.

    pip install "framestow[stable-baselines3,atari]"
    python examples/stable_baselines3_prioritized.py                        both on Catch, three seeds
    python examples/stable_baselines3_prioritized.py --game Pong --steps 1000000 --seeds 1

Catch is a small game of 24x24 pixels, so that two curves take minutes. They are written to --out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack
from torch.nn import functional as F  # noqa: N812 -- as PyTorch names it

from framestow.integrations.stable_baselines3 import PrioritizedReplayBuffer, ReplayBuffer


class PrioritizedDQN(DQN):
    """Stable-Baselines3's DQN whose loss has weights, and whose TD errors become priorities."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Make ``gradient_steps`` updates, as ``DQN.train`` does."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            with torch.no_grad():
                after = self.q_net_target(batch.next_observations).max(dim=1, keepdim=True).values
                target = batch.rewards + (1 - batch.dones) * self.gamma * after
            chosen = self.q_net(batch.observations).gather(1, batch.actions.long())
            loss = (batch.weights * F.smooth_l1_loss(chosen, target, reduction="none")).mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            self.replay_buffer.update_priorities(batch.indices, target - chosen)
        self._n_updates += gradient_steps
        self.logger.record("train/loss", loss.item())


class Catch(gymnasium.Env):
    """A ball falls for 11 steps; 1 for catching it with the paddle, -1 for a miss. Actions: left, stay, right."""

    observation_space = Box(0, 255, (1, 24, 24), np.uint8)
    action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        """Put the ball somewhere at the top."""
        super().reset(seed=seed)
        self.row, self.ball, self.paddle = 0, int(self.np_random.integers(23)), 10
        return self.frame(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move the paddle by two pixels, and the ball down."""
        self.paddle = min(max(self.paddle + 2 * (int(action) - 1), 0), 20)
        self.row += 2
        reward = 0.0 if self.row < 22 else 1.0 if self.paddle - 2 < self.ball < self.paddle + 4 else -1.0
        return self.frame(), reward, self.row >= 22, False, {}

    def frame(self) -> Any:
        """Return the picture of ball and paddle."""
        frame = np.zeros((1, 24, 24), np.uint8)
        frame[0, self.row : self.row + 2, self.ball : self.ball + 2] = 255
        frame[0, 22:, self.paddle : self.paddle + 4] = 255
        return frame


class Curve(BaseCallback):
    """Notes the mean score of the games that ended in each of 20 parts of the training."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.part, self.scores, self.points = max(steps // 20, 1), [], []

    def _on_step(self) -> bool:
        self.scores += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if self.num_timesteps % self.part == 0:
            self.points.append(float(np.mean(self.scores)) if self.scores else float("nan"))
            self.scores = []
        return True


def curve(kind: str, game: str, steps: int, seed: int) -> list[float]:
    """Train for ``steps`` and return the curve."""
    algorithm, buffer = (PrioritizedDQN, PrioritizedReplayBuffer) if kind == "prioritized" else (DQN, ReplayBuffer)
    if game == "Catch":
        env, policy, options = make_vec_env(Catch, seed=seed), "MlpPolicy", {"learning_rate": 5e-4, "gamma": 0.97}
    else:
        import ale_py  # noqa: PLC0415 -- Catch needs no emulator

        gymnasium.register_envs(ale_py)
        env, policy = VecFrameStack(make_atari_env(f"{game}NoFrameskip-v4", seed=seed), 4), "CnnPolicy"
        options = {"learning_rate": 1e-4 if kind == "plain" else 2.5e-5, "exploration_final_eps": 0.01}
    model = algorithm(
        policy,
        env,
        replay_buffer_class=buffer,
        buffer_size=max(steps, 1000),
        learning_starts=min(500, steps // 4),
        target_update_interval=500,
        seed=seed,
        **options,
    )
    callback = Curve(steps)
    model.learn(steps, callback=callback)
    return callback.points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Catch", help="Catch, or the name of an Atari game")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of each training")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each kind, with seeds from 0")
    parser.add_argument("--out", type=Path, default=Path("curves.json"), help="file with all curves")
    options = parser.parse_args()
    torch.set_num_threads(1)

    curves: dict[str, list[list[float]]] = {"plain": [], "prioritized": []}
    for seed in range(options.seeds):
        for kind, found in curves.items():
            found.append(curve(kind, options.game, options.steps, seed))
            print(f"{kind}, seed {seed}: {' '.join(f'{score:.2f}' for score in found[-1])}", flush=True)
            options.out.write_text(json.dumps(curves))
    for kind, found in curves.items():
        print(f"{kind}: last quarter {np.nanmean(np.array(found)[:, -5:]):.2f}, all {np.nanmean(found):.2f}")


if __name__ == "__main__":
    main()
