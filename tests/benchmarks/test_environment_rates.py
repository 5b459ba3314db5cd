"""Environments are measured in turn with the same work and compared round by round."""

from __future__ import annotations

import multiprocessing
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from atari_libraries import ale_vector, gymnasium_env, gymnasium_sync
from bare_emulator import NUM_ACTIONS, NUM_DRAWN, BareEmulatorProcesses, BareEmulators, drawn_actions
from environment_rates import Candidate, ManyEnvs, OneEnv, figures, idle_share, made, rates_of_rounds, ratio_of
from framestow.envs import make_atari


class Noting:
    """Records its turns and returns a fixed rate."""

    def __init__(self, name: str, turns: list[tuple[str, int]], rate: float = 1.0) -> None:
        self.name, self.turns, self.rate = name, turns, rate

    def play(self, steps: int) -> float:
        self.turns.append((self.name, steps))
        return self.rate

    def close(self) -> None:
        self.turns.append((self.name, 0))


class Repeating(gymnasium.Env):
    """Ends its episode every third step and records its calls."""

    observation_space = gymnasium.spaces.Discrete(9)
    action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)

    def __init__(self) -> None:
        self.asked: list[str | int] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.asked.append("reset")
        return 0, {}

    def step(self, action):
        self.asked.append(int(action))
        return 1, 0.0, len([each for each in self.asked if each != "reset"]) % 3 == 0, False, {}


def burn_until_told(pipe):
    while not pipe.poll():
        pass


def test_every_candidate_gets_one_turn_of_the_same_steps_in_each_round_and_the_order_changes():
    turns: list[tuple[str, int]] = []
    players = {name: Noting(name, turns) for name in "abc"}

    rates = rates_of_rounds(players, rounds=6, steps=7, warmup_rounds=2)

    rounds = [turns[start : start + 3] for start in range(0, len(turns), 3)]
    assert len(rounds) == 8
    assert all(sorted(each) == [("a", 7), ("b", 7), ("c", 7)] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1
    assert {name: len(of_rounds) for name, of_rounds in rates.items()} == {"a": 6, "b": 6, "c": 6}


def test_rates_are_compared_within_their_round_so_a_slow_moment_of_the_machine_cancels_out():
    theirs = [100.0, 10.0, 100.0, 1.0, 100.0]
    ours = [2 * rate for rate in theirs]

    assert ratio_of(ours, theirs) == (2.0, 2.0, 2.0)


def test_figures_have_the_median_rate_and_the_ratio_of_ours():
    rows = figures({"ours": [30.0, 20.0, 40.0], "theirs": [10.0, 20.0, 10.0]}, "ours")

    assert rows["theirs"]["agent_steps_per_second"] == 10
    assert rows["theirs"]["ours_to_it"] == 3.0
    assert rows["ours"]["ours_to_it"] == 1.0


def test_a_library_that_is_missing_is_named_with_what_installs_it_and_the_others_are_measured():
    def missing():
        raise ModuleNotFoundError("No module named 'faraway'")

    players, lines = made(
        [Candidate("there", lambda: Noting("there", [])), Candidate("far", missing, "pip install faraway")]
    )

    assert list(players) == ["there"]
    assert lines == ["not installed: far; pip install faraway (No module named 'faraway')"]


def test_an_import_that_fails_in_a_candidate_which_needs_no_library_is_an_error():
    def broken():
        raise ImportError("ours is broken")

    with pytest.raises(ImportError, match="ours is broken"):
        made([Candidate("ours", broken)])


def test_processes_that_do_not_sleep_while_idle_are_detected():
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=burn_until_told, args=(theirs,), daemon=True)
    process.start()
    try:
        time.sleep(0.5)
        burning = idle_share(1.0)
    finally:
        ours.send("end")
        process.join()
    asleep = idle_share(0.5)

    assert asleep < 0.05
    assert burning > asleep + 0.1


def test_one_environment_takes_the_drawn_actions_and_is_reset_when_its_episode_ends():
    env = Repeating()

    OneEnv(env).play(4)

    first, second, third, fourth = drawn_actions(1)[:4, 0].tolist()
    assert env.asked == ["reset", first, second, third, "reset", fourth]


def test_many_environments_continue_with_the_drawn_actions_from_turn_to_turn():
    envs = SyncVectorEnv([Repeating, Repeating])
    player = ManyEnvs(envs)

    player.play(1)
    player.play(1)

    drawn = drawn_actions(2)[:2]
    assert [env.asked for env in envs.envs] == [["reset", *drawn[:, column].tolist()] for column in (0, 1)]


def test_actions_are_drawn_from_all_eighteen_and_are_the_same_each_time():
    drawn = drawn_actions(3)

    assert (NUM_DRAWN, 3) == drawn.shape
    assert set(range(18)) == set(np.unique(drawn).tolist())
    assert np.array_equal(drawn, drawn_actions(3))


def test_all_candidates_play_four_raw_frames_a_step_with_all_actions_and_return_84_by_84():
    single = {"Gymnasium": gymnasium_env("pong"), "ours": make_atari("pong", seed=0)}
    for name, env in single.items():
        env.reset(seed=0)
        for action in range(10):
            frame, *_, info = env.step(action)

        assert (name, (84, 84), 18, 40) == (name, frame.shape, env.action_space.n, info["episode_frame_number"])
        env.close()
    vectors = {"ALE": ale_vector("pong", 2, 1), "Gymnasium": gymnasium_sync("pong", 2), "ours": make_atari("pong", 2)}
    for name, env in vectors.items():
        env.reset(seed=0)
        for action in range(10):
            frames, *_, infos = env.step(np.full(2, action))

        assert (name, 2 * 84 * 84, 18) == (name, frames.size, env.single_action_space.n)
        assert infos["episode_frame_number"].tolist() == [40, 40]
        env.close()


def test_bare_emulators_play_in_this_process_or_in_several():
    here, elsewhere = BareEmulators("pong", 2), BareEmulatorProcesses("pong", 3, 2)
    try:
        rates = here.play(5), elsewhere.play(5)
    finally:
        here.close()
        elsewhere.close()

    assert all(rate > 0 for rate in rates)
    assert not multiprocessing.active_children()
