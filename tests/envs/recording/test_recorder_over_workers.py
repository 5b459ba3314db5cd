"""The Recorder over worker processes: shared frames, and a killed worker."""

from __future__ import annotations

import os
import signal
from functools import partial

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from framestow.envs import Recorder, WorkerVectorEnv, lost_episodes
from framestow.errors import InvalidStepError, WorkerLostError
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.numbered_frames import NUM_ACTIONS, SHAPE, NumberedEnv
from oracles.shadowed_memory import ShadowedMemory

MODES = list(AutoresetMode)
ENVS = [partial(NumberedEnv, env_id, (env_id + 2, 7), ("terminated", "truncated")) for env_id in range(4)]


def recorder_of(mode, **settings) -> Recorder:
    memory = ShadowedMemory(300, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=3, num_envs=4, seed=0)
    return Recorder(WorkerVectorEnv(ENVS, mode, num_workers=2, **settings), memory)


def assert_every_transition_is_one_step_of_one_episode(memory) -> None:
    batch = memory.get(memory.sampleable_indices())
    frames, next_frames = batch.observation[:, -1, 0], batch.next_observation[:, -1, 0]
    assert np.array_equal(frames + np.array([0, 0, 1]), next_frames)
    assert np.array_equal(batch.action, batch.reward)


def stepped(recorder, times) -> list[dict[int, str]]:
    lost = []
    for call in range(times):
        *_, terminated, truncated, infos = recorder.step([(call + env_id) % NUM_ACTIONS for env_id in range(4)])
        lost.append(lost_episodes(infos))
        if recorder.autoreset_mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            recorder.reset(options={"reset_mask": terminated | truncated})
    return lost


@pytest.mark.parametrize("mode", MODES)
def test_the_episodes_of_a_killed_worker_are_closed_and_the_run_continues(mode):
    recorder = recorder_of(mode, on_worker_lost="restart")
    recorder.reset()
    stepped(recorder, 1)
    os.kill(recorder.env.worker_pids[0], signal.SIGKILL)

    with pytest.warns(RuntimeWarning, match="killed by SIGKILL; it is replaced"):
        lost = stepped(recorder, 20)

    assert {env_id for step in lost for env_id in step} == {0, 1}
    assert_memory_is_what_the_oracle_holds(recorder.memory, recorder.memory.oracle)
    assert_every_transition_is_one_step_of_one_episode(recorder.memory)
    recorder.close()


def test_with_on_worker_lost_raise_the_memory_stays_and_a_reset_is_needed():
    recorder = recorder_of(AutoresetMode.NEXT_STEP)
    recorder.reset()
    stepped(recorder, 1)
    os.kill(recorder.env.worker_pids[1], signal.SIGKILL)

    with pytest.raises(WorkerLostError):
        stepped(recorder, 1)

    with pytest.raises(InvalidStepError, match="have no running episode"):
        stepped(recorder, 1)
    assert len(recorder.memory) == 4
    assert_memory_is_what_the_oracle_holds(recorder.memory, recorder.memory.oracle)
    recorder.close()
