"""Output arrays are reused once no view of them is alive."""

from __future__ import annotations

import numpy as np
import pytest

from framestow._core import OutputPool
from oracles.numbered_steps import numbered_memory, play_episode

SHAPE = (4, 5)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_an_array_without_references_is_reused():
    pool = OutputPool()
    first = pool.take(SHAPE)
    first_address = address(first)
    del first

    assert first_address == address(pool.take(SHAPE))


def test_an_array_is_not_reused_while_any_view_of_it_is_alive():
    pool = OutputPool()
    held = [pool.take(SHAPE)[1:], pool.take(SHAPE)[0], memoryview(pool.take(SHAPE)), pool.take(SHAPE).T.reshape(5, 4)]

    lent = pool.take(SHAPE)

    assert not any(np.shares_memory(lent, np.asarray(view)) for view in held[:3])


def test_a_batch_does_not_change_while_it_is_referenced():
    memory = numbered_memory(50)
    play_episode(memory, episode=0, length=40)
    batches = [memory.sample(8) for _ in range(20)]
    copies = [(batch.observation.copy(), batch.next_observation.copy()) for batch in batches]

    memory.sample(8)

    for batch, (observation, next_observation) in zip(batches, copies, strict=True):
        np.testing.assert_array_equal(observation, batch.observation)
        np.testing.assert_array_equal(next_observation, batch.next_observation)


def test_repeated_sampling_takes_no_more_memory():
    memory = numbered_memory(50)
    play_episode(memory, episode=0, length=40)
    for batch_size in (8, 8, 16):
        memory.sample(batch_size)
    before = memory.nbytes

    for _ in range(50):
        memory.sample(8)
        memory.sample(16)

    assert before == memory.nbytes


def test_the_pool_keeps_a_bounded_number_of_buffers():
    pool = OutputPool(max_buffers=3)

    for side in range(1, 50):
        pool.take((side, side))

    assert pool.nbytes <= 49**2 + 48**2 + 47**2


def test_a_huge_array_is_returned_but_not_kept():
    pool = OutputPool(max_bytes=1000)
    small = pool.take((10, 10))

    huge = pool.take((11, 100))

    assert huge.shape == (11, 100)
    assert pool.nbytes == small.nbytes


def test_the_pool_keeps_a_bounded_number_of_bytes():
    pool = OutputPool(max_bytes=1000)
    held = [pool.take((side, 10)) for side in range(1, 30)]

    assert pool.nbytes <= 1000
    del held
    first_address = address(pool.take((60, 10)))
    assert address(pool.take((60, 10))) == first_address
    assert pool.nbytes <= 1000


def test_more_arrays_than_the_pool_keeps_can_be_used_at_once():
    pool = OutputPool(max_buffers=2)
    held = [pool.take(SHAPE) for _ in range(5)]

    for number, array in enumerate(held):
        array[:] = number

    assert [0, 1, 2, 3, 4] == [int(array[0, 0]) for array in held]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_arrays_are_aligned_for_use_without_a_copy(dtype):
    pool = OutputPool(max_buffers=4)

    held = [pool.take((3, size, 7), dtype) for size in range(1, 9)]

    assert {0} == {address(array) % 64 for array in held}
    assert {(3, size, 7) for size in range(1, 9)} == {array.shape for array in held}
    assert all(array.flags.c_contiguous and array.flags.writeable and array.dtype == dtype for array in held)
