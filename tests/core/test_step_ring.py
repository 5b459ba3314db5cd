"""The native ring and draws check their arguments."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from framestow._core import StepRing, draw_uniformly

SETTINGS = {
    "capacity": 5,
    "num_envs": 2,
    "actions_like": np.empty(0, np.uint8),
    "action_ranges": [(0, 3)],
    "extras_like": {},
    "stack": 4,
    "segment_frames": 1,
    "discount": 0.9,
    "n_step": 1,
    "releases_pages": False,
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capacity": 0}, "capacity and num_envs are 0 and 2"),
        ({"num_envs": 0}, "capacity and num_envs are 5 and 0"),
        ({"stack": 257}, "stack and segment_frames are 257 and 1"),
        ({"segment_frames": 0}, "stack and segment_frames are 4 and 0"),
        ({"n_step": 0}, "n_step is 0: it must be 1 to 255"),
        ({"n_step": 256}, "n_step is 256: it must be 1 to 255"),
        ({"action_ranges": [(0, 3)] * 2}, "action_ranges has 2 ranges: it must have 1"),
    ],
)
def test_a_ring_refuses_settings_that_do_not_fit(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        StepRing(SimpleNamespace(**SETTINGS | wrong))


def test_a_transition_that_is_not_stored_is_named():
    with pytest.raises(IndexError, match="transition 0 is not stored"):
        StepRing(SimpleNamespace(**SETTINGS)).resolve(np.array([0]))


@pytest.mark.parametrize("wrong", [{"newest_positions": np.zeros(3, np.int64)}, {"is_open": np.zeros(3, bool)}])
def test_arrays_of_other_environments_are_refused(wrong):
    ring = StepRing(SimpleNamespace(**SETTINGS))
    names = "newest_positions", "episode_starts", "stretch_starts", "is_open", "unreadable_before"

    with pytest.raises(ValueError, match=next(iter(wrong))):
        ring.restore_envs(*({name: getattr(ring, name) for name in names} | wrong).values())

    assert [-1, -1] == ring.newest_positions.tolist()


@pytest.mark.parametrize("span", [1, 3, 1_000_000, 2**40 + 1, 2**53])
def test_the_smallest_and_the_largest_random_number_draw_the_first_and_the_last_index(span):
    random = np.array([0.0, 0.5, np.nextafter(1.0, 0.0)])

    indices, weights = draw_uniformly(random, 7, 7 + span)

    assert [7, 7 + span // 2, 7 + span - 1] == indices.tolist()
    assert [1.0, 1.0, 1.0] == weights.tolist()
    assert (np.int64, np.float32) == (indices.dtype, weights.dtype)


@pytest.mark.parametrize(
    ("random", "start", "stop", "error", "message"),
    [
        (np.array([1.0]), 0, 5, ValueError, "random has 1.000000"),
        (np.array([-0.1]), 0, 5, ValueError, "random has -0.100000"),
        (np.array([np.nan]), 0, 5, ValueError, "random has nan"),
        (np.array([0.5], np.float32), 0, 5, TypeError, "random has another dtype than float64"),
        (np.array([[0.5]]), 0, 5, ValueError, "random has shape (1, 1): it must have one axis"),
        (np.array([0.5]), 5, 5, ValueError, "start and stop are 5 and 5"),
    ],
)
def test_a_draw_refuses_what_would_leave_the_range(random, start, stop, error, message):
    with pytest.raises(error, match=re.escape(message)):
        draw_uniformly(random, start, stop)
