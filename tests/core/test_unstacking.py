"""The native ``unstack`` compares whole observations with stored frames, for every axis of the stack."""

import numpy as np
import pytest

from framestow._core import FrameStacks, unstack

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
        newest = np.empty((len(env_ids), *self.recent.shape[2:]), self.recent.dtype)
        flags = np.full(len(env_ids), CONTINUES | SHIFTED, np.uint8)
        arrays = np.array(env_ids, np.int32), is_open, observations, next_observations
        are_usual = unstack(self.recent, self.ages, self.padding, *arrays, depth, piece_bytes, newest, flags)
        assert are_usual == bool((flags == (CONTINUES | SHIFTED)).all())
        return flags.tolist(), newest


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


@pytest.mark.parametrize(
    ("env_ids", "depth", "piece_bytes", "message"),
    [
        ([0, 2], 2, 15, "env_ids has 2"),
        ([-1, 0], 2, 15, "env_ids has -1"),
        ([0], 2, 15, "an argument does not fit"),
        ([0, 1], 3, 15, "depth and piece_bytes do not fit"),
        ([0, 1], 2, 4, "depth and piece_bytes do not fit"),
        ([0, 1], 1, 15, "an argument does not fit"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(env_ids, depth, piece_bytes, message):
    rings = Rings((3, 5), np.uint8, 2)
    now = observations_of(rings.frames[4:6], "first")
    with pytest.raises(ValueError, match=message):
        rings.flags(now, now, depth, piece_bytes, env_ids)
