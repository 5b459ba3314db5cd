"""Sequences of steps equal those of plain lists: with either retention, with lost steps, and after saving."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow.replay.eviction import RandomRetention
from framestow.replay.timelines.block_timeline import BlockTimeline
from framestow.replay.timelines.ring_timeline import RingTimeline
from framestow.replay.timelines.timeline import EPISODE_KEYS, StepSettings
from oracles.listed_step_sequences import ListedStepSequences
from oracles.listed_steps import ACTION, FRAME, PlayedTimeline

MAKERS = {
    "fifo": lambda steps, seed: RingTimeline(steps),
    "random": lambda steps, seed: BlockTimeline(steps, RandomRetention(seed)),
}


def steps_for(num_streams: int, stack: int, extra: int = 0) -> StepSettings:
    return StepSettings(
        16 * (num_streams + 6) + num_streams * stack + extra, num_streams, stack, FRAME, ACTION, 0.9, 16
    )


def played_course(
    retention: str, steps: StepSettings, seed: int, end_chance: float, num_steps: int, has_empty: bool = True
) -> PlayedTimeline:
    """Play episodes that end by a flag or are cut off; with ``has_empty`` some have no step."""
    played = PlayedTimeline(MAKERS[retention](steps, seed), steps.stack, seed)
    for _ in range(0, num_steps, 40):
        played.play(40, end_chance)
        cut = np.flatnonzero(played.random.random(steps.num_streams) < 0.3).tolist()
        if not has_empty:
            cut = [stream for stream in cut if played.newest[stream] > played.starts[stream]]
        played.begin(cut)
        played.begin(cut[:1] if has_empty else [])
    return played


def assert_follows(played: PlayedTimeline, length: int, stride: int) -> None:
    timeline = played.timeline
    sampleable = timeline.sampleable_indices()
    numbers = played.held_numbers()
    index_of = dict(zip(numbers, sampleable.tolist(), strict=True))
    lists = ListedStepSequences(played, set(numbers))
    for crosses in (False, True):
        indices, is_first = timeline.follow(sampleable, length, crosses)
        expected = [lists.following(number, length, crosses) for number in numbers]
        padded = [[index_of[number] for number in row] + [-1] * (length - len(row)) for row in expected]
        assert padded == indices.tolist()
        firsts = [[lists.start_of(number) == lists.position_of(number)[1] for number in row] for row in expected]
        assert [row + [False] * (length - len(row)) for row in firsts] == is_first.tolist()
    aligned = timeline.aligned_starts(sampleable, stride).tolist()
    assert [index_of[lists.aligned(number, stride)] for number in numbers] == aligned
    assert lists.runs() == sorted(zip(*(column.tolist() for column in timeline.readable_runs()), strict=True))
    returns = timeline.returns_to_go(sampleable, 0.9)
    np.testing.assert_array_equal([lists.return_to_go(number, 0.9) for number in numbers], returns)
    streams, positions = timeline.places(sampleable)
    assert [lists.position_of(number) for number in numbers] == list(
        zip(streams.tolist(), positions.tolist(), strict=True)
    )
    np.testing.assert_array_equal(sampleable, timeline.find_steps(streams, positions))
    np.testing.assert_array_equal(
        sampleable[sampleable > sampleable[len(sampleable) // 2]][:7],
        timeline.sampleable_after(sampleable[len(sampleable) // 2], 7),
    )


@pytest.mark.parametrize("retention", ["fifo", "random"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    num_streams=st.integers(1, 5),
    stack=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 1000),
    end_chance=st.sampled_from([0.0, 0.02, 0.1, 0.5]),
    num_steps=st.sampled_from([40, 200, 600]),
    num_lost=st.integers(0, 3),
    length=st.integers(1, 40),
    stride=st.integers(1, 12),
)
def test_sequences_of_steps_are_the_played_ones(
    retention, num_streams, stack, seed, end_chance, num_steps, num_lost, length, stride
):
    steps = steps_for(num_streams, stack)
    played = played_course(retention, steps, seed, end_chance, num_steps)
    for _ in range(num_lost):
        stream = int(played.random.integers(num_streams))
        first = int(played.random.integers(played.newest[stream] + 1))
        played.timeline.lose(stream, first, first + 3)

    assert_follows(played, length, stride)

    blocks = {key: played.timeline.step_block(key) for key in played.timeline.sealed_steps()}
    state = played.timeline.state()
    loaded = MAKERS[retention](steps, seed)
    assert 0 == loaded.restore(state, blocks.get)
    for before, after in zip(played.timeline.starts(), loaded.starts(), strict=True):
        assert before.tolist() == after.tolist()
    played.timeline = loaded
    assert_follows(played, length, stride)
    played.play(60, end_chance)
    assert_follows(played, length, stride)


@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("stack", [1, 3])
def test_episode_starts_are_derived_from_the_steps_of_an_old_store(retention, stack):
    steps = steps_for(2, stack, extra=900)
    # A step tells of its history; where a stack has one frame, by the one frame before it that starts no step.
    played = played_course(retention, steps, 5, 0.1, 400, has_empty=stack > 1)
    state = {name: array for name, array in played.timeline.state(stored=()).items() if name not in EPISODE_KEYS}
    loaded = MAKERS[retention](steps, 5)

    loaded.restore(state, {}.get)

    sampleable = played.timeline.sampleable_indices()
    assert len(sampleable) == len(played.steps)
    np.testing.assert_array_equal(played.timeline.follow(sampleable, 1)[1], loaded.follow(sampleable, 1)[1])


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_the_number_of_known_episodes_does_not_grow_with_evicted_ones(retention):
    played = PlayedTimeline(MAKERS[retention](steps_for(2, 2), 0), 2, 0)
    played.play(3000, 0.3)

    counts, _ = played.timeline.starts()

    assert played.timeline.capacity > counts.sum()
    assert 8 * 1500 > played.timeline.starts_nbytes
