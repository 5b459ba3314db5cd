"""Many environments in one process, in every autoreset mode."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text, Tuple
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from framestow.envs import SerialVectorEnv, make_atari
from framestow.errors import EnvironmentFailedError, IncompatibleError, InvalidSettingsError, InvalidStepError
from oracles.numbered_frames import NUM_ACTIONS, NumberedEnv, frame_of

MODES = list(AutoresetMode)
LENGTHS = [(2, 5), (3,), (1, 1, 4)]
ENDINGS = [("terminated", "truncated"), ("truncated",), ("both", "terminated")]


def numbered_envs(**settings):
    return [
        lambda stream=stream, lengths=lengths, endings=endings: NumberedEnv(stream, lengths, endings, **settings)
        for stream, (lengths, endings) in enumerate(zip(LENGTHS, ENDINGS, strict=True))
    ]


def assert_equal(expected, actual):
    """Compares nested dictionaries and arrays, object arrays included."""
    if isinstance(expected, dict):
        assert expected.keys() == actual.keys()
        for key in expected:
            assert_equal(expected[key], actual[key])
    elif isinstance(expected, np.ndarray) and expected.dtype != object:
        assert expected.dtype == actual.dtype
        assert np.array_equal(expected, actual)
    elif isinstance(expected, (list, tuple, np.ndarray)):
        assert len(expected) == len(actual)
        for ours, theirs in zip(expected, actual, strict=True):
            assert_equal(ours, theirs)
    else:
        assert expected == actual


@pytest.mark.parametrize("mode", MODES)
def test_what_it_returns_is_what_gymnasiums_own_vector_returns(mode):
    ours, theirs = SerialVectorEnv(numbered_envs(), mode), SyncVectorEnv(numbered_envs(), autoreset_mode=mode)
    assert_equal(theirs.reset(seed=[1, 2, 3]), ours.reset(seed=[1, 2, 3]))
    generator = np.random.default_rng(0)
    for _ in range(60):
        actions = generator.integers(NUM_ACTIONS, size=3)
        expected = theirs.step(actions)
        assert_equal(expected, ours.step(actions))
        ended = expected[2] | expected[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            options = {"reset_mask": ended}
            assert_equal(theirs.reset(options=dict(options)), ours.reset(options=options))

    assert theirs.observation_space == ours.observation_space
    assert theirs.action_space == ours.action_space
    assert [env.actions for env in theirs.envs] == [env.actions for env in ours.envs]


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_stands_in_the_instances_own_metadata(mode):
    vectors = [SerialVectorEnv(numbered_envs(), each) for each in (mode, *MODES)]

    assert vectors[0].metadata["autoreset_mode"] is mode
    assert "autoreset_mode" not in NumberedEnv.metadata
    assert SerialVectorEnv(numbered_envs(), mode.value).metadata["autoreset_mode"] is mode


def test_a_final_observation_survives_an_environment_that_reuses_its_array():
    vector = SerialVectorEnv(numbered_envs(reuses_its_array=True), AutoresetMode.SAME_STEP)
    vector.reset()

    frames, *_, infos = vector.step([0, 0, 0])

    assert np.array_equal(frame_of(2, 0, 1), infos["final_obs"][2])
    assert np.array_equal(frame_of(2, 1, 0), frames[2])


def test_observations_belong_to_the_caller():
    vector = SerialVectorEnv(numbered_envs(), AutoresetMode.DISABLED)
    frames, _ = vector.reset()
    frames[:] = 99
    next_frames, rewards, terminated, *_ = vector.step([1, 2, 3])
    kept = next_frames.copy()
    rewards[:], terminated[:] = 0, True
    others, _ = vector.reset(options={"reset_mask": np.array([False, False, True])})

    assert np.array_equal(kept[:2], others[:2])
    assert np.array_equal(frame_of(2, 1, 0), others[2])


def test_a_masked_reset_leaves_the_others_and_the_callers_options_alone():
    vector = SerialVectorEnv(numbered_envs(), AutoresetMode.DISABLED)
    vector.reset()
    vector.step([0, 0, 0])
    mask = np.array([False, False, True])
    options = {"reset_mask": mask, "level": 3}

    frames, infos = vector.reset(options=options)

    assert [(0, 0, 1), (1, 0, 1), (2, 1, 0)] == [tuple(frame[0]) for frame in frames]
    assert options == {"reset_mask": mask, "level": 3}
    assert mask.tolist() == [False, False, True]
    assert infos["_began"].tolist() == [False, False, True]
    assert [env.options for env in vector.envs] == [None, None, {"level": 3}]


def test_an_ended_environment_that_a_mask_leaves_out_still_waits_for_its_reset():
    vector = SerialVectorEnv([lambda: NumberedEnv(lengths=(1,))] * 2, AutoresetMode.DISABLED)
    vector.reset()
    vector.step([0, 0])

    vector.reset(options={"reset_mask": np.array([True, False])})

    with pytest.raises(InvalidStepError, match=re.escape("environments [1] have ended")):
        vector.step([0, 0])


def test_a_seed_is_not_taken_a_second_time_after_a_failure():
    vector = SerialVectorEnv([lambda: NumberedEnv(raises_at=1)], seed=5)
    vector.reset(seed=4)
    with pytest.raises(EnvironmentFailedError):
        vector.step([0])

    vector.reset()

    assert vector.envs[0].seeds[1:] == [None]


@pytest.mark.parametrize("mask", [[True, True], np.zeros(3, bool), [1, 0, 1], "all"])
def test_a_mask_that_is_none_is_refused(mask):
    vector = SerialVectorEnv(numbered_envs(), AutoresetMode.DISABLED)
    vector.reset()

    with pytest.raises(InvalidStepError, match="must hold 3 booleans, one of them true at least"):
        vector.reset(options={"reset_mask": mask})


def test_with_autoreset_disabled_an_ended_environment_refuses_the_step_before_any_moves():
    vector = SerialVectorEnv(numbered_envs(), AutoresetMode.DISABLED)
    vector.reset()
    vector.step([0, 0, 0])

    with pytest.raises(InvalidStepError, match=re.escape("environments [2] have ended")):
        vector.step([0, 0, 0])

    assert [env.num_steps for env in vector.envs] == [1, 1, 1]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([1, 2], "actions have shape (2,): one each is needed, shape (3,)"),
        ([1, 2, 3, 4], "actions have shape (4,): one each is needed, shape (3,)"),
        ([[1, 2, 3]], "actions have shape (1, 3): one each is needed, shape (3,)"),
        (1, "actions have shape (): one each is needed, shape (3,)"),
        ([1, 2, 5], "action 5 for environment 2: Discrete(5) takes 0 to 4"),
        ([-1, 2, 5], "action -1 for environment 0: Discrete(5) takes 0 to 4"),
        ([1.0, 2.0, 3.0], "actions have dtype float64: Discrete(5) takes whole numbers"),
    ],
)
def test_actions_that_cannot_be_are_refused_before_any_environment_moves(actions, message):
    vector = SerialVectorEnv(numbered_envs())
    vector.reset()

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        vector.step(actions)

    assert [env.num_steps for env in vector.envs] == [0, 0, 0]


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(InvalidStepError, match="no running episode"):
        SerialVectorEnv(numbered_envs()).step([0, 0, 0])
    with pytest.raises(InvalidStepError, match=re.escape("leaves out idle environments [0, 2]")):
        SerialVectorEnv(numbered_envs()).reset(options={"reset_mask": np.array([False, True, False])})


def test_an_environment_that_raises_is_named_with_its_action():
    envs = [*numbered_envs()[:1], lambda: NumberedEnv(1, (9,), raises_at=3), *numbered_envs()[2:]]
    vector = SerialVectorEnv(envs, AutoresetMode.NEXT_STEP)
    vector.reset()
    vector.step([0, 1, 2])
    vector.step([0, 1, 2])
    message = "environment 1 raised KeyError at action 4: 'the wire is cut'; reset all environments to go on"

    with pytest.raises(EnvironmentFailedError, match=re.escape(message)) as raised:
        vector.step(np.array([0, 4, 2]))

    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(InvalidStepError, match="call reset"):
        vector.step([0, 0, 0])
    vector.reset()
    vector.step([0, 0, 0])
    vector.close()


class BadCloser(NumberedEnv):
    def close(self):
        super().close()
        raise OSError("will not close")


def test_close_closes_every_environment_once_also_after_one_that_refuses():
    vector = SerialVectorEnv([NumberedEnv, BadCloser, NumberedEnv])

    with pytest.raises(EnvironmentFailedError, match="environment 1 raised OSError at its close"):
        vector.close()
    vector.close()

    assert [env.num_closes for env in vector.envs] == [1, 1, 1]
    with pytest.raises(InvalidStepError, match="closed"):
        vector.reset()
    with pytest.raises(InvalidStepError, match="closed"):
        vector.step([0, 0, 0])


def test_a_factory_that_fails_leaves_no_environment_open():
    made = []

    def make():
        made.append(NumberedEnv())
        return made[-1]

    def fail():
        raise OSError("no rom")

    with pytest.raises(OSError, match="no rom"):
        SerialVectorEnv([make, make, fail])

    assert [env.num_closes for env in made] == [1, 1]


def test_environments_of_different_spaces_or_none_at_all_are_refused():
    with pytest.raises(InvalidSettingsError, match="environment 1 has the observation_space"):
        SerialVectorEnv([NumberedEnv, lambda: SpaceEnv(Discrete(3))])
    with pytest.raises(InvalidSettingsError, match="env_fns is empty"):
        SerialVectorEnv([])
    with pytest.raises(InvalidSettingsError, match="autoreset_mode is 'Sometimes'"):
        SerialVectorEnv([NumberedEnv], "Sometimes")
    with pytest.raises(InvalidSettingsError, match="num_envs is 0"):
        make_atari("Pong", 0)


class SpaceEnv(gymnasium.Env):
    """Gives samples of any spaces, and the reward in the shape asked for."""

    def __init__(self, observation_space=None, action_space=None, reward=0.0):
        self.observation_space = Discrete(2) if observation_space is None else observation_space
        self.action_space = Discrete(2) if action_space is None else action_space
        self.observation_space.seed(0)
        self.reward, self.given = reward, []

    def reset(self, *, seed=None, options=None):
        self.given.append(self.observation_space.sample())
        return self.given[-1], {}

    def step(self, action):
        self.given.append(self.observation_space.sample())
        return self.given[-1], self.reward, False, False, {}


class CustomSpace(gymnasium.Space):
    def __init__(self):
        super().__init__()

    def sample(self, mask=None, probability=None):
        return {"any": "thing"}

    def contains(self, x):
        return isinstance(x, dict)

    def __eq__(self, other):
        return isinstance(other, CustomSpace)

    __hash__ = None


SPACES = {
    "nested": Dict({"picture": Box(0, 255, (2, 2), np.uint8), "pair": Tuple((Discrete(3), Box(-1, 1, (2,))))}),
    "text": Text(5),
    "discrete": Discrete(4),
}


@pytest.mark.parametrize("name", SPACES)
def test_observations_of_any_space_that_gymnasium_batches_arrive(name):
    vector = SerialVectorEnv([lambda: SpaceEnv(SPACES[name])] * 2)
    vector.reset()

    observations, *_ = vector.step([0, 1])

    each = list(gymnasium.vector.utils.iterate(vector.observation_space, observations))
    for env, observation in zip(vector.envs, each, strict=True):
        assert data_equivalence(env.given[-1], observation)


def test_a_custom_space_arrives_as_a_tuple_of_observations():
    vector = SerialVectorEnv([lambda: SpaceEnv(CustomSpace())] * 2)

    observations, _ = vector.reset()

    assert observations == ({"any": "thing"},) * 2


class UnbatchableSpace(CustomSpace):
    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")


def test_a_space_that_cannot_be_batched_is_refused_at_construction():
    with pytest.raises(InvalidSettingsError, match="Gymnasium must be able to batch them; cannot be copied"):
        SerialVectorEnv([lambda: SpaceEnv(UnbatchableSpace())] * 2)


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (Box(-1, 1, (2,)), [[0.5, 0.5], [1.0, -1.0]]),
        (MultiDiscrete([2, 3]), [[1, 2], [0, 0]]),
        (Dict({"a": Discrete(2), "b": Box(0, 1, (1,))}), {"a": np.array([0, 1]), "b": np.ones((2, 1), np.float32)}),
    ],
)
def test_actions_of_other_spaces_reach_their_environments(space, actions):
    vector = SerialVectorEnv([lambda: SpaceEnv(action_space=space)] * 2)
    vector.reset()

    vector.step(actions)


@pytest.mark.parametrize(
    ("space", "actions", "message"),
    [
        (Box(-1, 1, (2,)), [[0.5, 0.5], [2.0, 0.0]], "for environment 1: it is not in Box"),
        (Box(-1, 1, (2,)), [[0.5, np.nan], [0.0, 0.0]], "for environment 0: it is not in Box"),
        (Box(-1, 1, (2,)), [[0.5, 0.5]], "actions have shape (1, 2): the environments together need (2, 2)"),
        (MultiDiscrete([2, 3]), [[1, 3], [0, 0]], "for environment 0: it is not in MultiDiscrete"),
        (Dict({"a": Discrete(2)}), {"a": np.array([0])}, "actions are 1: 2 environments need one each"),
        (Dict({"a": Discrete(2)}), 7, "actions are 7:"),
    ],
)
def test_actions_of_other_spaces_are_checked_too(space, actions, message):
    vector = SerialVectorEnv([lambda: SpaceEnv(action_space=space)] * 2)
    vector.reset()

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        vector.step(actions)

    assert [len(env.given) for env in vector.envs] == [1, 1]


def test_a_reward_of_shape_one_is_a_number_and_of_shape_two_an_error():
    vector = SerialVectorEnv([lambda: SpaceEnv(reward=np.array([2.5]))] * 2)
    vector.reset()

    assert vector.step([0, 0])[1].tolist() == [2.5, 2.5]

    vector = SerialVectorEnv([lambda: SpaceEnv(reward=np.array([1.0, 2.0]))] * 2)
    vector.reset()
    with pytest.raises(EnvironmentFailedError, match=re.escape("reward has shape (2,)")):
        vector.step([0, 0])


def test_attributes_are_read_set_and_called_environment_by_environment():
    vector = SerialVectorEnv(numbered_envs())

    vector.reset()
    vector.set_attr("stream", [7, 8, 9])
    vector.set_attr("raises_at", 50)

    assert vector.get_attr("stream") == (7, 8, 9)
    assert vector.get_attr("raises_at") == (50, 50, 50)
    assert [shown[0, 0] for shown in vector.call("shown")] == [7, 8, 9]
    with pytest.raises(InvalidStepError, match="values are 2: 3 environments need one each"):
        vector.set_attr("stream", [1, 2])


def test_rendering_gives_one_picture_an_environment():
    vector = make_atari("Breakout", 2, seed=0, render_mode="rgb_array")
    vector.reset()

    assert [picture.shape for picture in vector.render()] == [(210, 160, 3)] * 2
    assert vector.render_mode == "rgb_array"


def test_a_vector_of_one_is_a_vector():
    vector = make_atari("Pong", 1, seed=0)
    frames, _ = vector.reset()

    assert frames.shape == (1, 84, 84)


def test_the_state_of_a_vector_goes_on_with_resets_that_were_due():
    vector, fresh = SerialVectorEnv(numbered_envs()), SerialVectorEnv(numbered_envs())
    vector.reset()
    for _ in range(2):
        vector.step([0, 0, 0])

    fresh.load_state_dict(vector.state_dict())

    for _ in range(9):
        assert_equal(vector.step([1, 2, 3]), fresh.step([1, 2, 3]))


def test_a_state_of_another_vector_environment_is_refused():
    vector = SerialVectorEnv(numbered_envs())
    vector.reset()
    state = vector.state_dict()

    with pytest.raises(IncompatibleError, match=re.escape("3 environments with NextStep: these are 3 with")):
        SerialVectorEnv(numbered_envs(), AutoresetMode.DISABLED).load_state_dict(state)
    with pytest.raises(IncompatibleError, match=re.escape("these are 2 with NextStep")):
        SerialVectorEnv(numbered_envs()[:2]).load_state_dict(state)
    with pytest.raises(IncompatibleError, match=re.escape("state lacks ['autoreset_mode', 'envs'")):
        vector.load_state_dict({"has_ended": [], "observations": []})


def test_a_state_that_an_environment_refuses_leaves_all_of_them_in_need_of_a_reset():
    state = SerialVectorEnv([lambda: TimeLimit(NumberedEnv(), 3)] * 2).state_dict()
    vector = SerialVectorEnv([NumberedEnv] * 2)
    vector.reset()

    with pytest.raises(IncompatibleError, match="outermost first"):
        vector.load_state_dict(state)

    with pytest.raises(InvalidStepError, match="call reset"):
        vector.step([0, 0])


class TellsNothing(NumberedEnv):
    def step(self, action):
        return *super().step(action)[:4], {"step": None}


def test_infos_that_cannot_be_put_together_are_named_and_need_a_reset():
    vector = SerialVectorEnv([NumberedEnv, TellsNothing])
    vector.reset()

    with pytest.raises(InvalidStepError, match=re.escape("infos [{'step': 1}, {'step': None}] of environments")):
        vector.step([0, 0])
    with pytest.raises(InvalidStepError, match="call reset"):
        vector.step([0, 0])
