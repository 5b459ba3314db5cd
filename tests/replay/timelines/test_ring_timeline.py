"""RingTimeline: indices, slots and windows, without frames."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import DamagedDataError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.action_spec import ActionSpec
from framestow.replay.timelines.ring_timeline import RingTimeline
from framestow.replay.timelines.timeline import StepSettings, Windows
from oracles.listed_steps import evicted

FRAME = FrameSpec((1, 1))


def begun(capacity: int, num_streams: int, stack: int, segment_frames: int = 1) -> RingTimeline:
    timeline = RingTimeline(
        StepSettings(capacity, num_streams, stack, FRAME, ActionSpec.from_space(2), 0.99, segment_frames)
    )
    timeline.begin(np.arange(num_streams))
    return timeline


def step(timeline: RingTimeline, has_ended: np.ndarray | bool = False) -> list[tuple[int, int, int]]:
    """Append one step of each stream; return the frames that it made unreferenced."""
    count = timeline.num_streams
    zeros, ended = np.zeros(count, np.int64), np.broadcast_to(has_ended, count).copy()
    assert timeline.stage(None, zeros, zeros, ended, ended, np.zeros((count, *FRAME.shape), FRAME.dtype))
    frames = evicted(timeline, timeline.evict_for_staged)
    timeline.append_staged()
    return frames


def no_blocks(key: tuple[int, int]) -> None:
    return None


def test_a_window_has_the_history_of_its_episode_and_the_next_frame():
    timeline = begun(10, 1, stack=3)
    for _ in range(5):
        step(timeline)

    windows = Windows(*timeline.resolve(np.arange(5), with_extras=False)[0])

    assert [1, 2, 3, 4, 5] == windows.last_positions.tolist()
    assert [2, 3, 4, 4, 4] == windows.counts.tolist()


def test_positions_continue_across_episodes_and_past_32_bits():
    timeline = begun(10, 2, stack=2)
    timeline.newest_positions += 2**32 - 3
    timeline.episode_starts += 2**32 - 3
    timeline.restore_starts(np.array([1, 1]), timeline.episode_starts.copy())
    for _ in range(6):
        step(timeline)

    windows = Windows(*timeline.resolve(np.arange(2, 12), with_extras=False)[0])

    first = 2**32 - 3
    assert [first + 2 + place // 2 for place in range(10)] == windows.last_positions.tolist()
    timeline.check()


@pytest.mark.parametrize("segment_frames", [1, 3, 16])
@pytest.mark.parametrize("stack", [1, 2, 4])
def test_unreferenced_frames_are_never_referenced_and_are_reported_within_a_segment(stack, segment_frames):
    timeline = begun(7, 2, stack, segment_frames)
    unreferenced_before = [0, 0]
    for number in range(120):
        for stream, first, position in step(timeline, np.array([number % 3 == 0, number % 5 == 0])):
            assert 0 == first
            assert (
                unreferenced_before[stream] // segment_frames < position // segment_frames
            )  # each segment is reported once
            unreferenced_before[stream] = position
        timeline.begin(np.flatnonzero(~timeline.is_open))

        windows = Windows(*timeline.resolve(np.arange(timeline.oldest, timeline.next_index), with_extras=False)[0])
        first_positions = windows.last_positions - windows.counts + 1
        for stream in (0, 1):
            needed = first_positions[windows.streams == stream]
            assert (needed >= unreferenced_before[stream]).all()
            max_delay = segment_frames + stack + 1  # a short history, and the frame that ended an episode
            assert needed.size == 0 or needed.min() - unreferenced_before[stream] < max_delay + segment_frames


def test_check_names_the_broken_rule():
    timeline = begun(5, 1, stack=2)
    for _ in range(3):
        step(timeline)
    timeline.newest_positions[0] -= 1

    with pytest.raises(AssertionError, match="references a frame that was never stored"):
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
def test_an_impossible_state_is_refused(name, value):
    timeline = begun(5, 1, stack=2)
    for _ in range(3):
        step(timeline)

    with pytest.raises(DamagedDataError, match="load an older save"):
        begun(5, 1, stack=2).restore(timeline.state() | {name: value}, no_blocks)


def test_each_eviction_frees_a_segment_while_one_is_sealed():
    timeline = begun(100, 1, stack=3, segment_frames=8)
    for _ in range(30):
        step(timeline)

    frames = [evicted(timeline, timeline.evict_next) for _ in range(5)]

    # Frames 0 to 30: segments 0 to 2 are sealed. Transition 10 is the first that references no frame below 8.
    assert [[(0, 0, 8)], [(0, 0, 16)], [(0, 0, 24)], [], []] == frames
    assert list(range(26, 30)) == timeline.sampleable_indices().tolist()
    timeline.check()


def test_frames_evicted_by_the_budget_are_not_reported_again_when_the_ring_is_full():
    timeline = begun(20, 1, stack=1, segment_frames=4)
    for _ in range(20):
        step(timeline)
    evicted(timeline, timeline.evict_next)

    named = [triple for _ in range(8) for triple in step(timeline)]

    assert [(0, 0, 8)] == named


def test_a_cut_off_episode_accepts_no_steps_until_the_next_begin():
    timeline = begun(10, 2, stack=2)
    step(timeline)
    timeline.close_episodes()

    assert not timeline.stage(None, [0, 0], [0.0, 0.0], [False] * 2, [False] * 2, np.zeros((2, 1, 1), np.uint8))
    assert [0, 1] == timeline.sampleable_indices().tolist()
    timeline.begin(np.arange(2))
    assert [] == step(timeline)
    assert [2, 2, 2, 2] == Windows(*timeline.resolve(np.arange(4), with_extras=False)[0]).counts.tolist()
