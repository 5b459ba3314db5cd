"""Arrays in a transfer buffer are copied unchanged, and shared arrays are copied once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow._core import OutputPool
from framestow.torch.tensor_batch import TransferBuffer


def copied(buffer: TransferBuffer, arrays: list[np.ndarray]) -> list[torch.Tensor]:
    staging = torch.full((buffer.nbytes + 3,), 0xAB, dtype=torch.uint8)
    buffer.write_to(staging)
    return [buffer.find(array, staging) for array in arrays]


def assert_copied_unchanged(arrays: list[np.ndarray]) -> TransferBuffer:
    buffer = TransferBuffer(arrays)
    for array, tensor in zip(arrays, copied(buffer, arrays), strict=True):
        np.testing.assert_array_equal(array, tensor.numpy())
        assert array.dtype == tensor.numpy().dtype
    return buffer


def rounded_up(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int16, np.float16, np.float32, np.int64, np.float64])
def test_arrays_of_any_dtype_are_copied_in_one_buffer(dtype):
    arrays = [np.arange(7).astype(dtype), np.arange(6, dtype=np.uint8), np.arange(24).reshape(2, 3, 4).astype(dtype)]

    buffer = assert_copied_unchanged(arrays)

    assert sum(rounded_up(array.nbytes) for array in arrays) == buffer.nbytes


def test_frames_shared_by_two_observations_are_copied_once():
    frames = np.random.default_rng(0).integers(0, 256, (6, 5, 7, 9), dtype=np.uint8)

    buffer = assert_copied_unchanged([frames[:, :-1], np.arange(6.0), frames[:, 1:]])

    assert rounded_up(frames.nbytes) + 64 == buffer.nbytes


def test_shared_frames_of_a_memory_are_copied_once_for_any_dtype():
    for dtype in (np.uint8, np.float32, np.float64):
        frames = OutputPool().take((6, 5, 7, 9), dtype)
        frames[...] = np.random.default_rng(0).integers(0, 256, frames.shape)

        buffer = assert_copied_unchanged([frames[:, :-1], frames[:, 1:]])

        assert buffer.nbytes <= rounded_up(frames.nbytes) + 64


def test_frames_shared_by_overlapping_stacks_are_copied_once():
    frames = np.random.default_rng(0).integers(0, 256, (3, 4 + 8, 5, 5), dtype=np.uint8)
    stacks = np.moveaxis(np.lib.stride_tricks.sliding_window_view(frames, 4, axis=1), -1, 2)
    strided = np.lib.stride_tricks.as_strided(frames[:, 1:], (3, 8, 4, 5, 5), (300, 25, 25, 5, 1))

    buffer = assert_copied_unchanged([stacks[:, :-1], stacks[:, 1:], strided])

    assert rounded_up(frames.nbytes) == buffer.nbytes


def test_a_small_view_of_a_large_array_is_copied_alone():
    large = np.arange(100_000.0)

    buffer = assert_copied_unchanged([large[10:20], large[::-1][:10], large[: 8 * 64 : 64]])

    assert buffer.nbytes <= 3 * 128


def test_views_with_unsuitable_strides_are_copied_alone():
    records = np.zeros(5, np.dtype([("log_prob", np.float32), ("kind", np.uint8), ("goal", np.float64, (2,))]))
    records["log_prob"], records["kind"], records["goal"] = np.arange(5), 7, np.arange(10).reshape(5, 2)
    backwards = np.arange(12, dtype=np.int32).reshape(3, 4)
    transposed = np.asfortranarray(np.arange(12.0).reshape(3, 4))

    assert_copied_unchanged(
        [
            records["log_prob"],
            records["kind"],
            records["goal"],
            backwards[::-1],
            backwards[:, ::-1],
            transposed,
            transposed[:2],
            transposed[1:],
        ]
    )


def test_empty_arrays_and_scalars_are_copied():
    frames = np.zeros((4, 3), np.uint8)

    assert_copied_unchanged([np.zeros((0, 3)), np.array(3.5), frames[:0], frames[:, :0]])


def test_the_same_array_twice_is_copied_once():
    array = np.arange(100.0)

    assert rounded_up(array.nbytes) == assert_copied_unchanged([array, array]).nbytes


@settings(max_examples=30)
@given(st.data())
def test_any_slices_of_any_arrays_are_copied(data: Any):
    arrays = []
    for _ in range(data.draw(st.integers(1, 4))):
        shape = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
        dtype = data.draw(st.sampled_from([np.uint8, np.float32, np.int64]))
        owner = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        for _ in range(data.draw(st.integers(1, 3))):
            steps = st.sampled_from([-2, -1, 1, 2, 3])
            slices = tuple(
                slice(*data.draw(st.tuples(st.integers(-5, 5) | st.none(), st.integers(-5, 5) | st.none(), steps)))
                for _ in shape
            )
            arrays.append(owner[slices])

    assert_copied_unchanged(arrays)
