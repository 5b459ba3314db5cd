"""Each argument of an environment or a recorder is refused by name, value and rule, before an environment steps."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from framestow import FrameSpec, ReplayMemory
from framestow.envs import AtariEnv, Preset, Recorder, SerialVectorEnv, WorkerVectorEnv, find_preset, make_atari
from oracles.wrong_values import Call, Made, assert_wrong_values_are_refused, each_argument

FRAME = np.zeros((6, 5), np.uint8)


class BlackEnv(gymnasium.Env):
    observation_space, action_space = Box(0, 255, FRAME.shape, np.uint8), Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return FRAME, {}

    def step(self, action):
        return FRAME, 0.0, False, False, {}


def memory(**settings):
    return ReplayMemory(50, FrameSpec(FRAME.shape), 4, num_envs=2, stack=2, **settings)


def serial():
    return SerialVectorEnv([BlackEnv] * 2)


WORKERS = {"start_method": None, "step_timeout": 60.0, "on_worker_lost": "raise"}
WORKERS_TAKE = {"start_method": "None", "step_timeout": "inf 2.5"}
ATARI = {"game": "pong", "preset": "nature", "seed": 0, "render_mode": None}
ATARI_TAKES = {"seed": "0 None", "render_mode": "None"}
MADE = ATARI | {"num_envs": 2, "autoreset_mode": "NextStep", "workers": 0, **WORKERS}
RESET, RESET_TAKES = {"seed": 0, "options": None}, {"seed": "0 None", "options": "None dict"}
CALLS = {
    "make_atari": Call(
        make_atari,
        MADE,
        ATARI_TAKES | WORKERS_TAKE | {"num_envs": "None", "workers": "0"},
        {"workers": [3], "render_mode": ["human"], "autoreset_mode": ["never"]},
    ),
    "make_atari of one": Call(
        make_atari, MADE | {"num_envs": None}, ATARI_TAKES | WORKERS_TAKE | {"num_envs": "None", "workers": "0"}
    ),
    "AtariEnv": Call(AtariEnv, ATARI, ATARI_TAKES),
    "SerialVectorEnv": Call(
        SerialVectorEnv, {"env_fns": [BlackEnv] * 2, "autoreset_mode": "NextStep", "seed": 0}, {"seed": "0 None"}
    ),
    "SerialVectorEnv.step": Call(lambda actions: begun(serial()).step(actions), {"actions": [0, 1]}),
    "SerialVectorEnv.reset": Call(
        lambda **given: serial().reset(**given),
        RESET,
        RESET_TAKES,
    ),
    "Recorder": Call(
        Recorder,
        {"env": Made(serial), "memory": Made(memory), "reward_limit": 1.0, "autoreset_mode": None},
        {"reward_limit": "None 2.5", "autoreset_mode": "None"},
    ),
    "Recorder.step": Call(lambda actions: begun(Recorder(serial(), memory())).step(actions), {"actions": [0, 1]}),
    "Recorder.reset": Call(
        lambda **given: Recorder(serial(), memory()).reset(**given),
        RESET,
        RESET_TAKES,
    ),
    "Recorder.reset of some": Call(
        lambda reset_mask: Recorder(serial(), memory()).reset(options={"reset_mask": reset_mask}),
        {"reset_mask": np.array([True, True])},
    ),
    "Recorder.add_extras": Call(
        lambda log_prob: step_with_extras(log_prob=log_prob), {"log_prob": [0.5, 0.5]}, refuses={"log_prob": [[0.5]]}
    ),
    "Preset": Call(
        Preset,
        asdict(find_preset("nature")),
        {
            "name": "'a'",
            "source": "'a'",
            "sticky_probability": "0",
            "noop_steps_after_life_loss": "0",
            "max_noops": "0",
            "reward_limit": "inf None 2.5",
            "evaluation_epsilon": "0",
        },
    ),
}


def begun(env):
    env.reset(seed=0)
    return env


def step_with_extras(**extras):
    recorder = begun(Recorder(serial(), memory(extras={"log_prob": np.float32})))
    recorder.add_extras(**extras)
    recorder.step([0, 1])


@pytest.mark.parametrize(("call", "name"), each_argument(CALLS))
def test_a_wrong_argument_is_refused_with_its_value(call, name):
    assert_wrong_values_are_refused(call, name)


OF_WORKERS = {
    "reset": Call(
        lambda env, **given: env.reset(**given),
        RESET,
        RESET_TAKES,
    ),
    "step": Call(lambda env, actions: begun(env).step(actions), {"actions": [0, 1]}),
}


@pytest.fixture(scope="module")
def worker_env():
    env = WorkerVectorEnv([BlackEnv] * 2, num_workers=1, start_method="fork")
    yield env
    env.close()


@pytest.fixture(scope="module")
def recorder():
    recorder = Recorder(WorkerVectorEnv([BlackEnv] * 2, num_workers=1, start_method="fork"), memory())
    yield recorder
    recorder.close()


@pytest.mark.parametrize(("call", "name"), each_argument(OF_WORKERS))
def test_a_wrong_argument_is_refused_before_a_worker_steps(call, name, worker_env):
    assert_wrong_values_are_refused(replace(call, function=partial(call.function, worker_env)), name)


@pytest.mark.parametrize(("call", "name"), each_argument(OF_WORKERS))
def test_a_wrong_argument_is_refused_before_a_recorded_worker_steps(call, name, recorder):
    assert_wrong_values_are_refused(replace(call, function=partial(call.function, recorder)), name)


@pytest.mark.parametrize("timeout", ["a", -1, float("nan"), True, [1]], ids=str)
def test_a_wait_with_a_wrong_timeout_leaves_the_step_in_flight(timeout, worker_env, recorder):
    for env in (worker_env, recorder, Recorder(serial(), memory())):
        begun(env).step_async([0, 1])

        with pytest.raises(ValueError, match=r"^timeout is .*: .*; give None to wait without a limit"):
            env.step_wait(timeout)

        env.step_wait(float("inf"))


@pytest.mark.parametrize("name", ["num_workers", "start_method", "step_timeout", "on_worker_lost", "seed", "daemon"])
def test_a_wrong_argument_of_workers_is_refused_before_a_process_starts(name):
    good = {"num_workers": 1, "seed": 0, "daemon": True, **WORKERS, "start_method": "fork"}
    takes = {"num_workers": "None", "seed": "0 None", "daemon": "True", "step_timeout": "inf 2.5"}
    skips = {"start_method": "None"}  # a new fork server takes seconds
    call = Call(lambda **given: WorkerVectorEnv([BlackEnv] * 2, **good | given).close(), {}, takes, skips=skips)

    assert_wrong_values_are_refused(call, name)
