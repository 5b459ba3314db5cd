"""Tianshou learns the same weights with our buffers, bit for bit."""

import numpy as np
import pytest
import torch

pytest.importorskip("tianshou")

import gymnasium
from tianshou import data as tianshou
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector
from tianshou.env import DummyVectorEnv
from tianshou.env.atari.atari_network import DQNet, ScaledObsInputActionReprNet
from tianshou.trainer import OffPolicyTrainerParams

from framestow.integrations import tianshou as packed

SIDE = 36  # pixels: the smallest size for the network


class MovingDot(gymnasium.Env):
    """A dot goes left or right over noise of its own episode; the right border terminates, 30 steps truncate."""

    def __init__(self, frames_seen):
        self.observation_space = gymnasium.spaces.Box(0, 255, (frames_seen, SIDE, SIDE), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.frames = np.zeros((frames_seen, SIDE, SIDE), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.background = self.np_random.integers(0, 50, (SIDE, SIDE), dtype=np.uint8)
        self.column, self.steps = int(self.np_random.integers(0, 20)), 0
        self.frames[:] = self.drawn()
        return self.frames.copy(), {}

    def step(self, action):
        self.column, self.steps = max(self.column + int(action) - 1, 0), self.steps + 1
        self.frames[:-1] = self.frames[1:]
        self.frames[-1] = self.drawn()
        return self.frames.copy(), float(action) / 2, self.column >= SIDE, self.steps >= 30, {"steps": self.steps}

    def drawn(self):
        frame = self.background.copy()
        frame[:, min(self.column, SIDE - 1)] = 255
        return frame


def trained_weights(make_buffer, make_env, *, num_envs, num_steps, n_step=1, seed=0):
    """Train Tianshou's DQN; return its weights and the buffer."""
    np.random.seed(seed)
    torch.manual_seed(seed)
    envs = DummyVectorEnv([make_env for _ in range(num_envs)])
    envs.seed(seed)
    space, num_actions = make_env().observation_space, int(make_env().action_space.n)
    policy = DiscreteQLearningPolicy(
        model=ScaledObsInputActionReprNet(DQNet(*space.shape, num_actions)),
        action_space=make_env().action_space,
        eps_training=0.3,
    )
    for action_space in (policy.action_space, *(env.action_space for env in envs.workers)):
        action_space.seed(seed)
    algorithm = DQN(
        policy=policy, optim=AdamOptimizerFactory(lr=1e-4), n_step_return_horizon=n_step, target_update_freq=50
    )
    buffer = make_buffer(num_envs)
    collector = Collector(algorithm, envs, buffer, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=20 * num_envs, random=True)
    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=num_steps,
            collection_step_num_env_steps=2 * num_envs,
            batch_size=8,
            update_step_num_gradient_steps_per_sample=0.25,
            verbose=False,
            show_progress=False,
        )
    )
    return {name: value.clone() for name, value in algorithm.state_dict().items() if torch.is_tensor(value)}, buffer


def assert_same_weights(theirs, ours):
    assert theirs.keys() == ours.keys()
    assert len(theirs) > 8
    for name, weights in theirs.items():
        assert torch.equal(weights, ours[name]), name


@pytest.mark.parametrize("kind", ["VectorReplayBuffer", "PrioritizedVectorReplayBuffer"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_dqn_learns_the_same_weights_from_both_buffers(kind, n_step):
    settings = {"alpha": 0.6, "beta": 0.4} if kind.startswith("Prio") else {}
    theirs, ours = (
        trained_weights(
            lambda num_envs, library=library: getattr(library, kind)(80 * num_envs, num_envs, **settings),
            lambda: MovingDot(4),
            num_envs=2,
            num_steps=240,
            n_step=n_step,
        )
        for library in (tianshou, packed)
    )

    assert_same_weights(theirs[0], ours[0])
    assert np.array_equal(theirs[1][:].obs, ours[1][:].obs)
    assert ours[1].memory.stack == 4  # each frame is stored once
