"""Random retention: which blocks are evicted, when, and which transitions stay sampleable."""

from __future__ import annotations

import numpy as np

from framestow.replay.eviction.retention import RandomRetention, segment_frames
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.step_store import StepSettings, restore_env_arrays
from oracles.chi_square import chi_square, chi_square_bound
from oracles.kolmogorov_smirnov import kolmogorov_smirnov, kolmogorov_smirnov_bound
from oracles.listed_steps import ACTION, FramedSteps, PlayedSteps


def blocks(capacity: int, num_envs: int, stack: int, frames: int, seed: int = 0) -> BlockSteps:
    return BlockSteps(StepSettings(capacity, num_envs, stack, ACTION, 0.9, frames), RandomRetention(seed))


def played_without_end(step_store: BlockSteps, num_steps: int) -> tuple[FramedSteps, list[int]]:
    """Play one endless episode of an environment; return also the segments that were evicted, in order."""
    played, sealed, evicted_segments = FramedSteps(step_store, step_store.segment_frames), [], []
    played.begin([0])
    step = [0], [0], [0.0], [False], [False], (np.zeros((1, 1, 1), np.uint8),), None
    for _ in range(num_steps):
        played.core.plan_append(*step)
        played.core.apply()
        before, sealed = sealed, played.storage.sealed_segments(0).tolist()
        evicted_segments += [number for number in before if number not in sealed] if len(sealed) <= len(before) else []
    return played, evicted_segments


def test_ages_are_geometric_by_segments():
    frames, stack, num_sealed = 16, 4, 20
    # The newest segment is open or still referenced. The capacity has space for 20 more segments, so exactly 20 are
    # sealed at each eviction, and each round of as many steps as a segment has evicts one.
    capacity = num_sealed * frames + stack - 1
    _, evicted_segments = played_without_end(blocks(capacity, 1, stack, frames), 16 * 6000)

    # Segment k is sealed from round k - 20 + 1 on.
    rounds_lived = np.array(
        [turn - max(segment - (num_sealed - 1), 0) for turn, segment in enumerate(evicted_segments)]
    )

    assert rounds_lived.min() == 0
    lives = (1 / num_sealed) * (1 - 1 / num_sealed) ** np.arange(1000)
    segments = np.array(evicted_segments)
    is_complete = segments < len(segments) - 500  # all but a few in 10^11 of these are evicted
    counts = np.bincount(rounds_lived[is_complete], minlength=60)
    counts, chances = np.append(counts[:60], counts[60:].sum()), np.append(lives[:60], 1 - lives[:60].sum())
    assert 5000 < counts.sum()
    assert kolmogorov_smirnov(rounds_lived[is_complete], lives) < kolmogorov_smirnov_bound(int(counts.sum()))
    assert chi_square(counts, chances) < chi_square_bound(60)


def test_frames_of_the_newest_observation_are_never_evicted():
    played, _ = played_without_end(blocks(10_000, 1, 4, 16), 34)  # the newest observation has frames 31 to 34

    assert 1 == played.step_store.num_sealed  # frames 16 to 31 are still referenced
    assert [(0, 0, 16)] == played.core.evict_next()
    assert [] == played.core.evict_next()


def test_a_step_of_an_evicted_block_is_not_stored_with_any_number_of_steps_in_a_return():
    steps = StepSettings(400, 1, 2, ACTION, 0.9, 16, n_step=3)
    played = PlayedSteps(BlockSteps(steps, RandomRetention(0)), 16, seed=0)
    played.play(700)
    everything = np.arange(played.step_store.next_number * 16)
    stored = np.union1d(played.step_store.sampleable_indices(), played.step_store.pending)

    readable = everything[played.step_store.places(everything)[0] >= 0]

    assert played.evicted
    assert stored.tolist() == readable.tolist()
    played.step_store.lose_indices(np.setdiff1d(everything, stored))  # as a damaged store may ask for
    assert stored.tolist() == everything[played.step_store.places(everything)[0] >= 0].tolist()


def test_indices_are_unique_and_ascend_within_an_environment():
    played = PlayedSteps(blocks(16 * 23, 3, 4, 16), 16, seed=0)
    number_of: dict[int, int] = {}
    for _ in range(20):
        played.play(100)
        indices = played.step_store.sampleable_indices().tolist()
        numbers = played.held_numbers()
        for index, number in zip(indices, numbers, strict=True):
            assert number == number_of.setdefault(index, number)
        for env_id in range(3):
            of_env = [number for number in numbers if played.steps[number].env_id == env_id]
            assert sorted(of_env) == of_env


def test_positions_continue_past_32_bits():
    step_store = blocks(1000, 2, 3, 16)
    start = step_store.newest_positions + 2**32 - 40
    restore_env_arrays(step_store, {"steps.newest_positions": start})
    played = FramedSteps(step_store, 16)
    played.begin([0, 1])
    for _ in range(60):
        played.append([0, 1], [0, 0], [0.0, 0.0], [False, False])

    (env_ids, last_positions, _), _ = step_store.resolve_steps(step_store.sampleable_indices())

    first = 2**32 - 40 + 1
    assert list(range(first, first + 60)) == (last_positions[env_ids == 1]).tolist()
    step_store.check()


def test_segments_are_short_enough_that_sixteen_are_sealed():
    for capacity in (276, 1000, 5000, 20_000):
        for num_envs in (1, 3, 8):
            frames = segment_frames("random", capacity, num_envs, 4, usual=320)
            never_sealed = num_envs * (frames + 4 - 1)
            assert frames == 16 or capacity - never_sealed >= 16 * frames
    assert 320 == segment_frames("random", 1_000_000, 8, 4, usual=320)
    assert 16384 == segment_frames("fifo", 100, 8, 4, usual=16384)
