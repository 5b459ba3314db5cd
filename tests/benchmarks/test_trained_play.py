"""The play of a trained agent is stored, and so is random play of the same game."""

from __future__ import annotations

import trained_play
from framestow.envs import find_preset
from framestow.training.loop import start_run, train
from framestow.training.run_folder import RunFolder
from training.catch_runs import catch_settings, make_catch


def test_both_plays_have_their_bytes_and_whole_games(tmp_path, monkeypatch):
    settings = catch_settings(steps=30)
    folder = RunFolder.create(tmp_path / "run", settings)
    run = start_run(folder, make_catch)
    train(run, folder)
    run.close()
    monkeypatch.setattr(trained_play, "make_atari", lambda *_: make_catch(settings))

    plays = trained_play.plays_of(folder, transitions=240)

    assert 30 == plays["agent_steps"]
    assert (1.0, find_preset(settings.preset).evaluation_epsilon) == (
        plays["random"]["epsilon"],
        plays["agent"]["epsilon"],
    )
    for play in (plays["random"], plays["agent"]):
        assert 0 < play["bytes_a_transition"] < 24 * 24
        assert play["games"] > 0
