"""What is no environment of Gymnasium is refused with what it is and what to wrap it in."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv

from framestow.envs import Recorder, SerialVectorEnv, WorkerVectorEnv
from framestow.envs.vector.foreign_envs import check_reset, check_step
from framestow.errors import EnvironmentFailedError, InvalidSettingsError, InvalidStepError
from framestow.integrations.classic import DummyVecEnv
from framestow.integrations.gymnasium import FrameStack, VectorFrameStack
from oracles.numbered_frames import SHAPE, ListSink, NumberedEnv

SPACES = {"observation_space": Box(0, 255, SHAPE, np.uint8), "action_space": Discrete(3)}


def made(kind: str, *, methods=(), module="elsewhere", **attributes):
    """An environment with these methods, which do nothing, and attributes."""
    return type(kind, (), {"__module__": module, **dict.fromkeys(methods, lambda self, *_: None), **attributes})()


def reset_with_seed(self, *, seed=None, options=None):
    return np.zeros(SHAPE, np.uint8), {}


def reset_without_seed(self):
    return np.zeros(SHAPE, np.uint8)


def of_gym(reset):
    return made("Env", methods=("step",), module="gym.core", metadata={}, reset=reset, **SPACES)


OLD_GYM = of_gym(reset_with_seed)
VEC_ENV = made("DummyVecEnv", methods=("reset", "step_async", "step_wait", "get_images"), num_envs=2, **SPACES)
FOREIGN = {
    "gym": (OLD_GYM, "an environment of gym", "shimmy.GymV26CompatibilityV0(env=env)"),
    "VecEnv": (VEC_ENV, "a vector environment of Baselines or Stable-Baselines3", "to SerialVectorEnv or"),
    "gym3": (
        made("ProcgenGym3Env", methods=("act", "observe"), num=2, ob_space=None, ac_space=None),
        "an environment of gym3",
        "gym3.ToGymEnv(env)",
    ),
    "dm_env": (
        made("Environment", methods=("reset", "step", "observation_spec", "action_spec")),
        "an environment of dm_env",
        "shimmy.DmControlCompatibilityV0(env=env)",
    ),
    "Playground": (
        made("CartpoleBalance", methods=("reset", "step"), observation_size=4, action_size=1),
        "a functional environment of MuJoCo Playground or Brax",
        "memory.begin and memory.append",
    ),
    "EnvPool": (made("AtariGymEnvPool", all_env_ids=[0], config={}), "a pool of EnvPool", "memory.add"),
}
TAKERS = {
    "Recorder": (lambda env: Recorder(env, ListSink(1)), "env is"),
    "SerialVectorEnv": (lambda env: SerialVectorEnv([lambda: env]), "env_fns[0] returned"),
    "FrameStack": (lambda env: FrameStack(env, 4), "env is"),
    "VectorFrameStack": (lambda env: VectorFrameStack(env, 4), "env is"),
}


@pytest.mark.parametrize(("take", "begins"), TAKERS.values(), ids=TAKERS)
@pytest.mark.parametrize(("env", "kind", "way_out"), FOREIGN.values(), ids=FOREIGN)
def test_each_kind_gets_one_form_of_error_wherever_it_is_given(take, begins, env, kind, way_out):
    name = f"{type(env).__module__}.{type(env).__qualname__}"

    with pytest.raises(InvalidSettingsError) as error:
        take(env)

    assert str(error.value).startswith(f"{begins} {name}, {kind}")
    assert ": it must be an environment of Gymnasium; " in str(error.value)
    assert way_out in str(error.value).rpartition(";")[2]


@pytest.mark.parametrize(
    ("version", "reset", "wrapper"),
    [
        ("0.26.2", reset_with_seed, "GymV26"),
        ("0.26.2", lambda self, **options: None, "GymV26"),
        ("0.26.2", reset_without_seed, "GymV21"),  # written for an older one
        ("0.24.1", reset_with_seed, "GymV21"),  # has both, and four values
        ("0.9", reset_without_seed, "GymV21"),
    ],
)
def test_the_wrapper_of_gym_is_that_of_its_version_and_of_the_environments_reset(version, reset, wrapper, monkeypatch):
    inner = of_gym(reset)
    wrapped = of_gym(reset_with_seed)  # a wrapper of gym takes a seed whatever it wraps
    type(wrapped).unwrapped = inner
    monkeypatch.setitem(__import__("sys").modules, "gym", SimpleNamespace(__version__=version))

    for env in (inner, wrapped):
        with pytest.raises(InvalidSettingsError, match=re.escape(f"gym {version}: it must be an env")) as error:
            SerialVectorEnv([lambda env=env: env])
        assert f"shimmy.{wrapper}CompatibilityV0(env=env)" in str(error.value)


@pytest.mark.parametrize("extra", [{}, {"num_envs": 1, "single_observation_space": SPACES["observation_space"]}])
def test_an_environment_without_metadata_is_told_to_derive_from_gymnasiums(extra):
    env = made("Walk", methods=("reset", "step"), **SPACES, **extra)
    take = partial(Recorder, env, ListSink(1)) if extra else partial(SerialVectorEnv, [lambda: env])

    with pytest.raises(InvalidSettingsError, match=r"elsewhere\.Walk, which has no metadata.*gymnasium\.Env"):
        take()


def test_an_environment_without_render_mode_is_told_to_derive_from_gymnasiums():
    env = made("Walk", methods=("step",), reset=reset_with_seed, metadata={}, **SPACES)

    with pytest.raises(InvalidSettingsError, match=r"elsewhere\.Walk, which has no render_mode.*gymnasium\.Env"):
        SerialVectorEnv([lambda: env])


class OldReset(gymnasium.Env):
    """A script for old gym in which only the import was changed."""

    observation_space, action_space = SPACES["observation_space"], SPACES["action_space"]
    reset = reset_without_seed

    def step(self, action):
        return np.zeros(SHAPE, np.uint8), 0.0, False, {}


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (SerialVectorEnv, InvalidSettingsError),
        (DummyVecEnv, InvalidSettingsError),
        (WorkerVectorEnv, EnvironmentFailedError),
    ],
)
def test_a_reset_that_takes_no_seed_is_refused_where_the_environment_is_made(make, error):
    with pytest.raises(error, match=r"env_fns\[0\] returned .*OldReset, whose reset takes no seed: .*; give it both"):
        make([OldReset])


class OtherStep(gymnasium.Env):
    """Its step returns ``values``."""

    observation_space, action_space = SPACES["observation_space"], SPACES["action_space"]

    def __init__(self, values) -> None:
        self.values = values

    def reset(self, *, seed=None, options=None):
        return np.zeros(SHAPE, np.uint8), {}

    def step(self, action):
        return self.values


FRAME = np.zeros(SHAPE, np.uint8)
STEPS = {
    "gym's four": ((FRAME, 1.0, True, {}), "returned 4 values: Gymnasium's has 5 (observation", "GymV21"),
    "six with a cost": ((FRAME, 1.0, 0.5, True, False, {}), "returned 6 values", "SafetyGymnasium2Gymnasium(env)"),
    "three": ((FRAME, 1.0, True), "returned 3 values", "return these five"),
    "an array of five": (np.zeros(5), "returned ndarray", "return these five"),
}


@pytest.mark.parametrize(("values", "message", "way_out"), STEPS.values(), ids=STEPS)
def test_a_step_of_other_than_five_values_is_named_with_its_wrapper(values, message, way_out):
    env = SerialVectorEnv([lambda: OtherStep(values)])
    env.reset()

    with pytest.raises(EnvironmentFailedError, match=re.escape(f"step of the environment {message}")) as error:
        env.step([0])
    assert way_out in str(error.value)


@pytest.mark.parametrize("make", [lambda env: Recorder(env, ListSink(1)), lambda env: VectorFrameStack(env, 2)])
def test_a_vector_environments_step_of_four_values_is_refused_before_anything_is_stored(make):
    class OldVector(SyncVectorEnv):
        def step(self, actions):
            observations, rewards, terminated, _, infos = super().step(actions)
            return observations, rewards, terminated, infos

    wrapped = make(OldVector([NumberedEnv]))
    wrapped.reset()

    with pytest.raises(InvalidStepError, match="step of the vector environment returned 4 values"):
        wrapped.step([0])
    assert getattr(wrapped, "memory", ListSink(1)).num_steps(0) == 0


def test_five_values_in_a_list_are_taken():
    check_step("the environment", [FRAME, 0.0, False, False, {}])


def test_an_error_within_a_step_keeps_its_own_words():
    class Unpacks(OtherStep):
        def step(self, action):
            first, second = (1, 2, 3)
            return first, second

    env = SerialVectorEnv([lambda: Unpacks(None)])
    env.reset()

    with pytest.raises(EnvironmentFailedError, match="raised ValueError at action 0: too many values to unpack"):
        env.step([0])


@pytest.mark.parametrize("values", [FRAME, (FRAME,), None])
def test_a_reset_of_the_old_form_is_named(values):
    with pytest.raises(InvalidStepError, match=r"Gymnasium's has 2 values.*GymV21CompatibilityV0\(env=env\)"):
        check_reset("the environment", values)


def test_a_wrapper_that_hides_a_vector_environment_is_told_apart_from_a_single_environment():
    class ManyAtOnce(NumberedEnv):
        num_envs, single_observation_space = 2, SPACES["observation_space"]

    with pytest.raises(InvalidSettingsError, match=r"hides that it has several environments; give env\.unwrapped"):
        Recorder(gymnasium.Wrapper(ManyAtOnce()), ListSink(2))
    with pytest.raises(InvalidSettingsError, match=r"use SerialVectorEnv\(\[lambda: env\]\)"):
        Recorder(NumberedEnv(), ListSink(1))
