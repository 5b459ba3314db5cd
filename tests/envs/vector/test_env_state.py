"""An environment with the methods state and restore goes on exactly; any other one has no state, and the reason."""

from __future__ import annotations

from collections import deque

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.wrappers import TimeLimit

from framestow.envs import AtariEnv
from framestow.envs.vector.one_env import env_entry, restore_env
from framestow.training.checkpoint import pack_state, unpack_state
from oracles.equal_vectors import assert_same
from oracles.playing_envs import LimitedEnv, SpaceEnv


class Chest(gymnasium.Env):
    """Has any state."""

    observation_space = action_space = Discrete(2)

    def __init__(self, content=None):
        self.content = content

    def state(self):
        return self.content

    def restore(self, state):
        self.content = state


class Open(gymnasium.Env):
    """Has an attribute of that name, as many environments do, and a method of the other."""

    observation_space = action_space = Discrete(2)
    state = None

    def restore(self, state):
        self.state = state


def sequence(env, num_steps: int) -> list:
    seen = []
    for _ in range(num_steps):
        seen.append(env.step(1))
        if seen[-1][2] or seen[-1][3]:
            seen.append(env.reset())
    return seen


@pytest.mark.parametrize(
    "make",
    [
        lambda: AtariEnv("Pong"),
        lambda: LimitedEnv(AtariEnv("Breakout", "nature"), 20),
        lambda: LimitedEnv(SpaceEnv("picture and text"), 6),
    ],
    ids=["AtariEnv", "AtariEnv in a wrapper with a state", "another"],
)
def test_an_environment_that_takes_a_state_goes_the_same_way(make):
    env, other = make(), make()
    env.reset(seed=3)
    other.reset(seed=99)
    sequence(other, 7)
    for num_steps_before in (0, 1, 40):
        sequence(env, num_steps_before)

        assert restore_env(other, through_a_file(env_entry(env))["state"]) is None

        assert_same(sequence(env, 35), sequence(other, 35))


def through_a_file(entry: dict) -> dict:
    return unpack_state(pack_state(entry))


PLAIN = {
    "numbers": [2**90, -1, 0.1, True, None],
    "text": ("", "wörd", b"\x00\xff"),
    "arrays": [np.arange(6, dtype=np.int16).reshape(2, 3), np.array(0.5), np.zeros((0, 2), bool)],
    "nested": {"a": [{"b": ()}], "c": {}},
    "a generator": np.random.default_rng(3).bit_generator.state,
    "another generator": np.random.MT19937(3).state,
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_state_is_restored_as_it_was(name):
    entry = env_entry(Chest(PLAIN[name]))
    other = Chest()

    restore_env(other, through_a_file(entry)["state"])

    assert entry["why"] == ""
    assert_same(PLAIN[name], other.content)


def test_a_numpy_number_is_restored_as_a_python_number():
    numbers = env_entry(Chest([np.float32(0.5), np.int64(7), np.bool_(True)]))["state"]

    assert [(0.5, float), (7, int), (True, bool)] == [(number, type(number)) for number in numbers]


def test_a_state_is_a_copy_for_the_environment_that_saved_it_and_for_each_that_restores_it():
    env, first, second = Chest({"board": np.zeros(3), "coins": [1]}), Chest(), Chest()
    state = env_entry(env)["state"]

    for each in (env, first, second):
        if each is not env:
            restore_env(each, state)
        each.content["board"][:] = 7
        each.content["coins"].append(2)

    restore_env(second, state)
    assert second.content["board"].tolist() == [0, 0, 0]
    assert second.content["coins"] == [1]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "Chest.state() returned None"),
        ({"coins": {1, 2}}, "Chest.state() raised TypeError: it['coins'] has type set: a state has"),
        ([0, object()], "Chest.state() raised TypeError: it[1] has type object"),
        ({1: 2}, "Chest.state() raised TypeError: it has type dict"),
        (deque([1]), "it has type deque"),
        *((np.array([one]), "it has type ndarray") for one in (object(), "a", b"a", 1j, np.datetime64(0, "s"))),
        (np.zeros(2, np.longdouble), "it has type ndarray"),
        (np.zeros(2, "i4, f8"), "it has type ndarray"),
        (np.ma.masked_array([1.0]), "it has type MaskedArray"),
        (np.datetime64("2026-01-31"), "it has type date"),
        (np.longdouble(1), "it has type longdouble"),
    ],
)
def test_a_state_that_is_not_plain_is_no_state_and_the_value_is_named(content, reason):
    entry = env_entry(Chest(content))

    assert entry["state"] is None
    assert reason in entry["why"]


def test_a_state_without_an_end_is_no_state():
    endless: list = []
    endless.append(endless)

    assert env_entry(Chest(endless))["why"].startswith("Chest.state() raised RecursionError")


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: gymnasium.make("CartPole-v1"), "TimeLimit"),
        (lambda: TimeLimit(Chest(), 9), "TimeLimit"),
        (Open, "Open"),
    ],
)
def test_an_environment_or_wrapper_without_both_methods_has_no_state(make, name):
    assert {"state": None, "why": f"{name} has no methods state and restore"} == env_entry(make())
    assert f"{name} has not both; make the environment that was saved" in restore_env(make(), {})
