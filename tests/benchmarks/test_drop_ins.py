"""The play that drop_ins.py measures with."""

from __future__ import annotations

from itertools import islice

import numpy as np

from atari_frames import Recording
from drop_ins import play_of, rows_of

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
