"""The recorded frames of the benchmarks are the same on every machine."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import recorded_frames
from atari_frames import record
from recorded_frames import Recording, save_recording, saved_recording
from synthetic_frames import SYNTHETIC, flickering_screen, flickering_sprites

NUM_FRAMES = 60


def test_random_play_of_breakout_is_the_play_of_the_published_figures():
    frames = record("breakout", 200, seed=0).frames

    digest = hashlib.sha256(frames.tobytes()).hexdigest()
    assert digest == "9a61426c351a004f90e23ff76e7ab26ded0fc10fe7c6647317ae3261a78d83b1"


def test_scripted_play_is_the_same_for_the_same_seed_and_another_for_another():
    first, again, other = (record("breakout", 100, seed, is_scripted=True).frames for seed in (3, 3, 4))

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_scripted_player_of_breakout_meets_balls_that_random_play_misses():
    at_random, scripted = (record("breakout", 500, seed=0, is_scripted=it_is) for it_is in (False, True))

    assert scripted.mean_score > 4 * at_random.mean_score


def test_episodes_begin_where_the_game_was_restarted():
    recording = record("breakout", 400, seed=0)

    assert recording.episode_starts[0] == 0
    assert len(recording.episode_starts) == len(recording.scores) + 1 > 1


def test_a_saved_recording_is_loaded_and_a_missing_one_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded_frames, "CACHE_FOLDER", tmp_path)
    frames = np.arange(5 * 6, dtype=np.uint8).reshape(5, 2, 3)
    save_recording("counting", Recording(frames, [0, 3], [7.0]), seed=1)

    found = saved_recording("counting", num_frames=5, seed=1)

    assert found is not None
    assert np.array_equal(frames, found.frames)
    assert ([0, 3], [7.0]) == (found.episode_starts, found.scores)
    assert saved_recording("counting", num_frames=5, seed=2) is None


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_frames_are_the_same_each_time_and_are_84_by_84(name):
    frames = SYNTHETIC[name](NUM_FRAMES)

    assert (NUM_FRAMES, 84, 84) == frames.shape
    assert np.array_equal(frames, SYNTHETIC[name](NUM_FRAMES))


def test_a_flickering_screen_changes_every_pixel_and_repeats_after_two_frames():
    frames = flickering_screen(NUM_FRAMES)

    assert (frames[1:] != frames[:-1]).all()
    assert (frames[2:] == frames[:-2]).all()


def test_flickering_sprites_change_in_every_frame_and_most_of_the_field_never_does():
    frames = flickering_sprites(NUM_FRAMES)

    changed = (frames[1:] != frames[:-1]).mean(axis=(1, 2))
    assert (changed > 0.02).all()
    assert (changed < 0.2).all()
