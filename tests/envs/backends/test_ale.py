"""AleVectorEnv plays ALE's own vector environment with the settings of a preset."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

from framestow.envs import (
    AleVectorEnv,
    AtariEnv,
    Preset,
    Recorder,
    find_preset,
    finished_games,
    lost_episodes,
    make_atari,
)
from framestow.envs.seeding import spawn_seeds
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError
from framestow.replay.memory import ReplayMemory
from oracles.ctrl_c import ctrl_c_at_line
from oracles.numbered_frames import ListSink
from oracles.saved_bytes import saved_bytes

MODES = list(AutoresetMode)
# Without chance, so that the same seed and actions give the same game on both sides.
PLAIN = replace(find_preset("machado2018"), name="plain", sticky_probability=0.0)
SHORT = replace(PLAIN, name="short", max_episode_frames=90)
LIFE = replace(PLAIN, name="life", life_loss="terminates", action_set="minimal")


@pytest.mark.parametrize(
    "game", ["Breakout", *(pytest.param(game, marks=pytest.mark.exhaustive) for game in ("Pong", "SpaceInvaders"))]
)
def test_every_frame_within_a_game_is_that_of_the_exact_environment(game):
    vector, exact = AleVectorEnv(game, 2, PLAIN, seed=5), [AtariEnv(game, PLAIN) for _ in range(2)]
    frames, infos = vector.reset()
    actions = np.random.default_rng(0)
    has_ended, num_compared = [False, False], 0
    for env, seed, frame in zip(exact, spawn_seeds(5, 2), frames, strict=True):
        assert np.array_equal(env.reset(seed=seed)[0], frame)
    assert infos["lives"].tolist() == [env.reset(seed=5)[1]["lives"] for env in exact]
    for env, seed in zip(exact, spawn_seeds(5, 2), strict=True):
        env.reset(seed=seed)

    for _ in range(300):
        chosen = actions.integers(18, size=2)
        frames, rewards, terminated, truncated, infos = vector.step(chosen)
        games = {game.env_id: game[1:] for game in finished_games(infos)}
        for number, env in enumerate(exact):
            if has_ended[number]:
                frame, info = env.reset()
                reward, ended, cut = 0.0, False, False
            else:
                frame, reward, ended, cut, info = env.step(chosen[number])
            has_ended[number] = ended or cut
            assert (reward, ended, cut) == (rewards[number], terminated[number], truncated[number])
            assert info["lives"] == infos["lives"][number]
            assert info["episode_frame_number"] == infos["episode_frame_number"][number]
            assert (tuple(info["episode"].values()) if "episode" in info else None) == games.get(number)
            if not has_ended[number]:
                assert np.array_equal(frame, frames[number])
                num_compared += 1

    assert num_compared > 540
    vector.close()


def action_for(stack: np.ndarray) -> int:
    return int(stack.astype(np.int64).sum() * 7919 % 18)


def recorded(mode, num_envs, num_steps, preset=SHORT) -> ListSink:
    """Play until each game has made so many steps, by a policy that looks at everything."""
    sink = ListSink(num_envs, shape=(84, 84))
    recorder = Recorder(AleVectorEnv("Breakout", num_envs, preset, seed=3, autoreset_mode=mode), sink)
    observations, _ = recorder.reset()
    while min(sink.num_steps(stream) for stream in range(num_envs)) < num_steps:
        actions = [action_for(stack) for stack in observations]
        observations, _, terminated, truncated, _ = recorder.step(actions)
        ended = terminated | truncated
        if mode is AutoresetMode.DISABLED and ended.any():
            observations, _ = recorder.reset(options={"reset_mask": ended})
    recorder.close()
    return sink


@pytest.mark.parametrize("sticky_probability", [pytest.param(0.0, marks=pytest.mark.exhaustive), 0.25])
def test_every_mode_records_the_same_streams(sticky_probability):
    preset = replace(SHORT, sticky_probability=sticky_probability, max_noops=5)
    next_step, same_step, disabled = (recorded(mode, 3, 70, preset) for mode in MODES)

    for stream in range(3):
        logs = [sink.log[stream] for sink in (next_step, same_step, disabled)]
        length = min(map(len, logs))
        assert length > 70
        assert logs[0][:length] == logs[1][:length] == logs[2][:length]
        assert sum(entry[0] == "begin" for entry in logs[0]) >= 3


def test_the_three_modes_leave_byte_identical_memories(tmp_path):
    def saved(mode):
        env = AleVectorEnv("Pong", 1, SHORT, seed=3, autoreset_mode=mode)
        space, actions = env.single_observation_space, env.single_action_space
        memory = ReplayMemory(60, space, actions, stack=4, num_envs=1, seed=0)
        recorder = Recorder(env, memory)
        observations, _ = recorder.reset()
        num_steps, has_ended = 0, False
        while num_steps < 100:
            is_reset = has_ended and mode is AutoresetMode.NEXT_STEP
            observations, _, terminated, truncated, _ = recorder.step([action_for(observations[0])])
            has_ended, num_steps = bool(terminated[0] or truncated[0]), num_steps + (not is_reset)
            if mode is AutoresetMode.DISABLED and has_ended:
                observations, _ = recorder.reset(options={"reset_mask": np.array([True])})
        memory.save(tmp_path / mode.name)
        recorder.close()
        return saved_bytes(tmp_path / mode.name)

    next_step, same_step, disabled = (saved(mode) for mode in MODES)

    assert next_step
    assert next_step == same_step == disabled


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_life_ends_the_episode_and_the_game_continues(mode):
    vector = AleVectorEnv("Breakout", 1, LIFE, seed=1, autoreset_mode=mode)
    vector.reset()
    fire, lives, frame_number, score, games = 1, 5, 0, 0.0, []
    for _ in range(400):
        frames, rewards, terminated, truncated, infos = vector.step([fire])
        score += rewards[0]
        games += finished_games(infos)
        if terminated[0] and not games:
            told = infos["final_info"] if mode is AutoresetMode.SAME_STEP else infos
            assert told["lives"][0] == lives - 1
            assert told["episode_frame_number"][0] > frame_number
            lives, frame_number = told["lives"][0], told["episode_frame_number"][0]
            if mode is AutoresetMode.DISABLED:
                again, infos = vector.reset(options={"reset_mask": np.array([True])})
                assert np.array_equal(frames, again)
                assert infos["episode_frame_number"].tolist() == [frame_number]
            elif mode is AutoresetMode.SAME_STEP:
                assert np.array_equal(infos["final_obs"][0], frames[0])
            else:
                _, rewards, terminated, truncated, infos = vector.step([fire])
                assert (rewards[0], terminated[0], truncated[0]) == (0.0, False, False)
                assert infos["episode_frame_number"].tolist() == [frame_number + 4]
                frame_number += 4
        if games:
            break

    assert lives == 1
    assert [(game.env_id, game.score) for game in games] == [(0, score)]


def test_a_game_that_ends_in_the_step_after_a_lost_life_is_reported_and_another_begins():
    preset = replace(LIFE, max_episode_frames=10_000)
    probe = AleVectorEnv("Breakout", 1, preset, seed=1)
    probe.reset()
    while not (outcome := probe.step([1]))[2][0]:
        pass
    length = int(outcome[4]["episode_frame_number"][0])
    vector = AleVectorEnv("Breakout", 1, replace(preset, max_episode_frames=length + 2), seed=1)
    vector.reset()
    while not vector.step([1])[2][0]:
        pass

    _, rewards, terminated, truncated, infos = vector.step([1])

    assert (rewards[0], terminated[0], truncated[0]) == (0.0, False, False)
    assert infos["episode_frame_number"].tolist() == [0]
    assert infos["lives"].tolist() == [5]
    assert [game.agent_steps for game in finished_games(infos)] == [-(-length // 4)]
    assert not vector.step([1])[3][0]


def test_rewards_are_clipped_and_scores_are_not():
    preset = replace(PLAIN, max_episode_frames=400)
    unclipped = AleVectorEnv("MsPacman", 2, preset, seed=1, autoreset_mode="SameStep")
    clipped = AleVectorEnv("MsPacman", 2, replace(preset, reward_limit=1.0), seed=1, autoreset_mode="SameStep")
    unclipped.reset()
    clipped.reset()
    games, differ = [], False
    for step in range(220):
        raw, outcome = unclipped.step([step % 9] * 2), clipped.step([step % 9] * 2)
        assert np.array_equal(np.clip(raw[1], -1, 1), outcome[1])
        assert finished_games(raw[4]) == finished_games(outcome[4])
        games, differ = games + finished_games(raw[4]), differ or not np.array_equal(raw[1], outcome[1])

    assert differ
    assert len(games) >= 4


def test_negative_rewards_are_clipped_too():
    skiing = AleVectorEnv("Skiing", 1, replace(PLAIN, reward_limit=1.0), seed=1)  # every step takes points
    skiing.reset()

    assert {-1.0} == {skiing.step([0])[1].item() for _ in range(20)}


@pytest.mark.parametrize("mode", MODES)
def test_each_instance_has_its_own_metadata_and_the_class_keeps_its(mode):
    before = dict(VectorEnv.metadata)

    vectors = [AleVectorEnv("Pong", 1, autoreset_mode=each) for each in (mode, *MODES)]

    assert before == VectorEnv.metadata
    assert vectors[0].metadata["autoreset_mode"] is mode
    for vector in vectors:
        vector.close()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0], "actions have shape (1,): they must have shape (2,)"),
        ([0, 18], "action 18 for environment 1: Discrete(18) takes 0 to 17"),
        ([-1, 0], "action -1 for environment 0"),
        ([0.0, 1.0], "actions have dtype float64"),
    ],
)
def test_actions_that_ale_would_hang_over_are_refused(actions, message):
    vector = AleVectorEnv("Pong", 2, PLAIN, seed=0)
    with pytest.raises(InvalidStepError, match="no running episode"):
        vector.step([0, 0])
    vector.reset()

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        vector.step(actions)

    assert vector.step(np.array([0, 0], np.uint8))[4]["episode_frame_number"].tolist() == [4, 4]


def test_a_masked_reset_starts_the_masked_games_only():
    vector = AleVectorEnv("Pong", 3, PLAIN, seed=0, autoreset_mode=AutoresetMode.DISABLED)
    options = {"reset_mask": np.array([False, True, False])}
    with pytest.raises(InvalidStepError, match=re.escape("leaves out environments [0, 2], which have no episode")):
        vector.reset(options=options)
    vector.reset()
    for step in range(20):
        frames, *_ = vector.step([step % 18] * 3)

    after, infos = vector.reset(options=options)

    assert list(options) == ["reset_mask"]
    assert infos["episode_frame_number"].tolist() == [0, 0, 0]
    assert infos["_lives"].tolist() == [False, True, False]
    assert np.array_equal(frames[[0, 2]], after[[0, 2]])
    assert not np.array_equal(frames[1], after[1])
    assert vector.step([0, 0, 0])[4]["episode_frame_number"].tolist() == [84, 4, 84]


def test_returned_arrays_are_copies():
    vector = AleVectorEnv("Pong", 2, PLAIN, seed=0, autoreset_mode=AutoresetMode.DISABLED)
    vector.reset()
    frames, *_ = vector.step([0, 0])
    copy = frames.copy()
    frames[:] = 7

    after, _ = vector.reset(options={"reset_mask": np.array([True, False])})

    assert np.array_equal(copy[1], after[1])


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_run_tells_its_lost_episodes_and_plays_games_of_its_own(mode, tmp_path):
    def made(memory):
        return Recorder(AleVectorEnv("Breakout", 2, SHORT, seed=3, autoreset_mode=mode), memory)

    env = AleVectorEnv("Breakout", 1)
    memory = ReplayMemory(99, env.single_observation_space, env.single_action_space, stack=4, num_envs=2, seed=0)
    recorder = made(memory)
    observations, _ = recorder.reset()
    for _ in range(10):
        observations, *_ = recorder.step([1, 2])
    state = recorder.state_dict()
    memory.save(tmp_path / "memory")

    outcomes = []
    for _ in range(2):
        resumed = made(ReplayMemory.load(tmp_path / "memory"))
        resumed.load_state_dict(state)
        first = resumed.step([1, 2])
        if mode is AutoresetMode.DISABLED:
            resumed.reset(options={"reset_mask": first[3]})
        for _ in range(5):
            last = resumed.step([1, 2])
        assert list(lost_episodes(first[4])) == [0, 1]
        assert first[3].tolist() == [True, True]
        if mode is not AutoresetMode.SAME_STEP:
            assert np.array_equal(observations, first[0])
        assert len(resumed.memory) == 20 + 10 - 2 * (mode is AutoresetMode.NEXT_STEP)
        resumed.memory._check()
        outcomes.append(last[0])
    assert np.array_equal(*outcomes)


def test_games_begun_after_resuming_differ_from_those_at_the_beginning():
    preset = replace(PLAIN, max_noops=30)
    vector = AleVectorEnv("Breakout", 3, preset, seed=3, autoreset_mode="SameStep")
    _, infos = vector.reset()
    lengths = [infos["episode_frame_number"].tolist()]
    for _ in range(2):
        again = AleVectorEnv("Breakout", 3, preset, seed=3, autoreset_mode="SameStep")
        again.load_state_dict(vector.state_dict())
        vector = again
        lengths.append(vector.step([0] * 3)[4]["episode_frame_number"].tolist())

    assert len({tuple(each) for each in lengths}) == 3


def test_a_state_of_others_is_refused():
    state = AleVectorEnv("Pong", 2).state_dict()

    for other in (
        AleVectorEnv("Pong", 3),
        AleVectorEnv("Breakout", 2),
        AleVectorEnv("Pong", 2, autoreset_mode="Disabled"),
    ):
        with pytest.raises(IncompatibleError, match="state is of"):
            other.load_state_dict(state)


def test_unsupported_preset_fields_are_refused_by_name():
    with pytest.raises(
        InvalidSettingsError, match="has resize 'bilinear': ALE's vector environment does not support it"
    ):
        AleVectorEnv("Pong", 2, replace(PLAIN, resize="bilinear"))
    with pytest.raises(InvalidSettingsError, match="preset 'baselines' has opening 'fire_steps'"):
        AleVectorEnv("Pong", 2, "baselines")
    noop_step = replace(LIFE, noop_steps_after_life_loss=1)
    AleVectorEnv("Pong", 2, noop_step)
    with pytest.raises(InvalidSettingsError, match=r"has noop_steps_after_life_loss 1: .* with Disabled gives 0;"):
        AleVectorEnv("Pong", 2, noop_step, autoreset_mode="Disabled")
    with pytest.raises(InvalidSettingsError, match="num_envs is 0"):
        AleVectorEnv("Pong", 0)


def test_every_field_of_a_preset_is_known_here():
    done_by_ale = "frame_skip sticky_probability action_set max_noops frame_shape max_episode_frames maximum_of resize"
    done_here = "life_loss noop_steps_after_life_loss opening reset_frame reward_limit"
    of_others = "name source stack_padding evaluation_epsilon"

    known = {*done_by_ale.split(), *done_here.split(), *of_others.split()}

    assert {field.name for field in fields(Preset)} == known


@pytest.mark.parametrize("preset", ["machado2018", "nature", "dopamine", "envpool"])
def test_the_presets_it_can_do_play(preset):
    vector = AleVectorEnv("SpaceInvaders", 2, preset, seed=0)
    vector.reset()
    for _ in range(5):
        frames, *_ = vector.step([0, 1])

    assert frames.shape == (2, 84, 84)
    assert vector.observation_space.contains(frames)


def test_after_close_nothing_is_taken_and_a_second_close_does_no_harm():
    vector = AleVectorEnv("Pong", 2)
    vector.reset()
    vector.close()
    vector.close()

    for call in (vector.reset, lambda: vector.step([0, 0]), vector.state_dict):
        with pytest.raises(InvalidStepError, match="closed"):
            call()


def test_make_atari_makes_it_and_refuses_unsupported_options():
    vector = make_atari("space_invaders", 2, "nature", seed=0, autoreset_mode="SameStep", backend="ale")
    assert isinstance(vector, AleVectorEnv)
    assert (vector.game, vector.num_envs, vector.preset.name) == ("SpaceInvaders", 2, "nature")
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP

    with pytest.raises(InvalidSettingsError, match="backend is 'gym': it must be"):
        make_atari("Pong", 2, backend="gym")
    with pytest.raises(InvalidSettingsError, match="num_envs is None and render_mode is None with backend 'ale'"):
        make_atari("Pong", backend="ale")
    with pytest.raises(
        InvalidSettingsError, match="and render_mode is 'rgb_array' with backend 'ale': it makes vector environments"
    ):
        make_atari("Pong", 2, render_mode="rgb_array", backend="ale")


def test_ctrl_c_at_any_line_of_a_step_leaves_nothing_unreceived():
    vector = AleVectorEnv("Pong", 2, PLAIN, seed=0)
    vector.reset()
    num_interrupted, frame_numbers = 0, [0, 0]
    while True:
        try:
            with ctrl_c_at_line(num_interrupted + 1, ("framestow", "ale_py")):
                vector.step([0, 1])
            break
        except KeyboardInterrupt:
            num_interrupted += 1
        told = vector.step([0, 1])[4]["episode_frame_number"].tolist()
        assert told[0] == told[1]
        assert told[0] in (frame_numbers[0] + 4, frame_numbers[0] + 8)  # the step before was made, or was not
        frame_numbers = told

    assert num_interrupted > 40
    assert vector.step([0, 1])[4]["episode_frame_number"].tolist() == [frame_numbers[0] + 8] * 2
