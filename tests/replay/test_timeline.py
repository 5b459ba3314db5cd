"""The timeline alone: indices, slots and windows, without frames."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.replay.timeline import Timeline


def begun(capacity: int, num_streams: int, stack: int) -> Timeline:
    timeline = Timeline(capacity, num_streams, stack)
    timeline.begin(np.arange(num_streams))
    return timeline


def step(timeline: Timeline, *, ended: bool = False) -> None:
    streams = np.arange(timeline.num_streams)
    timeline.make_room(len(streams))
    timeline.append(streams, np.full(len(streams), ended))


def test_a_window_holds_the_history_since_the_episode_began_and_the_next_frame():
    timeline = begun(10, 1, stack=3)
    for _ in range(5):
        step(timeline)

    windows = timeline.windows(np.arange(5))

    assert [1, 2, 3, 4, 5] == windows.last_positions.tolist()
    assert [2, 3, 4, 4, 4] == windows.counts.tolist()


def test_positions_go_on_across_episodes_and_past_32_bits():
    timeline = begun(10, 2, stack=2)
    timeline.newest_positions += 2**32 - 3
    timeline.episode_starts += 2**32 - 3
    for _ in range(6):
        step(timeline)

    windows = timeline.windows(np.arange(2, 12))

    first = 2**32 - 3
    assert [first + 2 + place // 2 for place in range(10)] == windows.last_positions.tolist()
    timeline.check()


@pytest.mark.parametrize("stack", [1, 2, 4])
def test_what_is_let_go_is_never_needed_by_a_transition_that_stays(stack):
    timeline = begun(7, 2, stack)
    unneeded_before = [0, 0]
    for number in range(30):
        streams = np.arange(2)
        for stream, position in timeline.make_room(2):
            unneeded_before[stream] = max(unneeded_before[stream], position)
        timeline.append(streams, np.array([number % 3 == 0, number % 5 == 0]))
        timeline.begin(streams[~timeline.is_open])

        windows = timeline.windows(np.arange(timeline.oldest, timeline.next_index))
        first_positions = windows.last_positions - windows.counts + 1
        for stream in (0, 1):
            assert (first_positions[windows.streams == stream] >= unneeded_before[stream]).all()


def test_check_names_the_broken_rule():
    timeline = begun(5, 1, stack=2)
    for _ in range(3):
        step(timeline)
    timeline.newest_positions[0] -= 1

    with pytest.raises(AssertionError, match="leads to a frame that was never stored"):
        timeline.check()
