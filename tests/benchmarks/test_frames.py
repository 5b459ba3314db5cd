"""The recorded frames of the benchmarks are the same on every machine."""

from __future__ import annotations

import hashlib

import numpy as np

import atari_frames
from atari_frames import record, recording


def test_random_play_of_breakout_is_the_play_of_the_published_figures():
    frames = record("breakout", 200, seed=0).frames

    digest = hashlib.sha256(frames.tobytes()).hexdigest()
    assert digest == "9a61426c351a004f90e23ff76e7ab26ded0fc10fe7c6647317ae3261a78d83b1"


def test_a_recording_is_loaded_the_second_time_with_the_starts_of_its_episodes(tmp_path, monkeypatch):
    monkeypatch.setattr(atari_frames, "CACHE_FOLDER", tmp_path)

    first, again = (recording("breakout", 400, seed=0) for _ in range(2))

    assert len(list(tmp_path.iterdir())) == 2
    assert np.array_equal(first.frames, again.frames)
    assert list(first.episode_starts) == list(again.episode_starts)
    assert len(first.episode_starts) > 1
    assert first.episode_starts[0] == 0
