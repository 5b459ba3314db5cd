"""A worker of ``SubprocVecEnv`` that dies, hangs, exits or raises is an error with a cause, or is replaced."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from framestow.envs.seeding import replacement_seed
from framestow.errors import EnvironmentFailedError, WorkerLostError
from framestow.integrations.classic import SubprocVecEnv
from oracles.failing_envs import Failure, FrameNumbers, makers, numbers_of
from oracles.patience import PATIENCE_S
from oracles.process_watch import Identity, end, eventually, logged_processes, still_running, still_there

TESTS = Path(__file__).parents[2]


@pytest.fixture
def process_folder(tmp_path):
    folder = tmp_path / "processes"
    folder.mkdir()
    yield folder
    end(logged_processes(folder))


@pytest.fixture
def make(process_folder):
    """Make a ``SubprocVecEnv`` of three environments; after ``close`` none of its processes is left."""
    made = []

    def make_one(failure=None, **settings):
        failing = {} if failure is None else {1: failure}
        made.append(SubprocVecEnv(makers(process_folder, 3, failing), context="fork", **settings))
        return made[-1]

    yield make_one
    for env in made:
        env.close()
    assert eventually(lambda: not still_there(logged_processes(process_folder)))


@pytest.mark.parametrize(
    ("kind", "why", "settings"),
    [
        ("sigkill", "was killed by SIGKILL", {}),
        ("exit", "ended with exit code 7", {}),
        ("hang", "gave no answer within 0.5 s", {"step_timeout": 0.5}),
    ],
)
def test_a_lost_worker_is_replaced_and_its_episode_ends_as_by_a_time_limit(kind, why, settings, make):
    env = make(Failure(kind, at=3), on_worker_lost="restart", **settings)
    env.seed(5)
    env.reset()
    env.step([1, 1, 1])
    before, *_ = env.step([2, 2, 2])
    last = before[1].copy()

    with pytest.warns(RuntimeWarning, match=f"worker 1 .environment 1. {why}; it is replaced"):
        observations, rewards, dones, infos = env.step([3, 3, 3])

    assert [3.0, 0.0, 3.0] == rewards.tolist()
    assert [False, True, False] == dones.tolist()
    assert [FrameNumbers(0, 0, 0, 3), FrameNumbers(1, 1, 0, 0), FrameNumbers(2, 0, 0, 3)] == [
        numbers_of(frame) for frame in observations
    ]
    lost = dict(infos[1])
    assert np.array_equal(last, lost.pop("terminal_observation")), "the last one that arrived"
    assert {"episode_lost": f"worker 1 (environment 1) {why}", "TimeLimit.truncated": True} == lost
    assert [0, 1, 0] == [info["replacement"] for info in (infos[0], env.reset_infos[1], infos[2])]
    assert [replacement_seed(5, 1, 0)] == env.get_attr("seeds", 1)[0]
    observations, rewards, *_ = env.step([4, 4, 4])
    assert [4.0, 4.0, 4.0] == rewards.tolist()
    assert FrameNumbers(1, 1, 0, 1) == numbers_of(observations[1])


class Whole(gymnasium.RewardWrapper):
    """Whole rewards."""

    def reward(self, reward):
        return int(reward)


def test_integer_rewards_stay_integers_in_a_step_that_loses_an_episode(process_folder):
    failing = {1: Failure("sigkill", at=2)}
    env = SubprocVecEnv(
        [lambda make=make: Whole(make()) for make in makers(process_folder, 2, failing)],
        context="fork",
        on_worker_lost="restart",
    )
    env.reset()
    kinds = {env.step([1, 1])[1].dtype}
    with pytest.warns(RuntimeWarning, match="is replaced"):
        rewards = env.step([1, 1])[1]

    assert {np.dtype(np.int64)} == kinds | {rewards.dtype}
    assert [1, 0] == rewards.tolist()
    env.close()


@pytest.mark.parametrize(
    ("kind", "why"), [("sigkill", "was killed by SIGKILL"), ("exit_in_peace", "ended with exit code 0")]
)
def test_a_lost_worker_is_an_error_that_names_it_and_close_returns(kind, why, make):
    env = make(Failure(kind, at=2))
    env.reset()
    env.step([0, 0, 0])

    with pytest.raises(WorkerLostError, match=re.escape(f"worker 1 (environment 1) {why}")):
        env.step([0, 0, 0])
    start = time.monotonic()
    env.close()
    assert time.monotonic() - start < PATIENCE_S


def test_a_worker_that_is_lost_three_times_without_a_step_is_an_error(make):
    env = make(Failure("sigkill", at=1, replacements=(0, 1, 2, 3)), on_worker_lost="restart", in_series=3)
    env.reset()

    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="is replaced"):
            env.step([0, 0, 0])
    with pytest.raises(WorkerLostError, match="lost 3 times"):
        env.step([0, 0, 0])


def test_an_environment_that_raises_is_named_with_its_action_and_traceback_and_a_reset_continues(make):
    env = make(Failure("raise", at=2), in_series=3)
    env.reset()
    env.step([0, 0, 0])

    with pytest.raises(EnvironmentFailedError) as raised:
        env.step([2, 3, 4])

    assert 1 == raised.value.environment
    assert "environment 1 raised RuntimeError at action 3: the wire is cut" in str(raised.value)
    assert "failing_envs.py" in str(raised.value.__cause__)
    with pytest.raises(ValueError, match=re.escape("call reset()")):
        env.step([0, 0, 0])
    env.reset()
    assert [1.0, 2.0, 3.0] == env.step([1, 2, 3])[1].tolist()


def test_an_observation_that_its_space_cannot_hold_is_an_error(make):
    env = make(Failure("wrong_dtype", at=1))
    env.reset()

    with pytest.raises(EnvironmentFailedError, match=r"observation has dtype float64: Box.* needs uint8"):
        env.step([0, 0, 0])


def test_a_step_while_one_is_in_flight_is_refused_and_reset_discards_it(make):
    env = make()
    env.reset()
    env.step_async([0, 0, 0])

    with pytest.raises(ValueError, match="a step is in flight"):
        env.step_async([0, 0, 0])
    env.reset()
    assert [1.0, 1.0, 1.0] == env.step([1, 1, 1])[1].tolist()


def test_the_same_losses_with_the_same_seed_give_the_same_run(tmp_path):
    def draws(folder):
        folder.mkdir()
        failing = {1: Failure("sigkill", at=2)}
        env = SubprocVecEnv(makers(folder, 2, failing), context="fork", on_worker_lost="restart")
        env.seed(9)
        env.reset()
        with pytest.warns(RuntimeWarning, match="is replaced"):
            drawn = [[info.get("draw") for info in env.step([0, 0])[3]] for _ in range(6)]
        env.close()
        return drawn

    assert draws(tmp_path / "a") == draws(tmp_path / "b")


@pytest.mark.parametrize("ending", ["kill", "interrupt", "end"])
def test_no_worker_is_left_when_its_parent_is_killed_interrupted_or_ends_without_close(ending, process_folder):
    parent = subprocess.Popen(
        [sys.executable, "-m", "oracles.vec_env_parent", ending, str(process_folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        start_new_session=True,
    )
    line = parent.stdout.readline()
    processes = {Identity(*process) for process in json.loads(line)}
    assert len(processes) == 3
    if ending == "kill":
        parent.kill()
    elif ending == "interrupt":
        os.killpg(parent.pid, signal.SIGINT)  # what a terminal does

    _, errors = parent.communicate(timeout=PATIENCE_S)
    assert "" == errors
    assert (-signal.SIGKILL if ending == "kill" else 0) == parent.returncode
    assert eventually(lambda: not still_running(processes)), still_running(processes)
