"""LazyFrames behave like their array, share their frames, and keep nothing else in memory."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, basic_indices

from framestow.errors import InvalidSettingsError
from framestow.frames import LazyFrames, LazyFramesBatch
from framestow.frames.lazy_frames import STACK_AXES
from oracles.earlier_lazy_frames import BaselinesLazyFrames, GymnasiumLazyFrames

JOINED = {"first": np.stack, "last": lambda frames: np.stack(frames, -1), "channels": lambda f: np.concatenate(f, -1)}
DTYPES = ["uint8", "bool", "int16", "float32", "float64"]
FRAME_BYTES, STACK = 84 * 84, 4


@st.composite
def stacks(draw, axes=STACK_AXES):
    """Frames of any shape and dtype, an axis, and the array stacked along it."""
    axis = draw(st.sampled_from(axes))
    shape = draw(array_shapes(min_dims=1 if axis == "channels" else 0, max_dims=3, max_side=4) | st.just((3, 0)))
    dtype, generator = draw(st.sampled_from(DTYPES)), np.random.default_rng(draw(st.integers(0, 99)))
    frames = [generator.integers(0, 200, shape).astype(dtype) for _ in range(draw(st.integers(1, 5)))]
    return frames, axis, JOINED[axis](frames)


def numbered(count, shape=(84, 84), first=0):
    return [np.full(shape, number % 256, np.uint8) for number in range(first, first + count)]


def bits(array):
    return np.asarray(array).tobytes(), np.asarray(array).shape, np.asarray(array).dtype


@settings(max_examples=25)
@given(stacks())
def test_lazy_frames_equal_their_stacked_or_concatenated_frames(stack):
    frames, axis, array = stack

    lazy = LazyFrames(frames, axis)

    assert bits(array) == bits(lazy)
    assert (array.shape, array.dtype, array.ndim, len(array)) == (lazy.shape, lazy.dtype, lazy.ndim, len(lazy))
    assert [bits(part) for part in array] == [bits(part) for part in lazy]


@settings(max_examples=25)
@given(stacks(), st.sampled_from([0, -1]))
def test_numpy_functions_of_lazy_frames_equal_those_of_arrays(stack, stack_axis):
    frames, axis, array = stack
    lazy = LazyFrames(frames, axis)

    assert bits(np.stack([array, array])) == bits(np.stack([lazy, lazy]))
    assert bits(np.stack([array, array], axis=stack_axis)) == bits(np.stack([lazy, array], axis=stack_axis))
    assert bits(np.stack([array], dtype=np.float64, casting="unsafe")) == bits(
        np.stack((lazy,), dtype=np.float64, casting="unsafe")
    )
    assert bits(np.atleast_1d(array)) == bits(np.atleast_1d(lazy))


def test_lazy_frames_are_stacked_with_lists_and_along_different_axes_as_by_numpy():
    first, last = (LazyFrames(numbered(4, (4, 4)), axis=axis) for axis in ("first", "last"))
    arrays = np.asarray(first), np.asarray(last)

    for lazies in ([first, last], [last, first]):
        assert bits(np.stack([np.asarray(lazy) for lazy in lazies])) == bits(np.stack(lazies))
        assert bits(np.stack(lazies)) == bits(np.asarray(LazyFramesBatch(lazies)))
    assert bits(np.stack([arrays[0], arrays[1].tolist()])) == bits(np.stack([first, arrays[1].tolist()]))


def test_a_stack_of_lazy_frames_of_different_shapes_is_refused_as_by_numpy():
    with pytest.raises(ValueError, match="all input arrays must have the same shape"):
        np.stack([LazyFrames(numbered(3)), LazyFrames(numbered(4))])


@settings(max_examples=25)
@given(stacks(), st.data())
def test_indexing_lazy_frames_equals_indexing_the_array(stack, data):
    frames, axis, array = stack
    index = data.draw(basic_indices(array.shape, allow_newaxis=True))

    assert bits(array[index]) == bits(LazyFrames(frames, axis)[index])


@settings(max_examples=25)
@given(stacks(["channels"]))
def test_lazy_frames_along_channels_behave_as_in_baselines(stack):
    frames, axis, _ = stack
    lazy, theirs = LazyFrames(frames, axis), BaselinesLazyFrames(frames)

    assert (theirs.count(), len(theirs)) == (lazy.count(), len(lazy))
    for number in range(-lazy.count(), lazy.count()):
        assert bits(theirs.frame(number)) == bits(lazy.frame(number))
    assert [bits(theirs[row]) for row in range(len(theirs))] == [bits(lazy[row]) for row in range(len(lazy))]
    assert bits(np.asarray(theirs, np.float64)) == bits(np.asarray(lazy, np.float64))
    with pytest.raises(IndexError):
        lazy.frame(lazy.count())


@settings(max_examples=25)
@given(stacks(["first"]), st.slices(5))
def test_lazy_frames_on_the_first_axis_behave_as_in_gymnasium(stack, part):
    frames, _, array = stack
    lazy, theirs = LazyFrames(frames), GymnasiumLazyFrames(frames)

    assert (len(theirs), theirs.shape, theirs.dtype) == (len(lazy), lazy.shape, lazy.dtype)
    assert [bits(theirs[number]) for number in range(-len(lazy), len(lazy))] == [
        bits(lazy[number]) for number in range(-len(lazy), len(lazy))
    ]
    if frames[part]:
        assert bits(theirs[part]) == bits(lazy[part])
    assert bits(theirs == array) == bits(lazy == array)


@settings(max_examples=25)
@given(stacks(["first", "last"]))
def test_count_and_frame_return_the_number_and_the_frames(stack):
    frames, axis, _ = stack
    lazy = LazyFrames(frames, axis)

    assert len(frames) == lazy.count()
    assert [bits(frame) for frame in frames] == [bits(lazy.frame(number)) for number in range(lazy.count())]
    assert bits(frames[-1]) == bits(lazy.frame(-1))


def test_frames_are_shared_and_read_only():
    frames = numbered(5)
    older, newer = LazyFrames(frames[:4]), LazyFrames(frames[1:])

    for shown in (older[1], newer[0], older.frame(1), next(iter(newer)), LazyFrames(frames, "channels").frame(100)):
        assert np.shares_memory(frames[1], shown)
        assert not shown.flags.writeable
    np.asarray(older)[:] = 99
    older[:2][:] = 99

    assert [0, 1, 2, 3] == np.asarray(older)[:, 0, 0].tolist()


def as_tensor(lazy):
    return pytest.importorskip("torch").as_tensor(lazy)


LOADS_PYTORCH = pytest.mark.slow


@pytest.mark.parametrize("convert", [np.asarray, pytest.param(as_tensor, marks=LOADS_PYTORCH)])
@pytest.mark.parametrize("axis", STACK_AXES)
def test_no_use_of_lazy_frames_keeps_an_array_alive(axis, convert):
    num_kept = 100
    frames = [np.zeros((84, 84, 1), np.uint8) for _ in range(num_kept + STACK)]
    kept = [LazyFrames(frames[first : first + STACK], axis) for first in range(num_kept)]
    batch = LazyFramesBatch(kept[:8])
    convert(kept[0])
    tracemalloc.start()

    for lazy in kept:
        convert(lazy), np.asarray(lazy, np.float32), np.stack([lazy, lazy])
        lazy[0], lazy[1:3], lazy[..., 0], lazy.frame(0), lazy.count(), lazy == kept[0], list(lazy), repr(lazy)
    np.asarray(batch), batch[0], batch[1:], list(batch)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    whole_stacks = num_kept * STACK * FRAME_BYTES
    assert grown < whole_stacks / 20  # PyTorch and the garbage collector take some kilobytes


def test_a_part_of_lazy_frames_does_not_keep_the_whole_array_alive():
    lazy = LazyFrames(numbered(4, (84, 84, 1)), "channels")

    for part in (lazy[0], lazy[:2], lazy[..., 3], LazyFramesBatch([lazy])[0, 1]):
        assert part.base is None


@pytest.mark.parametrize("protocol", [4, 5])  # what pickle takes by default before Python 3.14, and since
@pytest.mark.parametrize("axis", STACK_AXES)
def test_a_pickle_contains_each_frame_once_and_restores_the_sharing(axis, protocol):
    frames = numbered(103)
    for frame in frames:
        frame.flags.writeable = False
    lazies = [LazyFrames(frames[first : first + STACK], axis) for first in range(100)]

    written = pickle.dumps(lazies, protocol)
    back = pickle.loads(written)

    assert len(written) < 103 * (FRAME_BYTES + 200) + 100 * 100
    assert [bits(lazy) for lazy in lazies] == [bits(lazy) for lazy in back]
    if axis == "first":
        assert np.shares_memory(back[0][1], back[1][0])
        assert not back[0][1].flags.writeable
        assert np.shares_memory(back[0][1], copy.deepcopy(back[0])[1])


def test_copies_share_read_only_frames():
    frozen, open_to_all = numbered(2)
    frozen.flags.writeable = False
    lazy = LazyFrames([frozen, open_to_all])

    shallow, deep = copy.copy(lazy), copy.deepcopy([lazy, lazy[0], LazyFramesBatch([lazy])])
    open_to_all[:] = 99

    assert [0, 99] == np.asarray(shallow)[:, 0, 0].tolist()
    assert [0, 1] == np.asarray(deep[0])[:, 0, 0].tolist()
    assert np.shares_memory(frozen, deep[0][0])
    assert np.shares_memory(deep[0][1], deep[2][0][1])


def test_deepcopy_copies_a_read_only_view_of_a_writeable_array():
    open_to_all = np.zeros((2, 2), np.uint8)
    view = open_to_all.view()
    view.flags.writeable = False

    deep = copy.deepcopy(LazyFrames([view]))
    open_to_all[:] = 7

    assert not np.asarray(deep).any()


@pytest.mark.parametrize("axis", STACK_AXES)
def test_copy_false_is_refused(axis):
    lazy = LazyFrames(numbered(4), axis)

    with pytest.raises(ValueError, match=r"^copy is False: LazyFrames always returns a new array; leave"):
        np.asarray(lazy, copy=False)
    assert np.asarray(lazy, copy=True).flags.owndata


@LOADS_PYTORCH
def test_pytorchs_functions_accept_lazy_frames():
    torch = pytest.importorskip("torch")
    lazy = LazyFrames(numbered(4))

    for make in (torch.as_tensor, torch.tensor, torch.from_dlpack, lambda lazy: torch.as_tensor(np.asarray(lazy))):
        assert bits(np.asarray(lazy)) == bits(make(lazy))


def test_lazy_frames_compare_element_by_element_and_have_no_hash():
    lazy, other = LazyFrames(numbered(4)), LazyFrames(numbered(4, first=1))

    assert bits(np.ones((4, 84, 84), bool)) == bits(lazy == np.asarray(lazy)) == bits(np.asarray(lazy) == lazy)
    assert not (lazy == other).any()
    assert (lazy != other).all()
    assert np.array_equal(lazy, LazyFrames(numbered(4)))
    with pytest.raises(TypeError, match="unhashable"):
        hash(lazy)


@pytest.mark.parametrize(
    ("frames", "axis", "message"),
    [
        ([], "first", "frames are empty: a stack needs at least one frame; give them oldest first"),
        (
            [np.zeros((2, 2), np.uint8), np.zeros((2, 3), np.uint8)],
            "first",
            "frame 1 is uint8 of shape (2, 3): it must be uint8 of shape (2, 2) as the first frame; "
            "give the frames of one environment",
        ),
        (
            [np.zeros(2, np.uint8), np.zeros(2)],
            "first",
            "frame 1 is float64 of shape (2,): it must be uint8 of shape (2,) as the first frame; give "
            "the frames of one environment",
        ),
        ([np.zeros(2)], "middle", "axis is 'middle': it must be one of 'first', 'last', 'channels'"),
        ([1, 2], "channels", "frames are scalars: axis='channels' needs frames with an axis; use 'first'"),
    ],
)
def test_frames_that_cannot_be_stacked_are_refused(frames, axis, message):
    with pytest.raises(InvalidSettingsError, match=f"^{re.escape(message)}$"):
        LazyFrames(frames, axis)


@settings(max_examples=25)
@given(stacks(), st.integers(1, 4), st.data())
def test_a_batch_behaves_like_its_array_and_returns_each_observation(stack, num_envs, data):
    frames, axis, array = stack
    lazies = [LazyFrames(frames, axis) for _ in range(num_envs)]
    batch, whole = LazyFramesBatch(lazies), np.stack([array] * num_envs)
    index = data.draw(basic_indices(whole.shape, allow_newaxis=True) | arrays(bool, num_envs))

    assert bits(whole) == bits(batch)
    assert bits(whole[index]) == bits(batch[index])
    assert [bits(row) for row in whole] == [bits(lazy) for lazy in batch]
    assert all(ours is lazy for ours, lazy in zip(batch, lazies, strict=True))
    assert batch[num_envs - 1] is lazies[-1]
    assert bits(whole) == bits(pickle.loads(pickle.dumps(batch))) == bits(copy.deepcopy(batch))


def test_a_batch_of_observations_that_differ_is_refused():
    for lazies in ([LazyFrames(numbered(4)), LazyFrames(numbered(3))], []):
        with pytest.raises(
            InvalidSettingsError, match=r"^observations have the shapes and dtypes \[.*\]: a batch needs"
        ):
            LazyFramesBatch(lazies)
