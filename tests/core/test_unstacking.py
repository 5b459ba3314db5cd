"""Whole observations are compared with stored frames, and joined of frames, for every axis of the stack."""

import numpy as np
import pytest

from framestow._core import FrameStacks, Unstacker, join_frames

CONTINUES, SHIFTED = 1, 2
OPEN = np.ones(2, bool)


class Rings:
    """Two environments whose stacks have the frames ``1, 2, .., 6``, as arrays of one dtype and shape."""

    def __init__(self, shape, dtype, depth, padding="first_frame", num_frames=6):
        self.recent, self.ages = np.zeros((2, depth, *shape), dtype), np.full(2, -1, np.int64)
        self.stacks, self.padding = FrameStacks(self.recent, self.ages, padding), padding
        self.frames = np.random.default_rng(0).integers(0, 2, (num_frames + 1, 2, *shape)).astype(dtype)
        self.frames.reshape(num_frames + 1, 2, -1)[..., 0] = np.arange(1, num_frames + 2)[:, None]
        both = np.arange(2, dtype=np.int32)
        self.stacks.begin(both, self.frames[0])
        for frames in self.frames[1:num_frames]:
            self.stacks.append(both, frames)

    def flags(self, observations, next_observations, depth, piece_bytes, env_ids=(0, 1), is_open=OPEN):
        frame = self.recent.shape[2:]
        arrays = ((next_observations[:0], depth, piece_bytes, frame),)
        given = None if observations is None else [observations]
        unstacker = Unstacker((self.stacks,), is_open, arrays)
        (newest,), flags = unstacker.unstack(np.array(env_ids, np.int32), given, [next_observations])
        assert ((len(env_ids), *frame), self.recent.dtype) == (newest.shape, newest.dtype)
        return [CONTINUES | SHIFTED] * len(env_ids) if flags is None else flags.tolist(), newest


def observations_of(frames, axis):
    """Stack frames ``(depth, n, *frame)`` as observations ``(n, *shape)``."""
    if axis == "channels":
        return np.ascontiguousarray(np.concatenate(list(frames), axis=-1))
    return np.ascontiguousarray(np.moveaxis(frames, 0, 1 if axis == "first" else -1))


@pytest.mark.parametrize("depth", [1, 2, 4, 5])
@pytest.mark.parametrize(
    ("axis", "shape", "dtype", "piece_bytes"),
    [
        ("first", (3, 5), np.uint8, 15),
        ("last", (3, 5), np.uint8, 1),
        ("last", (7, 6), np.uint8, 1),
        ("last", (3, 5), np.float32, 4),
        ("channels", (3, 5, 3), np.uint8, 3),
        ("channels", (3, 5, 2), np.int16, 4),
        ("channels", (3, 5, 5), np.uint8, 5),
    ],
)
def test_a_byte_that_differs_is_found_wherever_it_is(depth, axis, shape, dtype, piece_bytes):
    rings = Rings(shape, dtype, depth)
    now, after = (observations_of(rings.frames[last - depth : last], axis) for last in (6, 7))
    flags, newest = rings.flags(now, after, depth, piece_bytes)
    assert [CONTINUES | SHIFTED] * 2 == flags
    np.testing.assert_array_equal(newest, rings.frames[6])

    newest_of_after = observations_of(
        np.stack([np.zeros_like(rings.frames[0])] * (depth - 1) + [rings.frames[0] + 1]), axis
    )
    for at in range(now[0].size):
        changed = now.copy()
        changed.reshape(2, -1)[1, at] += 1
        flags, _ = rings.flags(changed, after, depth, piece_bytes)
        assert (flags[0], flags[1] & CONTINUES) == (CONTINUES | SHIFTED, 0)
        changed = after.copy()
        changed.reshape(2, -1)[1, at] += 1
        is_newest = newest_of_after.reshape(2, -1)[1, at] != 0
        flags, _ = rings.flags(now, changed, depth, piece_bytes)
        assert [CONTINUES | SHIFTED, CONTINUES | (SHIFTED if is_newest else 0)] == flags


@pytest.mark.parametrize("padding", ["first_frame", "zeros"])
@pytest.mark.parametrize("num_frames", [1, 2, 3])
def test_the_first_stacks_of_an_episode_are_compared_with_their_padding(padding, num_frames):
    rings = Rings((3, 5), np.uint8, 4, padding, num_frames)
    first = rings.frames[0] if padding == "first_frame" else np.zeros_like(rings.frames[0])
    now = np.stack([*[first] * (4 - num_frames), *rings.frames[:num_frames]])
    for axis, piece_bytes in (("first", 15), ("last", 1)):
        observations = observations_of(now, axis)
        flags, _ = rings.flags(observations, observations, 4, piece_bytes)
        assert [CONTINUES] * 2 == [flag & CONTINUES for flag in flags]
        observations.reshape(2, -1)[0, 0] += 1
        flags, _ = rings.flags(observations, observations, 4, piece_bytes)
        assert [0, CONTINUES] == [flag & CONTINUES for flag in flags]


def test_an_environment_that_is_closed_or_has_no_frame_is_not_continued():
    rings = Rings((3, 5), np.uint8, 2)
    now = observations_of(rings.frames[4:6], "first")
    assert [0, CONTINUES] == rings.flags(now, now, 2, 15, is_open=np.array([False, True]))[0]
    rings.ages[:] = -1
    assert [0, 0] == rings.flags(now, now, 2, 15)[0]


@pytest.mark.parametrize("padding", ["first_frame", "zeros"])
@pytest.mark.parametrize("num_frames", [1, 2, 3, 4, 6])
@pytest.mark.parametrize(("axis", "piece_bytes"), [("first", 15), ("last", 1)])
def test_next_observations_alone_are_compared_with_the_current_ones(axis, piece_bytes, num_frames, padding):
    rings = Rings((3, 5), np.uint8, 4, padding, num_frames)
    frames = [rings.frames[0] if padding == "first_frame" else np.zeros_like(rings.frames[0])] * 3 + [*rings.frames]
    after = observations_of(np.stack(frames[-4:]), axis)
    flags, newest = rings.flags(None, after, 4, piece_bytes)
    assert [CONTINUES | SHIFTED] * 2 == flags
    np.testing.assert_array_equal(newest, rings.frames[num_frames])
    is_newest = observations_of(np.stack([np.zeros_like(rings.frames[0])] * 3 + [np.ones_like(rings.frames[0])]), axis)
    for at in range(after[0].size):
        changed = after.copy()
        changed.reshape(2, -1)[1, at] += 1
        flags, _ = rings.flags(None, changed, 4, piece_bytes)
        assert [CONTINUES | SHIFTED, CONTINUES | SHIFTED * int(is_newest.reshape(2, -1)[1, at])] == flags
    assert [0, CONTINUES | SHIFTED] == rings.flags(None, after, 4, piece_bytes, is_open=np.array([False, True]))[0]


def test_arrays_of_another_shape_dtype_or_order_are_left_to_python():
    rings = Rings((3, 5), np.uint8, 2)
    now = observations_of(rings.frames[4:6], "first")
    unstack = Unstacker((rings.stacks,), OPEN, ((now[:0], 2, 15, (3, 5)),)).unstack
    others = now[:1], now[:, :1], now.astype(np.int8), now.astype(np.uint16), np.asfortranarray(now), now.tolist(), 3
    assert unstack(None, [now], [now]) is not None
    for other in others:
        assert unstack(None, [now], [other]) is None
        assert unstack(None, [other], [now]) is None


def test_only_what_differs_in_one_of_several_arrays_is_flagged():
    pictures, vectors = Rings((3, 5), np.uint8, 2), Rings((7,), np.float32, 1)
    arrays = (np.zeros((0, 2, 3, 5), np.uint8), 2, 15, (3, 5)), (np.zeros((0, 7), np.float32), 1, 28, (7,))
    unstack = Unstacker((pictures.stacks, vectors.stacks), OPEN, arrays).unstack
    now = [observations_of(pictures.frames[4:6], "first"), vectors.frames[5]]
    after = [observations_of(pictures.frames[5:7], "first"), vectors.frames[6]]
    (picture, vector), flags = unstack(None, now, after)
    assert flags is None
    np.testing.assert_array_equal(picture, pictures.frames[6])
    np.testing.assert_array_equal(vector, vectors.frames[6])
    of_first = np.array([[1], [0]], np.float32)
    _, flags = unstack(None, [now[0], now[1] + of_first], after)
    assert [SHIFTED, CONTINUES | SHIFTED] == flags.tolist()
    other = after[0] + of_first.astype(np.uint8)[:, None, None]
    _, flags = unstack(None, now, [other, after[1]])
    assert [CONTINUES, CONTINUES | SHIFTED] == flags.tolist()


@pytest.mark.parametrize(
    ("env_ids", "depth", "piece_bytes", "message"),
    [
        ([0, 2], 2, 15, "env_ids has 2"),
        ([-1, 0], 2, 15, "env_ids is not an array of environment numbers"),
        ([0, 1], 3, 15, "depth and piece_bytes do not fit"),
        ([0, 1], 2, 4, "depth and piece_bytes do not fit"),
        ([0, 1], 1, 15, "depth and piece_bytes do not fit"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(env_ids, depth, piece_bytes, message):
    rings = Rings((3, 5), np.uint8, 2)
    now = observations_of(rings.frames[4:6], "first")
    with pytest.raises(ValueError, match=message):
        rings.flags(now, now, depth, piece_bytes, env_ids)


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
        (([1, 2], 0, 3, out), "frames is not an array"),
        ((stacks, 1, 2, out), "piece_bytes is 2"),
        ((stacks, 1, 0, out), "piece_bytes is 0"),
        ((stacks, 1, 3, out[:1]), "out does not fit"),
        ((stacks, 1, 3, out[..., ::2]), "out does not fit"),
    ]:
        with pytest.raises(ValueError, match=message):
            join_frames(*wrong)
    join_frames(stacks[:0], 1, 3, out[:0])
