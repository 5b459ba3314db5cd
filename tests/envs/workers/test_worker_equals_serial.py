"""WorkerVectorEnv equals SerialVectorEnv bit for bit."""

from __future__ import annotations

import time
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from framestow.envs import AtariEnv, SerialVectorEnv, WorkerVectorEnv
from oracles.equal_vectors import assert_same, play_alike
from oracles.numbered_frames import NumberedEnv
from oracles.playing_envs import SPACES, SpaceEnv

MODES = list(AutoresetMode)
START_METHODS = ["fork", "spawn", "forkserver"]
EXHAUSTIVE = pytest.mark.exhaustive


def numbered(num_envs):
    lengths, endings = [(2, 5), (3,), (1, 1, 4)], [("terminated", "truncated"), ("both",), ("truncated",)]
    return [partial(NumberedEnv, number, lengths[number % 3], endings[number % 3]) for number in range(num_envs)]


@pytest.fixture
def pair():
    """Make the same environments twice, in this process and in workers; they are closed in the end."""
    made = []

    def make(env_fns, mode=AutoresetMode.NEXT_STEP, seed=None, start_method="fork", num_workers=2, **settings):
        made.append(SerialVectorEnv(env_fns, mode, seed=seed))
        workers = WorkerVectorEnv(
            env_fns, mode, seed=seed, start_method=start_method, num_workers=num_workers, **settings
        )
        made.append(workers)
        return made[-2:]

    yield make
    for each in made:
        each.close()


@pytest.mark.each_value
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_workers", [1, 3, 8])
def test_every_mode_and_split_answers_as_serial_does(pair, mode, num_workers):
    serial, workers = pair(numbered(8), mode, num_workers=num_workers)

    assert_same(serial.reset(seed=3), workers.reset(seed=3))
    play_alike(serial, workers, 40)

    assert workers.num_workers == num_workers
    assert serial.call("seeds") == workers.call("seeds")
    assert serial.call("actions") == workers.call("actions")


# The contract test compares every space in mode NEXT_STEP; only SAME_STEP hands out final observations too.
@pytest.mark.parametrize(
    ("mode", "name"),
    [
        pytest.param(mode, name, marks=() if mode is AutoresetMode.SAME_STEP or name == "nested" else EXHAUSTIVE)
        for mode in MODES
        for name in SPACES
    ],
)
def test_observations_of_any_space_arrive_as_serial_hands_them_out(pair, mode, name):
    serial, workers = pair([partial(SpaceEnv, name)] * 3, mode, seed=5)

    assert_same(serial.reset(), workers.reset())
    play_alike(serial, workers, 25)

    assert serial.observation_space == workers.observation_space
    assert serial.single_observation_space == workers.single_observation_space


@pytest.mark.parametrize(
    ("start_method", "mode"),
    [
        pytest.param(method, mode, marks=() if method == "spawn" else pytest.mark.exhaustive)
        for method, mode in zip(START_METHODS, MODES, strict=True)
    ],
)
def test_atari_games_are_the_same_under_every_start_method(pair, mode, start_method):
    games = [partial(AtariEnv, "Breakout", "nature"), partial(AtariEnv, "Breakout", "nature")] * 2
    serial, workers = pair(games, mode, seed=0, start_method=start_method)

    assert_same(serial.reset(), workers.reset())
    play_alike(serial, workers, 60)


@pytest.mark.parametrize("mode", MODES)
def test_shared_observations_are_valid_until_the_next_step_or_reset_ends(pair, mode):
    serial, workers = pair(numbered(5), mode)
    workers.copies_observations = False
    serial.reset()
    shown, _ = workers.reset()

    for number in range(30):
        actions, kept = np.full(5, number % 5), shown.copy()
        expected = serial.step(actions)
        workers.step_async(actions)
        time.sleep(0.002)  # enough for the workers to write
        assert np.array_equal(kept, shown)
        assert not shown.flags.writeable
        stepped = workers.step_wait()
        assert_same(expected, stepped)
        shown, ended = stepped[0], expected[2] | expected[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            shown, _ = workers.reset(options={"reset_mask": ended})
            assert_same(serial.reset(options={"reset_mask": ended})[0], shown)


class ChangingEnv(gymnasium.Env):
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
def test_infos_that_change_from_step_to_step_arrive_as_serial_hands_them_out(pair, shifts):
    serial, workers = pair([partial(ChangingEnv, shift) for shift in shifts])

    assert_same(serial.reset(), workers.reset())
    play_alike(serial, workers, 90)
