"""A planner compares whole observations with the newest frames, bit for bit, for every axis of the stack."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete

from framestow._core import BORDER, WriterPlanner, join_frames
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import observation_spec
from framestow.frames.stacking import STACK_PADDINGS
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.observation_layout import ObservationLayout, StackLayout
from framestow.replay.settings.step_fields import ExtrasSpec
from framestow.replay.steps.step_store import StepSettings

CONTINUES, SHIFTED = 1, 2
NEVER = np.zeros(2, bool)
AXES = {"first": StackLayout(0, 0), "last": StackLayout(-1, 0), "channels": StackLayout(-1, 0, 0)}


def planner_of(specs, stacks, num_envs=2, padding="first_frame"):
    layout = ObservationLayout.of_stacks(observation_spec(specs), stacks)
    return WriterPlanner(num_envs, StepSettings(8, num_envs, layout.depth, ActionSpec.from_space(4)), layout, padding)


def plan(planner, observations, next_observations, env_ids=None):
    """Plan one step of each environment; ``None`` for the observations: the current ones."""
    count = len(next_observations[0])
    fields = np.zeros(count, np.int64), np.zeros(count), np.zeros(count, bool), np.zeros(count, bool)
    if observations is None:
        return planner.plan_append(env_ids, *fields, next_observations, None, True)
    return planner.plan_add(env_ids, *fields, next_observations, None, observations)


def flags_of(planner, env_ids=(0, 1)):
    """What the planned rows are: bits of ``CONTINUES`` and ``SHIFTED``; and their new frames."""
    (begun, *_), (_, bits, frames, *_), _ = planner.planned()
    flags = [
        CONTINUES * (env not in begun) | SHIFTED * (bit & BORDER == 0) for env, bit in zip(env_ids, bits, strict=True)
    ]
    return flags, frames


def apply(planner):
    planner.apply_episodes()
    planner.apply_steps()


class Rings:
    """Two environments whose stacks have the frames ``1, 2, .., 6``, as arrays of one dtype and shape."""

    def __init__(self, axis, shape, dtype, depth, padding="first_frame", num_frames=6):
        channels = shape[-1] if axis == "channels" else None
        self.axis, self.depth, self.num_frames = axis, depth, num_frames
        stacks = AXES[axis]._replace(depth=depth, channels=channels)
        self.planner = planner_of(FrameSpec(shape, dtype), (stacks,), padding=padding)
        self.frames = np.random.default_rng(0).integers(0, 2, (num_frames + 1, 2, *shape)).astype(dtype)
        self.frames.reshape(num_frames + 1, 2, -1)[..., 0] = np.arange(1, num_frames + 2)[:, None]
        first = self.frames[0] if padding == "first_frame" else np.zeros_like(self.frames[0])
        self.padded = np.concatenate([np.stack([first] * depth), self.frames])
        assert self.planner.plan_begin((self.observation(0),), None, True) is False
        apply(self.planner)
        for newest in range(1, num_frames):
            assert plan(self.planner, None, (self.observation(newest),)) is False
            apply(self.planner)

    def observation(self, newest):
        """The observations whose newest frame has that number."""
        return observations_of(self.padded[newest + 1 : newest + 1 + self.depth], self.axis)

    def flags(self, observations, next_observations, env_ids=(0, 1)):
        given = None if observations is None else (observations,)
        assert plan(self.planner, given, (next_observations,), np.array(env_ids)) is not None
        flags, (newest,) = flags_of(self.planner, env_ids)
        return flags, newest


def observations_of(frames, axis):
    """Stack frames ``(depth, n, *frame)`` as observations ``(n, *shape)``."""
    if axis == "channels":
        return np.ascontiguousarray(np.concatenate(list(frames), axis=-1))
    return np.ascontiguousarray(np.moveaxis(frames, 0, 1 if axis == "first" else -1))


@pytest.mark.parametrize("depth", [1, 2, 4, 5])
@pytest.mark.parametrize(
    ("axis", "shape", "dtype"),
    [
        ("first", (3, 5), np.uint8),
        ("last", (3, 5), np.uint8),
        ("last", (7, 6), np.uint8),
        ("last", (3, 5), np.float32),
        ("channels", (3, 5, 3), np.uint8),
        ("channels", (3, 5, 2), np.int16),
        ("channels", (3, 5, 5), np.uint8),
    ],
)
def test_a_byte_that_differs_is_found_wherever_it_is(depth, axis, shape, dtype):
    rings = Rings(axis, shape, dtype, depth)
    now, after = rings.observation(5), rings.observation(6)
    flags, newest = rings.flags(now, after)
    assert [CONTINUES | SHIFTED] * 2 == flags
    np.testing.assert_array_equal(newest, rings.frames[6])

    newest_of_after = observations_of(
        np.stack([np.zeros_like(rings.frames[0])] * (depth - 1) + [rings.frames[0] + 1]), axis
    )
    for at in range(now[0].size):
        changed = now.copy()
        changed.reshape(2, -1)[1, at] += 1
        flags, _ = rings.flags(changed, after)
        assert (flags[0], flags[1] & CONTINUES) == (CONTINUES | SHIFTED, 0)
        is_newest = newest_of_after.reshape(2, -1)[1, at] != 0
        changed = after.copy()
        changed.reshape(2, -1)[1, at] += 1
        expected = [CONTINUES | SHIFTED, CONTINUES | SHIFTED * int(is_newest)]
        assert expected == rings.flags(now, changed)[0] == rings.flags(None, changed)[0]


@pytest.mark.parametrize("padding", STACK_PADDINGS)
@pytest.mark.parametrize("num_frames", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("axis", ["first", "last"])
def test_the_first_stacks_of_an_episode_are_compared_with_their_padding(axis, num_frames, padding):
    rings = Rings(axis, (3, 5), np.uint8, 4, padding, num_frames)
    observations, after = rings.observation(num_frames - 1), rings.observation(num_frames)
    assert [CONTINUES | SHIFTED] * 2 == rings.flags(observations, after)[0] == rings.flags(None, after)[0]
    observations.reshape(2, -1)[0, 0] += 1
    assert [0, CONTINUES] == [flag & CONTINUES for flag in rings.flags(observations, after)[0]]


@pytest.mark.parametrize("padding", STACK_PADDINGS)
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 7])
def test_a_stack_is_the_last_frames_padded_by_the_first_one_or_by_zeros(depth, padding):
    planner = planner_of(FrameSpec((1, 1)), (StackLayout(0, depth),), 1, padding)
    assert [[0] * depth] == planner.stacks()[0][..., 0, 0].tolist()  # without frames
    before = 100 if padding == "first_frame" else 0
    for _ in range(2):  # the ring has frames of the first episode during the second
        for newest in range(20):
            expected = ([before] * (depth - 1 - newest) + list(range(100, 101 + newest)))[-depth:]
            observation = np.array(expected, np.uint8).reshape(1, depth, 1, 1)
            is_unusual = (
                planner.plan_begin((observation,), None, True) if not newest else plan(planner, None, (observation,))
            )
            assert is_unusual is False
            apply(planner)

            [handed_out] = planner.stacks()
            assert [expected] == handed_out[..., 0, 0].tolist()
            handed_out[:] = 9


def test_an_environment_whose_episode_ended_is_not_continued():
    rings = Rings("first", (3, 5), np.uint8, 2)
    ends = np.array([True, False])
    zeros = np.zeros(2, np.int64)
    assert rings.planner.plan_append(None, zeros, zeros, ends, NEVER, (rings.observation(6),), None, True) is False
    apply(rings.planner)

    now = rings.observation(6)
    assert [0, CONTINUES] == [flag & CONTINUES for flag in rings.flags(now, now)[0]]
    assert ends.tolist() == (~rings.planner.open_episodes).tolist()
    assert plan(rings.planner, None, (now,)) is None  # append takes open episodes alone


def test_arguments_of_another_form_are_left_to_python():
    rings = Rings("first", (3, 5), np.uint8, 2)
    now = rings.observation(5)
    others = now[:1], now[:, :1], now.astype(np.int8), now.astype(np.uint16), np.asfortranarray(now), now.tolist(), 3
    assert plan(rings.planner, (now,), (now,)) is not None
    for other in others:
        fields = np.zeros(2, np.int64), np.zeros(2), NEVER, NEVER
        assert rings.planner.plan_add(None, *fields, (other,), None, (now,)) is None
        assert rings.planner.plan_add(None, *fields, (now,), None, (other,)) is None
        assert rings.planner.plan_append(None, *fields, (other,), None, True) is None
        assert rings.planner.plan_begin((other,), None, True) is None
    for env_ids in ([0, 2], [-1, 0], [1, 1], [0], [True, False], "ab", 1.5):
        assert plan(rings.planner, (now,), (now,), env_ids) is None
        assert rings.planner.plan_begin((now,), env_ids, True) is None


@pytest.mark.parametrize(
    ("at", "wrong", "refusal"),
    [
        (0, np.array([0.0, 1.0]), ("ENV_IDS_FORM", "", 0, 0, 0)),
        (0, np.array([0, 2]), ("ENV_IDS_UNKNOWN", "", 0, 0, 0)),
        (0, np.array([1, 1]), ("ENV_IDS_REPEATED", "", 0, 0, 0)),
        (1, np.zeros(2, np.int64), ("ACTIONS_SHAPE", "", 0, 0, 0)),
        (1, np.array([[0, 4], [2, 5]]), ("ACTION_OUTSIDE", "", 0, 1, 1)),
        (2, np.array([0.0, np.nan]), ("REWARD_NOT_FINITE", "", 0, 1, 0)),
        (4, np.array([0, 1]), ("FLAGS", "truncated", 0, 0, 0)),
        (5, (np.zeros((2, 2, 3, 5)),), ("OBSERVATION_DTYPE", "next_observation", 0, 0, 0)),
        (6, {"cost": np.zeros(2, np.float32), "count": np.zeros(2)}, ("EXTRA_DTYPE", "", 1, 0, 0)),
    ],
)
def test_a_refusal_is_a_row_of_the_table_and_a_place(at, wrong, refusal):
    layout = ObservationLayout.of_stacks(observation_spec(FrameSpec((3, 5))), (StackLayout(0, 2),))
    extras = ExtrasSpec.from_declared({"cost": np.float32, "count": np.uint8})
    settings = StepSettings(8, 2, 2, ActionSpec.from_space(MultiDiscrete([5, 5])), extras=extras)
    planner, observations = WriterPlanner(2, settings, layout, "zeros"), (np.zeros((2, 2, 3, 5), np.uint8),)
    planner.plan_begin(observations, None, True)
    planner.apply_episodes()
    counts = {"cost": np.zeros(2, np.float32), "count": np.zeros(2, np.uint8)}
    step = [np.arange(2), np.zeros((2, 2), np.int64), np.zeros(2), NEVER, NEVER, observations, counts, True]
    assert planner.plan_append(*step) is not None
    assert planner.refusal is None

    step[at] = wrong

    assert planner.plan_append(*step) is None
    assert refusal == planner.refusal


def test_only_what_differs_in_one_of_several_arrays_is_flagged():
    specs = {"picture": FrameSpec((3, 5)), "vector": FrameSpec((7,), np.float32)}
    planner = planner_of(specs, (StackLayout(0, 2), None))
    pictures = np.arange(2 * 3 * 15, dtype=np.uint8).reshape(2, 3, 3, 5)
    vectors = np.arange(2 * 3 * 7, dtype=np.float32).reshape(2, 3, 7)
    now, after = ((pictures[:, at : at + 2].copy(), vectors[:, at + 1].copy()) for at in (0, 1))
    planner.plan_begin(now, None, True)
    apply(planner)
    assert plan(planner, now, after) is False
    flags, (picture, vector) = flags_of(planner)
    assert [CONTINUES | SHIFTED] * 2 == flags
    np.testing.assert_array_equal(picture, pictures[:, 2])
    np.testing.assert_array_equal(vector, vectors[:, 2])
    of_first = np.array([[1], [0]], np.float32)
    assert plan(planner, (now[0], now[1] + of_first), after) is True
    assert [SHIFTED, CONTINUES | SHIFTED] == flags_of(planner)[0]
    other = after[0] + of_first.astype(np.uint8)[:, None, None]
    assert plan(planner, now, (other, after[1])) is True
    assert [CONTINUES, CONTINUES | SHIFTED] == flags_of(planner)[0]


def test_lists_may_have_the_numbers_of_numpy():
    planner = planner_of(FrameSpec((2, 2)), (StackLayout(0, 1),), padding="zeros")
    frame = np.ones((1, 1, 2, 2), np.uint8)
    planner.plan_begin((np.ones((2, 1, 2, 2), np.uint8),), None, True)
    apply(planner)
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
        given = *step[:at], [number], *step[at + 1 :], (frame,), None, True
        assert planner.plan_append(*given) is False, (at, number)
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
        given = *step[:at], [number], *step[at + 1 :], (frame,), None, True
        assert planner.plan_append(*given) is None, (at, number)


def test_a_layout_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="padding is 'edge': it must be 'first_frame' or 'zeros'"):
        planner_of(FrameSpec((1, 1)), (StackLayout(0, 3),), padding="edge")


@pytest.mark.parametrize(
    ("frame", "dtype"),
    [
        *[((5, 7, channels), np.uint8) for channels in (1, 2, 3, 4, 5)],
        ((1, 1, 3), np.uint8),
        ((3, 4, 3), np.float32),
        ((3, 4, 3), np.int16),
        ((6,), np.float64),
    ],
)
@pytest.mark.parametrize("depth", [1, 2, 4, 5])
def test_frames_are_joined_piece_by_piece_wherever_their_stacks_lie(frame, dtype, depth):
    windows = np.random.default_rng(0).integers(0, 255, (3, depth + 4, *frame)).astype(dtype)
    of_window, of_frame, *rest = windows.strides
    overlapping = np.lib.stride_tricks.as_strided(
        windows, (3, 5, depth, *frame), (of_window, of_frame, of_frame, *rest), writeable=False
    )
    for stacks in (windows[:, 1 : depth + 1], windows[::2, 4:], overlapping, windows[1, :depth]):
        axis = stacks.ndim - 1 - len(frame)
        expected = np.concatenate(list(np.moveaxis(stacks, axis, 0)), axis=-1)
        out = np.full_like(expected, 7)
        join_frames(stacks, axis, frame[-1] * windows.itemsize, out)
        np.testing.assert_array_equal(out, expected)


def test_frames_that_cannot_be_joined_are_refused():
    stacks, out = np.zeros((2, 4, 5, 7, 3), np.uint8), np.zeros((2, 5, 7, 12), np.uint8)
    for wrong, message in [
        ((stacks[..., ::-1], 1, 3, out), "frames does not fit"),
        ((stacks, 5, 3, out), "frames does not fit"),
        ((stacks, -1, 3, out), "frames does not fit"),
        (([1, 2], 0, 3, out), "frames does not fit"),
        ((stacks, 1, 2, out), "piece_bytes is 2"),
        ((stacks, 1, 0, out), "piece_bytes is 0"),
        ((stacks, 1, 3, out[:1]), "out has 420 bytes: it must have those of frames, 840"),
        ((stacks, 1, 3, out[..., ::2]), "out is not in C order"),
    ]:
        with pytest.raises(ValueError, match=message):
            join_frames(*wrong)
    join_frames(stacks[:0], 1, 3, out[:0])
