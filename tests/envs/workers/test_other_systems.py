"""Workers give the same results with the means of other systems than Linux."""

from __future__ import annotations

import os
import selectors
import signal
from functools import partial

import numpy as np
import pytest

from framestow.envs import SerialVectorEnv, WorkerVectorEnv
from oracles.equal_vectors import assert_same, play_alike
from oracles.playing_envs import SlowEnv, SpaceEnv

ONLY_LINUX = [(selectors, "PollSelector"), (os, "memfd_create"), (os, "pidfd_open"), (os, "sched_getaffinity")]


@pytest.fixture(params=[*ONLY_LINUX, None], ids=lambda each: each[1] if each else "all")
def without(request, monkeypatch):
    """Take away something that other systems do not have, or all of it."""
    fcntl = pytest.importorskip("fcntl")
    for module, name in [request.param] if request.param else [*ONLY_LINUX, (fcntl, "F_SETSIG")]:
        monkeypatch.delattr(module, name)


@pytest.mark.usefixtures("without")
def test_environments_in_workers_answer_as_ever():
    env_fns = [partial(SpaceEnv, "picture and text")] * 3
    serial, workers = SerialVectorEnv(env_fns, seed=1), WorkerVectorEnv(env_fns, seed=1, start_method="fork")

    assert_same(serial.reset(), workers.reset())
    play_alike(serial, workers, 10)
    workers.close()


@pytest.mark.usefixtures("without")
def test_a_killed_worker_is_replaced_as_ever():
    env_fns = [partial(SlowEnv, number) for number in range(3)]
    workers = WorkerVectorEnv(env_fns, num_workers=3, start_method="fork", on_worker_lost="restart")
    workers.reset()
    os.kill(workers.worker_pids[1], signal.SIGKILL)

    with pytest.warns(RuntimeWarning, match=r"worker 1 \(environment 1\) was killed by SIGKILL; it is replaced"):
        observations, _, _, truncated, _ = workers.step([0, 0, 0])

    assert [[0, 1], [1, 0], [2, 1]] == observations.tolist()
    assert [False, True, False] == truncated.tolist()
    workers.close()


@pytest.mark.usefixtures("without")
def test_messages_of_any_size_pass_both_ways():
    workers = WorkerVectorEnv([partial(SlowEnv, 0), partial(SlowEnv, 1)], num_workers=2, start_method="fork")
    large = [np.arange(1_000_000), np.arange(1_000_000)[::-1].copy()]

    workers.set_attr("large", large)

    for sent, told in zip(large, workers.get_attr("large"), strict=True):
        assert np.array_equal(sent, told)
    workers.close()
