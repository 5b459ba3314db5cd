"""Random retention: which blocks are evicted, when, and which transitions stay sampleable."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.replay.eviction import RandomRetention, segment_frames
from framestow.replay.timelines.block_timeline import BlockTimeline
from framestow.replay.timelines.timeline import StepSettings
from oracles.chi_square import chi_square, chi_square_bound
from oracles.kolmogorov_smirnov import kolmogorov_smirnov, kolmogorov_smirnov_bound
from oracles.listed_steps import ACTION, FRAME, PlayedTimeline, evicted


def blocks(capacity: int, num_streams: int, stack: int, frames: int, seed: int = 0) -> BlockTimeline:
    return BlockTimeline(StepSettings(capacity, num_streams, stack, FRAME, ACTION, 0.9, frames), RandomRetention(seed))


def evictions(timeline: BlockTimeline, num_steps: int, streams: list[list[int]]) -> list[tuple[int, int]]:
    """Play one endless episode per stream; return (stream, segment) of all evictions, in order."""
    timeline.begin(np.arange(timeline.num_streams))
    frames = np.zeros((timeline.num_streams, *FRAME.shape), FRAME.dtype)
    evicted_segments = []
    for number in range(num_steps):
        those = streams[number % len(streams)]
        count = len(those)
        zeros = [0] * count
        assert timeline.stage(those, zeros, [0.0] * count, [False] * count, [False] * count, frames[:count])
        evicted_segments += [
            (stream, first // timeline.segment_frames)
            for stream, first, _ in evicted(timeline, timeline.evict_for_staged)
        ]
        timeline.append_staged()
    return evicted_segments


def test_ages_are_geometric_by_segments():
    frames, stack, num_sealed = 16, 4, 20
    # The newest segment is open or still referenced. The capacity has space for 20 more segments, so exactly 20 are
    # sealed at each eviction, and each round of as many steps as a segment has evicts one.
    capacity = num_sealed * frames + stack - 1
    evicted_segments = evictions(blocks(capacity, 1, stack, frames), 16 * 6000, [[0]])

    # Segment k is sealed from round k - 20 + 1 on.
    rounds_lived = np.array(
        [turn - max(segment - (num_sealed - 1), 0) for turn, (_, segment) in enumerate(evicted_segments)]
    )

    assert rounds_lived.min() == 0
    lives = (1 / num_sealed) * (1 - 1 / num_sealed) ** np.arange(1000)
    segments = np.array([segment for _, segment in evicted_segments])
    is_complete = segments < len(segments) - 500  # all but a few in 10^11 of these are evicted
    counts = np.bincount(rounds_lived[is_complete], minlength=60)
    counts, chances = np.append(counts[:60], counts[60:].sum()), np.append(lives[:60], 1 - lives[:60].sum())
    assert 5000 < counts.sum()
    assert kolmogorov_smirnov(rounds_lived[is_complete], lives) < kolmogorov_smirnov_bound(int(counts.sum()))
    assert chi_square(counts, chances) < chi_square_bound(60)


def test_evictions_are_uniform_over_sealed_segments_of_streams_with_different_rates():
    timeline = blocks(16 * 23 + 3 * 4, 3, 4, 16)
    evicted_segments = evictions(timeline, 60_000, [[0, 1, 2], [0, 1], [0]])

    # Replay with plain lists: the candidates are the sealed segments in the order of their first frames.
    ranks = ranks_among_sealed(evicted_segments, timeline, [[0, 1, 2], [0, 1], [0]], 60_000)

    sixteenths = (16 * np.array(ranks)).astype(int)
    assert chi_square(np.bincount(sixteenths, minlength=16)) < chi_square_bound(15)


def ranks_among_sealed(evicted_segments, timeline: BlockTimeline, streams, num_steps: int) -> list[float]:
    """Return, for each eviction, a random number within its candidate's share of 0 to 1; these are uniform."""
    random = np.random.default_rng(1)
    newest, stored, ranks, remaining = [0, 0, 0], [(0, 0), (1, 0), (2, 0)], [], iter(evicted_segments)
    num_stored, frames = 0, timeline.segment_frames
    for number in range(num_steps):
        those = streams[number % len(streams)]
        while num_stored + len(those) > timeline.capacity:
            sealed = [key for key in stored if (key[1] + 1) * frames <= newest[key[0]] - timeline.stack + 1]
            gone = next(remaining)
            ranks.append((sealed.index(gone) + random.random()) / len(sealed))
            stored.remove(gone)
            num_stored -= frames
        for stream in those:
            newest[stream] += 1
            num_stored += 1
            if newest[stream] % frames == 0:
                stored.append((stream, newest[stream] // frames))
    assert next(remaining, None) is None
    return ranks


def test_old_segments_have_a_chance_to_stay():
    timeline = blocks(16 * 20 + 3, 1, 4, 16)
    evictions(timeline, 3 * 323, [[0]])

    # Each segment of the first third is one of 20 candidates for 40 rounds, and survives with probability 0.13.
    assert timeline.sampleable_indices()[0] < 323


@pytest.mark.parametrize("stack", [1, 4])
def test_next_to_an_evicted_segment_a_stack_of_transitions_is_not_sampleable(stack):
    timeline = blocks(10_000, 1, stack, 32)
    evictions(timeline, 200, [[0]])
    num_sampleable = len(timeline)

    [(stream, first, before)] = timeline.evict_next()

    num_neighbours = int(first > 0) + stack - 1
    assert (0, 32) == (stream, before - first)
    assert num_sampleable - 32 - num_neighbours == len(timeline)
    lost = np.setdiff1d(np.arange(200), timeline.sampleable_indices())
    assert list(range(max(first - 1, 0), before + stack - 1)) == lost.tolist()
    timeline.check()


def test_frames_of_the_newest_observation_are_never_evicted():
    timeline = blocks(10_000, 1, 4, 16)
    evictions(timeline, 34, [[0]])  # newest frame 34, so its observation has frames 31 to 34

    assert 1 == timeline.num_sealed  # frames 16 to 31 are still referenced
    assert [(0, 0, 16)] == evicted(timeline, timeline.evict_next)
    assert [] == timeline.evict_next()


def test_indices_are_unique_and_ascend_within_a_stream():
    played = PlayedTimeline(blocks(16 * 23, 3, 4, 16), 4, seed=0)
    number_of: dict[int, int] = {}
    for _ in range(20):
        played.play(100)
        indices = played.timeline.sampleable_indices().tolist()
        numbers = played.held_numbers()
        for index, number in zip(indices, numbers, strict=True):
            assert number == number_of.setdefault(index, number)
        for stream in range(3):
            of_stream = [number for number in numbers if played.steps[number].stream == stream]
            assert sorted(of_stream) == of_stream


def test_positions_continue_past_32_bits():
    timeline = blocks(1000, 2, 3, 16)
    timeline.newest_positions += 2**32 - 40
    timeline.begin(np.arange(2))
    zeros, frames = np.zeros(2, np.int64), np.zeros((2, *FRAME.shape), FRAME.dtype)
    for _ in range(60):
        assert timeline.stage(None, zeros, zeros, np.zeros(2, bool), np.zeros(2, bool), frames)
        timeline.append_staged()

    (streams, last_positions, _), _ = timeline.resolve(timeline.sampleable_indices())

    first = 2**32 - 40 + 1
    assert list(range(first, first + 60)) == (last_positions[streams == 1]).tolist()
    timeline.check()


def test_a_restored_timeline_evicts_the_same_segments():
    first = PlayedTimeline(blocks(16 * 23, 3, 4, 16, seed=5), 4, seed=0)
    first.play(400)
    timeline, kept = first.timeline, {key: first.timeline.step_block(key) for key in first.timeline.sealed_steps()}
    second = blocks(16 * 23, 3, 4, 16, seed=6)
    second.restore(timeline.state(), kept.get)

    evicted_frames = [[evicted(one, one.evict_next) for _ in range(10)] for one in (timeline, second)]

    assert evicted_frames[0] == evicted_frames[1]
    np.testing.assert_array_equal(timeline.sampleable_indices(), second.sampleable_indices())


def test_segments_are_short_enough_that_sixteen_are_sealed():
    for capacity in (276, 1000, 5000, 20_000):
        for num_streams in (1, 3, 8):
            frames = segment_frames("random", capacity, num_streams, 4, usual=320)
            never_sealed = num_streams * (frames + 4 - 1)
            assert frames == 16 or capacity - never_sealed >= 16 * frames
    assert 320 == segment_frames("random", 1_000_000, 8, 4, usual=320)
    assert 16384 == segment_frames("fifo", 100, 8, 4, usual=16384)
