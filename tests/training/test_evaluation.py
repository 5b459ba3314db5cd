"""Evaluation: fair shares of games, right sums, a checkpoint read while it is replaced, and a true video."""

import json
import threading
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from framestow.envs import SerialVectorEnv
from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.training.checkpoint import write_checkpoint
from framestow.training.loop import start_run, train
from framestow.training.playing import (
    BAR,
    CHOSEN,
    PROTOCOLS,
    Evaluation,
    Player,
    draw_values,
    evaluation_settings,
    play_episodes,
    record_game,
)
from framestow.training.run_folder import VIDEO_FORMATS, RunFolder
from oracles.catch import Catch
from training.catch_runs import catch_settings, make_catch
from training.checkpoint_states import read_checkpoint


class Countdown(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """Games of a fixed length whose score is that length, on frames and actions like those of Catch."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 15}

    def __init__(self, length: int) -> None:
        self.observation_space, self.action_space = Box(0, 255, (24, 24), np.uint8), Discrete(3)
        self.render_mode = "rgb_array"
        self._length, self._steps = length, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros((24, 24), np.uint8), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        self._steps += 1
        has_ended = self._steps == self._length
        info = {"episode": {"r": float(self._length), "l": self._length}} if has_ended else {}
        return np.full((24, 24), self._steps, np.uint8), 1.0, has_ended, False, info

    def render(self) -> NDArray[np.uint8]:
        return np.full((20, 10, 3), min(20 * self._steps, 255), np.uint8)


def _trained_folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "run", catch_settings(steps=30))
    run = start_run(folder, make_catch)
    train(run, folder)
    run.close()
    return folder


def _player(folder: RunFolder, *lengths: int) -> Player:
    env = SerialVectorEnv([lambda length=length: Countdown(length) for length in lengths], seed=0)
    return Player(folder, env, epsilon=0.5, seed=0, device="cpu")


def _pictures(path: Path) -> list[NDArray[np.uint8]]:
    video = cv2.VideoCapture(str(path))
    pictures = []
    while (read := video.read())[0]:
        pictures.append(np.asarray(read[1], np.uint8))
    video.release()
    return pictures


def test_short_games_are_not_favoured(tmp_path: Path) -> None:
    player = _player(_trained_folder(tmp_path), 3, 40, 5)

    scores = sorted(game.score for game in play_episodes(player, 10))

    assert scores == [3.0] * 4 + [5.0] * 3 + [40.0] * 3


def test_fewer_games_than_environments_are_played_by_the_first(tmp_path: Path) -> None:
    player = _player(_trained_folder(tmp_path), 30, 4)

    assert [game.score for game in play_episodes(player, 1)] == [30.0]


def test_mean_median_and_standard_error_are_those_of_the_scores(tmp_path: Path) -> None:
    evaluation = Evaluation(
        "Pong", "nature", "baselines", 100, 0.05, 1, scores=(1.0, 2.0, 3.0, 10.0), lengths=(1, 2, 3, 4)
    )

    assert (evaluation.mean, evaluation.median) == (4.0, 2.5)
    assert evaluation.standard_error == pytest.approx(np.sqrt(50 / 3) / 2)  # squares 9, 4, 1, 36 over n - 1
    assert Evaluation("Pong", "nature", "baselines", 100, 0.05, 1, (1.0,), (1,)).standard_error is None
    evaluation.write(tmp_path / "evaluation.json")
    assert json.loads((tmp_path / "evaluation.json").read_text())["median"] == 2.5


def test_an_evaluation_is_written_beside_random_play_and_the_human(tmp_path: Path) -> None:
    Evaluation("Pong", "nature", "nature", 100, 0.05, 1, scores=(14.6, -20.7), lengths=(1, 2)).write(tmp_path / "pong")
    Evaluation("Adventure", "nature", "nature", 100, 0.05, 1, scores=(1.0,), lengths=(1,)).write(tmp_path / "other")

    pong, other = (json.loads((tmp_path / name).read_text()) for name in ("pong", "other"))
    assert pong["human_normalized_mean"] == pytest.approx(0.5)
    assert (pong["random_score"], pong["human_score"]) == (-20.7, 14.6)
    assert (other["human_normalized_mean"], other["random_score"]) == (None, None)


def test_the_protocols_are_those_of_the_papers() -> None:
    assert str(PROTOCOLS["machado2018"]) == (
        "protocol machado2018 (Machado et al. 2018): 100 games of at most 18,000 emulator frames, sticky actions 0.25, "
        "up to 0 no-ops, full action set, lost lives ignored, epsilon 0.001"
    )
    assert str(PROTOCOLS["nature"]) == (
        "protocol nature (Mnih et al. 2015): 30 games of at most 18,000 emulator frames, sticky actions 0, up to 30 "
        "no-ops, minimal action set, lost lives ignored, epsilon 0.05"
    )


def test_a_player_pads_stacks_as_configured(tmp_path: Path) -> None:
    folder = _trained_folder(tmp_path)

    def first_stacks(**padding: Any) -> NDArray[np.uint8]:
        player = Player(folder, make_catch(folder.settings()), 0.5, 0, "cpu", **padding)
        stacks, _ = player.env.reset()
        player.close()
        return np.asarray(stacks)

    repeated, zeros = first_stacks(), first_stacks(stack_padding="zeros")

    assert np.array_equal(repeated[:, 0], repeated[:, 1])
    assert np.array_equal(repeated[:, 1], zeros[:, 1])
    assert not zeros[:, 0].any()


def test_a_player_keeps_as_much_of_its_play_as_asked(tmp_path: Path) -> None:
    env = SerialVectorEnv([lambda: Countdown(3), lambda: Countdown(5)], seed=0)
    player = Player(_trained_folder(tmp_path), env, epsilon=0.5, seed=0, device="cpu", capacity=40)

    for _ in islice(player.steps(), 24):  # a step resets after each game
        pass

    games = [(episode.env_id, episode.frames()[:, 0, 0].tolist()) for episode in player.memory.episodes()]
    assert [(0, [0, 1, 2, 3])] * 6 + [(1, [0, 1, 2, 3, 4, 5])] * 4 == games


def test_an_evaluation_may_use_another_preset() -> None:
    assert evaluation_settings(catch_settings(preset="nature"), 3, seed=1).preset == "nature"
    assert evaluation_settings(catch_settings(preset="nature"), 3, seed=1, preset="envpool").preset == "envpool"


def test_an_evaluation_obeys_no_rule_about_the_memory_of_the_training() -> None:
    shared = catch_settings(num_envs=8, actors=2, shards=16, memory=2_000)
    of_one_env = catch_settings(num_envs=1, warmup=40, n_step=5, train_every=8)
    random = catch_settings(num_envs=1, retention="random", memory=1_000)

    assert evaluation_settings(shared, 1, seed=1).num_envs == 1
    assert evaluation_settings(of_one_env, 10, seed=1).num_envs == 8
    assert evaluation_settings(random, 10, seed=1).num_envs == 8


def test_an_evaluation_of_no_games_is_refused() -> None:
    with pytest.raises(InvalidSettingsError, match="episodes is 0: it must be at least 1"):
        evaluation_settings(catch_settings(), 0, seed=1)


def test_a_player_reads_whole_checkpoints_while_they_are_replaced(tmp_path: Path) -> None:
    folder = _trained_folder(tmp_path)
    state = read_checkpoint(folder.newest_checkpoint())
    is_over = threading.Event()

    def go_on_saving() -> None:
        agent_steps = state.agent_steps
        while not is_over.is_set():
            agent_steps += 1
            write_checkpoint(folder.checkpoints, type(state)(agent_steps, state.agent, state.memory, state.rest))

    saving = threading.Thread(target=go_on_saving)
    saving.start()
    try:
        seen = [Player(folder, make_catch(catch_settings()), 0.0, 0, "cpu").agent_steps for _ in range(30)]
    finally:
        is_over.set()
        saving.join()

    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_environments_of_another_shape_are_refused(tmp_path: Path) -> None:
    class LargerCatch(Catch):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = Discrete(5)

    with pytest.raises(IncompatibleError, match=r"this agent has \(5,\)"):
        Player(_trained_folder(tmp_path), SerialVectorEnv([LargerCatch], seed=0), 0.0, 0, "cpu")


def test_a_video_shows_every_step_of_one_game(tmp_path: Path) -> None:
    path = tmp_path / "game.mp4"
    noticed: list[int] = []

    shown, game = record_game(_player(_trained_folder(tmp_path), 9), path, 4, None, noticed.append)

    assert (shown, game.score if game else None) == (9, 9.0)
    assert noticed == list(range(1, 10))
    pictures = _pictures(path)
    assert {picture.shape for picture in pictures} == {(80, 40, 3)}
    brightness = [picture.mean() for picture in pictures]
    np.testing.assert_allclose(brightness, np.arange(20, 200, 20), atol=6)  # the codec loses a little
    assert sorted(path.name for path in tmp_path.iterdir()) == ["game.mp4", "run"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that takes no file, even from root")
def test_a_video_that_cannot_be_written_raises_the_reason_before_the_game(tmp_path: Path) -> None:
    noticed: list[int] = []

    with pytest.raises(OSError, match=r"/proc/self/game\.mp4"):
        record_game(_player(_trained_folder(tmp_path), 9), Path("/proc/self/game.mp4"), 4, None, noticed.append)

    assert noticed == []


@pytest.mark.parametrize("ending", VIDEO_FORMATS)
def test_every_offered_extension_makes_a_video(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"game{ending}"

    record_game(_player(_trained_folder(tmp_path), 9), path, 4, None, lambda num_steps: None)

    assert path.stat().st_size > 500


def test_a_video_shows_the_values_of_the_agent_beside_the_unchanged_picture(tmp_path: Path) -> None:
    folder, names = _trained_folder(tmp_path), ["LEFT", "STAY", "RIGHT"]
    player = _player(folder, 9)
    drawn: list[NDArray[np.uint8]] = []

    def draw_again(num_steps: int) -> None:
        chosen = int(player.actions[0]) if num_steps < 9 else None  # the game is over: nothing is chosen
        drawn.append(draw_values(player.values()[0], names, chosen, 80)[..., ::-1])

    record_game(player, tmp_path / "values.mp4", 4, None, draw_again, names)
    record_game(_player(folder, 9), tmp_path / "plain.mp4", 4, None, lambda num_steps: None)

    pictures, plain = _pictures(tmp_path / "values.mp4"), _pictures(tmp_path / "plain.mp4")
    assert len(pictures) == len(plain) == len(drawn) == 9
    for picture, without, panel in zip(pictures, plain, drawn, strict=True):
        assert abs(picture[4:76, 4:36].astype(int) - without[4:76, 4:36]).max() < 12  # the codec loses a little
        height, width = panel.shape[:2]
        assert abs(picture[:height, 40 : 40 + width].astype(int) - panel).mean() < 6


def test_the_longest_bar_is_the_highest_value_and_the_marked_one_the_chosen_action() -> None:
    values = np.array([0.5, 2.5, 1.5], np.float32)

    panel = draw_values(values, ["NOOP", "UP", "DOWN"], 2, 200)

    others, marked = [(panel == colour).all(axis=2) for colour in (BAR, CHOSEN)]
    columns = np.flatnonzero(others.any(axis=0))  # of the bars, without the names and the numbers
    marked = marked[:, columns]
    assert marked.sum(axis=1).max() == pytest.approx(len(columns) / 2, abs=2)
    assert np.flatnonzero(others.any(axis=1)).max() < np.flatnonzero(marked.any(axis=1)).min()


def test_equal_values_of_many_actions_fit_into_a_panel_higher_than_a_small_picture() -> None:
    panel = draw_values(np.ones(18, np.float32), ["DOWNRIGHTFIRE"] * 18, None, 40)

    assert panel.shape[0] > 18 * 18
    assert not (panel == CHOSEN).all(axis=2).any()


def test_a_video_stops_at_max_steps(tmp_path: Path) -> None:
    shown, game = record_game(
        _player(_trained_folder(tmp_path), 9), tmp_path / "game.mp4", 2, 4, lambda num_steps: None
    )

    assert (shown, game) == (4, None)
