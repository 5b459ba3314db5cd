"""The caller learns soon, and with a clear message, that an environment raised, died or hangs in a worker."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from framestow.envs import SerialVectorEnv
from framestow.errors import EnvironmentFailedError, WorkerLostError
from oracles.expected_vector import ExpectedVector, play
from oracles.failing_envs import CUT, DYING, HANGING, RAISING, WRONG_ANSWERS, Failure, makers, plans
from oracles.patience import PATIENCE_S
from oracles.start_methods import with_start_methods

ACTIONS = [0, 1, 3, 2]
ENDS_OF_PROCESSES = {
    "sigkill": "SIGKILL",
    "sigsegv": "SIGSEGV",
    "sigterm": "SIGTERM",
    "exit": "7",
    "exit_in_peace": "0",
    "die_and_leave_a_child": "SIGKILL",
}


def until_it_fails(env) -> EnvironmentFailedError:
    """Reset and step with the same actions until something is raised."""
    with pytest.raises(EnvironmentFailedError) as caught:  # noqa: PT012  # which of the calls raises is the plan's
        env.reset()
        for _ in range(10):
            env.step(ACTIONS)
    return caught.value


@pytest.mark.parametrize(("kind", "start_method"), with_start_methods(RAISING, {"spawn": ["raise_unpicklable"]}))
def test_an_environments_error_has_its_number_its_action_and_the_traceback(kind, start_method, make_workers):
    env = make_workers({2: Failure(kind)}, start_method=start_method)

    error = until_it_fails(env)

    assert not isinstance(error, WorkerLostError)
    assert error.environment == 2
    assert re.match(r"environment 2 raised \w+ at action 3: ", str(error)), str(error)[:300]
    assert kind == "raise_speechless" or CUT in str(error)
    assert "Traceback (most recent call last)" in error.remote_traceback
    assert "failing_envs.py" in error.remote_traceback


def test_the_text_is_the_one_that_environments_in_one_process_give(make_workers, process_folder):
    serial = SerialVectorEnv(makers(process_folder, 4, {2: Failure("raise")}))

    expected = until_it_fails(serial)
    actual = until_it_fails(make_workers({2: Failure("raise")}))

    assert str(expected) == str(actual)
    assert str(expected) == (
        "environment 2 raised RuntimeError at action 3: the wire is cut; reset all environments to continue"
    )


@pytest.mark.parametrize("kind", WRONG_ANSWERS)
def test_an_answer_that_does_not_fit_is_the_environments_failure(kind, make_workers):
    error = until_it_fails(make_workers({2: Failure(kind)}))

    assert not isinstance(error, WorkerLostError)
    assert error.environment == 2
    assert str(error).startswith("environment 2 ")
    assert "action 3" in str(error)


@pytest.mark.parametrize("kind", ["wrong_shape", "none"])
def test_a_first_observation_that_does_not_fit_is_the_environments_failure(kind, make_workers):
    error = until_it_fails(make_workers({2: Failure(kind, "reset", 1)}))

    assert error.environment == 2
    assert "its reset" in str(error)


@pytest.mark.each_value
@pytest.mark.parametrize("on_worker_lost", ["raise", "restart"])
@pytest.mark.parametrize("kind", ["raise", "raise_unpicklable", "wrong_shape"])
def test_after_an_error_of_an_environment_a_reset_continues_with_the_same_processes(
    kind, on_worker_lost, make_workers, process_folder
):
    env = make_workers({2: Failure(kind)}, on_worker_lost=on_worker_lost)
    until_it_fails(env)

    frames, infos = env.reset(seed=11)

    expected = ExpectedVector(plans(process_folder, 4), env.metadata["autoreset_mode"], 11)
    for each in expected.envs:
        each.episode = 0  # the one that was cut short
    np.testing.assert_array_equal(expected.reset(), frames)
    assert infos["replacement"].tolist() == [0] * 4
    play(env, expected, 12)


@pytest.mark.each_value
@pytest.mark.parametrize("call", ["call", "render", "close"])
@pytest.mark.parametrize("kind", ["raise", "system_exit"])
def test_an_error_in_any_other_call_names_its_environment(kind, call, make_workers):
    env = make_workers({2: Failure(kind, call, 1)})
    env.reset()
    calls = {"call": lambda: env.call("touch", 1), "render": env.render, "close": env.close}

    with pytest.raises(EnvironmentFailedError, match="environment 2 raised") as caught:
        calls[call]()

    assert caught.value.environment == 2
    assert CUT in str(caught.value)
    assert "failing_envs.py" in caught.value.remote_traceback


@pytest.mark.parametrize(
    ("kind", "start_method"),
    with_start_methods(["raise", "sigkill", "exit"], {"forkserver": ["sigkill"]}),
)
def test_a_failure_in_construction_is_reported_and_leaves_no_process(kind, start_method, make_workers, process_folder):
    with pytest.raises(EnvironmentFailedError) as caught:
        make_workers({2: Failure(kind, "construct", 1)}, start_method=start_method)

    assert "2" in str(caught.value)
    if kind == "raise":
        assert caught.value.environment == 2
        assert CUT in str(caught.value)
        assert "failing_envs.py" in caught.value.remote_traceback


@pytest.mark.parametrize(("kind", "start_method"), with_start_methods(DYING, {"forkserver": ["sigkill"]}))
def test_a_dead_worker_is_reported_at_once_with_its_environments_and_the_cause(kind, start_method, make_workers):
    leaves_pipes_open = kind == "die_and_leave_a_child"
    env = make_workers({2: Failure(kind)}, start_method=start_method, step_timeout=2.0 if leaves_pipes_open else 60.0)
    env.reset()
    env.step(ACTIONS)
    env.step(ACTIONS)
    began = time.monotonic()

    with pytest.raises(WorkerLostError) as caught:
        env.step(ACTIONS)

    assert time.monotonic() - began < PATIENCE_S
    assert re.search(r"environments 2(, | and | to )3|\[2, 3\]", str(caught.value)), str(caught.value)
    assert ENDS_OF_PROCESSES[kind] in str(caught.value), str(caught.value)


@pytest.mark.parametrize(("kind", "start_method"), with_start_methods(HANGING, {}))
def test_a_hanging_worker_is_reported_after_the_step_timeout(kind, start_method, make_workers):
    env = make_workers({2: Failure(kind)}, start_method=start_method, step_timeout=0.5)
    env.reset()
    env.step(ACTIONS)
    env.step(ACTIONS)
    began = time.monotonic()

    with pytest.raises(WorkerLostError) as caught:
        env.step(ACTIONS)

    assert 0.4 < time.monotonic() - began < PATIENCE_S
    assert re.search(r"environments 2(, | and | to )3|\[2, 3\]", str(caught.value)), str(caught.value)
    assert "0.5" in str(caught.value)


def test_a_worker_that_hangs_at_its_start_is_reported_with_the_limit_of_a_start(make_workers, monkeypatch):
    monkeypatch.setattr("framestow.envs.workers.worker.START_TIMEOUT_S", 0.7)

    with pytest.raises(WorkerLostError, match=r"gave no answer within 0\.7 s before it had made its environments"):
        make_workers({2: Failure("hang", "construct", 1)}, step_timeout=0.1)


@pytest.mark.each_value
@pytest.mark.parametrize("call", ["reset", "call", "render"])
@pytest.mark.parametrize("kind", ["sigkill", "hang"])
def test_a_worker_lost_in_any_other_call_is_reported_too(kind, call, make_workers):
    env = make_workers({2: Failure(kind, call, 1)}, step_timeout=0.5 if kind == "hang" else 60.0)
    if call != "reset":
        env.reset()
    calls = {"reset": env.reset, "call": lambda: env.call("touch", 1), "render": env.render}
    began = time.monotonic()

    with pytest.raises(WorkerLostError, match=r"2.*3"):
        calls[call]()

    assert time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize("kind", ["slow", "talk", "aliased"])
def test_unusual_behaviour_is_no_failure(kind, make_workers, process_folder):
    failing = {2: Failure(kind), 0: Failure(kind, at=5)}
    env = make_workers(failing, autoreset_mode="SameStep", on_worker_lost="raise", step_timeout=5.0)
    expected = ExpectedVector(plans(process_folder, 4), env.metadata["autoreset_mode"], 3)

    frames, _ = env.reset()

    np.testing.assert_array_equal(expected.reset(), frames)
    play(env, expected, 25)
