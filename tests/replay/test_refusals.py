"""Each row of the table of refusals happens, in the order of the table, and stores nothing."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete

from framestow import FrameSpec, ReplayMemory
from framestow._core import BEGINS_EPISODE, TERMINATED
from framestow.errors import InvalidStepError
from framestow.refusals import Refusal
from framestow.replay.step_checks import SegmentSteps

ROOT = Path(__file__).parents[2]
SIDE = 3
TWO = np.zeros((2, SIDE, SIDE), np.uint8)
ACTIONS_BOX = Box(-1, 1, (2,), np.float32)

APPENDED = {
    "actions": [0, 1],
    "rewards": [0.5, 1.0],
    "terminated": [False, False],
    "truncated": [False, True],
    "frames": TWO,
    "env_ids": [0, 1],
    "extras": {"cost": [0.0, 1.0], "count": [1, 2]},
}
ADDED = {
    "observation": TWO,
    "action": [0, 1],
    "reward": [0.5, 1.0],
    "next_observation": TWO,
    "terminated": [False, False],
    "truncated": [False, True],
    "env_ids": [0, 1],
    "extras": {"cost": [0.0, 1.0], "count": [1, 2]},
}


def memory(space: Any = None, actions: Any = 4, stack: int | None = None) -> ReplayMemory:
    """A memory of three environments, of which the first two have an open episode."""
    extras = {"cost": np.float32, "count": np.uint8}
    built = ReplayMemory(20, space or FrameSpec((SIDE, SIDE)), actions, num_envs=3, stack=stack, extras=extras)
    if space is None:
        built.begin(TWO, [0, 1])
    return built


def append(**wrong: Any) -> Callable[[], Any]:
    """A wrong append to a memory of stacks, whose frames are single ones."""
    return lambda: memory(stack=2).append(**APPENDED | wrong)


def append_actions(space: Any, actions: Any) -> Callable[[], Any]:
    return lambda: memory(actions=space).append(**APPENDED | {"actions": actions})


def add(space: Any = None, **wrong: Any) -> Callable[[], Any]:
    return lambda: memory(space).add(**ADDED | wrong)


def extras(**wrong: Any) -> dict[str, Any]:
    return {"cost": [0.0, 1.0], "count": [1, 2]} | wrong


def segment(bits: list[int], is_open: bool) -> Callable[[], Any]:
    def check() -> None:
        settings = memory().inner.settings
        count = sum(each != BEGINS_EPISODE for each in bits)
        arrays = np.zeros(count, np.uint8), np.zeros(count, np.float32), {
            name: np.zeros(count, dtype) for name, dtype in (("cost", np.float32), ("count", np.uint8))
        }  # fmt: skip
        SegmentSteps(np.array(bits, np.uint8), *arrays).check_arrays(settings, is_open)

    return check


DICT, TUPLE = {"camera": FrameSpec((SIDE, SIDE)), "arm": FrameSpec((2,))}, (FrameSpec((SIDE, SIDE)),)
ONE = {"observation": TWO[0], "next_observation": TWO[0], "env_ids": 0, "action": 1, "reward": 0.5}
ONE |= {"terminated": False, "truncated": True, "extras": {"cost": 0.0, "count": 1}}

HAPPENS: dict[Refusal, Callable[[], Any]] = {
    Refusal.NO_OBSERVATION: add(next_observation=None),
    Refusal.NO_DICT: add(DICT),
    Refusal.OTHER_KEYS: add(DICT, observation={"camera": TWO}),
    Refusal.NO_TUPLE: add(TUPLE),
    Refusal.AXES_DIFFER: add(next_observation=TWO[0]),
    Refusal.ENV_IDS_FORM: append(env_ids=[True, False]),
    Refusal.ENV_IDS_UNKNOWN: append(env_ids=[0, 3]),
    Refusal.ENV_IDS_REPEATED: append(env_ids=[1, 1]),
    Refusal.ONE_OBSERVATION_FOR_ENV_IDS: add(**ONE | {"env_ids": [0, 1]}),
    Refusal.ONE_OBSERVATION_FOR_ALL: add(**ONE | {"env_ids": None}),
    Refusal.NO_OPEN_EPISODE: append(env_ids=[0, 2]),
    Refusal.OBSERVATION_SHAPE: add(observation=TWO[:, :2], next_observation=TWO[:, :2]),
    Refusal.OBSERVATION_DTYPE: add(observation=TWO.astype(float), next_observation=TWO.astype(float)),
    Refusal.ONE_ROW: add(**ONE | {"reward": [0.5, 0.5]}),
    Refusal.ACTIONS_SHAPE: append(actions=[0, 1, 2]),
    Refusal.ACTIONS_NO_INTEGERS: append(actions=[0.0, 1.0]),
    Refusal.ACTION_OUTSIDE: append(actions=[0, 4]),
    Refusal.ACTIONS_DTYPE: append_actions(ACTIONS_BOX, np.zeros((2, 2), complex)),
    Refusal.ACTION_NOT_FINITE: append_actions(ACTIONS_BOX, [[0.0, 1.0], [0.0, np.nan]]),
    Refusal.REWARDS_SHAPE: append(rewards=[[0.5], [1.0]]),
    Refusal.REWARDS_DTYPE: append(rewards=[True, False]),
    Refusal.REWARD_NOT_FINITE: append(rewards=[0.5, 1e39]),
    Refusal.FLAGS: append(terminated=[0, 1]),
    Refusal.EXTRAS_NO_DICT: append(extras=5),
    Refusal.EXTRAS_UNKNOWN: append(extras=extras(other=[0, 1])),
    Refusal.EXTRAS_MISSING: append(extras={"cost": [0.0, 1.0]}),
    Refusal.EXTRA_SHAPE: append(extras=extras(cost=[0.0])),
    Refusal.EXTRA_DTYPE: append(extras=extras(cost=["a", "b"])),
    Refusal.EXTRA_VALUE: append(extras=extras(count=[1, 256])),
    Refusal.FRAMES_SHAPE: append(frames=TWO[:, :2]),
    Refusal.FRAMES_DTYPE: append(frames=TWO.astype(np.float32)),
    Refusal.SEGMENT_BITS: segment([BEGINS_EPISODE, 128], is_open=False),
    Refusal.SEGMENT_OUTSIDE: segment([TERMINATED], is_open=False),
}


def pattern(refusal: Refusal) -> str:
    """Return the regular expression of a row's sentences."""
    literal = re.split(r"\{\w+(?:![rs])?\}", refusal.value.replace("{{", "\0").replace("}}", "\1"))
    return f"^{'.*'.join(map(re.escape, literal))}$".replace("\0", r"\{").replace("\1", r"\}")


@pytest.mark.parametrize("refusal", Refusal, ids=lambda refusal: refusal.name)
def test_each_row_of_the_table_happens(refusal):
    with pytest.raises(InvalidStepError, match=pattern(refusal)):
        HAPPENS[refusal]()


def test_native_code_names_all_rows_but_those_of_conversion_and_of_the_axes_that_were_given():
    folder = ROOT / "src/framestow/_core/bindings"
    sources = "".join((folder / name).read_text(encoding="utf-8") for name in ("planner.cpp", "step_arguments.cpp"))

    named = set(re.findall(r'"([A-Z_]{4,})"', sources))

    others = {"NO_DICT", "OTHER_KEYS", "ONE_OBSERVATION_FOR_ENV_IDS", "ONE_ROW", "EXTRA_VALUE"}
    assert others == {refusal.name for refusal in Refusal} ^ named


def test_what_a_good_step_of_these_tests_stores():
    for built in memory(), memory(stack=2):
        assert built.append(**APPENDED).tolist() == [0, 1]
    assert memory().add(**ADDED).tolist() == [0, 1]
    assert memory().add(**ONE).tolist() == [0]
    assert memory(actions=ACTIONS_BOX).append(**APPENDED | {"actions": np.zeros((2, 2), np.float32)}).size == 2


# Faults in the order in which a call looks for them; the first of two is named.
FAULTS_OF_APPEND = [
    ("env_ids", [True, False], Refusal.ENV_IDS_FORM),
    ("env_ids", [0, 2], Refusal.NO_OPEN_EPISODE),
    ("actions", [0.0], Refusal.ACTIONS_SHAPE),
    ("actions", [0.0, 9.0], Refusal.ACTIONS_NO_INTEGERS),
    ("actions", [0, 9], Refusal.ACTION_OUTSIDE),
    ("rewards", [True], Refusal.REWARDS_SHAPE),
    ("rewards", [True, False], Refusal.REWARDS_DTYPE),
    ("rewards", [0.0, np.nan], Refusal.REWARD_NOT_FINITE),
    ("terminated", [0, 1], Refusal.FLAGS),
    ("truncated", [0, 1], Refusal.FLAGS),
    ("extras", 5, Refusal.EXTRAS_NO_DICT),
    ("extras", {"cost": [0.0], "other": 1}, Refusal.EXTRAS_UNKNOWN),
    ("extras", {"cost": ["a"]}, Refusal.EXTRAS_MISSING),
    ("extras", {"cost": ["a"], "count": [256, 256]}, Refusal.EXTRA_SHAPE),
    ("extras", {"cost": ["a", "b"], "count": [256, 256]}, Refusal.EXTRA_DTYPE),
    ("extras", {"cost": [0.0, 1.0], "count": [256, 256]}, Refusal.EXTRA_VALUE),
    ("frames", TWO[:, :2].astype(float), Refusal.FRAMES_SHAPE),
    ("frames", TWO.astype(float), Refusal.FRAMES_DTYPE),
]
FAULTS_OF_ADD = [
    ("observation", None, Refusal.NO_OBSERVATION),
    ("next_observation", TWO[0], Refusal.AXES_DIFFER),
    ("env_ids", [0, 3], Refusal.ENV_IDS_UNKNOWN),
    ("env_ids", [1, 1], Refusal.ENV_IDS_REPEATED),
    ("observation", TWO[:, :2].astype(float), Refusal.OBSERVATION_SHAPE),
    ("observation", TWO.astype(float), Refusal.OBSERVATION_DTYPE),
    ("next_observation", TWO.astype(float), Refusal.OBSERVATION_DTYPE),
    ("action", [0, 9], Refusal.ACTION_OUTSIDE),
    ("reward", [0.0, np.nan], Refusal.REWARD_NOT_FINITE),
    ("extras", 5, Refusal.EXTRAS_NO_DICT),
]


def pairs(faults: list[tuple[str, Any, Refusal]]) -> list[Any]:
    """Return each pair of neighbours; of two in one argument, the first is made alone: its value has both faults."""
    return [pytest.param(one, other, id=f"{one[2].name}-{other[2].name}") for one, other in pairwise(faults)]


@pytest.mark.parametrize(("sooner", "later"), pairs(FAULTS_OF_APPEND))
def test_of_two_faults_of_append_the_sooner_is_named_and_nothing_is_stored(sooner, later):
    built = memory(stack=2)

    with pytest.raises(InvalidStepError, match=pattern(sooner[2])) as refused:
        built.append(**APPENDED | {later[0]: later[1]} | {sooner[0]: sooner[1]})

    assert sooner[2] is not Refusal.FLAGS or str(refused.value).startswith(sooner[0])
    assert len(built) == 0
    assert built.open_episodes.tolist() == [True, True, False]


@pytest.mark.parametrize(("sooner", "later"), pairs(FAULTS_OF_ADD))
def test_of_two_faults_of_add_the_sooner_is_named_and_nothing_is_stored(sooner, later):
    built = memory()

    with pytest.raises(InvalidStepError, match=pattern(sooner[2])):
        built.add(**ADDED | {later[0]: later[1]} | {sooner[0]: sooner[1]})

    assert len(built) == 0
    assert built.open_episodes.tolist() == [True, True, False]


@pytest.mark.parametrize("nothing", [[], (), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.bool_)], ids=repr)
@pytest.mark.parametrize("name", ["actions", "rewards", "terminated", "truncated", "env_ids"])
def test_a_step_of_no_environment_takes_nothing_in_any_form(name, nothing):
    built = ReplayMemory(20, FrameSpec((SIDE, SIDE)), 4, num_envs=3)
    step = dict.fromkeys(["actions", "rewards", "terminated", "truncated", "env_ids"], ())

    assert built.append(**step | {name: nothing}, frames=TWO[:0]).tolist() == []


def test_the_page_of_refused_steps_is_the_table():
    written = runpy.run_path(str(ROOT / "docs" / "refused_steps.py"))["page"]()

    assert written == (ROOT / "docs" / "refused-steps.md").read_text(encoding="utf-8"), (
        "run: python docs/refused_steps.py"
    )


def test_an_action_of_several_integers_names_the_element():
    with pytest.raises(InvalidStepError, match=r"^action is \[0, 5\] at row 1: element 1 runs from 0 to 4; check the"):
        append_actions(MultiDiscrete([3, 5]), [[0, 4], [0, 5]])()
