"""The loop of docs/environments.md records ALE's vector environment and EnvPool as they played."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from ale_py import AtariVectorEnv

from framestow import ReplayMemory

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"
NUM_ENVS, NUM_STEPS = 3, 260


def ale():
    env = AtariVectorEnv("breakout", num_envs=NUM_ENVS, max_num_frames_per_episode=320)
    return env, env.single_observation_space, env.single_action_space, {"seed": 5}


def envpool():
    library = pytest.importorskip("envpool")
    pool = library.make_gymnasium("Breakout-v5", num_envs=NUM_ENVS, max_episode_steps=80, seed=5)
    return pool, pool.observation_space, pool.action_space, {}


class Noting:
    """A vector environment that copies everything it is given and returns."""

    def __init__(self, env, reset_arguments) -> None:
        self.env, self.reset_arguments, self.answers = env, reset_arguments, []

    def reset(self):
        observations, infos = self.env.reset(**self.reset_arguments)
        self.first = observations.copy()
        return observations, infos

    def step(self, actions):
        answer = self.env.step(actions)
        self.answers.append([actions.copy(), *(part.copy() for part in answer[:4])])
        return answer


def record():
    """Return the function `record` of the page."""
    [block] = re.findall(r"```python\n(import ale_py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(compile(block.split("\n\n\ndef play_randomly")[0], str(PAGE), "exec"), names)
    return names["record"]


@pytest.mark.parametrize("made", [ale, envpool], ids=lambda make: make.__name__)
def test_every_step_is_recorded_with_the_observation_it_led_to_and_no_reset_is(made):
    env, observation_space, action_space, reset_arguments = made()
    memory = ReplayMemory(NUM_ENVS * NUM_STEPS, observation_space, action_space, num_envs=NUM_ENVS)
    noting, draw = Noting(env, reset_arguments), np.random.default_rng(0)

    record()(noting, memory, lambda shown: draw.integers(4, size=len(shown)).astype(np.int32), NUM_STEPS)

    before, has_ended, steps = noting.first, np.zeros(NUM_ENVS, bool), []
    for actions, observations, rewards, terminated, truncated in noting.answers:
        for number in np.flatnonzero(~has_ended):
            fields = before, actions, rewards, observations, terminated, truncated
            steps.append([rows[number] for rows in fields])
        before, has_ended = observations, terminated | truncated
    assert NUM_ENVS * (NUM_STEPS - 5) < len(steps) < NUM_ENVS * (NUM_STEPS - 1)  # some answers are those of resets
    batch = memory.get(memory.sampleable_indices())
    stored = batch.observation, batch.action, batch.reward, batch.next_observation, batch.terminated, batch.truncated
    for expected, actual in zip(zip(*steps, strict=True), stored, strict=True):
        assert np.array_equal(np.array(expected), actual)
