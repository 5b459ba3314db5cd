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

STACK, NUM_ENVS, NUM_STEPS = 3, 2, 6


def test_a_problem_of_steps_names_its_environment_and_frame():
    frame, action = observation_spec(FrameSpec((1, 1))), ActionSpec.from_space(2)
    settings = StepSettings(100, NUM_ENVS, STACK, action)
    memory = MemorySettings(
        capacity=100, frame=frame, action=action, stack=STACK, num_envs=NUM_ENVS, discount=0.9, storage="packed"
    )
    steps, damaged = RingSteps(settings), RingSteps(settings)
    steps.begin(np.arange(NUM_ENVS))
    numbers, never = np.zeros(NUM_ENVS, np.int64), np.zeros(NUM_ENVS, np.bool_)
    for _ in range(NUM_STEPS):
        assert steps.append(np.arange(NUM_ENVS), numbers, numbers, never, never) is not None
    arrays = steps.state()
    of_second = np.flatnonzero(arrays["steps.env_id"] == 1)
    arrays["steps.position"] = np.where(np.arange(NUM_ENVS * NUM_STEPS) == of_second[4], 3, arrays["steps.position"])
    damaged.restore(arrays, lambda key: None)

    assert [] == list(find_step_problems(steps, memory))
    assert "environment 1, frame 4: two transitions end at this frame" in list(find_step_problems(damaged, memory))
