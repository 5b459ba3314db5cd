"""A step that was begun is waited for, or discarded by a reset, and never mixed up with another."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest

from framestow.envs import WorkerVectorEnv
from framestow.envs.vector.calls import NoStepPendingError, StepPendingError
from framestow.errors import InvalidStepError, StepTimeoutError
from oracles.playing_envs import SlowEnv


@pytest.fixture
def workers():
    made = []

    def make(num_envs, num_workers=3):
        env_fns = [partial(SlowEnv, number) for number in range(num_envs)]
        made.append(WorkerVectorEnv(env_fns, num_workers=num_workers, start_method="fork"))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_calls_in_a_wrong_order_name_the_call_to_make_first(workers):
    env = workers(3)
    with pytest.raises(InvalidStepError, match=r"call reset\(\)"):
        env.step_async([0, 0, 0])
    env.reset()
    with pytest.raises(NoStepPendingError, match="call it first"):
        env.step_wait()

    env.step_async([0, 0, 0])

    some = {"reset_mask": np.array([False, True, False])}
    for call in (
        lambda: env.step_async([0, 0, 0]),
        lambda: env.step([0, 0, 0]),
        lambda: env.reset(options=some),
        lambda: env.call("shown"),
        lambda: env.get_attr("number"),
        env.render,
        env.state_dict,
    ):
        with pytest.raises(StepPendingError, match=re.escape("call step_wait(), or reset()")):
            call()
    assert env.step_wait()[0].tolist() == [[0, 1], [1, 1], [2, 1]]


def test_a_step_that_times_out_is_still_in_flight(workers):
    env = workers(3)
    env.reset()
    env.step_async([400, 0, 0])

    with pytest.raises(StepTimeoutError, match=re.escape("not done after 0.1 s: 1 answers are missing")):
        env.step_wait(timeout=0.1)
    assert env.step_wait()[1].tolist() == [400.0, 0.0, 0.0]


def test_a_reset_discards_the_step_in_flight_and_its_late_answers(workers):
    env = workers(4, num_workers=2)
    env.reset()
    env.step_async([200, 3, 0, 1])

    observations, _ = env.reset()
    answers = [env.step([5, 6, 7, 8]) for _ in range(3)]

    assert [[number, 0] for number in range(4)] == observations.tolist()
    assert [[5.0, 6.0, 7.0, 8.0]] * 3 == [answer[1].tolist() for answer in answers]
    assert [[number, 3] for number in range(4)] == answers[-1][0].tolist()
    assert answers[-1][4]["step"].tolist() == [3] * 4
