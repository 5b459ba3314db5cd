"""Contract tests of the saved state of a vector environment; run like `vector_env_contract`."""

from __future__ import annotations

import re
import warnings
from functools import partial

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

from contracts.vector_env_contract import (
    DISABLED,
    NEXT_STEP,
    SAME_STEP,
    MakingVectors,
    each_mode,
    numbered_envs,
    space_envs,
)
from framestow.envs import Recorder, lost_episodes
from framestow.errors import IncompatibleError
from framestow.training.checkpoint import pack_state, unpack_state
from oracles.equal_vectors import assert_same, play_alike
from oracles.numbered_frames import ListSink, NumberedEnv
from oracles.playing_envs import LimitedEnv, SealedEnv, SpaceEnv


def limited_env():
    return LimitedEnv(SpaceEnv("nested"), 6)


def sealed_among_others() -> list:
    return [partial(SpaceEnv, "picture"), partial(SealedEnv, "picture"), partial(SpaceEnv, "picture")]


def sealed_numbered_env(env_id):
    return TimeLimit(NumberedEnv(env_id, (9,)), 100)


class ResumedVectorContract(MakingVectors):
    @pytest.mark.each_value
    @each_mode
    @pytest.mark.parametrize("num_steps", [0, 1, 17])
    def test_a_run_resumed_from_its_state_is_the_uninterrupted_one(self, make, mode, num_steps):
        vector, resumed = self.begun(make, [limited_env] * 3, mode), self.begun(make, [limited_env] * 3, mode, seed=8)
        play(vector, num_steps)

        resumed.load_state_dict(through_a_file(vector.state_dict()))

        play_alike(vector, resumed, 20)

    def test_a_state_from_before_the_first_reset_starts_with_the_same_seed(self, make):
        vector, resumed = make(space_envs(), seed=3), make(space_envs())

        resumed.load_state_dict(through_a_file(vector.state_dict()))

        assert_same(vector.reset(), resumed.reset())
        play_alike(vector, resumed, 5)

    def test_a_state_of_another_vector_environment_is_refused(self, make):
        vector = self.begun(make, numbered_envs())
        state = vector.state_dict()

        with pytest.raises(IncompatibleError, match=re.escape("3 environments with NextStep: these are 3 with")):
            make(numbered_envs(), DISABLED).load_state_dict(state)
        with pytest.raises(IncompatibleError, match=re.escape("these are 2 with NextStep")):
            make(numbered_envs()[:2]).load_state_dict(state)
        with pytest.raises(IncompatibleError, match="TimeLimit has not both"):
            make([lambda: TimeLimit(NumberedEnv(), 9)] * 3).load_state_dict(state)

    @each_mode
    def test_an_environment_without_a_saved_state_restarts_and_the_next_step_reports_it(self, make, mode):
        vector = self.begun(make, sealed_among_others(), mode)
        ended = step_until_running(vector, 1)
        state = through_a_file(vector.state_dict())
        resumed, last = make(sealed_among_others(), mode), ended
        with pytest.warns(UserWarning, match=re.escape("environments [1] restart, and their episodes")):
            resumed.load_state_dict(state)

        expected, told = vector.step([1, 1, 1]), resumed.step([1, 1, 1])

        others = [0, 2]
        assert {1: lost_episodes(told[4])[1]} == lost_episodes(told[4])
        assert "resumed without a state: SealedEnv has no methods state and restore" in lost_episodes(told[4])[1]
        for theirs, ours in zip(expected[:4], told[:4], strict=True):
            assert np.array_equal(theirs[others], ours[others])
        assert (0.0, False, True) == (told[1][1], told[2][1], told[3][1])
        if mode is SAME_STEP:
            assert np.array_equal(last[1], told[4]["final_obs"][1])
            assert told[4]["_final_info"][1]
            assert "drawn" in told[4]
        else:
            assert np.array_equal(last[1], told[0][1])
            begin_the_next_episode(resumed, told)
        assert all(not lost_episodes(step[4]) for step in steps_of(resumed, 5))

    @each_mode
    def test_the_same_losses_give_the_same_run(self, make, mode):
        vector = self.begun(make, sealed_among_others(), mode)
        step_until_running(vector, 1)
        state, pair = vector.state_dict(), []
        for _ in range(2):
            pair.append(make(sealed_among_others(), mode))
            with pytest.warns(UserWarning, match="restart, and their episodes"):
                pair[-1].load_state_dict(state)

        play_alike(*pair, 15)

    def test_a_lost_episode_that_was_not_reported_yet_is_saved_in_the_next_state(self, make):
        vector = self.begun(make, sealed_among_others())
        step_until_running(vector, 1)
        for _ in range(2):
            state = vector.state_dict()
            vector = make(sealed_among_others())
            with pytest.warns(UserWarning, match="restart, and their episodes"):
                vector.load_state_dict(through_a_file(state))

        assert [1] == list(lost_episodes(vector.step([0, 0, 0])[4]))
        assert not lost_episodes(vector.step([0, 0, 0])[4])

    @pytest.mark.parametrize("mode", [NEXT_STEP, DISABLED])
    def test_an_environment_whose_episode_had_ended_loses_none(self, make, mode):
        vector = self.begun(make, sealed_among_others(), mode)
        while True:
            _, _, terminated, truncated, _ = outcome = vector.step([0, 0, 0])
            if (terminated | truncated)[1]:
                break
            begin_the_next_episode(vector, outcome)
        state = vector.state_dict()
        resumed = make(sealed_among_others(), mode)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            resumed.load_state_dict(state)

        begin_the_next_episode(resumed, outcome)
        assert all(not lost_episodes(step[4]) for step in steps_of(resumed, 3))

    def test_the_episode_that_same_step_has_just_begun_is_one_to_lose(self, make):
        vector = self.begun(make, sealed_among_others(), SAME_STEP)
        while not (outcome := vector.step([0, 0, 0]))[4].get("_final_obs", np.zeros(3, bool))[1]:
            pass
        resumed = make(sealed_among_others(), SAME_STEP)
        with pytest.warns(UserWarning, match="restart, and their episodes"):
            resumed.load_state_dict(vector.state_dict())

        told = resumed.step([0, 0, 0])[4]

        assert [1] == list(lost_episodes(told))
        assert np.array_equal(outcome[0][1], told["final_obs"][1])

    @each_mode
    def test_a_recorder_stores_no_step_for_a_lost_episode(self, make, mode):
        envs = [partial(NumberedEnv, 0, (9,)), partial(sealed_numbered_env, 1)]
        recorder = Recorder(make(envs, mode), ListSink(2))
        recorder.reset(seed=0)
        recorder.step([1, 2])
        resumed = Recorder(make(envs, mode), recorder.memory)
        with pytest.warns(UserWarning, match="restart, and their episodes"):
            resumed.load_state_dict(through_a_file(recorder.state_dict()))

        _, _, _, truncated, infos = resumed.step([3, 4])
        if mode is DISABLED:
            resumed.reset(options={"reset_mask": truncated})
        if mode is not SAME_STEP:
            resumed.step([3, 0])

        assert [1] == list(lost_episodes(infos))
        kinds = [[entry[0] for entry in log] for log in recorder.memory.log]
        assert ["begin"] + ["step"] * (2 if mode is SAME_STEP else 3) == kinds[0]
        assert ["begin", "step", "begin"] + ["step"] * (mode is DISABLED) == kinds[1]

    def test_a_reset_by_the_caller_closes_a_loss(self, make):
        vector = self.begun(make, sealed_among_others(), DISABLED)
        step_until_running(vector, 1)
        resumed = make(sealed_among_others(), DISABLED)
        with pytest.warns(UserWarning, match="restart, and their episodes"):
            resumed.load_state_dict(vector.state_dict())

        resumed.reset(options={"reset_mask": np.array([False, True, False])})

        assert not lost_episodes(resumed.step([0, 0, 0])[4])


def through_a_file(state: dict) -> dict:
    return unpack_state(pack_state(state))


def play(vector, num_steps: int) -> None:
    for step in steps_of(vector, num_steps):
        assert len(step) == 5


def steps_of(vector, num_steps: int, seed: int = 2) -> list:
    """Step with random actions, and reset ended environments with DISABLED."""
    steps = []
    for actions in np.random.default_rng(seed).integers(4, size=(num_steps, vector.num_envs)):
        steps.append(vector.step(actions))
        if vector.metadata["autoreset_mode"] is DISABLED:
            begin_the_next_episode(vector, steps[-1])
    return steps


def begin_the_next_episode(vector, outcome) -> None:
    """Make the reset, or the step, that follows the end of episodes."""
    ended = outcome[2] | outcome[3]
    if vector.metadata["autoreset_mode"] is DISABLED and ended.any():
        vector.reset(options={"reset_mask": ended})
    if vector.metadata["autoreset_mode"] is NEXT_STEP and ended.any():
        _, rewards, terminated, truncated, infos = vector.step(np.zeros(vector.num_envs, np.int64))
        assert not lost_episodes(infos)
        assert [0.0, 0.0, 0.0] == [each[ended].sum() for each in (rewards, terminated, truncated)]


def step_until_running(vector, number: int):
    """Step until the episode of one environment has one step; return the observations."""
    for _ in range(100):
        observations, _, terminated, truncated, _ = outcome = vector.step([0, 0, 0])
        if not (terminated | truncated).any():
            return observations
        if vector.metadata["autoreset_mode"] is DISABLED:
            begin_the_next_episode(vector, outcome)
    raise AssertionError("no episode runs")
