"""A complete DQN of TorchRL's parts: collector, replay buffer, loss."""

import warnings

import gymnasium
import numpy as np
import torch
from tensordict.nn import TensorDictSequential
from torch import nn
from torchrl.data import TensorDictReplayBuffer
from torchrl.envs import CatFrames, Compose, GymWrapper, RenameTransform, SerialEnv, TransformedEnv, UnsqueezeTransform
from torchrl.modules import EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss

with warnings.catch_warnings():  # TorchRL's import warnings
    warnings.filterwarnings("ignore", r"Creating \w+ which inherits from WeightUpdaterBase", DeprecationWarning)
    from torchrl.collectors import Collector

DEPTH = 4


class Blinking(gymnasium.Env):
    """Random squares on 36x36 pixels; the reward is for the half of the newest square."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.blinked(), {}

    def blinked(self):
        self.row, column = self.np_random.integers(0, 33, 2)
        picture = np.zeros((36, 36), np.uint8)
        picture[self.row : self.row + 4, column : column + 4] = 255
        return picture

    def step(self, action):
        reward = float(action == (self.row > 16))
        self.steps += 1
        terminated = bool(self.np_random.random() < 0.05)
        return self.blinked(), reward, terminated, self.steps == 20, {}


def environment(num_envs):
    """Frames as ``pixels``, and stacks of them as ``stack``."""

    def one():
        transforms = Compose(
            RenameTransform(["observation"], ["pixels"]),
            UnsqueezeTransform(-3, in_keys=["pixels"]),
            CatFrames(DEPTH, -3, in_keys=["pixels"], out_keys=["stack"]),
        )
        return TransformedEnv(GymWrapper(Blinking()), transforms)

    return one() if num_envs == 1 else SerialEnv(num_envs, one)


class QNetwork(nn.Module):
    def __init__(self, side, num_actions):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(DEPTH, 8, 4, 4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(32), nn.ReLU(), nn.Linear(32, num_actions)
        )
        self.layers(torch.zeros(1, DEPTH, side, side))

    def forward(self, stack):
        leading = stack.shape[:-3]
        return self.layers(stack.reshape(-1, *stack.shape[-3:]) / 255.0).reshape(*leading, -1)


def weights_after_training(storage, *, num_envs=2, num_steps=200, frames_alone=False):
    """Train and return all weights; with ``frames_alone`` the buffer gets single frames and returns stacks."""
    torch.manual_seed(0)
    env = environment(num_envs)
    env.set_seed(0)
    side, num_actions = env.observation_spec["pixels"].shape[-1], env.action_spec.shape[-1]
    actor = QValueActor(QNetwork(side, num_actions), in_keys=["stack"], spec=env.action_spec)
    policy = TensorDictSequential(actor, EGreedyModule(env.action_spec, eps_init=0.5, eps_end=0.5))
    loss_of = DQNLoss(actor, action_space="one-hot", delay_value=False)
    optimizer = torch.optim.Adam(loss_of.parameters(), 1e-3)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=32)
    collector = Collector(
        env,
        policy,
        frames_per_batch=10 * num_envs,
        total_frames=num_steps,
        auto_register_policy_transforms=False,
    )
    for data in collector:
        kept, left_out = ("pixels", "stack") if frames_alone else ("stack", "pixels")
        buffer.extend(data.exclude(left_out, ("next", left_out)).reshape(-1))
        for _ in range(5):
            batch = buffer.sample()
            if frames_alone:
                batch = batch.rename_key_(kept, "stack").rename_key_(("next", kept), ("next", "stack"))
            loss = loss_of(batch)["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    collector.shutdown()
    return torch.cat([part.flatten() for part in actor.parameters()]).detach()
