"""A memory returns its stored episodes as they were played."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings

from framestow.errors import NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from oracles.small_plays import SmallPlay, small_plays


@settings(max_examples=25)
@given(small_plays())
def test_every_stored_episode_is_returned_as_it_was_played(small_play: SmallPlay):
    play = small_play.recorded()

    episodes = list(play.memory.episodes())

    expected = play.held()
    assert [plain.indices[first:] for plain, first in expected] == [episode.indices.tolist() for episode in episodes]
    for (plain, first), episode in zip(expected, episodes, strict=True):
        assert plain.env_id == episode.env_id
        np.testing.assert_array_equal(plain.actions[first:], episode.actions)
        np.testing.assert_array_equal(np.float32(plain.rewards[first:]), episode.rewards)
        assert plain.terminated[first:] == episode.terminated.tolist()
        assert plain.truncated[first:] == episode.truncated.tolist()
        assert (plain.terminated[-1] or plain.truncated[-1]) == episode.has_end
        np.testing.assert_array_equal(plain.frames[first:], episode.frames())
        history = min(first, small_play.stack - 1)
        assert history == episode.history
        np.testing.assert_array_equal(plain.frames[first - history :], episode.frames(-history))


def test_frames_are_read_in_pieces_of_any_size():
    play = SmallPlay(((700, "terminated"),)).recorded()
    plain = play.episodes[0][0]

    [episode] = play.memory.episodes()

    np.testing.assert_array_equal(plain.frames, episode.frames())
    np.testing.assert_array_equal(plain.frames[5:621], episode.frames(5, 621))
    assert (0, 5, 3) == episode.frames(3, 3).shape


def test_float_frames_are_returned_unchanged():
    play = SmallPlay(((30, "cut"),)).recorded(FrameSpec((4, 4), np.float32))

    [episode] = play.memory.episodes()

    assert np.float32 == episode.frames().dtype
    np.testing.assert_array_equal(play.episodes[0][0].frames, episode.frames())


@pytest.mark.parametrize(("first", "before"), [(-1, 3), (0, 5), (3, 2)])
def test_frames_of_another_episode_are_refused(first: int, before: int):
    play = SmallPlay(((3, "terminated"), (3, "terminated"))).recorded()
    episode = next(play.memory.episodes())

    with pytest.raises(IndexError, match=re.escape("it has frames 0 to 3; ask for those")):
        episode.frames(first, before)


def test_evictions_during_the_iteration_are_refused():
    play = SmallPlay(((1, "cut"), (3, "cut")), capacity=4).recorded()
    episodes = play.memory.episodes()
    assert 1 == len(next(episodes))

    for _ in range(3):
        play.append([0], [0.0], [False], [False], np.ones((1, 5, 3), np.uint8))

    with pytest.raises(NothingToSampleError, match="steps of environment 0 were evicted during the iteration"):
        next(episodes)


def test_observations_outside_of_an_episode_are_refused():
    [episode] = SmallPlay(((5, "terminated"),)).recorded().memory.episodes()

    message = "observations 2 to 7 of an episode of 5 transitions: it has observations 0 to 5; ask for those"
    with pytest.raises(IndexError, match=re.escape(message)):
        episode.observations(2, 7)
