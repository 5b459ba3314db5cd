"""The native ring, stacks and draws check their arrays."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from framestow._core import FrameStacks, StepRing, draw_uniformly

ARRAYS = {
    "slots": np.zeros((5, 12), np.uint8),
    "newest_positions": np.full(2, -1, np.int64),
    "episode_starts": np.zeros(2, np.int64),
    "run_starts": np.zeros(2, np.int64),
    "unreadable_before": np.zeros(2, np.int64),
    "is_open": np.zeros(2, bool),
    "actions_like": np.empty(0, np.uint8),
    "frames_like": (np.empty((0, 2, 2), np.uint8),),
    "action_ranges": [(0, 3)],
    "extras_like": {},
    "stack": 4,
    "segment_frames": 1,
    "discount": 0.9,
    "n_step": 1,
}


def ring_of(arrays):
    """Return a ring of these settings and arrays."""
    return StepRing(SimpleNamespace(**arrays), SimpleNamespace(**arrays), arrays["slots"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"slots": np.zeros((5, 11), np.uint8)}, "slots has 5 rows of 11 bytes: it must have at least one, of 12"),
        ({"slots": np.zeros((5, 24), np.uint8)[:, ::2]}, "slots has the wrong form: it must be writable"),
        (
            {"is_open": np.zeros(3, bool)},
            "is_open has 3 entries: every array of environments must have one entry for each environment",
        ),
        ({"newest_positions": np.zeros(2, np.int32)}, "newest_positions has the wrong form: it must be writable"),
        ({"stack": 257}, "stack and segment_frames are 257 and 1"),
        ({"segment_frames": 0}, "stack and segment_frames are 4 and 0"),
        ({"n_step": 0}, "n_step is 0: it must be 1 to 255"),
        ({"n_step": 256}, "n_step is 256: it must be 1 to 255"),
    ],
)
def test_a_ring_refuses_memory_that_does_not_fit(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ring_of(ARRAYS | wrong)


def test_a_ring_keeps_its_arrays_alive():
    ring = ring_of({name: value.copy() if name == "slots" else value for name, value in ARRAYS.items()})

    assert ring.begin(np.array([0, 1]))
    assert ring.stage([0], [3], [1.0], [False], [True], np.ones((1, 2, 2), np.uint8))
    assert [] == ring.evict_for_staged()
    ring.append_staged()
    assert 1 == len(ring)

    (env_ids, lasts, counts), (actions, rewards, *_) = ring.resolve(np.array([0]))
    assert ([0, 0], [0, 1], [1, 2]) == (env_ids.tolist(), lasts.tolist(), counts.tolist())
    assert [3, 1.0] == [actions[0], rewards[0]]


def test_lists_may_have_the_numbers_of_numpy():
    open_arrays = {"is_open": np.ones(2, bool), "newest_positions": np.zeros(2, np.int64)}
    ring, frame = ring_of(ARRAYS | open_arrays), np.ones((1, 2, 2), np.uint8)
    step = [0], [3], [1.0], [False], [True]
    for at, number in [
        (0, np.int64(1)),
        (1, np.int64(3)),
        (1, np.uint8(3)),
        (1, np.array(3)),
        (2, np.float32(0.5)),
        (2, np.float64(0.5)),
        (2, np.int16(2)),
        (3, np.bool_(True)),
        (4, np.True_),
    ]:
        assert ring.stage(*step[:at], [number], *step[at + 1 :], frame), (at, number)
    for at, number in [
        (0, np.int64(-1)),
        (0, np.True_),
        (1, np.int64(-1)),
        (1, np.float64(1.0)),
        (1, np.False_),
        (1, np.array([3])),
        (2, np.float64(1e39)),
        (2, np.float32("nan")),
        (2, np.True_),
        (3, np.int64(1)),
        (3, np.float32(1)),
        (4, 1),
        (4, None),
    ]:
        assert not ring.stage(*step[:at], [number], *step[at + 1 :], frame), (at, number)


def test_a_refused_step_is_not_staged():
    ring = ring_of(ARRAYS | {"is_open": np.ones(2, bool), "newest_positions": np.zeros(2, np.int64)})
    frame = np.ones((1, 2, 2), np.uint8)
    assert ring.stage([0], [3], [1.0], [False], [True], frame)

    assert not ring.stage([0], [4], [1.0], [False], [True], frame)

    ring.append_staged()
    assert 0 == len(ring)


def test_a_transition_that_is_not_stored_is_named():
    with pytest.raises(IndexError, match="transition 0 is not stored"):
        ring_of(ARRAYS).resolve(np.array([0]))


def test_stacks_refuse_environments_and_frames_that_do_not_fit():
    stacks = FrameStacks(np.zeros((2, 3, 4), np.uint8), np.full(2, -1, np.int64))

    with pytest.raises(IndexError, match="environment is 2: it must be 0 to 1"):
        stacks.begin(np.array([2]), np.zeros((1, 4), np.uint8))
    with pytest.raises(ValueError, match="one frame of 4 bytes for each of 1 environments"):
        stacks.append(np.array([0]), np.zeros((1, 5), np.uint8))
    with pytest.raises(ValueError, match="out does not fit"):
        stacks.write(np.zeros((2, 3, 3), np.uint8))


@pytest.mark.parametrize("span", [1, 3, 1_000_000, 2**40 + 1, 2**53])
def test_the_smallest_and_the_largest_random_number_draw_the_first_and_the_last_index(span):
    random = np.array([0.0, 0.5, np.nextafter(1.0, 0.0)])

    indices, weights = draw_uniformly(random, 7, 7 + span)

    assert [7, 7 + span // 2, 7 + span - 1] == indices.tolist()
    assert [1.0, 1.0, 1.0] == weights.tolist()
    assert (np.int64, np.float32) == (indices.dtype, weights.dtype)


@pytest.mark.parametrize(
    ("random", "start", "stop", "message"),
    [
        (np.array([1.0]), 0, 5, "random has 1.000000"),
        (np.array([-0.1]), 0, 5, "random has -0.100000"),
        (np.array([np.nan]), 0, 5, "random has nan"),
        (np.array([0.5], np.float32), 0, 5, "random has the wrong form: it must be float64"),
        (np.array([0.5]), 5, 5, "start and stop are 5 and 5"),
    ],
)
def test_a_draw_refuses_what_would_leave_the_range(random, start, stop, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        draw_uniformly(random, start, stop)
