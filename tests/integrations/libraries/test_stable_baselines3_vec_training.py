"""Stable-Baselines3 learns the same weights in our vector environments, and goes on after a lost worker."""

from __future__ import annotations

import os
import signal
import sys
from types import ModuleType

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common import vec_env as library
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)

from framestow.integrations import stable_baselines3 as ours
from integrations.libraries.sb3_play import assert_same_weights

NET = {"net_arch": [8]}
VECTOR, PICTURE = spaces.Box(-3, 3, (3,), np.float32), spaces.Box(0, 255, (4, 5, 1), np.uint8)


class Walk(gymnasium.Env):
    """A random walk that the action pushes; an episode ends at 3, or is truncated after 9 steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 11}  # noqa: RUF012

    def __init__(self, observation="vector", action=None, render_mode=None):
        self.observation_space = {
            "vector": VECTOR,
            "picture": PICTURE,
            "dict": spaces.Dict({"place": VECTOR, "more": spaces.Discrete(4)}),
        }[observation]
        self.kind, self.render_mode = observation, render_mode
        self.action_space = spaces.Discrete(3) if action is None else action

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.normal(size=3).astype(np.float32), 0
        return self.shown(), {}

    def step(self, action):
        self.time += 1
        push = (np.asarray(action, np.float32).sum() - 1) / 2
        self.place = (self.place + push + self.np_random.normal(size=3)).clip(-3, 3).astype(np.float32)
        is_there = bool((self.place == 3).any())
        return self.shown(), float(self.place.mean()), is_there, self.time >= 9, {}

    def shown(self):
        if self.kind == "picture":
            return np.full((4, 5, 1), int(40 * (self.place[0] + 3)), np.uint8)
        return {"place": self.place, "more": self.time % 4} if self.kind == "dict" else self.place

    def render(self):
        return np.full((8, 8, 3), self.time, np.uint8)


def normalized(env):
    return VecNormalize(VecMonitor(env))


def stacked(env):
    return VecTransposeImage(VecFrameStack(VecMonitor(env), 2))


TRAININGS = {
    "DQN": (DQN, "MlpPolicy", {}, normalized, {"learning_starts": 20, "train_freq": 2, "buffer_size": 500}),
    "DQN pictures": (
        DQN,
        "MlpPolicy",
        {"observation": "picture"},
        stacked,
        {"learning_starts": 20, "buffer_size": 500},
    ),
    "A2C dict": (
        A2C,
        "MultiInputPolicy",
        {"observation": "dict", "action": spaces.MultiDiscrete([2, 3])},
        VecMonitor,
        {},
    ),
    "PPO box": (
        PPO,
        "MlpPolicy",
        {"action": spaces.Box(-1, 1, (2,), np.float32)},
        normalized,
        {"n_steps": 16, "batch_size": 32, "n_epochs": 2},
    ),
}


def made(module, name, env_kwargs=None, num_envs=4, **settings):
    """Make a vector environment as ``make_vec_env`` does, without a ``Monitor``."""
    if name == "SubprocVecEnv":
        settings["start_method"] = "fork"
    env = getattr(module, name)([lambda: Walk(**(env_kwargs or {}))] * num_envs, **settings)
    env.seed(1)
    return env


def trained(module, name, training, num_steps=160):
    algorithm, policy, env_kwargs, wrap, settings = TRAININGS[training]
    env = wrap(made(module, name, env_kwargs))
    model = algorithm(policy, env, policy_kwargs=NET, seed=2, device="cpu", **settings)
    evaluation = EvalCallback(
        wrap(made(module, "DummyVecEnv", env_kwargs, 2)), n_eval_episodes=3, eval_freq=20, verbose=0
    )
    model.learn(num_steps, callback=evaluation)
    env.close()
    return model, evaluation.last_mean_reward, [info["r"] for info in model.ep_info_buffer]


@pytest.mark.each_value
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("name", ["DummyVecEnv", "SubprocVecEnv"])
def test_the_weights_are_the_same(name, training):
    theirs, mine = trained(library, name, training), trained(ours, name, training)

    assert_same_weights(theirs[0], mine[0])
    assert theirs[1:] == mine[1:]
    assert len(theirs[2]) > 10


@pytest.mark.parametrize("name", ["DummyVecEnv", "SubprocVecEnv"])
def test_make_vec_env_makes_ours_with_its_monitors(name):
    settings = {"start_method": "fork", "num_workers": 2} if name == "SubprocVecEnv" else {}
    env = make_vec_env(Walk, 3, seed=1, vec_env_cls=getattr(ours, name), vec_env_kwargs=settings)
    env.reset()
    lengths = [info["episode"]["l"] for _ in range(9) for info in env.step(np.ones(3, int))[3] if "episode" in info]

    assert [True] * 3 == env.env_is_wrapped(Monitor)
    assert len(lengths) >= 3
    env.close()


@pytest.mark.parametrize("name", ["DummyVecEnv", "SubprocVecEnv"])
def test_a_recorded_video_has_the_same_pictures_and_rate(name, monkeypatch, tmp_path):
    videos = []

    class Clip:
        def __init__(self, frames, fps):
            videos.append((np.array(frames), fps))

        def write_videofile(self, path):
            """Write nothing."""

    module = "moviepy.video.io.ImageSequenceClip"
    for each in ("moviepy", "moviepy.video", "moviepy.video.io", module):
        monkeypatch.setitem(sys.modules, each, ModuleType(each))
    sys.modules[module].ImageSequenceClip = Clip
    for makes in (library, ours):
        env = made(makes, name, {"render_mode": "rgb_array"}, 2)
        env = VecVideoRecorder(env, str(tmp_path), lambda step: step == 0, video_length=5)
        env.reset()
        for _ in range(7):
            env.step(np.array([0, 1]))
        env.close()

    (expected, rate), (actual, our_rate) = videos
    assert 11 == rate == our_rate
    assert np.array_equal(expected, actual)


@pytest.mark.parametrize("name", ["DummyVecEnv", "SubprocVecEnv"])
def test_atari_as_the_library_makes_it_plays_the_same(name):
    gymnasium.register_envs(pytest.importorskip("ale_py"))
    plays = []
    for makes in (library, ours):
        settings = {"start_method": "fork"} if name == "SubprocVecEnv" else {}
        env = make_atari_env(
            "BreakoutNoFrameskip-v4", 2, seed=4, vec_env_cls=getattr(makes, name), vec_env_kwargs=settings
        )
        env = VecFrameStack(env, 4)
        play = [env.reset()]
        for step in range(40):
            observations, rewards, dones, infos = env.step(np.array([step % 4, (step + 1) % 4]))
            flags = [{key: info[key] for key in ("lives", "TimeLimit.truncated")} for info in infos]
            play += [observations, rewards, dones, flags]
        plays.append(play)
        env.close()

    for expected, actual in zip(*plays, strict=True):
        assert np.array_equal(expected, actual)


class KillsAWorker(BaseCallback):
    """Kill the worker of environment 1 in each of these calls."""

    def __init__(self, env, calls):
        super().__init__()
        self.env, self.calls, self.lost = env, calls, []

    def _on_step(self):
        if self.n_calls in self.calls:
            os.kill(self.env.worker_pids[1], signal.SIGKILL)
        self.lost += [info["episode_lost"] for info in self.locals["infos"] if "episode_lost" in info]
        return True


@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_a_training_goes_on_when_workers_are_killed(algorithm):
    env = made(ours, "SubprocVecEnv", num_envs=2, on_worker_lost="restart")
    settings = (
        {"n_steps": 20, "batch_size": 20}
        if algorithm is PPO
        else {"learning_starts": 10, "replay_buffer_class": ours.ReplayBuffer}
    )
    model = algorithm("MlpPolicy", env, policy_kwargs=NET, seed=2, device="cpu", **settings)
    killer = KillsAWorker(env, (7, 30))

    with pytest.warns(RuntimeWarning, match=r"worker 1 .* was killed by SIGKILL; it is replaced"):
        model.learn(120, callback=killer)

    assert 2 == len(killer.lost)
    assert 120 == model.num_timesteps
    assert all(weights.isfinite().all() for weights in model.policy.state_dict().values())
    if algorithm is DQN:
        rewards, timeouts = (getattr(model.replay_buffer, name)[:60, 1] for name in ("rewards", "timeouts"))
        made_up = np.flatnonzero(rewards == 0)
        assert [7, 30] == made_up.tolist(), "one step of each lost episode was not played"
        assert timeouts[made_up].all()
    env.close()
