"""Infos that are numbers are passed through shared memory unchanged; others are refused."""

from __future__ import annotations

import math
from functools import partial

import gymnasium
import numpy as np
import pytest

from framestow.envs import SerialVectorEnv, WorkerVectorEnv
from framestow.envs.vector.infos import batch_infos
from framestow.envs.workers.shared_arrays import MAX_COLUMNS, InfoColumns, is_layout

NUMBERS = [
    {"lives": 3, "share": -0.0, "is_new": True},
    {"lives": -(2**63), "share": math.inf, "is_new": False},
    {"lives": 2**53 + 1, "share": 0.1, "is_new": True},
]


def new_columns(num_envs: int = 3) -> InfoColumns:
    return InfoColumns(np.zeros((MAX_COLUMNS, num_envs), np.int64))


def exactly(infos):
    """Values with their types; ``repr`` tells a negative zero from a positive one."""
    return [{key: (type(value), repr(value)) for key, value in info.items()} for info in infos]


def in_arrays(infos):
    return {key: (column.dtype, column.tolist()) for key, column in infos.items()}


def test_numbers_come_out_as_python_had_them():
    columns = new_columns()

    told = columns.write([0, 1, 2], NUMBERS)

    assert is_layout(told)
    assert exactly(NUMBERS) == exactly(columns.of_each(told, [0, 1, 2]))
    assert exactly(NUMBERS[1:]) == exactly(columns.of_each(told, [1, 2]))


def test_those_of_all_come_out_as_gymnasium_batches_them():
    columns = new_columns()

    told = columns.write([0, 1, 2], NUMBERS)

    assert in_arrays(batch_infos(NUMBERS, [0, 1, 2], 3)) == in_arrays(columns.of_all(told))
    assert list(batch_infos(NUMBERS, [0, 1, 2], 3)) == list(columns.of_all(told))


def test_returned_infos_do_not_change_with_the_next_step():
    columns = new_columns(1)
    told = columns.write([0], [{"lives": 3, "share": 0.5}])
    before = columns.of_all(told)

    columns.write([0], [{"lives": 2, "share": 0.25}])

    assert (3, 0.5) == (before["lives"][0], before["share"][0])


@pytest.mark.parametrize(
    "infos",
    [
        [{"lives": 2**63}],
        [{"lives": np.int64(3)}],
        [{"name": "ball"}],
        [{"nothing": None}],
        [{"episode": {"r": 1.0}}],
        [{"lives": 3, "_lives": True}],
        [{"final_obs": 3}],
        [{3: 3}],
        [{str(key): key for key in range(MAX_COLUMNS + 1)}],
        [{}],
        [{"lives": 3}, {"lives": 3.0}],
        [{"lives": 3}, {"lives": 3, "score": 1}],
        [{"lives": 3}, {}],
        [{"lives": 3}, {"lives": True}],
        [{"lives": 3}, {"lives": 2**64}],
    ],
    ids=repr,
)
def test_infos_that_are_not_all_the_same_plain_numbers_have_to_be_sent(infos):
    assert new_columns().write(list(range(len(infos))), infos) is None


class Changing(gymnasium.Env):
    """Tells numbers at most steps, and something else, or nothing, at others; ``shift`` moves them."""

    observation_space = gymnasium.spaces.Discrete(9)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, shift: int) -> None:
        self.step_number = shift

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {"lives": 3, "share": 0.5}

    def step(self, action):
        self.step_number += 1
        told = ({"lives": self.step_number, "share": 0.5}, {"lives": 1.5}, {}, {"name": "ball"}, {"lives": np.int8(2)})
        kind = self.step_number % 40
        return 1, 1.0, self.step_number % 7 == 0, False, told[kind if kind < 5 else 0]


@pytest.mark.parametrize("shifts", [(0, 0, 0, 0), (0, 1, 2, 3), (0, 0, 20, 20)])
def test_workers_equal_one_process_for_changing_infos(shifts):
    makers = [partial(Changing, shift) for shift in shifts]
    serial, workers = SerialVectorEnv(makers), WorkerVectorEnv(makers, num_workers=2)
    try:
        assert in_arrays(serial.reset()[1]) == in_arrays(workers.reset()[1])
        for _ in range(90):
            action = np.zeros(4, np.int64)
            assert in_arrays(serial.step(action)[4]) == in_arrays(workers.step(action)[4])
    finally:
        workers.close()
