"""The recipe of docs/environments.md for MuJoCo Playground stores what happened in an environment of that form."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracles.isaac_like import IsaacLikeEnv, assert_rows_are_right, memory_of
from oracles.numbered_frames import NUM_ACTIONS

pytest.importorskip("torch")
PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


@dataclass
class State:
    obs: Any
    reward: Any = None
    done: Any = None
    info: dict[str, Any] = field(default_factory=dict)


class PlaygroundForm:
    """A state goes in and comes out; ``done`` and ``truncation`` are floats, and the first observation hides the last.

    In Playground an episode that both terminates and reaches its limit is done without truncation.
    """

    def __init__(self, env: IsaacLikeEnv) -> None:
        self.env = env

    def reset(self) -> State:
        return State(self.env.reset()[0].numpy())

    def step(self, state: State, actions: np.ndarray) -> State:
        observations, rewards, terminated, truncated, _ = self.env.step(actions)
        done, cut = (terminated | truncated).float().numpy(), (truncated & ~terminated).float().numpy()
        return State(observations.numpy(), rewards.numpy(), done, {"truncation": cut})


def test_the_recipe_stores_no_wrong_row():
    (recipe,) = re.findall(r"```python\n(import numpy as np\n\n\ndef record\(env, state.*?)```", PAGE.read_text(), re.S)
    names: dict[str, Any] = {}
    exec(compile(recipe, PAGE.name, "exec"), names)
    env, generator = IsaacLikeEnv(4), np.random.default_rng(0)
    memory, form = memory_of(env), PlaygroundForm(env)

    names["record"](form, form.reset(), memory, lambda stacks: generator.integers(0, NUM_ACTIONS, len(stacks)), 300)

    num_rows = assert_rows_are_right(memory, env)
    assert num_rows == 1200 - sum(episode.end == "truncated" for each in env.episodes for episode in each)
