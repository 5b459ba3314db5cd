"""Stable-Baselines3 learns the same weights with our buffers, bit for bit."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN, SAC
from stable_baselines3.common import buffers
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

from framestow.integrations.stable_baselines3 import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from integrations.libraries.sb3_play import assert_same_weights

SMALL_NET = {"net_arch": [16]}


class Corridor(gymnasium.Env):
    """A dot walks through a picture: it is there at the left end, and at the right end, or time is up."""

    def __init__(self, is_dict=False, is_continuous=False):
        self.shape = (36, 36, 1) if is_dict else (6, 9, 1)  # of a Dict the library makes features by a net for Atari
        picture = spaces.Box(0, 255, self.shape, np.uint8)
        place = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict({"picture": picture, "place": place}) if is_dict else picture
        if is_continuous:
            self.observation_space = place
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if is_continuous else spaces.Discrete(3)
        self.is_dict, self.is_continuous = is_dict, is_continuous

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = int(self.np_random.integers(2, 7)), 0
        return self.shown(), {}

    def step(self, action):
        self.time += 1
        self.at += int(np.sign(action[0])) if self.is_continuous else int(action) - 1
        is_there = self.at in (0, 8)
        return self.shown(), float(self.at == 8) - 0.01 * self.time, is_there, self.time >= 12 and not is_there, {}

    def shown(self):
        picture = np.zeros(self.shape, np.uint8)
        picture[self.time % 6, self.at] = 255
        place = np.array([self.at / 8, self.time / 12], np.float32)
        if self.is_continuous:
            return place
        return {"picture": picture, "place": place} if self.is_dict else picture


def trained(algorithm, replay_buffer_class, num_envs=1, steps=160, stack=4, normalizes=False, twice=False, **settings):
    kind = {"is_dict": settings.pop("is_dict", False), "is_continuous": algorithm is SAC}
    env = make_vec_env(lambda: Corridor(**kind), n_envs=num_envs, seed=0)
    env = VecFrameStack(env, stack) if stack > 1 else env
    env = VecNormalize(env) if normalizes else env
    policy = "MultiInputPolicy" if kind["is_dict"] else "MlpPolicy"
    model = algorithm(
        policy,
        env,
        buffer_size=60,
        learning_starts=20,
        batch_size=16,
        replay_buffer_class=replay_buffer_class,
        policy_kwargs=SMALL_NET,
        device="cpu",
        seed=1,
        **settings,
    )
    model.learn(steps)
    if twice:
        model.learn(steps)
    return model


OFTEN = {"train_freq": 4, "target_update_interval": 40}
COURSES = {
    "one environment": (DQN, None, ReplayBuffer, OFTEN),
    "four environments": (DQN, None, ReplayBuffer, {"num_envs": 4, **OFTEN}),
    "twice, so that episodes are cut": (DQN, None, ReplayBuffer, {"twice": True, **OFTEN}),
    "optimize_memory_usage": (
        DQN,
        None,
        ReplayBuffer,
        {
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
            "num_envs": 2,
            **OFTEN,
        },
    ),
    "Dict": (DQN, None, ReplayBuffer, {"is_dict": True, "stack": 1, **OFTEN}),
    "DictReplayBuffer": (DQN, None, DictReplayBuffer, {"is_dict": True, "stack": 1, "num_envs": 3, **OFTEN}),
    "n-step": (
        DQN,
        buffers.NStepReplayBuffer,
        NStepReplayBuffer,
        {"replay_buffer_kwargs": {"n_steps": 3, "gamma": 0.99}, "num_envs": 2, **OFTEN},
    ),
    "SAC": (SAC, None, ReplayBuffer, {"stack": 1, "train_freq": 8, "num_envs": 2}),
    "SAC, normalized": (SAC, None, ReplayBuffer, {"stack": 1, "train_freq": 8, "normalizes": True}),
}


QUICK = ("four environments", "n-step")


def courses():
    marks = {name: () if name in QUICK else pytest.mark.exhaustive for name in COURSES}
    return [pytest.param(*course, id=name, marks=marks[name]) for name, course in COURSES.items()]


@pytest.mark.filterwarnings("ignore:The number of environments used is greater")
@pytest.mark.parametrize(("algorithm", "their_class", "our_class", "settings"), courses())
def test_training_gives_the_same_weights_bit_for_bit(algorithm, their_class, our_class, settings):
    theirs = trained(algorithm, their_class, **settings)
    ours = trained(algorithm, our_class, **settings)

    assert isinstance(ours.replay_buffer, our_class)
    assert_same_weights(theirs, ours)
