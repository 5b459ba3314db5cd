"""``batch.map()``, and ``batch.copy()``: own arrays, where observations and next observations share memory."""

from __future__ import annotations

import numpy as np
import pytest

from framestow import FrameSpec, ReplayMemory

SPACE = {"camera": FrameSpec((3, 3)), "arm": (FrameSpec((2,), np.float32),)}


def recorded() -> ReplayMemory:
    memory = ReplayMemory(50, SPACE, 4, stack=2, seed=0, extras={"log_prob": np.float32})
    generator = np.random.default_rng(0)
    for step in range(21):
        frames = {
            "camera": generator.integers(0, 255, (1, 3, 3), np.uint8),
            "arm": (generator.random((1, 2), np.float32),),
        }
        if step:
            memory.append([step % 4], [step], [False], [step == 20], frames, extras={"log_prob": [-step]})
        else:
            memory.begin(frames)
    return memory


def arrays_of(batch) -> list[np.ndarray]:
    """All arrays of a batch, in the order of its fields."""
    arrays = []
    for field in vars(batch).values():
        parts = [field]
        while parts:
            part = parts.pop(0)
            if isinstance(part, (dict, tuple)):
                parts[:0] = part.values() if isinstance(part, dict) else part
            elif isinstance(part, np.ndarray):
                arrays.append(part)
    return arrays


SAMPLES = [lambda memory: memory.sample(8), lambda memory: memory.sample_sequences(4, 5, burn_in=2)]


@pytest.mark.parametrize("sample", SAMPLES, ids=["transitions", "sequences"])
def test_a_copy_equals_its_batch_and_shares_memory_with_nothing(sample):
    batch = sample(recorded())

    copy = batch.copy()

    originals, copies = arrays_of(batch), arrays_of(copy)
    assert type(copy) is type(batch)
    assert vars(batch).keys() == vars(copy).keys()
    assert len(originals) == len(copies) >= 12
    for original, own in zip(originals, copies, strict=True):
        np.testing.assert_array_equal(original, own)
        assert (original.dtype, True, True) == (own.dtype, own.flags.c_contiguous, own.flags.writeable)
    everything = originals + copies
    shared = [
        (first, second)
        for first, own in enumerate(copies)
        for second, other in enumerate(everything)
        if other is not own and np.shares_memory(own, other)
    ]
    assert [] == shared


def test_the_copy_of_a_batch_of_sequences_has_its_burn_in():
    batch = recorded().sample_sequences(4, 5, burn_in=2).copy()

    assert 2 == batch.burn_in
    assert not batch.learns[:, :2].any()


@pytest.mark.parametrize("sample", SAMPLES, ids=["transitions", "sequences"])
def test_a_mapped_batch_has_the_function_of_each_array_and_the_same_index_and_burn_in(sample):
    batch = sample(recorded())

    rows, shifted = batch.map(lambda array: array[1:]), batch.map(np.ndarray.copy, lambda index: index + 1)

    assert len(batch) - 1 == len(rows)
    for expected, actual in zip(arrays_of(batch), arrays_of(rows), strict=True):
        np.testing.assert_array_equal(expected if expected is batch.index else expected[1:], actual)
    assert rows.index is batch.index
    np.testing.assert_array_equal(batch.index + 1, shifted.index)
    assert getattr(batch, "burn_in", None) == getattr(rows, "burn_in", None)


def test_writing_to_a_copy_changes_neither_the_batch_nor_the_next_observation():
    batch = recorded().sample(4)
    copy = batch.copy()
    before = [batch.observation["camera"].copy(), copy.next_observation["camera"].copy()]

    copy.observation["camera"][:] = 7

    np.testing.assert_array_equal(before[0], batch.observation["camera"])
    np.testing.assert_array_equal(before[1], copy.next_observation["camera"])
