"""Contract tests for every vector environment of framestow; a test module subclasses `VectorEnvContract`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import vector as vector_wrappers

from framestow.envs.seeding import spawn_seeds
from framestow.errors import EnvironmentFailedError, InvalidSettingsError, InvalidStepError
from oracles.equal_vectors import assert_same
from oracles.numbered_frames import NumberedEnv, frame_of
from oracles.playing_envs import SPACES, NumberGivingEnv, ShownEnv, SpaceEnv

MODES = list(AutoresetMode)
NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
each_mode = pytest.mark.parametrize("mode", MODES, ids=[mode.value for mode in MODES])
SEEDS = [4, 5, 6]


def numbered_envs(**settings) -> list:
    lengths, endings = [(2, 5), (3,), (1, 1, 4)], [("terminated", "truncated"), ("truncated",), ("both", "terminated")]
    return [partial(NumberedEnv, number, lengths[number], endings[number], **settings) for number in range(3)]


def space_envs(name="picture", count=3) -> list:
    return [partial(SpaceEnv, name)] * count


class MakingVectors:
    """``make_vector`` of a subclass makes the vector environment; everything made is closed in the end."""

    def make_vector(self, env_fns, mode=NEXT_STEP, seed=None) -> VectorEnv:
        raise NotImplementedError

    @pytest.fixture
    def make(self) -> Iterator:
        made: list[VectorEnv] = []

        def make(env_fns, mode=NEXT_STEP, seed=None):
            made.append(self.make_vector(env_fns, mode, seed))
            return made[-1]

        yield make
        for each in made:
            each.close()

    def begun(self, make, env_fns, mode=NEXT_STEP, seed=0):
        vector = make(env_fns, mode)
        vector.reset(seed=seed)
        return vector


class VectorEnvContract(MakingVectors):
    """All but its state, which `contracts.resumed_vector_contract` is about."""

    @pytest.mark.each_value
    @each_mode
    @pytest.mark.parametrize("name", ["picture", "nested"])
    def test_it_answers_as_gymnasiums_own_vector_does(self, make, mode, name):
        theirs, ours = SyncVectorEnv(space_envs(name), autoreset_mode=mode), make(space_envs(name), mode)

        assert_same_but_for_order(theirs.reset(seed=SEEDS), ours.reset(seed=SEEDS))
        play_as_gymnasium(theirs, ours, 40)

        assert theirs.observation_space == ours.observation_space
        assert theirs.action_space == ours.action_space
        assert theirs.single_observation_space == ours.single_observation_space
        assert theirs.num_envs == ours.num_envs

    @pytest.mark.parametrize("name", SPACES)
    def test_observations_of_any_space_arrive(self, make, name):
        theirs, ours = SyncVectorEnv(space_envs(name, 2)), make(space_envs(name, 2))

        assert_same_but_for_order(theirs.reset(seed=[1, 2]), ours.reset(seed=[1, 2]))
        play_as_gymnasium(theirs, ours, 6)

    @each_mode
    def test_the_mode_stands_in_the_instances_own_metadata(self, make, mode):
        vector = make(numbered_envs(), mode)
        make(numbered_envs(), MODES[MODES.index(mode) - 1])

        assert vector.metadata["autoreset_mode"] is mode
        assert "autoreset_mode" not in NumberedEnv.metadata
        assert "autoreset_mode" not in gymnasium.Env.metadata
        assert vector.metadata is not make(numbered_envs(), mode).metadata

    def test_the_mode_may_be_given_by_its_value(self, make):
        assert make(numbered_envs(), "SameStep").metadata["autoreset_mode"] is SAME_STEP
        with pytest.raises(InvalidSettingsError, match="autoreset_mode is 'Sometimes'"):
            make(numbered_envs(), "Sometimes")

    def test_a_seed_is_spread_so_that_no_two_environments_and_no_two_runs_share_one(self, make):
        vector, seeded = make(numbered_envs()), make(numbered_envs(), seed=7)
        vector.reset(seed=7)
        seeded.reset()
        seeded.reset()

        assert [(seed,) for seed in spawn_seeds(7, 3)] == [tuple(seeds) for seeds in vector.get_attr("seeds")]
        assert [[seed, None] for seed in spawn_seeds(7, 3)] == list(seeded.get_attr("seeds"))
        with pytest.raises(InvalidSettingsError, match="seed has 2 entries: 3 environments need one each"):
            vector.reset(seed=[1, 2])

    def test_a_masked_reset_leaves_the_others_and_the_callers_options_alone(self, make):
        vector = self.begun(make, numbered_envs(), DISABLED)
        vector.step([0, 0, 0])
        mask = np.array([False, False, True])
        options = {"reset_mask": mask, "level": 3}

        frames, infos = vector.reset(options=options)

        assert [(0, 0, 1), (1, 0, 1), (2, 1, 0)] == [tuple(frame[0]) for frame in frames]
        assert options == {"reset_mask": mask, "level": 3}
        assert [False, False, True] == mask.tolist() == infos["_began"].tolist()
        assert (None, None, {"level": 3}) == vector.get_attr("options")

    def test_an_environment_that_changes_its_options_changes_no_others(self, make):
        vector = make([TakingEnv] * 3)
        options = {"level": 3}

        _, infos = vector.reset(options=options)

        assert [3, 3, 3] == infos["level"].tolist()
        assert options == {"level": 3}

    @pytest.mark.parametrize("mask", [[True, True], np.zeros(3, bool), [1, 0, 1], "all"])
    def test_an_invalid_mask_is_refused_and_nothing_is_reset(self, make, mask):
        vector = self.begun(make, numbered_envs(), DISABLED)

        with pytest.raises(InvalidStepError, match="must have 3 booleans, at least one of them True"):
            vector.reset(options={"reset_mask": mask})

        assert (0, 0, 0) == vector.get_attr("episode")

    def test_a_step_that_cannot_be_is_refused_before_any_environment_moves(self, make):
        vector = make(numbered_envs(), DISABLED)
        with pytest.raises(InvalidStepError, match="no running episode"):
            vector.step([0, 0, 0])
        with pytest.raises(InvalidStepError, match=re.escape("leaves out environments [0, 2], which have no episode")):
            vector.reset(options={"reset_mask": np.array([False, True, False])})
        vector.reset()
        for actions, message in [
            ([1, 2], "actions have shape (2,): they must have shape (3,)"),
            ([1, 2, 5], "action 5 for environment 2: Discrete(5) takes 0 to 4"),
            ([-1, 2, 5], "action -1 for environment 0"),
            ([1.0, 2.0, 3.0], "actions have dtype float64"),
        ]:
            with pytest.raises(InvalidStepError, match=re.escape(message)):
                vector.step(actions)
        assert (0, 0, 0) == vector.get_attr("num_steps")
        vector.step([0, 0, 0])
        with pytest.raises(InvalidStepError, match=re.escape("environments [2] have ended")):
            vector.step([0, 0, 0])

        assert (1, 1, 1) == vector.get_attr("num_steps")

    def test_an_ended_environment_that_a_mask_leaves_out_still_waits_for_its_reset(self, make):
        vector = self.begun(make, [partial(NumberedEnv, 0, (1,))] * 2, DISABLED)
        vector.step([0, 0])

        vector.reset(options={"reset_mask": np.array([True, False])})

        with pytest.raises(InvalidStepError, match=re.escape("environments [1] have ended")):
            vector.step([0, 0])

    @pytest.mark.parametrize(
        ("space", "actions", "message"),
        [
            ("float32", [[0.5, 0.5], [2.0, 0.0]], "for environment 1: it is not in Box"),
            ("float32", [[0.5, np.nan], [0.0, 0.0]], "for environment 0: it is not in Box"),
            ("float32", [[0.5, 0.5]], "actions have shape (1, 2): they must have shape (2, 2)"),
            ("multi discrete", [[1, 3], [0, 0]], "for environment 0: it is not in MultiDiscrete"),
            ("discrete from 3", [3, 2], "action 2 for environment 1: Discrete(4, start=3) takes 3 to 6"),
            (
                "nested",
                {"picture": np.zeros((1, 2, 2), np.uint8), "pair": ([0], [[0, 0]])},
                "there are 1 actions: 2 envi",
            ),
            ("nested", 7, "actions are 7:"),
        ],
    )
    def test_actions_of_other_spaces_are_checked_too(self, make, space, actions, message):
        vector = self.begun(make, [partial(SpaceEnv, "picture", space)] * 2)

        with pytest.raises(InvalidStepError, match=re.escape(message)):
            vector.step(actions)

        assert ([], []) == vector.get_attr("actions")

    @pytest.mark.parametrize("space", ["float32", "multi discrete", "discrete from 3", "nested", "text"])
    def test_actions_of_other_spaces_reach_their_environments(self, make, space):
        theirs, ours = (made([partial(SpaceEnv, "picture", space)] * 2) for made in (SyncVectorEnv, make))
        theirs.reset(seed=[1, 2])
        ours.reset(seed=[1, 2])
        ours.action_space.seed(3)
        for _ in range(5):
            actions = ours.action_space.sample()
            assert_same_but_for_order(theirs.step(actions), ours.step(actions))

        assert_same(theirs.get_attr("actions"), ours.get_attr("actions"))

    def test_a_final_observation_survives_an_environment_that_reuses_its_array(self, make):
        vector = self.begun(make, numbered_envs(reuses_its_array=True), SAME_STEP)

        frames, *_, infos = vector.step([0, 0, 0])

        assert np.array_equal(frame_of(2, 0, 1), infos["final_obs"][2])
        assert np.array_equal(frame_of(2, 1, 0), frames[2])

    def test_returned_arrays_are_copies(self, make):
        vector = self.begun(make, numbered_envs(), DISABLED)
        frames, rewards, terminated, truncated, _ = vector.step([1, 2, 3])
        kept = frames.copy()
        for _ in range(2):
            vector.reset()
            again, *_ = vector.step([0, 0, 0])
            again[:] = 77

        assert np.array_equal(kept, frames)
        assert [1.0, 2.0, 3.0] == rewards.tolist()
        assert [False, False, True] == terminated.tolist() == truncated.tolist()

    def test_a_reward_of_shape_one_is_a_number_and_of_shape_two_an_error(self, make):
        vector = self.begun(make, [partial(NumberGivingEnv, np.array([2.5]))] * 2)
        assert [2.5, 2.5] == vector.step([0, 0])[1].tolist()

        vector = self.begun(make, [partial(NumberGivingEnv, np.array([1.0, 2.0]))] * 2)
        with pytest.raises(EnvironmentFailedError, match=re.escape("reward has shape (2,)")):
            vector.step([0, 0])

    def test_an_environment_that_raises_is_named_with_its_action_and_a_reset_continues(self, make):
        vector = self.begun(make, [NumberedEnv, partial(NumberedEnv, 1, (9,), raises_at=2), NumberedEnv])
        vector.step([0, 1, 2])

        with pytest.raises(
            EnvironmentFailedError, match=re.escape("environment 1 raised KeyError at action 4")
        ) as told:
            vector.step([0, 4, 2])

        assert told.value.environment == 1
        assert told.value.__cause__ is not None
        with pytest.raises(InvalidStepError, match="call reset"):
            vector.step([0, 0, 0])
        vector.reset()
        vector.step([0, 0, 0])

    def test_a_seed_is_not_taken_a_second_time_after_a_failure(self, make):
        vector = make([partial(NumberedEnv, raises_at=1)], seed=5)
        vector.reset(seed=4)
        with pytest.raises(EnvironmentFailedError):
            vector.step([0])

        vector.reset()

        assert vector.get_attr("seeds")[0][1:] == [None]

    def test_infos_that_cannot_be_put_together_are_named_and_need_a_reset(self, make):
        vector = self.begun(make, [NumberedEnv, TellsNothing])

        with pytest.raises(InvalidStepError, match=re.escape("infos [{'step': 1}, {'step': None}] of environments")):
            vector.step([0, 0])
        with pytest.raises(InvalidStepError, match="call reset"):
            vector.step([0, 0])

    def test_attributes_are_read_set_and_called_environment_by_environment(self, make):
        vector = self.begun(make, numbered_envs())
        vector.set_attr("env_id", [7, 8, 9])
        vector.set_attr("raises_at", 50)

        assert (7, 8, 9) == vector.get_attr("env_id")
        assert (50, 50, 50) == vector.get_attr("raises_at")
        assert [7, 8, 9] == [shown[0, 0] for shown in vector.call("shown")]
        with pytest.raises(InvalidStepError, match="there are 2 values: 3 environments need one each"):
            vector.set_attr("env_id", [1, 2])

    def test_render_returns_one_image_for_each_environment_or_one_grid(self, make):
        vector = self.begun(make, [partial(ShownEnv, number) for number in (1, 2, 3)])

        pictures, grid = vector.render(), vector.render(tiled=True)

        assert vector.render_mode == "rgb_array"
        assert isinstance(pictures, tuple)
        assert [1, 2, 3] == [int(picture[0, 0, 0]) for picture in pictures]
        assert grid.shape == (4, 6, 3)
        assert [[1, 2], [3, 0]] == grid[::2, ::3, 0].tolist()

    def test_environments_without_images_cannot_be_tiled(self, make):
        with pytest.raises(InvalidStepError, match="picture 0 is None"):
            self.begun(make, [partial(MuteEnv, "picture")]).render(tiled=True)

    def test_environments_of_different_spaces_and_an_empty_list_are_refused(self, make):
        with pytest.raises(InvalidSettingsError, match="environment 1 has the observation_space"):
            make([NumberedEnv, SpaceEnv])
        with pytest.raises(InvalidSettingsError, match="env_fns is empty"):
            make([])

    def test_it_closes_once_and_plays_no_more(self, make):
        vector = self.begun(make, numbered_envs())
        vector.close()
        vector.close()

        for call in (vector.reset, partial(vector.step, [0, 0, 0]), vector.render, vector.state_dict):
            with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="closed") as told:
                call()
            assert isinstance(told.value, InvalidStepError)

    def test_gymnasiums_episode_statistics_work_over_it(self, make):
        expected = vector_wrappers.RecordEpisodeStatistics(SyncVectorEnv(space_envs()))
        ours = vector_wrappers.RecordEpisodeStatistics(make(space_envs()))
        expected.reset(seed=SEEDS)
        ours.reset(seed=SEEDS)
        for actions in np.random.default_rng(0).integers(4, size=(60, 3)):
            expected.step(actions)
            ours.step(actions)

        assert expected.episode_count == ours.episode_count > 3
        assert list(expected.return_queue) == list(ours.return_queue)
        assert list(expected.length_queue) == list(ours.length_queue)

    def test_gymnasiums_list_of_infos_works_over_it(self, make):
        expected = vector_wrappers.DictInfoToList(SyncVectorEnv(space_envs(), autoreset_mode=SAME_STEP))
        ours = vector_wrappers.DictInfoToList(make(space_envs(), SAME_STEP))

        assert_same(expected.reset(seed=SEEDS)[1], ours.reset(seed=SEEDS)[1])

    def test_gymnasiums_normalized_observations_work_over_it(self, make):
        expected = vector_wrappers.NormalizeObservation(SyncVectorEnv(space_envs("float32")))
        ours = vector_wrappers.NormalizeObservation(make(space_envs("float32")))
        assert np.array_equal(expected.reset(seed=SEEDS)[0], ours.reset(seed=SEEDS)[0])
        for actions in np.random.default_rng(0).integers(4, size=(20, 3)):
            assert np.array_equal(expected.step(actions)[0], ours.step(actions)[0])

    def test_its_spaces_contain_its_observations(self, make):
        vector = make(space_envs("nested"))
        observations, _ = vector.reset(seed=1)

        assert observations in vector.observation_space
        assert vector.step(vector.action_space.sample())[0] in vector.observation_space
        assert isinstance(vector.observation_space["picture"], Box)


class TakingEnv(NumberedEnv):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"level": options.pop("level")}


class TellsNothing(NumberedEnv):
    def step(self, action):
        return *super().step(action)[:4], {"step": None}


class MuteEnv(SpaceEnv):
    def render(self):
        return None


def assert_same_but_for_order(expected, actual) -> None:
    """Compare answers whose infos have their keys in any order."""
    assert_same(expected[:-1], actual[:-1])
    assert_same(in_order(expected[-1]), in_order(actual[-1]))


def in_order(infos):
    """Sort the keys; without the options, of which Gymnasium hands out {} where nothing but the mask was given."""
    if not isinstance(infos, dict):
        return infos
    return {key: in_order(infos[key]) for key in sorted(infos) if key not in ("options", "_options")}


def play_as_gymnasium(theirs, ours, num_steps: int) -> None:
    for actions in np.random.default_rng(0).integers(4, size=(num_steps, ours.num_envs)):
        expected = theirs.step(actions)
        assert_same_but_for_order(expected, ours.step(actions))
        ended = expected[2] | expected[3]
        if ours.metadata["autoreset_mode"] is DISABLED and ended.any():
            expected = theirs.reset(options={"reset_mask": ended})
            assert_same_but_for_order(expected, ours.reset(options={"reset_mask": ended}))
