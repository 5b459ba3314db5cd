"""FrameStore stores what a list of frames would store, through any order of calls."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from framestow._core import FrameStore
from oracles import pixel_envs

ROWS, ROW_BYTES = 6, 20
FRAME = ROWS * ROW_BYTES
SEGMENT = 5  # frames, so that few steps cross many borders


def new_store(num_envs=2, frames_per_segment=SEGMENT):
    return FrameStore(num_envs, [(ROWS, ROW_BYTES, 1)], frames_per_segment)


def frames_of(kind, count, seed):
    return pixel_envs.MAKERS[kind](np.random.default_rng(seed), count, (ROWS, ROW_BYTES)).reshape(count, FRAME)


def filled(count, num_envs=1, kind="sprites", frames_per_segment=SEGMENT):
    store = new_store(num_envs, frames_per_segment)
    frames = [frames_of(kind, count, seed) for seed in range(num_envs)]
    for index in range(count):
        store.append(np.arange(num_envs, dtype=np.int32), np.stack([own[index] for own in frames]))
    return store, frames


def read_windows(store, windows, length, **options):
    """Return the arrays of windows ``(env_id, last position, count)``."""
    out = np.full((len(windows), length, FRAME), 171, np.uint8)
    columns = np.array(windows, np.int64).reshape(-1, 3)
    store.windows(columns[:, 0].astype(np.int32), columns[:, 1].copy(), columns[:, 2].astype(np.int32), out, **options)
    return out


def expected_window(frames, last, count, length, padding="first_frame"):
    window = [frames[position] for position in range(last - count + 1, last + 1)]
    before = np.zeros_like(window[0]) if padding == "zeros" else window[0]
    return np.stack([before] * (length - count) + window)


class AgainstLists(RuleBasedStateMachine):
    """Two environments beside plain lists; a segment border every five frames."""

    @initialize(seed=st.integers(0, 2**16), kind=st.sampled_from(list(pixel_envs.MAKERS)))
    def begin(self, seed, kind):
        self.native = new_store()
        self.source = [frames_of(kind, 400, seed), frames_of(kind, 400, seed + 1)]
        self.stored = [[], []]  # positions
        self.count = [0, 0]

    def not_empty(self):
        return [env_id for env_id in (0, 1) if self.stored[env_id]]

    @rule(pattern=st.lists(st.sampled_from([0, 1]), min_size=1, max_size=12))
    def append(self, pattern):
        frames = []
        for env_id in pattern:
            frames.append(self.source[env_id][self.count[env_id] % 400])
            self.stored[env_id].append(self.count[env_id])
            self.count[env_id] += 1
        self.native.append(np.array(pattern, np.int32), np.stack(frames))

    @precondition(lambda self: self.not_empty())
    @rule(choice=st.data(), length=st.integers(1, 8), padding=st.sampled_from(["first_frame", "zeros"]))
    def read(self, choice, length, padding):
        windows = []
        for _ in range(choice.draw(st.integers(1, 6))):
            env_id = choice.draw(st.sampled_from(self.not_empty()))
            last = choice.draw(st.sampled_from(self.stored[env_id]))
            count = choice.draw(st.integers(1, length))
            while not set(range(last - count + 1, last + 1)) <= set(self.stored[env_id]):
                count -= 1
            windows.append((env_id, last, count))

        out = read_windows(self.native, windows, length, padding=padding)

        for window, (env_id, last, count) in zip(out, windows, strict=True):
            frames = {position: self.source[env_id][position % 400] for position in self.stored[env_id]}
            np.testing.assert_array_equal(window, expected_window(frames, last, count, length, padding))

    @precondition(lambda self: self.not_empty())
    @rule(choice=st.data())
    def read_what_is_not_held(self, choice):
        env_id = choice.draw(st.sampled_from(self.not_empty()))
        last = choice.draw(st.integers(-1, self.count[env_id] + 2))
        count = choice.draw(st.integers(1, 8))
        if set(range(last - count + 1, last + 1)) <= set(self.stored[env_id]):
            return

        with pytest.raises(IndexError, match=f"window 0 wants the {count} frames up to position {last} of"):
            read_windows(self.native, [(env_id, last, count)], 8)

    @rule(env_id=st.sampled_from([0, 1]), before=st.integers(-3, 120), first=st.integers(-3, 60))
    def evict(self, env_id, before, first):
        sealed_end = self.count[env_id] // SEGMENT * SEGMENT
        left = range(-(-max(first, 0) // SEGMENT) * SEGMENT, min(before, sealed_end) // SEGMENT * SEGMENT)
        stay = [position for position in self.stored[env_id] if position not in left]

        assert self.native.evict(env_id, before, first) == len(self.stored[env_id]) - len(stay)
        self.stored[env_id] = stay

    @rule()
    def save_and_restore(self):
        restored = new_store()
        for env_id in (0, 1):
            for number in sorted({position // SEGMENT for position in self.stored[env_id]}):
                segment = self.native.segment(env_id, number)
                restored.restore(env_id, number, segment)
                assert restored.segment(env_id, number) == segment
            # An empty environment does not record its position. One whose last sealed segment was evicted continues
            # after the segment before, so the caller of restore gives the number.
            self.count[env_id] = restored.next_position(env_id)
        self.native = restored

    @invariant()
    def what_is_held_agrees(self):
        assert self.native.num_frames_of(0)[0] == sum(map(len, self.stored))
        for env_id in (0, 1):
            open_start = self.count[env_id] // SEGMENT * SEGMENT
            assert self.native.first_position(env_id) == min(self.stored[env_id], default=open_start)
            assert self.native.next_position(env_id) == self.count[env_id]


AgainstLists.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
TestAgainstLists = AgainstLists.TestCase


@pytest.mark.each_value
@pytest.mark.parametrize("num_pairs", [1, 2, 40])
@pytest.mark.parametrize("where", ["in RAM", "in files"])
def test_windows_that_lie_a_few_frames_apart_are_what_each_alone_is(where, num_pairs, tmp_path):
    segment_frames, num_sealed = 40, 5  # several groups each
    store, frames = filled(num_sealed * segment_frames + 25, 2, frames_per_segment=segment_frames)
    if where == "in files":
        for number in range(num_sealed):
            segment = store.segment(1, number)
            file = tmp_path / str(number % 2)
            with file.open("ab") as stored:
                stored.write(segment)
            store.move_to_file(1, number, bytes(file), file.stat().st_size - len(segment), len(segment))
    rng = np.random.default_rng(num_pairs)
    for _ in range(40):
        first = rng.integers(4, len(frames[1]) - 25, num_pairs)
        lasts = np.concatenate([first, first + rng.integers(0, 25, num_pairs), [4]])
        windows = [
            (1, int(last), int(count)) for last, count in zip(lasts, rng.integers(1, 5, len(lasts)), strict=True)
        ]
        for window, found in zip(windows, read_windows(store, windows, 4), strict=True):
            np.testing.assert_array_equal(found, expected_window(frames[1], window[1], window[2], 4), str(window))


def test_an_unknown_padding_is_refused_before_anything_is_written():
    store, _ = filled(8)
    out = np.full((1, 4, FRAME), 171, np.uint8)
    one = np.zeros(1, np.int32)

    with pytest.raises(ValueError, match="padding is 'edge': it must be 'first_frame' or 'zeros'"):
        store.windows(one, one.astype(np.int64), one + 1, out, "edge")

    assert (out == 171).all()


@pytest.mark.parametrize(
    ("window", "fault"),
    [
        (
            (0, 8, 1),
            "window 1 wants the 1 frames up to position 8 of environment 0: not all are stored; stored are 0 to 7",
        ),
        (
            (0, 1, 3),
            "window 1 wants the 3 frames up to position 1 of environment 0: not all are stored; stored are 0 to 7",
        ),
        ((0, -1, 1), "window 1 wants the 1 frames up to position -1"),
        ((0, 2**63 - 1, 1), "window 1 wants the 1 frames up to position 9223372036854775807"),
        ((0, -(2**63), 4), "window 1 wants the 4 frames"),
        ((1, 3, 1), "window 1 is of environment 1: it must be 0 to 0"),
        ((-1, 3, 1), "window 1 is of environment -1"),
        ((0, 3, 0), "window 1 has 0 frames: it must have 1 to 4"),
        ((0, 7, 5), "window 1 has 5 frames: it must have 1 to 4"),
    ],
)
def test_a_window_that_is_not_stored_is_refused_before_anything_is_written(window, fault):
    store, _ = filled(8)
    out = np.full((2, 4, FRAME), 171, np.uint8)
    columns = np.array([(0, 7, 4), window], np.int64)

    with pytest.raises(IndexError, match=re.escape(fault)):
        store.windows(columns[:, 0].astype(np.int32), columns[:, 1].copy(), columns[:, 2].astype(np.int32), out)
    assert (out == 171).all()


def test_the_first_window_that_is_not_wholly_stored_is_found():
    store, _ = filled(6 * SEGMENT + 2, num_envs=2)
    store.evict(1, 3 * SEGMENT, SEGMENT)
    stored = [range(6 * SEGMENT + 2), [*range(SEGMENT), *range(3 * SEGMENT, 6 * SEGMENT + 2)]]
    windows = [
        (env_id, last, count) for env_id in (0, 1) for last in range(-1, 6 * SEGMENT + 4) for count in (0, 1, 4, 5)
    ]
    is_stored = [
        1 <= count <= 4 and set(range(last - count + 1, last + 1)) <= set(stored[env_id])
        for env_id, last, count in windows
    ]

    np.random.default_rng(0).shuffle(order := np.arange(len(windows)))
    found, snapshot = [], store.take_snapshot()
    while len(order):
        columns = np.array([windows[row] for row in order], np.int64)
        first = snapshot.find_missing_window(
            columns[:, 0].astype(np.int32), columns[:, 1].copy(), columns[:, 2].astype(np.int32), 4
        )
        found += [(row, True) for row in order[:first]] + [(row, False) for row in order[first : first + 1]]
        order = order[first + 1 :]

    assert [(windows[row], is_stored[row]) for row, _ in found] == [(windows[row], is_it) for row, is_it in found]
    assert len(found) == len(windows)


@pytest.mark.parametrize(
    ("env_ids", "frames", "error", "fault"),
    [
        (np.zeros(1, np.int64), np.zeros((1, FRAME), np.uint8), TypeError, "pass env_ids.astype(np.int32)"),
        ([0], np.zeros((1, FRAME), np.uint8), TypeError, "env_ids is not an array"),
        (np.zeros((1, 1), np.int32), np.zeros((1, FRAME), np.uint8), ValueError, "env_ids has shape (1, 1)"),
        (np.zeros(1, np.int32), [0] * FRAME, TypeError, "frames is not an array: it must be a NumPy array"),
        (np.zeros(1, np.int32), (np.zeros((1, FRAME), np.uint8),) * 2, ValueError, "frames is not a tuple of 1 arrays"),
        (
            np.zeros(1, np.int32),
            np.zeros((1, FRAME), np.int16),
            ValueError,
            "frames has shape (1, 120) and 240 bytes: it must have the shape",
        ),
        (np.zeros(1, np.int32), np.zeros((2, FRAME), np.uint8), ValueError, "frames has shape (2, 120) and 240"),
        (np.zeros(2, np.int32), np.zeros((1, 2 * FRAME), np.uint8), ValueError, "must have the shape (2, *frame)"),
        (np.zeros(1, np.int32), np.zeros((1, 2 * FRAME), np.uint8)[:, ::2], ValueError, "frames is not in C order"),
        (np.array([2], np.int32), np.zeros((1, FRAME), np.uint8), IndexError, "environment is 2: it must be 0 to 1"),
        (np.array([0, -1], np.int32), np.zeros((2, FRAME), np.uint8), IndexError, "environment is -1: it must be 0"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_appended(env_ids, frames, error, fault):
    native = new_store()

    with pytest.raises(error, match=re.escape(fault)):
        native.append(env_ids, frames)
    assert native.next_position(0) == 0


def test_a_read_only_output_is_refused():
    store, _ = filled(3)
    out = np.zeros((1, 2, FRAME), np.uint8)
    out.flags.writeable = False
    one = np.zeros(1, np.int32)

    with pytest.raises(TypeError, match="out is not a writable array"):
        store.windows(one, one.astype(np.int64), one + 1, out)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((0, [(4, 4, 1)]), "num_envs is 0"),
        ((1, [(0, 4, 1)]), "rows, row_bytes and pixel_bytes must be at least 1"),
        ((1, [(4, 4, 5)]), "pixel_bytes must be at most row_bytes"),
        ((1, [(4, 4, 1, False, 0, True)]), "three planes must have pixels of one byte and a number of rows that 3"),
        ((1, [(2**20, 2**11, 1)]), "a frame holds at most 2**30 bytes"),
        ((1, [(4, 4, 1)], 0), "frames_per_segment is 0"),
        ((1, [(2**15, 2**15, 1)], 3), "must have at most 2**31 bytes; take fewer frames"),
    ],
)
def test_an_impossible_geometry_is_refused(arguments, fault):
    with pytest.raises(ValueError, match=re.escape(fault)):
        FrameStore(*arguments)
