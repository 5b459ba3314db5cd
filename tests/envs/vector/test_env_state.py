"""The saved state of an environment with its wrappers is exact, or there is none."""

from __future__ import annotations

import enum
import functools
import random
import re
import threading
from collections import deque

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.utils.env_checker import data_equivalence

from framestow.envs import AtariEnv
from framestow.envs.vector.env_state import put_state, take_state, why_no_state
from framestow.errors import IncompatibleError
from framestow.training.checkpoint import pack_state, unpack_state
from oracles.numbered_frames import NumberedEnv

gymnasium.register_envs(ale_py)


def made(name, **settings):
    return lambda: gymnasium.make(name, **settings)


def breakout():
    return gymnasium.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.0)


def cart_pole():
    return gymnasium.make("CartPole-v1", max_episode_steps=30)


def car():
    return gymnasium.make("MountainCarContinuous-v0", max_episode_steps=30)


def course(env, steps: int) -> list:
    """Return the results of an environment for random actions, without wall-clock times."""
    told = []
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        if "episode" in info:
            info = {**info, "episode": {key: value for key, value in info["episode"].items() if key != "t"}}
        told.append((observation, float(reward), terminated, truncated, info))
        if terminated or truncated:
            told.append(env.reset())
    return told


def through_a_file(state: dict) -> dict:
    return unpack_state(pack_state(state))


class HoldingEnv(gymnasium.Env):
    """Plays an environment that it holds as an attribute, not as a wrapper does."""

    def __init__(self):
        self.held = cart_pole()
        self.observation_space, self.action_space = self.held.observation_space, self.held.action_space

    def reset(self, *, seed=None, options=None):
        return self.held.reset(seed=seed)

    def step(self, action):
        return self.held.step(action)


ENVIRONMENTS = {
    "held": HoldingEnv,
    "CartPole": cart_pole,
    "Acrobot": made("Acrobot-v1"),
    "Pendulum": made("Pendulum-v1"),
    "MountainCar": made("MountainCar-v0"),
    "FrozenLake": made("FrozenLake-v1"),
    "Taxi": made("Taxi-v4"),
    "Blackjack": made("Blackjack-v1"),
    "CliffWalking": made("CliffWalking-v1"),
    "ale-py": breakout,
    "ale-py with frames skipped by chance": made(
        "ALE/Pong-v5", frameskip=(2, 5), repeat_action_probability=0.0, obs_type="ram"
    ),
    "AtariEnv": lambda: AtariEnv("Pong"),
    "AtariEnv in wrappers": lambda: wrappers.RecordEpisodeStatistics(
        wrappers.FrameStackObservation(wrappers.TimeLimit(AtariEnv("Breakout", "nature"), 20), 4)
    ),
    "Atari preprocessing": lambda: wrappers.FrameStackObservation(wrappers.AtariPreprocessing(breakout()), 4),
    "sticky actions": lambda: wrappers.StickyAction(wrappers.AtariPreprocessing(breakout()), 0.25),
    "maximum of frames": lambda: wrappers.MaxAndSkipObservation(breakout(), 4),
    "grey and small": lambda: wrappers.ResizeObservation(wrappers.GrayscaleObservation(breakout()), (84, 84)),
    "statistics": lambda: wrappers.NormalizeReward(
        wrappers.NormalizeObservation(wrappers.RecordEpisodeStatistics(cart_pole(), buffer_length=3))
    ),
    "delay": lambda: wrappers.DelayObservation(cart_pole(), 3),
    "time": lambda: wrappers.TimeAwareObservation(cart_pole()),
    "flattened": lambda: wrappers.FlattenObservation(wrappers.TimeAwareObservation(cart_pole(), flatten=False)),
    "filtered": lambda: wrappers.FilterObservation(wrappers.TimeAwareObservation(cart_pole(), flatten=False), ["obs"]),
    "repeated": lambda: wrappers.RepeatAction(cart_pole(), 3),
    "autoreset": lambda: wrappers.Autoreset(cart_pole()),
    "rescaled": lambda: wrappers.RescaleObservation(car(), np.float32(0), np.float32(1)),
    "rescaled action": lambda: wrappers.RescaleAction(car(), np.float32(0), np.float32(1)),
    "clipped action": lambda: wrappers.ClipAction(car()),
    "clipped reward": lambda: wrappers.ClipReward(cart_pole(), -1, 1),
    "own functions": lambda: wrappers.TransformReward(
        wrappers.TransformObservation(cart_pole(), lambda observation: observation * 2, None), lambda reward: -reward
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_that_takes_a_state_goes_the_same_way(name):
    env, other = ENVIRONMENTS[name](), ENVIRONMENTS[name]()
    env.reset(seed=3)
    env.action_space.seed(1)
    other.reset(seed=99)
    course(other, 7)
    for steps_before in (0, 1, 40):
        course(env, steps_before)

        put_state(other, through_a_file(take_state(env)))

        assert data_equivalence(course(env, 35), course(other, 35))
        assert why_no_state(env) == ""


def test_a_state_is_a_copy_that_the_environment_no_longer_touches():
    env = wrappers.FrameStackObservation(cart_pole(), 4)
    env.reset(seed=0)
    state = take_state(env)
    before = pack_state(state)

    course(env, 5)

    assert before == pack_state(state)


class Card(enum.Enum):
    ACE = 1
    KING = 2


class Chest:
    """A plain object that knows the environment and another chest."""

    def __init__(self, owner):
        self.owner, self.neighbour, self.coins = owner, None, [1]

    def emptied(self):
        return sum(self.coins)


class RoomEnv(gymnasium.Env):
    """Holds a bit of everything that can be read, some of it twice."""

    def __init__(self):
        self.observation_space, self.action_space = Dict({"inner": Discrete(3)}), Discrete(2)
        self.chests = [Chest(self), Chest(self)]
        self.chests[0].neighbour, self.chests[1].neighbour = self.chests[1], self.chests[0]
        self.opened = self.chests[0]
        self.board = np.zeros((2, 2), np.int16, order="F")
        self.also_the_board = {"board": self.board, (1, "x"): deque([1, 2], maxlen=2)}
        self.frozen = np.arange(3)
        self.frozen.flags.writeable = False
        self.mixed = np.array([None, Card.ACE, [1]], object)
        self.numbers = (np.float32(0.1), np.uint8(7), 1j.imag, 2**90, float("nan"))
        self.pythons, self.numpys = random.Random(3), np.random.RandomState(4)
        self.twister = np.random.Generator(np.random.MT19937(5))
        self.card, self.kind, self.join = Card.ACE, Chest, np.maximum
        self.rule = self.chests[1].emptied
        self.counted = counter(10)


def counter(start):
    def count():
        nonlocal start
        start += 1
        return start

    return count


def test_shared_references_stay_shared_and_restored_values_are_new():
    env, other = RoomEnv(), RoomEnv()
    env.chests[1].coins += [5]
    env.board[:] = 3
    env.card = Card.KING
    env.counted()
    before = [env.counted() + 1, env.pythons.random(), env.numpys.rand(), env.twister.spawn(1)[0].random()]
    state = take_state(env)
    expected = [env.counted(), env.pythons.random(), env.numpys.rand(), env.twister.spawn(1)[0].random()]
    kept_board, kept_space = other.board, other.action_space

    put_state(other, through_a_file(state))

    assert expected == [
        other.counted(),
        other.pythons.random(),
        other.numpys.rand(),
        other.twister.spawn(1)[0].random(),
    ]
    assert before[1:] != expected[1:]
    assert other.also_the_board["board"] is other.board
    assert (other.board == 3).all()
    assert other.board.flags.f_contiguous
    assert (kept_board == 0).all()
    assert other.action_space is kept_space
    assert other.opened is other.chests[0]
    assert other.chests[0].neighbour.neighbour is other.chests[0]
    assert other.chests[0].owner is other
    assert other.rule() == 6
    assert other.rule.__self__ is other.chests[1]
    assert other.card is Card.KING
    assert [type(number) for number in env.numbers] == [type(number) for number in other.numbers]
    assert other.mixed[1] is Card.ACE
    assert other.also_the_board[(1, "x")].maxlen == 2
    assert [True, False] == [array.flags.writeable for array in (other.board, other.frozen)]


def test_attributes_that_the_saved_environment_lacked_are_removed():
    env, other = RoomEnv(), RoomEnv()
    other.cached = 3

    put_state(other, through_a_file(take_state(env)))

    assert not hasattr(other, "cached")


class Slotted:
    __slots__ = ("hidden",)


class PartlySlotted(Chest):
    __slots__ = ("hidden",)


class NumbersList(list):
    pass


class Shy:
    def __getattribute__(self, name):
        raise RuntimeError("do not look")


class Parting:
    def __del__(self):
        """Does something when it goes."""


def remembering(step, seen=[]):  # noqa: B006
    seen.append(step)
    return len(seen)


def overlapping():
    board = np.zeros((4, 4))
    return [board, board[:2]]


UNREADABLE = {
    "a lock": (threading.Lock(), "RoomEnv.held is a _thread:lock, whose state cannot be read"),
    "a set": ({1, 2}, "RoomEnv.held is a builtins:set"),
    "a generator function's run": ((step for step in range(3)), "RoomEnv.held is a builtins:generator"),
    "slots": (Slotted(), "RoomEnv.held is a "),
    "slots beside attributes": (PartlySlotted(None), "RoomEnv.held is a "),
    "a subclass of list": (NumbersList(), "RoomEnv.held is a "),
    "another package's object": (functools.partial(print), "RoomEnv.held is a functools:partial"),
    "what a thread keeps": (threading.local(), "RoomEnv.held is a _thread:_local"),
    "overlapping arrays": (overlapping(), "RoomEnv.held[1] shares its memory with RoomEnv.held[0]"),
    "foreign memory": (np.frombuffer(bytearray(8), np.uint8), "RoomEnv.held is an array over the memory of a "),
    "a function that keeps something": (remembering, "is a function with a changeable value in its default 0"),
    "a farewell": (Parting(), "RoomEnv.held is a "),
    "an object that will not be looked at": (Shy(), "RuntimeError('do not look') while it was read"),
    "a compiled method": ([].append, "RoomEnv.held is a builtins:builtin_function_or_method"),
    "deep nesting": (functools.reduce(lambda inner, _: [inner], range(5000), []), "nested too deep"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_attribute_means_no_state_and_is_named(name):
    value, reason = UNREADABLE[name]
    env = RoomEnv()
    env.held = value

    assert take_state(env) is None
    assert reason in why_no_state(env)
    assert take_state(wrappers.OrderEnforcing(env)) is None


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (made("ALE/Pong-v5"), "AtariEnv.ale is an emulator with sticky actions"),
        (made("ALE/Qbert-v5", repeat_action_probability=0.0), "AtariEnv.ale is an emulator of qbert whose state"),
    ],
)
def test_emulators_that_ale_py_does_not_restore_exactly_have_no_state(make, reason):
    env = make()
    env.reset(seed=0)

    assert take_state(env) is None
    assert reason in why_no_state(env)


class Forgetful(NumberedEnv):
    def state_dict(self):
        return {**super().state_dict(), "picture": object()}


def test_a_state_dict_that_is_not_plain_is_no_state():
    assert why_no_state(Forgetful()).startswith("Forgetful.state_dict()['picture'] is a builtins:object")


def test_an_unseeded_space_stays_unseeded_and_a_seeded_one_resumes():
    env, other = NumberedEnv(), NumberedEnv()
    env.action_space.seed(5)
    env.action_space.sample()
    state = take_state(env)
    expected = [env.action_space.sample() for _ in range(9)]

    put_state(other, through_a_file(state))

    assert expected == [other.action_space.sample() for _ in range(9)]
    assert vars(other.observation_space)["_np_random"] is None


def test_a_state_of_other_layers_is_refused_and_changes_nothing():
    env = wrappers.TimeLimit(cart_pole(), 9)
    env.reset(seed=0)
    state = take_state(env)
    other = cart_pole()
    other.reset(seed=1)
    before = pack_state(take_state(other))

    with pytest.raises(IncompatibleError, match=re.escape("outermost first: this is")):
        put_state(other, state)

    assert before == pack_state(take_state(other))


def test_a_state_that_names_a_foreign_class_makes_nothing_of_it():
    env = RoomEnv()
    text = repr(take_state(env)).replace(f"{Chest.__module__}:Chest'", "threading:Timer'")
    forged = eval(text, {"array": np.array, "int16": np.int16, "uint32": np.uint32, "nan": float("nan")})

    with pytest.raises(IncompatibleError, match="its class threading:Timer is not among the environment's"):
        put_state(env, forged)


def test_a_function_that_is_another_one_now_is_refused():
    env, other = RoomEnv(), RoomEnv()
    state = take_state(env)
    other.counted = lambda: 3

    with pytest.raises(IncompatibleError, match="it was the function"):
        put_state(other, state)


def test_a_space_inside_a_box_of_spaces_is_one_of_them():
    env = RoomEnv()
    env.observation_space = Dict({"inner": Box(0, 1, (1,)), "more": Dict({"deep": Discrete(4)})})
    env.observation_space.seed(3)
    other = RoomEnv()
    other.observation_space = Dict({"inner": Box(0, 1, (1,)), "more": Dict({"deep": Discrete(4)})})
    state = take_state(env)
    expected = [env.observation_space.sample() for _ in range(5)]

    put_state(other, through_a_file(state))

    assert data_equivalence(expected, [other.observation_space.sample() for _ in range(5)])
