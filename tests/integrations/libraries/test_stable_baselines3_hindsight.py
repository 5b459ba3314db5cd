"""Our ``HerReplayBuffer`` draws, relabels and trains like Stable-Baselines3's, bit for bit."""

import warnings

import numpy as np
import pytest
import torch
from stable_baselines3 import DQN
from stable_baselines3 import HerReplayBuffer as TheirBuffer
from stable_baselines3.common.buffers import DictReplayBuffer as TheirDictBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import VecNormalize

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.integrations.stable_baselines3 import DictReplayBuffer, HerReplayBuffer, NStepReplayBuffer, ReplayBuffer
from integrations.libraries.sb3_play import assert_equal_samples, assert_same_weights

SIZE = 60  # transitions: a few episodes, so that old ones are overwritten


class InfoEnv(BitFlippingEnv):
    """Bit flipping with the cost of a step only in its info."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, info | {"cost": self.current_step / 8}

    def compute_reward(self, achieved_goal, desired_goal, info):
        costs = 0 if info is None else np.array([one["cost"] for one in info])
        return np.asarray(super().compute_reward(achieved_goal, desired_goal, info) - costs, np.float32)


class AnyCountEnv(BitFlippingEnv):
    """Bit flipping whose ``compute_reward`` accepts empty batches."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(np.asarray(achieved_goal) != desired_goal).any(axis=-1).astype(np.float32)


KINDS = {
    "bits": lambda: BitFlippingEnv(5),
    "numbers": lambda: BitFlippingEnv(5, discrete_obs_space=True),
    "pictures": lambda: BitFlippingEnv(5, image_obs_space=True),
    "pictures, channels last": lambda: BitFlippingEnv(5, image_obs_space=True, channel_first=False),
    "box actions": lambda: BitFlippingEnv(5, continuous=True),
    "infos": lambda: InfoEnv(5),
    "any count": lambda: AnyCountEnv(5),
}


class Fed:
    """Both buffers with the same random steps of the same environments."""

    def __init__(self, kind="bits", num_envs=1, size=SIZE, **settings):
        self.env = make_vec_env(KINDS[kind], num_envs, seed=0)
        self.env.action_space.seed(0)
        spaces = self.env.observation_space, self.env.action_space
        self.theirs, self.ours = (
            kind(size, *spaces, self.env, "cpu", num_envs, **settings) for kind in (TheirBuffer, HerReplayBuffer)
        )
        self.observation = self.env.reset()

    def step(self, count=1):
        for _ in range(count):
            actions = np.array([self.env.action_space.sample() for _ in range(self.env.num_envs)])
            after, rewards, dones, infos = self.env.step(actions)
            true_after = {key: part.copy() for key, part in after.items()}
            for number in np.flatnonzero(dones):
                for key, part in infos[number]["terminal_observation"].items():
                    true_after[key][number] = part
            stored = [info | {"TimeLimit.truncated": bool(info.get("TimeLimit.truncated", False))} for info in infos]
            for buffer in (self.theirs, self.ours):
                buffer.add(self.observation, true_after, actions, rewards, dones, stored)
            self.observation, self.have_ended = after, dones
        return self

    def assert_same_draws(self, seeds=3, batch_size=32, env=None):
        for seed in range(seeds):
            assert_equal_samples(*(samples(buffer, seed, batch_size, env) for buffer in (self.theirs, self.ours)))


def samples(buffer, seed=0, batch_size=32, env=None):
    np.random.seed(seed)
    return buffer.sample(batch_size, env)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_batches_equal_those_of_the_library_while_the_ring_fills_and_wraps(strategy, num_envs):
    fed = Fed(num_envs=num_envs, goal_selection_strategy=strategy).step(6)

    for _ in range(9):
        fed.assert_same_draws(seeds=2)
        fed.step(17 // num_envs)

    assert fed.ours.full
    fed.ours.memory.inner.parts.check()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bits"])
def test_batches_of_any_observations_and_rewards_equal_those_of_the_library(kind):
    fed = Fed(kind, 2, copy_info_dict=kind == "infos").step(70)

    fed.assert_same_draws()


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("num_goals", [0, 1, 4])
def test_batches_without_real_or_relabelled_transitions_equal_those_of_the_library(num_goals, batch_size):
    Fed("any count", n_sampled_goal=num_goals).step(20).assert_same_draws(batch_size=batch_size)


def test_batches_are_normalized_as_in_the_library():
    fed = Fed("pictures", 2).step(20)
    env = VecNormalize(fed.env, norm_obs_keys=["observation"])
    env.reset()
    for _ in range(20):
        env.step(np.array([env.action_space.sample() for _ in range(2)]))

    fed.assert_same_draws(env=env)


def test_tensors_of_a_batch_may_be_written_to_and_are_not_reused():
    fed = Fed("pictures").step(30)
    kept = samples(fed.ours)
    copies = {key: part.clone() for key, part in kept.next_observations.items()}

    for part in kept.observations.values():
        part.fill_(7)
    for seed in range(5):
        samples(fed.ours, seed)

    assert all(torch.equal(copy, kept.next_observations[key]) for key, copy in copies.items())
    fed.assert_same_draws()


def trained(buffer_class, algorithm, num_envs, steps, kind, **settings):
    model = algorithm(
        "MultiInputPolicy",
        make_vec_env(KINDS[kind], num_envs, seed=0),
        buffer_size=120,
        learning_starts=30,
        batch_size=16,
        train_freq=8,
        replay_buffer_class=buffer_class,
        replay_buffer_kwargs=settings,
        policy_kwargs={"net_arch": [16]},
        device="cpu",
        seed=1,
    )
    return model.learn(steps)


@pytest.mark.parametrize("truncates", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_a_saved_buffer_resumes_in_another_training_as_in_the_library(truncates, tmp_path):
    models = [trained(buffer_class, DQN, 1, 203, "bits") for buffer_class in (TheirBuffer, HerReplayBuffer)]
    for model in models:
        model.save_replay_buffer(tmp_path / "buffer")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The last trajectory in the replay buffer")
            model.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=truncates)
        model.set_random_seed(3)
        model.learn(150, reset_num_timesteps=False)

    theirs, ours = models
    assert isinstance(ours.replay_buffer, HerReplayBuffer)
    assert_equal_samples(samples(theirs.replay_buffer), samples(ours.replay_buffer))
    assert_same_weights(theirs, ours)
    ours.replay_buffer.memory.inner.parts.check()


def test_a_truncated_trajectory_is_sampleable_and_bootstraps():
    fed = Fed().step(12)
    fed.env.reset()
    for buffer in (fed.theirs, fed.ours):
        with pytest.warns(UserWarning, match="The last trajectory in the replay buffer will be truncated"):
            buffer.truncate_last_trajectory()
    fed.observation = fed.env.reset()

    fed.assert_same_draws()
    fed.step(60).assert_same_draws()
    while not fed.have_ended.all():
        fed.step()
    fed.ours.truncate_last_trajectory()  # no open episode, so no warning


def test_a_refused_step_is_not_sampled_and_the_next_one_is():
    fed = Fed().step(SIZE + 4)
    infinite = np.array([np.inf])

    with pytest.raises(InvalidStepError, match="reward"):
        fed.ours.add(fed.observation, fed.observation, np.array([0]), infinite, np.array([True]), [{}])

    fed.step(10).assert_same_draws()


def test_reset_removes_all_episodes():
    fed = Fed().step(30)
    fed.ours.reset()

    assert (0, False) == (fed.ours.pos, fed.ours.full)
    with pytest.raises(RuntimeError, match="Unable to sample before the end of the first episode"):
        fed.ours.sample(4)


def test_the_buffer_subclasses_the_librarys_and_takes_our_settings():
    env = make_vec_env(KINDS["pictures"], 1)
    buffer = HerReplayBuffer(
        50, env.observation_space, env.action_space, env, "cpu", frame_stack=1, threads=2, storage="raw"
    )

    assert isinstance(buffer, TheirBuffer)
    assert isinstance(buffer, TheirDictBuffer)
    assert isinstance(buffer, ReplayBuffer)
    settings = buffer.memory.inner.settings
    assert (1, 2, "raw") == (buffer.memory.stack, settings.threads, settings.storage)


@pytest.mark.parametrize("kind", [ReplayBuffer, DictReplayBuffer, NStepReplayBuffer])
@pytest.mark.parametrize(
    ("argument", "way_out"),
    [
        ({"n_sampled_goal": 4}, "n_sampled_goal is an argument of HerReplayBuffer"),
        ({"env": None, "goal_selection_strategy": "future"}, "env is an argument of HerReplayBuffer"),
        ({"nsteps": 4}, "nsteps is not an argument of"),
    ],
)
def test_an_argument_of_another_class_is_refused_with_its_name(kind, argument, way_out):
    env = make_vec_env(KINDS["bits"], 1)

    with pytest.raises(InvalidSettingsError, match=way_out):
        kind(50, env.observation_space, env.action_space, "cpu", **argument)
