"""DummyVecEnv and SubprocVecEnv give what Stable-Baselines3's give, in type and value."""

from __future__ import annotations

import copy
import re

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common import vec_env as library

from framestow.integrations import stable_baselines3 as ours
from oracles.odd_envs import Marked, OddEnv, difference, odd_actions, odd_makers, times

NUM_ENVS = 3
SUBPROC = {"start_method": "fork"}
CASES = [
    ("box", "discrete", "float"),
    ("bytes", "box", "int"),
    ("number", "multi_discrete", "float32"),
    ("dict", "discrete", "float"),
    ("tuple", "box", "int"),
]


def both(name, num_envs=NUM_ENVS, **arguments):
    """Make the library's vector environment and ours."""
    settings = SUBPROC if name == "SubprocVecEnv" else {}
    return [getattr(module, name)(odd_makers(num_envs, **arguments), **settings) for module in (library, ours)]


@pytest.fixture(scope="module", params=["DummyVecEnv", "SubprocVecEnv"])
def pair(request):
    theirs, mine = both(request.param, render_mode="rgb_array")
    yield theirs, mine
    theirs.close()
    mine.close()


def played(env, action, num_steps=26):
    """Yield all that the calls of a training return, with the infos of resets."""
    env.seed(7)
    env.set_options([{}, {"level": 1}, {"level": 2}])
    yield env.reset(), copy.deepcopy(env.reset_infos)
    for step in range(num_steps):
        if step == num_steps // 2:
            yield env.reset(), copy.deepcopy(env.reset_infos)
        yield env.step(odd_actions(action, NUM_ENVS, step)), copy.deepcopy(env.reset_infos)


@pytest.mark.parametrize(("observation", "action", "reward"), [*CASES, ("box", "discrete", "float32")])
def test_dummy_vec_env_gives_what_the_librarys_gives(observation, action, reward):
    theirs, mine = both("DummyVecEnv", observation=observation, action=action, reward=reward)

    for expected, actual in zip(played(theirs, action), played(mine, action), strict=True):
        assert difference(expected, actual) is None, difference(expected, actual)


@pytest.mark.parametrize(("observation", "action", "reward"), [*CASES, ("dict", "box", "array")])
def test_subproc_vec_env_gives_what_the_librarys_gives_but_for_the_dtype_of_observations(observation, action, reward):
    theirs, mine = both("SubprocVecEnv", observation=observation, action=action, reward=reward)
    try:
        for (expected, resets), (actual, our_resets) in zip(played(theirs, action), played(mine, action), strict=True):
            if isinstance(expected, tuple) and len(expected) == 4:  # a step, not the two parts of a Tuple
                assert difference(expected[1:], actual[1:]) is None, difference(expected[1:], actual[1:])
                expected, actual = expected[0], actual[0]  # noqa: PLW2901
            assert difference(resets, our_resets) is None, difference(resets, our_resets)
            in_space = cast_to(mine.observation_space, expected)
            assert difference(in_space, actual) is None, difference(in_space, actual)
    finally:
        theirs.close()
        mine.close()


def cast_to(space, observations):
    if isinstance(observations, dict):
        return {key: part.astype(space[key].dtype) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(part.astype(each.dtype) for each, part in zip(space, observations, strict=True))
    return observations.astype(space.dtype)


def test_the_calls_for_attributes_and_methods_return_what_the_librarys_return(pair):
    for env in pair:
        env.set_attr("names", ["a", "b"])
        env.set_attr("level", 3, indices=[2])

    def asked(env):
        return [
            env.get_attr("names"),
            env.get_attr("number", indices=[2, 0, -1]),
            env.get_attr("number", indices=1),
            env.get_attr("level", 2),
            env.has_attr("level"),
            env.has_attr("number"),
            env.env_method("square", 3, plus=1),
            env.env_method("square", 3, indices=[1]),
            env.env_is_wrapped(Marked),
            env.env_is_wrapped(Marked, indices=[1, 2]),
            env.env_is_wrapped(gymnasium.wrappers.TimeLimit),
            env.num_envs,
            env.get_images(),
            env.render(),
            env.render_mode,
        ]

    theirs, mine = map(asked, pair)
    assert difference(theirs, mine) is None, difference(theirs, mine)


def test_a_function_that_is_an_attribute_is_read_and_not_called(pair):
    assert [times] * NUM_ENVS == pair[1].get_attr("rule")
    assert [6] * NUM_ENVS == pair[1].env_method("rule", 3)


def test_a_missing_attribute_or_method_raises_attribute_error(pair):
    for env in pair[1:]:
        with pytest.raises(AttributeError, match="colour"):
            env.get_attr("colour")
        with pytest.raises(AttributeError, match="colour"):
            env.env_method("colour", 1, indices=0)


def test_an_index_past_the_last_environment_raises_index_error(pair):
    with pytest.raises(IndexError, match=re.escape("indices are [3]: the environments are 0 to 2")):
        pair[1].get_attr("number", [3])


def test_set_attr_sets_the_outermost_wrapper():
    env = ours.DummyVecEnv(odd_makers(2))
    env.set_attr("number", [5])

    assert [[5], [5]] == [each.number for each in env.envs]
    assert 1 == env.envs[1].unwrapped.number, "environment 1 is wrapped"


def test_metadata_is_the_first_environments(pair):
    assert OddEnv.metadata == pair[1].metadata


def test_images_without_that_render_mode_are_none_with_a_warning():
    env = ours.DummyVecEnv(odd_makers(2))

    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert [None, None] == env.get_images()


def test_one_environment_from_two_functions_is_refused():
    env = OddEnv()

    for make in (library.DummyVecEnv, ours.DummyVecEnv):
        with pytest.raises(ValueError, match=r"environments 0 and 1 are one object|same instance"):
            make([lambda: env, lambda: Marked(env)])
    with pytest.raises(ValueError, match="environments 0 and 1 are one object"):
        in_one_worker([lambda: env] * 2)


def test_what_is_no_environment_is_refused_as_the_library_refuses_it():
    messages = []
    for make in (library.DummyVecEnv, ours.DummyVecEnv):
        with pytest.raises(ValueError, match="not a Gymnasium environment") as raised:
            make([lambda: object])
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


class OneArrayEnv(gymnasium.Env):
    """Returns the same array and the same info at every call."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.array, self.info = np.zeros(1, np.float32), {"inner": {}}

    def reset(self, *, seed=None, options=None):
        self.array[0] = 50
        return self.array, self.info

    def step(self, action):
        self.array[0] += 1
        self.info["inner"]["step"] = float(self.array[0])
        return self.array, 1.0, self.array[0] == 52, False, self.info


def in_one_worker(makers):
    return ours.SubprocVecEnv(makers, num_workers=1, **SUBPROC)


@pytest.mark.parametrize("make", [ours.DummyVecEnv, in_one_worker])
def test_the_last_observation_is_true_where_an_environment_uses_one_array_and_infos_are_copies(make):
    env = make([OneArrayEnv] * 2)
    env.reset()
    _, _, _, first = env.step([0, 0])
    first[0]["inner"]["step"] = "changed"
    observations, _, dones, infos = env.step([0, 0])

    assert [[50], [50]] == observations.tolist()
    assert dones.all()
    assert [52, 52] == [info["terminal_observation"].item() for info in infos]
    assert [{"step": 51.0}, {"step": 52.0}] == [first[1]["inner"], infos[0]["inner"]]
    assert "terminal_observation" not in env.step([0, 0])[3][0]
    env.close()


def test_observations_of_different_steps_share_no_memory():
    env = ours.DummyVecEnv(odd_makers(2, observation="dict"))
    first = env.reset()
    before = copy.deepcopy(first)
    env.step([0, 0])

    assert difference(before, first) is None


def test_nested_observations_that_the_library_refuses_work():
    class Nested(OddEnv):
        def __init__(self):
            super().__init__()
            inner = gymnasium.spaces.Dict({"box": self.observation_space})
            self.observation_space = gymnasium.spaces.Dict({"outer": inner})

        def shown(self):
            return {"outer": {"box": super().shown()}}

    with pytest.raises(NotImplementedError):
        library.DummyVecEnv([Nested])
    assert (2, 2, 3) == ours.DummyVecEnv([Nested] * 2).reset()["outer"]["box"].shape


@pytest.mark.parametrize(("settings", "num_workers"), [({}, 4), ({"num_workers": 3}, 3)])
def test_each_environment_has_a_process_by_default(settings, num_workers):
    env = ours.SubprocVecEnv(odd_makers(4), **SUBPROC, **settings)

    assert num_workers == len(set(env.worker_pids))
    env.close()


def test_a_wait_without_a_step_is_refused(pair):
    with pytest.raises(ValueError, match=r"step_wait\(\)"):
        pair[1].step_wait()


def test_another_number_of_actions_is_refused_before_any_environment_steps():
    env = in_one_worker(odd_makers(2))
    env.reset()

    with pytest.raises(ValueError, match="there are 3 actions: 2 environments need one each"):
        env.step([0, 1, 2])
    assert [1.0, 11.0] == env.step([0, 1])[1].tolist()
    env.close()
