"""Frames in arrays that the environment reuses are recorded exactly, without a copy."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from framestow.envs import Recorder
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.numbered_frames import NUM_ACTIONS, SHAPE, ListSink
from oracles.shadowed_memory import ShadowedMemory
from oracles.toy_vector import ToyVector, numbered_envs

LENGTHS = [(4, 5), (3,), (1, 6, 4)]
ENDINGS = [("terminated", "truncated"), ("truncated",), ("both", "terminated")]


def toy(mode=AutoresetMode.NEXT_STEP) -> ToyVector:
    return ToyVector(numbered_envs(LENGTHS, ENDINGS), mode)


def test_copies_of_observations_are_disabled_in_the_environment_but_not_behind_a_wrapper():
    direct, wrapped = toy(), toy()

    Recorder(direct, ListSink(3))
    Recorder(RecordEpisodeStatistics(wrapped), ListSink(3))

    assert not direct.copies_observations
    assert wrapped.copies_observations


class WatchfulSink(ListSink):
    """Record for each call with all environments whether its frames are in the environment's arrays."""

    def __init__(self, arrays):
        super().__init__(3)
        self.arrays, self.are_shared = arrays, []

    def append(self, actions, rewards, terminated, truncated, frames, env_ids=None):
        super().append(actions, rewards, terminated, truncated, frames, env_ids)
        if env_ids is None:
            self.are_shared.append(np.shares_memory(frames, self.arrays))


def test_frames_are_recorded_from_the_shared_array_without_a_copy():
    vector = toy()
    sink = WatchfulSink(vector.arrays)
    recorder = Recorder(vector, sink)
    recorder.reset()
    for _ in range(20):
        recorder.step([1, 1, 1])

    assert len(sink.are_shared) >= 3
    assert all(sink.are_shared)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("in_background", [False, True])
def test_frames_are_recorded_exactly_from_an_array_that_changes_later(mode, in_background):
    vector = toy(mode)
    memory = ShadowedMemory(60, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=4, num_envs=3, seed=0)
    recorder = Recorder(vector, memory)
    observations, _ = recorder.reset()
    seen = []
    for call in range(40):
        actions = [call % NUM_ACTIONS] * 3
        seen.append((observations, observations.copy()))
        if in_background:
            recorder.step_async(actions)
            observations, _, terminated, truncated, _ = recorder.step_wait()
        else:
            observations, _, terminated, truncated, _ = recorder.step(actions)
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            observations, _ = recorder.reset(options={"reset_mask": terminated | truncated})
        expected = [vector.last_frames[env_id] for env_id in range(3)]
        assert np.array_equal(expected, observations[:, -1])

    assert_memory_is_what_the_oracle_holds(memory, memory.oracle)
    for shown, copy in seen:
        assert np.array_equal(copy, shown)
    recorder.close()
