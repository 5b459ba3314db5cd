"""The ring alone: indices, slots and windows, without frames."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import DamagedDataError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.action_spec import ActionSpec
from framestow.replay.timelines.ring_timeline import RingTimeline
from framestow.replay.timelines.timeline import StepSettings
from oracles.listed_steps import evicted

FRAME = FrameSpec((1, 1))


def begun(capacity: int, num_streams: int, stack: int, segment_frames: int = 1) -> RingTimeline:
    timeline = RingTimeline(
        StepSettings(capacity, num_streams, stack, FRAME, ActionSpec.from_space(2), 0.99, segment_frames)
    )
    timeline.begin(np.arange(num_streams))
    return timeline


def step(timeline: RingTimeline, has_ended: np.ndarray | bool = False) -> list[tuple[int, int, int]]:
    """One step of each stream; gives what was let go of for it."""
    count = timeline.num_streams
    zeros, ended = np.zeros(count, np.int64), np.broadcast_to(has_ended, count).copy()
    assert timeline.stage(None, zeros, zeros, ended, ended, np.zeros((count, *FRAME.shape), FRAME.dtype))
    evict_next = evicted(timeline, timeline.evict_for_staged)
    timeline.append_staged()
    return evict_next


def no_blocks(key: tuple[int, int]) -> None:
    return None


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
    timeline.restore_starts(np.array([1, 1]), timeline.episode_starts.copy())
    for _ in range(6):
        step(timeline)

    windows = timeline.windows(np.arange(2, 12))

    first = 2**32 - 3
    assert [first + 2 + place // 2 for place in range(10)] == windows.last_positions.tolist()
    timeline.check()


@pytest.mark.parametrize("segment_frames", [1, 3, 16])
@pytest.mark.parametrize("stack", [1, 2, 4])
def test_what_is_let_go_is_never_needed_by_a_transition_that_stays_and_all_else_stays_less_than_a_segment(
    stack, segment_frames
):
    timeline = begun(7, 2, stack, segment_frames)
    unneeded_before = [0, 0]
    for number in range(120):
        for stream, first, position in step(timeline, np.array([number % 3 == 0, number % 5 == 0])):
            assert 0 == first
            assert unneeded_before[stream] // segment_frames < position // segment_frames  # each segment once
            unneeded_before[stream] = position
        timeline.begin(np.flatnonzero(~timeline.is_open))

        windows = timeline.windows(np.arange(timeline.oldest, timeline.next_index))
        first_positions = windows.last_positions - windows.counts + 1
        for stream in (0, 1):
            needed = first_positions[windows.streams == stream]
            assert (needed >= unneeded_before[stream]).all()
            longest_wait = segment_frames + stack + 1  # a short history, and the frame that ended an episode
            assert needed.size == 0 or needed.min() - unneeded_before[stream] < longest_wait + segment_frames


def test_check_names_the_broken_rule():
    timeline = begun(5, 1, stack=2)
    for _ in range(3):
        step(timeline)
    timeline.newest_positions[0] -= 1

    with pytest.raises(AssertionError, match="leads to a frame that was never stored"):
        timeline.check()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeline.stream", np.array([0, 0, 1], np.uint8)),
        ("timeline.stream", np.zeros(2, np.uint8)),
        ("timeline.span", np.array([0, 2**40])),
        ("timeline.span", np.array([-3, 0])),
    ],
)
def test_a_state_that_no_timeline_gave_is_refused(name, value):
    timeline = begun(5, 1, stack=2)
    for _ in range(3):
        step(timeline)

    with pytest.raises(DamagedDataError, match="load an older save"):
        begun(5, 1, stack=2).restore(timeline.state() | {name: value}, no_blocks)


def test_letting_go_frees_a_segment_each_time_and_nothing_where_there_is_none():
    timeline = begun(100, 1, stack=3, segment_frames=8)
    for _ in range(30):
        step(timeline)

    evict_next = [evicted(timeline, timeline.evict_next) for _ in range(5)]

    # Frames 0 to 30: segments 0 to 2 are sealed. Transition 10 is the first that looks at no frame below 8.
    assert [[(0, 0, 8)], [(0, 0, 16)], [(0, 0, 24)], [], []] == evict_next
    assert list(range(26, 30)) == timeline.held_indices().tolist()
    timeline.check()


def test_what_the_budget_let_go_of_is_not_named_again_when_the_ring_is_full():
    timeline = begun(20, 1, stack=1, segment_frames=4)
    for _ in range(20):
        step(timeline)
    evicted(timeline, timeline.evict_next)

    named = [triple for _ in range(8) for triple in step(timeline)]

    assert [(0, 0, 8)] == named


def test_closed_episodes_take_no_step_until_the_next_begins():
    timeline = begun(10, 2, stack=2)
    step(timeline)
    timeline.close_episodes()

    assert not timeline.stage(None, [0, 0], [0.0, 0.0], [False] * 2, [False] * 2, np.zeros((2, 1, 1), np.uint8))
    assert [0, 1] == timeline.held_indices().tolist()
    timeline.begin(np.arange(2))
    assert [] == step(timeline)
    assert [2, 2, 2, 2] == timeline.windows(np.arange(4)).counts.tolist()
