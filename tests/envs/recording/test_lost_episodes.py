"""A step of a lost episode is not stored; the memory closes the episode."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from framestow.envs import Recorder, lost_episodes
from framestow.errors import InvalidStepError
from oracles.numbered_frames import NUM_ACTIONS, ListSink, NumberedEnv, frame_of
from oracles.toy_vector import WHY_LOST, ToyVector, numbered_envs

MODES = list(AutoresetMode)
LENGTHS = [(4, 5), (3,), (1, 6, 4)]
ENDINGS = [("terminated", "truncated"), ("truncated",), ("both", "terminated")]
# Environment and number of its step; with NEXT_STEP a reset counts as a step.
LOSSES = [(0, 1), (0, 12), (1, 3), (1, 4), (2, 9), (2, 20)]


def toy(mode, losses=LOSSES) -> ToyVector:
    return ToyVector(numbered_envs(LENGTHS, ENDINGS), mode, losses)


def expected_log(env_id, losses, mode, num_calls) -> list[tuple]:
    """Return the expected calls of the memory for one environment, independently of the Recorder."""
    env, log, has_ended = NumberedEnv(env_id, LENGTHS[env_id], ENDINGS[env_id]), [], False
    log.append(("begin", env.reset()[0].tobytes()))
    for call in range(1, num_calls + 1):
        if mode is AutoresetMode.NEXT_STEP and has_ended:
            log.append(("begin", env.reset()[0].tobytes()))
            has_ended = False
            continue
        if (env_id, call) in losses:
            env.is_over = has_ended = True
        else:
            frame, reward, terminated, truncated, _ = env.step(call % NUM_ACTIONS)
            log.append(("step", call % NUM_ACTIONS, reward, terminated, truncated, frame.tobytes()))
            has_ended = terminated or truncated
        if has_ended and mode is not AutoresetMode.NEXT_STEP:
            log.append(("begin", env.reset()[0].tobytes()))
    return log


def play(recorder, num_calls):
    recorder.reset()
    for call in range(1, num_calls + 1):
        *_, terminated, truncated, _ = recorder.step([call % NUM_ACTIONS] * 3)
        if recorder.autoreset_mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            recorder.reset(options={"reset_mask": terminated | truncated})


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_step_is_not_recorded_and_a_new_episode_begins(mode):
    sink = ListSink(3)

    play(Recorder(toy(mode), sink), 40)

    for env_id in range(3):
        expected = expected_log(env_id, LOSSES, mode, 40)
        assert expected == sink.log[env_id]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_the_policy_sees_the_last_received_stack_until_the_reset(mode):
    vector = ToyVector(numbered_envs([(9,)] * 3, [("terminated",)] * 3), mode, losses=[(0, 2)])
    recorder = Recorder(vector, ListSink(3, stack=2))
    recorder.reset()
    before, *_ = recorder.step([1, 1, 1])

    after, rewards, terminated, truncated, infos = recorder.step([1, 1, 1])

    assert np.array_equal(before[0], after[0])
    assert (rewards[0], terminated[0], truncated[0]) == (0.0, False, True)
    assert lost_episodes(infos) == {0: WHY_LOST}


def test_with_same_step_a_lost_episodes_final_observation_is_its_last_good_stack():
    recorder = Recorder(toy(AutoresetMode.SAME_STEP, losses=[(0, 2)]), ListSink(3, stack=2))
    recorder.reset()
    before, *_ = recorder.step([1, 1, 1])

    after, _, _, truncated, infos = recorder.step([1, 1, 1])

    assert truncated[0]
    assert np.array_equal([frame_of(0, 1, 0)] * 2, after[0])
    assert np.array_equal(before[0], infos["final_obs"][0])
    assert lost_episodes(infos) == {0: WHY_LOST}


def test_with_autoreset_disabled_a_lost_episode_waits_for_its_reset():
    recorder = Recorder(toy(AutoresetMode.DISABLED, losses=[(0, 1)]), ListSink(3))
    recorder.reset()
    recorder.step([1, 1, 1])

    with pytest.raises(InvalidStepError, match="have ended"):
        recorder.step([1, 1, 1])
