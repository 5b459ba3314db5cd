"""What a verification says of stored steps that contradict each other."""

from __future__ import annotations

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import observation_spec
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import StepSettings
from framestow.replay.store.consistency import find_step_problems
from oracles.listed_steps import FramedSteps

STACK, NUM_ENVS, NUM_STEPS = 3, 2, 6


def test_a_problem_of_steps_names_its_environment_and_frame():
    frame, action = observation_spec(FrameSpec((1, 1))), ActionSpec.from_space(2)
    settings = StepSettings(100, NUM_ENVS, STACK, action)
    memory = MemorySettings(
        capacity=100, frame=frame, action=action, stack=STACK, num_envs=NUM_ENVS, discount=0.9, storage="packed"
    )
    steps, damaged = RingSteps(settings), RingSteps(settings)
    played, env_ids = FramedSteps(steps, segment_frames=1), list(range(NUM_ENVS))
    played.begin(env_ids)
    for _ in range(NUM_STEPS):
        played.append(env_ids, [0] * NUM_ENVS, [0.0] * NUM_ENVS, [False] * NUM_ENVS)
    arrays = steps.state()
    of_second = np.flatnonzero(arrays["steps.env_id"] == 1)
    arrays["steps.position"] = np.where(np.arange(NUM_ENVS * NUM_STEPS) == of_second[4], 3, arrays["steps.position"])
    damaged.restore(arrays, lambda key: None)

    assert [] == list(find_step_problems(steps, memory))
    assert "environment 1, frame 4: two transitions end at this frame" in list(find_step_problems(damaged, memory))
