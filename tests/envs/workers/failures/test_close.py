"""``close`` returns within its timeout after any failure, and leaves no process or memory."""

from __future__ import annotations

import contextlib
import gc
import math
import time

import pytest

from framestow.envs import WorkerVectorEnv
from framestow.errors import EnvironmentFailedError, InvalidSettingsError, InvalidStepError
from oracles.failing_envs import DYING, HANGING, RAISING, Failure, makers
from oracles.patience import PATIENCE_S
from oracles.process_watch import (
    eventually,
    logged_processes,
    num_open_files,
    still_running,
    still_there,
    thread_names,
)
from oracles.start_methods import every_start_method, with_start_methods

pytestmark = pytest.mark.filterwarnings("ignore:.*it is replaced:RuntimeWarning")


def close_in_time(env, timeout: float = 2.0) -> None:
    began = time.monotonic()
    env.close(timeout=timeout)
    assert time.monotonic() - began < PATIENCE_S
    env.close()


@pytest.mark.parametrize(
    ("kind", "start_method"),
    with_start_methods(
        (*RAISING, *DYING, *HANGING, "wrong_shape"), {"spawn": ["hang_stubbornly"], "forkserver": ["raise"]}
    ),
)
def test_close_after_any_failure_returns_in_time_twice(kind, start_method, make_workers, process_folder):
    env = make_workers({2: Failure(kind, at=1)}, start_method=start_method, step_timeout=0.5)
    env.reset()
    with pytest.raises(EnvironmentFailedError):
        env.step([0] * 4)

    close_in_time(env)

    left = logged_processes(process_folder, "[0-9]*")
    assert eventually(lambda: not still_there(left)), still_there(left)


@pytest.mark.parametrize("timeout", [None, 0, 1e9, math.inf])
def test_every_timeout_of_close_ends_the_workers(timeout, make_workers, process_folder):
    make_workers(num_envs=2).close(timeout=timeout)

    assert eventually(lambda: not still_there(logged_processes(process_folder)))


@pytest.mark.parametrize("timeout", ["x", -1, math.nan, True])
def test_a_wrong_timeout_of_close_is_refused_and_the_workers_stay(timeout, make_workers):
    env = make_workers(num_envs=2)

    with pytest.raises(InvalidSettingsError, match=r"^timeout is "):
        env.close(timeout=timeout)

    env.reset()
    env.step([0, 0])


@pytest.mark.parametrize("start_method", every_start_method())
@pytest.mark.parametrize("kind", HANGING)
def test_close_while_a_step_hangs_does_not_wait_for_it(kind, start_method, make_workers, process_folder):
    env = make_workers({2: Failure(kind, at=1)}, start_method=start_method, step_timeout=60.0)
    env.reset()
    env.step_async([0] * 4)

    close_in_time(env, timeout=0.5)

    assert eventually(lambda: not still_there(logged_processes(process_folder)))


@pytest.mark.parametrize("kind", [*HANGING, "sigkill"])
def test_an_environment_whose_close_never_ends_is_ended(kind, make_workers, process_folder):
    env = make_workers({2: Failure(kind, "close", 1)})
    env.reset()
    began = time.monotonic()

    with contextlib.suppress(EnvironmentFailedError):
        env.close(timeout=0.5)

    assert time.monotonic() - began < PATIENCE_S
    assert eventually(lambda: not still_there(logged_processes(process_folder)))
    env.close()


def test_the_others_are_closed_properly_beside_one_that_fails(make_workers, process_folder):
    env = make_workers({2: Failure("raise", "close", 1)})

    with pytest.raises(EnvironmentFailedError, match="environment 2 raised RuntimeError at its close"):
        env.close()

    env.close()
    assert eventually(lambda: not still_there(logged_processes(process_folder)))


@pytest.mark.parametrize("failing", [None, {2: Failure("sigkill", at=1)}])
def test_every_call_to_a_closed_environment_raises(failing, make_workers):
    env = make_workers(failing)
    env.reset()
    env.close()

    calls = (
        env.reset,
        lambda: env.step([0] * 4),
        lambda: env.step_async([0] * 4),
        env.step_wait,
        lambda: env.call("touch", 1),
        lambda: env.get_attr("replacement"),
        lambda: env.set_attr("tone", 1),
        env.render,
        env.state_dict,
    )
    for call in calls:
        with pytest.raises(InvalidStepError, match="closed"):
            call()


@pytest.mark.parametrize("start_method", every_start_method())
def test_rounds_of_opening_and_closing_leave_no_file_and_no_thread(start_method, make_workers):
    def one_round() -> None:
        env = make_workers(num_envs=2, start_method=start_method)
        env.reset()
        env.step([0] * 2)
        env.close()

    one_round()  # what multiprocessing starts once stays: its resource tracker and its fork server
    gc.collect()
    files, threads = num_open_files(), thread_names()

    for _ in range(8):
        one_round()
    gc.collect()

    assert num_open_files() <= files
    assert thread_names() == threads


def test_twenty_replaced_workers_leave_no_file_and_no_thread(make_workers, process_folder):
    env = make_workers({0: Failure("sigkill", at=2, replacements=tuple(range(100)))}, on_worker_lost="restart")
    env.reset()
    for _ in range(10):
        env.step([0] * 4)
    gc.collect()
    files, threads = num_open_files(), thread_names()

    for _ in range(60):  # a step, one that is lost with its worker, and a reset
        env.step([0] * 4)
    gc.collect()

    assert len(list(process_folder.glob("0-*"))) > 20
    assert num_open_files() <= files
    assert thread_names() == threads
    assert len(still_there(logged_processes(process_folder))) == 2


def test_one_that_is_forgotten_unclosed_ends_its_processes(make_workers, process_folder):
    env = WorkerVectorEnv(makers(process_folder, 4), num_workers=2, start_method="fork")
    env.reset()
    workers = logged_processes(process_folder)
    assert len(still_running(workers)) == 2

    del env
    gc.collect()

    assert eventually(lambda: not still_there(workers)), still_there(workers)
