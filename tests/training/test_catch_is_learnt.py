"""Training learns the game Catch, with the loop, agent, memory and recorder of Atari."""

from pathlib import Path

import pytest

from framestow.training.loop import start_run, train
from framestow.training.playing import Player, evaluation_settings, play_episodes
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from oracles.catch import OPTIMUM
from training.catch_runs import make_catch

EPISODES = 200  # at 90 % of the optimum the standard error of the mean is 0.03


@pytest.mark.exhaustive
def test_catch_is_learnt_to_over_nine_tenths_of_the_optimum(tmp_path: Path) -> None:
    settings = Settings(
        "Catch",
        recipe="dqn",
        num_envs=8,
        double=True,
        steps=10_000,
        memory=10_000,
        stack=1,
        warmup=500,
        train_every=2,
        target_every=200,
        learning_rate=5e-4,
        learning_rate_falls_after=2_500,  # agent steps: at a constant rate the score of the last network varies by seed
        epsilon_end=0.05,
        epsilon_steps=4_500,
        device="cpu",
        threads=1,  # the network is small: a second thread costs more than it brings
    )
    folder = RunFolder.create(tmp_path / "run", settings)
    run = start_run(folder, make_catch)
    train(run, folder)
    run.close()

    env = make_catch(evaluation_settings(settings, EPISODES, seed=1_000))
    player = Player(folder, env, epsilon=0.0, seed=0, device="cpu")
    scores = [game.score for game in play_episodes(player, EPISODES)]
    player.close()

    assert len(scores) == EPISODES
    assert sum(scores) / EPISODES > 0.9 * OPTIMUM
