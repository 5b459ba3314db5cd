"""What travels in one piece arrives as it was, and what is shared travels once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow.replay.sampling import OutputPool
from framestow.torch.tensor_batch import Parcel


def arrived(parcel: Parcel, arrays: list[np.ndarray]) -> list[torch.Tensor]:
    staging = torch.full((parcel.nbytes + 3,), 0xAB, dtype=torch.uint8)
    parcel.write_to(staging)
    return [parcel.find(array, staging) for array in arrays]


def assert_arrive_as_they_are(arrays: list[np.ndarray]) -> Parcel:
    parcel = Parcel(arrays)
    for array, tensor in zip(arrays, arrived(parcel, arrays), strict=True):
        np.testing.assert_array_equal(array, tensor.numpy())
        assert array.dtype == tensor.numpy().dtype
    return parcel


def rounded_up(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int16, np.float16, np.float32, np.int64, np.float64])
def test_arrays_of_any_dtype_arrive_in_one_piece(dtype):
    arrays = [np.arange(7).astype(dtype), np.arange(6, dtype=np.uint8), np.arange(24).reshape(2, 3, 4).astype(dtype)]

    parcel = assert_arrive_as_they_are(arrays)

    assert sum(rounded_up(array.nbytes) for array in arrays) == parcel.nbytes


def test_frames_that_two_observations_share_travel_once():
    frames = np.random.default_rng(0).integers(0, 256, (6, 5, 7, 9), dtype=np.uint8)

    parcel = assert_arrive_as_they_are([frames[:, :-1], np.arange(6.0), frames[:, 1:]])

    assert rounded_up(frames.nbytes) + 64 == parcel.nbytes


def test_frames_that_a_memory_lends_travel_once_whatever_their_dtype():
    for dtype in (np.uint8, np.float32, np.float64):
        frames = OutputPool().take((6, 5, 7, 9), dtype)
        frames[...] = np.random.default_rng(0).integers(0, 256, frames.shape)

        parcel = assert_arrive_as_they_are([frames[:, :-1], frames[:, 1:]])

        assert parcel.nbytes <= rounded_up(frames.nbytes) + 64


def test_frames_that_stacks_of_a_sequence_overlap_in_travel_once():
    frames = np.random.default_rng(0).integers(0, 256, (3, 4 + 8, 5, 5), dtype=np.uint8)
    stacks = np.moveaxis(np.lib.stride_tricks.sliding_window_view(frames, 4, axis=1), -1, 2)
    strided = np.lib.stride_tricks.as_strided(frames[:, 1:], (3, 8, 4, 5, 5), (300, 25, 25, 5, 1))

    parcel = assert_arrive_as_they_are([stacks[:, :-1], stacks[:, 1:], strided])

    assert rounded_up(frames.nbytes) == parcel.nbytes


def test_halves_of_one_array_travel_as_that():
    frames = np.arange(2 * 5 * 4, dtype=np.float32).reshape(10, 4)

    parcel = assert_arrive_as_they_are([frames[:5], frames[5:]])

    assert rounded_up(frames.nbytes) == parcel.nbytes


def test_a_small_part_of_a_large_array_travels_alone():
    large = np.arange(100_000.0)

    parcel = assert_arrive_as_they_are([large[10:20], large[::-1][:10], large[: 8 * 64 : 64]])

    assert parcel.nbytes <= 3 * 128


def test_parts_that_one_piece_cannot_show_travel_alone():
    records = np.zeros(5, np.dtype([("log_prob", np.float32), ("kind", np.uint8), ("goal", np.float64, (2,))]))
    records["log_prob"], records["kind"], records["goal"] = np.arange(5), 7, np.arange(10).reshape(5, 2)
    backwards = np.arange(12, dtype=np.int32).reshape(3, 4)
    transposed = np.asfortranarray(np.arange(12.0).reshape(3, 4))

    assert_arrive_as_they_are(
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


def test_empty_arrays_and_numbers_arrive():
    frames = np.zeros((4, 3), np.uint8)

    assert_arrive_as_they_are([np.zeros((0, 3)), np.array(3.5), frames[:0], frames[:, :0]])


def test_the_same_array_twice_travels_once():
    array = np.arange(100.0)

    assert rounded_up(array.nbytes) == assert_arrive_as_they_are([array, array]).nbytes


@settings(max_examples=30)
@given(st.data())
def test_any_slices_of_any_arrays_arrive(data: Any):
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

    assert_arrive_as_they_are(arrays)
