"""Every drop-in takes each option of a memory, or says why it does not."""

from __future__ import annotations

import ast
import inspect
import re
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from framestow.errors import InvalidSettingsError
from framestow.integrations import cleanrl
from framestow.integrations.drop_in import memory_options
from framestow.integrations.drop_in.memory_options import BudgetOptions, MemoryOptions, PackingOptions
from framestow.replay.memory import ReplayMemory

PICTURES, ACTIONS = Box(0, 255, (4, 6, 5), np.uint8), Discrete(4)
VECTOR = Box(-1, 1, (2,), np.float32)
GOALS = Dict({"observation": VECTOR, "achieved_goal": VECTOR, "desired_goal": VECTOR})


CLEANRL = [
    ("ReplayBuffer", (100, PICTURES, ACTIONS, "cpu"), BudgetOptions),
    ("PrioritizedReplayBuffer", (100, (4, 6, 5), "cpu", 1, 0.9), MemoryOptions),
]
CLASSIC = [("ReplayBuffer", (100, 4), PackingOptions), ("MemoryEfficientAtariBuffer", (100,), PackingOptions)]
SB3 = [
    ("ReplayBuffer", (100, PICTURES, ACTIONS, "cpu"), BudgetOptions),
    ("NStepReplayBuffer", (100, PICTURES, ACTIONS, "cpu"), BudgetOptions),
    ("PrioritizedReplayBuffer", (100, PICTURES, ACTIONS, "cpu"), BudgetOptions),
    ("DictReplayBuffer", (100, GOALS, ACTIONS, "cpu"), BudgetOptions),
    ("HerReplayBuffer", (100, GOALS, ACTIONS, None, "cpu"), MemoryOptions),
]
TIANSHOU = [
    ("ReplayBuffer", (100,), MemoryOptions),
    ("PrioritizedReplayBuffer", (100, 0.6, 0.4), MemoryOptions),
    ("VectorReplayBuffer", (100, 2), MemoryOptions),
]
TORCHRL = [("FramestowStorage", (100,), MemoryOptions)]
DROP_INS = {"cleanrl": CLEANRL, "classic": CLASSIC, "stable_baselines3": SB3, "tianshou": TIANSHOU, "torchrl": TORCHRL}


def builder(module: str, name: str, arguments: tuple) -> partial:
    """How to build a small drop-in; skips the test if its library is not installed."""
    try:
        return partial(getattr(import_module(f"framestow.integrations.{module}"), name), *arguments)
    except ImportError as missing:
        pytest.skip(str(missing))


EACH = pytest.mark.parametrize(
    ("drop_in", "options"),
    [
        pytest.param((module, name, arguments), options, id=f"{module}-{name}")
        for module, drop_ins in DROP_INS.items()
        for name, arguments, options in drop_ins
    ],
)
VALUES = {
    "threads": 2,
    "storage": "raw",
    "frames_per_segment": 7,
    "directory": "frames",
    "flush_every": None,
    "max_bytes": "1 GiB",
}
PARAMETERS = inspect.signature(ReplayMemory).parameters
OF_A_MEMORY = [name for name, each in PARAMETERS.items() if each.kind == each.KEYWORD_ONLY]
REASON = "is (not (possible|an argument) here|'1 GiB'): .*; "


@EACH
def test_every_option_of_a_memory_is_taken_or_refused_with_the_reason(drop_in, options, tmp_path, monkeypatch):
    build = builder(*drop_in)
    monkeypatch.chdir(tmp_path)
    assert VALUES.keys() == BudgetOptions.__annotations__.keys(), "give the new option a value in this test"

    own = inspect.signature(build.func).parameters
    for name in OF_A_MEMORY:
        if name in options.__annotations__:
            build(**{name: VALUES[name]})
        elif name not in own:
            with pytest.raises(InvalidSettingsError, match=f"^{name} {REASON}"):
                build(**{name: VALUES.get(name, 1)})


@EACH
def test_a_mistyped_option_is_refused_with_the_nearest_one(drop_in, options):
    build = builder(*drop_in)
    for name in options.__annotations__:
        with pytest.raises(InvalidSettingsError, match=f"{name}s is not an argument of .*; did you mean '{name}'"):
            build(**{f"{name}s": VALUES[name]})


@EACH
def test_a_wrong_value_of_an_option_is_refused_when_the_buffer_is_built(drop_in, options, tmp_path):
    build = builder(*drop_in)
    (tmp_path / "file").touch()
    wrong = {"threads": 0, "storage": "zip", "frames_per_segment": 0, "directory": tmp_path / "file", "flush_every": -1}
    wrong["max_bytes"] = "many"
    for name in options.__annotations__:
        with pytest.raises(InvalidSettingsError, match=re.escape(f"{name} is ")):
            build(**{name: wrong[name]})


def test_options_reach_the_memory():
    buffer = cleanrl.ReplayBuffer(100, PICTURES, ACTIONS, "cpu", **VALUES | {"directory": None})

    settings = buffer.memory.inner.settings
    assert (2, "raw", 7, 2**30) == (
        settings.threads,
        settings.storage,
        settings.frames_per_segment,
        settings.max_bytes,
    )


def test_options_have_the_types_of_the_memorys_arguments_and_a_line_of_help_each():
    tree = ast.parse(Path(memory_options.__file__).read_text(encoding="utf-8"))
    helped = {
        before.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for before, after in zip(node.body, node.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr)
    }
    types = {
        node.target.id: ast.unparse(node.annotation)
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef)
        for node in kind.body
        if isinstance(node, ast.AnnAssign)
    }

    assert BudgetOptions.__annotations__.keys() == helped
    assert types == {name: ReplayMemory.__init__.__annotations__[name] for name in types}
