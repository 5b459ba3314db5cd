"""MiniGrid and CarRacing: workers equal this process bit for bit, also recorded and with a killed worker."""

from __future__ import annotations

import importlib.util
import os
import signal

import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

from framestow.envs import Recorder, SerialVectorEnv, WorkerVectorEnv
from framestow.replay.memory import ReplayMemory
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.list_memory import ListMemory
from oracles.real_envs import (
    car_racing,
    fetch,
    painted_room,
    picture_of_a_room,
    room,
    two_pictures,
)
from oracles.recorded_results import LoggedWorkers, fill_by_flags
from oracles.start_methods import START_METHODS

pytestmark = pytest.mark.filterwarnings("ignore:.*it is replaced:RuntimeWarning")

NUM_ENVS = 3
MODES = list(AutoresetMode)


def real(maker, *also, module: str, is_slow: bool = False):
    """A parameter that is skipped where its package is missing."""
    missing = importlib.util.find_spec(module) is None
    marks = [pytest.mark.skipif(missing, reason=f"{module} is not installed"), *([pytest.mark.exhaustive] * is_slow)]
    return pytest.param(maker, *also, id="-".join([maker.__name__, *map(str, also)]), marks=marks)


ROOMS, CARS = [room, painted_room, fetch], [car_racing, two_pictures]
EVERY = [real(maker, module="minigrid") for maker in ROOMS] + [real(maker, module="Box2D") for maker in CARS]
IN_EVERY_MODE = [real(maker, mode.value, module="minigrid") for maker in ROOMS for mode in MODES]
IN_EVERY_MODE += [
    real(maker, mode.value, module="Box2D", is_slow=(maker, mode) != (two_pictures, AutoresetMode.SAME_STEP))
    for maker in CARS
    for mode in MODES
]
RECORDED = [
    real(picture_of_a_room, "fork", module="minigrid"),
    real(picture_of_a_room, "forkserver", module="minigrid"),
    real(picture_of_a_room, "spawn", module="minigrid", is_slow=True),
    *(real(car_racing, method, module="Box2D", is_slow=method != "fork") for method in START_METHODS),
]


def masked_reset(env, answer):
    """Reset ended environments if the autoreset mode is DISABLED."""
    ended = answer[2] | answer[3]
    if env.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
        return env.reset(options={"reset_mask": ended})
    return None


@pytest.mark.each_value
@pytest.mark.parametrize(("maker", "mode"), IN_EVERY_MODE)
def test_workers_equal_environments_in_this_process(maker, mode):
    serial = SerialVectorEnv([maker] * NUM_ENVS, mode, seed=5)
    workers = WorkerVectorEnv([maker] * NUM_ENVS, mode, num_workers=2, start_method="fork", seed=5)
    serial.action_space.seed(0)
    try:
        assert data_equivalence(serial.reset(), workers.reset(), exact=True)
        for _ in range(15):
            actions = serial.action_space.sample()
            expected, actual = serial.step(actions), workers.step(actions)
            assert data_equivalence(expected, actual, exact=True)
            assert data_equivalence(masked_reset(serial, expected), masked_reset(workers, actual), exact=True)
    finally:
        workers.close()
        serial.close()


@pytest.mark.parametrize(("maker", "start_method"), RECORDED)
def test_after_a_killed_worker_the_memory_stores_exactly_the_received_steps(maker, start_method):
    mode = AutoresetMode.SAME_STEP
    vector = LoggedWorkers(
        [maker] * NUM_ENVS, mode, num_workers=2, start_method=start_method, on_worker_lost="restart", seed=5
    )
    spaces = vector.single_observation_space, vector.single_action_space
    memory = ReplayMemory(500, *spaces, stack=2, num_envs=NUM_ENVS, discount=0.9, seed=0)
    recorder = Recorder(vector, memory)
    recorder.action_space.seed(0)
    try:
        recorder.reset()
        for step in range(24):
            if step in (6, 17):
                os.kill(vector.get_attr("process_id")[step % NUM_ENVS], signal.SIGKILL)
            recorder.step(recorder.action_space.sample())
    finally:
        recorder.close()

    oracle = ListMemory(500, NUM_ENVS, stack=2, discount=0.9)
    assert 2 <= fill_by_flags(oracle, vector.log, mode) <= 4
    assert_memory_is_what_the_oracle_holds(memory, oracle)


@pytest.mark.parametrize("maker", EVERY)
def test_a_killed_worker_is_replaced_whatever_its_observations(maker):
    vector = WorkerVectorEnv(
        [maker] * NUM_ENVS, "NextStep", num_workers=3, start_method="fork", on_worker_lost="restart", seed=5
    )
    vector.action_space.seed(0)
    try:
        before, _ = vector.reset()
        os.kill(vector.get_attr("process_id")[1], signal.SIGKILL)

        answer = vector.step(vector.action_space.sample())

        assert answer[3].tolist() == [False, True, False]
        assert data_equivalence(row(before, 1), row(answer[0], 1), exact=True)
        for _ in range(5):
            answer = vector.step(vector.action_space.sample())
            assert vector.observation_space.contains(answer[0])
        assert len(set(vector.get_attr("process_id"))) == NUM_ENVS
    finally:
        vector.close()


def row(batch, number):
    if isinstance(batch, dict):
        return {key: row(part, number) for key, part in batch.items()}
    return batch[number]
