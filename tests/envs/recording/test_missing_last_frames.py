"""An environment may keep the last frame of an episode to itself: what is stored then is right, or is left out."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from framestow import ReplayMemory
from framestow.envs import Recorder, SerialVectorEnv, finished_games
from framestow.envs.recording.step_recording import how_to_get_last_frames
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.integrations.gymnasium import VectorFrameStack
from oracles.isaac_like import IsaacLikeEnv, assert_rows_are_right, memory_of
from oracles.numbered_frames import NUM_ACTIONS, SHAPE, ListSink, NumberedEnv
from oracles.toy_vector import ToyVector

torch = pytest.importorskip("torch")


def play(recorder: Recorder, num_calls: int, seed: int = 1) -> None:
    generator = np.random.default_rng(seed)
    recorder.reset()
    for _ in range(num_calls):
        recorder.step(torch.from_numpy(generator.integers(0, NUM_ACTIONS, recorder.num_envs)))


@pytest.mark.parametrize(
    ("settings", "n_step"),
    [({}, 1), ({"capacity": 1500}, 5), ({"capacity": 1500, "retention": "random"}, 5)],
    ids=str,
)
def test_no_row_is_wrong_in_10_000_steps_of_an_environment_like_isaac_labs(settings, n_step):
    env = IsaacLikeEnv(8)
    memory = memory_of(env, n_step=n_step, **settings)
    recorder = Recorder(env, memory, last_frame="missing")

    play(recorder, 1250)

    num_rows = assert_rows_are_right(memory, env)
    ended = [episode for episodes in env.episodes for episode in episodes[:-1]]
    assert recorder.num_left_out == sum(episode.end == "truncated" for episode in ended) > 300
    if not settings:
        pending = len(memory.inner.steps.pending)
        assert num_rows + pending == 10_000 - recorder.num_left_out
    memory.inner.parts.check()


@pytest.mark.parametrize("reports", ["final_obs", "final_observation"])
@pytest.mark.parametrize("last_frame", ["given", "missing"])
def test_last_frames_that_are_given_are_stored_as_gymnasium_maniskill_or_isaac_lab_give_them(reports, last_frame):
    env = IsaacLikeEnv(4, reports=reports)
    memory = memory_of(env)
    recorder = Recorder(env, memory, last_frame=last_frame)

    play(recorder, 200)

    assert assert_rows_are_right(memory, env, has_last_frames=True) == 800
    assert recorder.num_left_out == 0


def test_an_info_of_maniskill_without_a_mask_finishes_no_game():
    infos = {"final_info": {"episode": {"return": np.zeros(2)}}, "_final_info": np.array([True, False])}

    assert [] == finished_games(infos)


def test_the_infos_have_no_final_observation_that_was_made_up():
    env = IsaacLikeEnv(6)
    recorder = Recorder(env, memory_of(env), last_frame="missing")
    recorder.reset()

    for _ in range(50):
        *_, terminated, truncated, infos = recorder.step(np.zeros(6, np.int64))
        if (terminated | truncated).any():
            assert not infos["_final_obs"].any()
            assert [None] * 6 == infos["final_obs"].tolist()


def test_without_the_choice_the_error_comes_before_anything_is_stored_and_names_what_isaac_lab_can_do():
    env = IsaacLikeEnv(4)
    memory = memory_of(env)
    recorder = Recorder(env, memory)

    with pytest.raises(InvalidStepError, match="set compute_final_obs=True in the configuration") as error:
        play(recorder, 100)

    assert "else pass last_frame='missing'" in str(error.value)
    assert "autoreset_mode" not in str(error.value)
    first_end = min(len(episodes[0]) for episodes in env.episodes)
    assert len(memory) == 4 * (first_end - 1)


def test_the_error_names_what_mjlab_can_do():
    env = SimpleNamespace(cfg=SimpleNamespace(auto_reset=True))

    assert "auto_reset=False" in how_to_get_last_frames(env)
    assert "autoreset_mode='Disabled'" in how_to_get_last_frames(env)
    assert "compute_final_obs" not in how_to_get_last_frames(env)


def test_of_an_unknown_environment_both_are_named():
    assert re.search("Isaac Lab: .*compute_final_obs=True.*mjlab: .*auto_reset=False", how_to_get_last_frames(object()))


class CameraEnv(NumberedEnv):
    """Its observations are Dicts."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.observation_space = Dict({"camera": self.observation_space, "speed": Box(-1, 1, (2,), np.float32)})

    def shown(self):
        return {"camera": super().shown(), "speed": np.full(2, self.step_number / 10, np.float32)}


class WithoutFinalObs(SyncVectorEnv):
    """SAME_STEP that drops ``final_obs`` of the environments in ``hidden``."""

    hidden = (0,)

    def step(self, actions):
        *results, infos = super().step(actions)
        if "final_obs" in infos:
            infos["_final_obs"] = infos["_final_obs"] & ~np.isin(np.arange(self.num_envs), self.hidden)
        return *results, infos


@pytest.mark.parametrize("stack", [3, None], ids=["frames", "whole observations"])
def test_dicts_and_rows_with_and_without_a_last_frame_are_told_apart(stack):
    env = WithoutFinalObs(
        [lambda: CameraEnv(0, (2, 3), ("terminated", "truncated")), lambda: CameraEnv(1, (4,), ("truncated",))],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    memory = ReplayMemory(100, env.single_observation_space, env.single_action_space, stack=stack, num_envs=2)
    recorder = Recorder(env, memory, last_frame="missing")
    recorder.reset()

    for _ in range(5):
        recorder.step([1, 2])

    of_0, of_1 = ([episode for episode in memory.episodes() if episode.env_id == env_id] for env_id in (0, 1))
    assert [(2, True), (2, False)] == [(len(episode), episode.has_end) for episode in of_0]
    assert [(4, True), (1, False)] == [(len(episode), episode.has_end) for episode in of_1]
    ended = memory.get(of_0[0].indices[-1:])
    newest = (slice(0, 1), -1) if stack else slice(0, 1)
    for key in ("camera", "speed"):
        assert np.array_equal(ended.observation[key][newest], ended.next_observation[key][newest])
    last = memory.get(of_1[0].indices[-1:])
    assert last.truncated.all()
    assert not np.array_equal(last.observation["camera"][newest], last.next_observation["camera"][newest])
    assert recorder.num_left_out == 1


def test_a_stack_wrapper_takes_it_too_and_says_no_final_observation():
    env = WithoutFinalObs([lambda: NumberedEnv(0, (2,)), lambda: NumberedEnv(1, (2,))], autoreset_mode="SameStep")
    stacked = VectorFrameStack(env, 2, last_frame="missing")
    stacked.reset()

    for call in range(4):
        observations, *_, infos = stacked.step([0, 0])
        if call % 2:
            assert [False, True] == infos["_final_obs"].tolist()
            assert infos["final_obs"][0] is None
            assert np.asarray(infos["final_obs"][1])[:, 0, 2].tolist() == [1, 2]
            assert np.asarray(observations)[:, :, 0, 2].tolist() == [[0, 0], [0, 0]]


def test_a_black_last_screen_is_stored_as_it_is():
    class Doom(NumberedEnv):
        """As ViZDoom: the screen of an ended episode is black."""

        def shown(self):
            return np.zeros(SHAPE, np.uint8) if self.is_over else super().shown()

    env = SerialVectorEnv([lambda: Doom(7, (3,))], "SameStep")
    memory = memory_of(env)
    recorder = Recorder(env, memory)
    recorder.reset()
    for _ in range(3):
        recorder.step([1])

    last = memory.get([2])

    assert last.terminated.all()
    assert not last.next_observation[0, -1].any()
    assert last.next_observation[0, -2].any()


def declaring_next_step(*envs: NumberedEnv) -> ToyVector:
    """A vector environment that resets by itself and declares NEXT_STEP."""
    env = ToyVector(list(envs), AutoresetMode.SAME_STEP)
    env.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    return env


@pytest.mark.parametrize("wrap", [lambda env: Recorder(env, ListSink(1)), lambda env: VectorFrameStack(env, 2)])
def test_next_step_over_an_environment_that_resets_by_itself_raises_at_the_second_end_in_a_row(wrap):
    recorder = wrap(declaring_next_step(NumberedEnv(0, (3, 1, 1), endings=("terminated",))))
    recorder.reset()
    for _ in range(3):
        recorder.step([0])

    with pytest.raises(InvalidStepError, match=r"ended in the step after an end.*autoreset_mode='SameStep'"):
        recorder.step([0])


def test_a_reward_in_a_step_that_only_resets_warns_once():
    sink = ListSink(2)
    recorder = Recorder(declaring_next_step(NumberedEnv(0, (2,)), NumberedEnv(1, (2,))), sink)
    recorder.reset()
    recorder.step([0, 0])
    recorder.step([0, 0])

    with pytest.warns(UserWarning, match=re.escape("environments [1] have a reward in the step after an end")):
        recorder.step([0, 3])
    recorder.reset()
    recorder.step([0, 0])
    recorder.step([0, 0])
    recorder.step([0, 3])  # a second warning would be an error

    assert [0] == [sum(entry[2] for entry in sink.log[1] if entry[0] == "step")]


def test_a_mode_that_contradicts_the_declared_one_warns_and_counts():
    env = SerialVectorEnv([lambda: NumberedEnv(0, (2,))], "SameStep")

    with pytest.warns(UserWarning, match="autoreset_mode is 'NextStep', and the environment declares 'SameStep'"):
        recorder = Recorder(env, ListSink(1), autoreset_mode="NextStep")

    assert recorder.autoreset_mode is AutoresetMode.NEXT_STEP


def test_an_unknown_choice_is_refused():
    env = SerialVectorEnv([lambda: NumberedEnv(0, (2,))])

    with pytest.raises(InvalidSettingsError, match="last_frame is 'lost': it must be one of 'given', 'missing'"):
        Recorder(env, ListSink(1), last_frame="lost")
