"""The play that drop_ins.py measures with."""

from __future__ import annotations

from itertools import islice

import numpy as np

from drop_ins import page_table, play_of, rows_of
from recorded_frames import Recording

FRAMES = np.arange(7, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 2), np.uint8)


def test_a_recording_gives_the_transitions_within_its_episodes():
    play = play_of("three episodes", Recording(FRAMES, episode_starts=[0, 3, 4]))

    assert [0, 1, 4, 5] == play.positions.tolist()
    assert [False, True, False, False] == play.terminated.tolist()
    assert [False, False, False, True] == play.truncated.tolist()


def test_each_environment_plays_from_a_different_place():
    play = play_of("three episodes", Recording(FRAMES, episode_starts=[0, 3, 4]))

    rows = list(islice(rows_of(play, 2), 3))

    assert [[0, 2], [1, 3], [2, 4]] == [row.rewards.tolist() for row in rows]
    assert [[0, 0, 0, 0], [4, 4, 4, 4]] == rows[0].observations[..., 0, 0].tolist()
    assert [[0, 0, 0, 1], [4, 4, 4, 5]] == rows[0].next_observations[..., 0, 0].tolist()
    assert [[False, False], [True, False], [False, False]] == [row.terminated.tolist() for row in rows]
    assert [[False, False], [False, True], [False, False]] == [row.truncated.tolist() for row in rows]


def test_the_page_of_libraries_has_a_line_for_each_buffer_of_a_library():
    ours = {"system": "framestow", "gives_up": "", "bytes_a_transition": 46.4, "sample_us": 120.0, "add_us_of_1": 14.9}
    theirs = {"system": "Ring", "gives_up": "", "bytes_a_transition": 56_470.1, "sample_us": 350.0, "add_us_of_1": 7.0}
    games = {"breakout": [ours, theirs], "ms_pacman": [ours | {"bytes_a_transition": 143.0}, theirs]}

    table = page_table({"library": {"games": games}})

    assert "| library, Ring | 56,470 | 46 / 143 | 350 | 120 | 7 | 15 |" == table.splitlines()[-1]
