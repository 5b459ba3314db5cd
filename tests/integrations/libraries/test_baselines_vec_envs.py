"""DummyVecEnv and SubprocVecEnv give what OpenAI Baselines' give, in type and value."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest

from framestow.errors import EnvironmentFailedError
from framestow.integrations.classic import DummyVecEnv, SubprocVecEnv
from oracles.baselines_vec_envs import PlainDummyVecEnv, PlainSubprocVecEnv
from oracles.odd_envs import OddEnv, difference, odd_actions, odd_makers

CASES = [("box", "discrete", "float"), ("bytes", "box", "int"), ("dict", "multi_discrete", "float32")]


def subproc(makers, **arguments):
    return SubprocVecEnv(makers, context="fork", **arguments)


def without_the_end(infos):
    """Infos as Baselines has them: without the keys that ours add."""
    added = ("TimeLimit.truncated", "terminal_observation")
    return type(infos)({key: value for key, value in info.items() if key not in added} for info in infos)


@pytest.mark.parametrize(("observation", "action", "reward"), [*CASES, ("tuple", "discrete", "int")])
def test_dummy_vec_env_gives_what_baselines_gives(observation, action, reward):
    settings = {"observation": observation, "action": action, "reward": reward}
    theirs, ours = PlainDummyVecEnv(odd_makers(3, **settings)), DummyVecEnv(odd_makers(3, **settings))
    assert difference(theirs.reset(), ours.reset()) is None

    for step in range(26):
        actions = odd_actions(action, 3, step)
        expected, (*others, infos) = theirs.step(actions), ours.step(actions)
        found = difference(expected, (*others, without_the_end(infos)))
        assert found is None, found


@pytest.mark.parametrize(("observation", "action", "reward"), CASES)
def test_subproc_vec_env_gives_what_baselines_gives_but_for_the_dtype_of_observations(observation, action, reward):
    settings = {"observation": observation, "action": action, "reward": reward}
    theirs = PlainSubprocVecEnv(odd_makers(4, **settings))
    ours = subproc(odd_makers(4, **settings), in_series=2)
    assert difference(in_space(theirs, theirs.reset()), ours.reset()) is None

    for step in range(26):
        actions = odd_actions(action, 4, step)
        expected, (*others, infos) = theirs.step(actions), ours.step(actions)
        found = difference((in_space(theirs, expected[0]), *expected[1:]), (*others, without_the_end(infos)))
        assert found is None, found
    ours.close()


def in_space(env, observations):
    if isinstance(observations, dict):
        return {key: part.astype(env.observation_space[key].dtype) for key, part in observations.items()}
    return observations.astype(env.observation_space.dtype)


@pytest.mark.parametrize("make", [DummyVecEnv, subproc])
def test_the_loop_of_an_old_script_runs(make):
    env = make([lambda: gymnasium.make("CartPole-v1", max_episode_steps=5)] * 4)
    env.seed(3)
    observations = env.reset()
    num_ends = 0
    for _ in range(12):
        env.step_async(np.zeros(4, np.int64))
        following, rewards, dones, infos = env.step_wait()
        ended = [info["terminal_observation"] for info in infos if "terminal_observation" in info]
        assert len(ended) == dones.sum()
        num_ends += len(ended)
        assert (4, 4) == observations.shape == following.shape
        assert rewards.tolist() == [1.0] * 4
        observations = following

    assert 8 == num_ends
    assert ("CartPole-v1", 4, env) == (env.spec.id, env.num_envs, env.unwrapped)
    env.close()
    env.close()
    assert env.closed


def test_seeds_are_consecutive_and_used_once():
    env = DummyVecEnv(odd_makers(3))
    assert [5, 6, 7] == env.seed(5)

    env.reset()
    assert [{"seed": 5}, {"seed": 6}, {"seed": 7}] == [info["arguments"] for info in env.reset_infos]
    env.reset()
    assert [{"seed": None}] * 3 == [info["arguments"] for info in env.reset_infos]
    assert 3 == len(set(env.seed()))


@pytest.mark.parametrize("make", [DummyVecEnv, subproc])
@pytest.mark.parametrize("action", [1, np.int64(1), np.array(1)])
def test_one_environment_takes_a_bare_action(make, action):
    env = make(odd_makers(1))
    env.reset()

    infos = env.step(action)[3]

    assert 1 == infos[0]["action"][2]
    env.close()


def test_one_environment_takes_a_bare_action_of_two_numbers():
    env = DummyVecEnv(odd_makers(1, action="box"))
    env.reset()

    assert [0.5, 2.0] == env.step(np.array([0.5, 2.0]))[3][0]["action"][2]
    assert [0.5, 2.0] == env.step([np.array([0.5, 2.0])])[3][0]["action"][2]


@pytest.mark.parametrize("actions", [1, [0, 1], np.zeros(4, np.int64)])
def test_several_environments_take_one_action_each(actions):
    env = DummyVecEnv(odd_makers(3))
    env.reset()

    with pytest.raises(ValueError, match="3 environments need one each; give exactly so many"):
        env.step_async(actions)


@pytest.mark.parametrize("num_envs", [1, 2, 3, 5, 7, 12])
def test_a_grid_of_pictures_is_baselines(num_envs):
    ours = DummyVecEnv(odd_makers(num_envs, render_mode="rgb_array"))
    theirs = PlainDummyVecEnv(odd_makers(num_envs, render_mode="rgb_array"))

    assert difference(theirs.render(), ours.render(mode="rgb_array")) is None
    assert difference([env.render() for env in theirs.envs], ours.get_images()) is None


def test_environments_that_show_themselves_are_rendered_in_place():
    env = DummyVecEnv(odd_makers(2, render_mode="human"))

    assert env.render() is None
    assert [1, 1] == [each.unwrapped.num_shown for each in env.envs]


@pytest.mark.parametrize(
    ("made_with", "mode"), [("rgb_array", "human"), ("human", "rgb_array"), (None, "human"), (None, "rgb_array")]
)
def test_another_render_mode_is_refused_with_the_one_to_make_environments_with(made_with, mode):
    env = DummyVecEnv(odd_makers(2, render_mode=made_with))

    message = f"render mode is {mode!r}: the environments were made with render_mode={made_with!r}; make them with "
    with pytest.raises(ValueError, match=re.escape(message + f"render_mode={mode!r}")):
        env.render(mode)


class FourValues(OddEnv):
    """Has the old interface of gym."""

    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


def test_what_is_no_gymnasium_environment_is_refused():
    with pytest.raises(ValueError, match=re.escape("env_fns[1] returned ") + ".*it must return an environment"):
        DummyVecEnv([OddEnv, object])


@pytest.mark.parametrize("make", [DummyVecEnv, subproc])
def test_an_environment_of_old_gym_is_refused_with_the_wrapper_to_use(make):
    env = make([FourValues])
    env.reset()

    with pytest.raises((ValueError, EnvironmentFailedError), match=r"returned 4 values.*shimmy.GymV21Compatibility"):
        env.step([0])
    env.close()


@pytest.mark.parametrize("in_series", [0, 3, 5])
def test_a_number_in_series_that_does_not_divide_the_environments_is_refused(in_series):
    with pytest.raises(ValueError, match=f"in_series is {in_series}: it must divide the number of environments, 4"):
        subproc(odd_makers(4), in_series=in_series)
