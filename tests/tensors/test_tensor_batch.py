"""A batch becomes tensors of the same values, without a copy on the CPU."""

import gc

import numpy as np
import pytest
import torch

from framestow._core import OutputPool
from framestow.errors import InvalidSettingsError
from framestow.replay.reading.batch import Batch
from framestow.torch.tensor_batch import TensorBatch, to_tensors

CPU = torch.device("cpu")
LEARNER_FIELDS = ["observation", "action", "reward", "discount", "next_observation", "weight"]


def _batch(windows: np.ndarray) -> Batch:
    size = len(windows)
    return Batch(
        observation=windows[:, :-1],
        action=np.arange(size),
        reward=np.linspace(-1, 1, size, dtype=np.float32),
        discount=np.full(size, 0.99, np.float32),
        next_observation=windows[:, 1:],
        index=np.arange(size),
        weight=np.ones(size, np.float32),
        terminated=np.zeros(size, bool),
        truncated=np.zeros(size, bool),
    )


def _numbered_windows(size: int = 6) -> np.ndarray:
    return np.arange(size * 5 * 3 * 3, dtype=np.uint8).reshape(size, 5, 3, 3)


def _assert_same(batch: Batch, tensors: TensorBatch) -> None:
    assert len(batch) == len(tensors)
    for name in LEARNER_FIELDS:
        np.testing.assert_array_equal(getattr(batch, name), getattr(tensors, name).cpu().numpy(), err_msg=name)
        assert getattr(batch, name).dtype == getattr(tensors, name).cpu().numpy().dtype


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int16, np.float16, np.float32, np.float64])
def test_every_field_keeps_its_values_and_dtype(dtype: type) -> None:
    batch = _batch(_numbered_windows().astype(dtype))

    _assert_same(batch, to_tensors(batch, CPU))


def test_a_batch_of_tensors_is_refused_where_one_of_arrays_is_needed() -> None:
    tensors = to_tensors(_batch(_numbered_windows()), CPU)

    with pytest.raises(InvalidSettingsError, match=r"on cpu\): it must be a Batch or a SequenceBatch of NumPy arrays"):
        to_tensors(tensors, CPU)


def test_on_the_cpu_nothing_is_copied() -> None:
    batch = _batch(_numbered_windows())

    tensors = to_tensors(batch, CPU)

    for name in LEARNER_FIELDS:
        assert np.shares_memory(getattr(batch, name), getattr(tensors, name).numpy()), name


def test_a_read_only_batch_is_copied_and_not_changed() -> None:
    windows = _numbered_windows()
    windows.flags.writeable = False
    batch = _batch(windows)

    tensors = to_tensors(batch, CPU)
    tensors.observation.zero_()

    np.testing.assert_array_equal(_numbered_windows(), windows)


def test_an_output_array_is_not_reused_while_a_tensor_references_it() -> None:
    pool = OutputPool()
    windows = pool.take((6, 5, 3, 3))
    windows[...] = _numbered_windows()
    tensors = to_tensors(_batch(windows), CPU)
    del windows
    gc.collect()

    for _ in range(3):
        pool.take((6, 5, 3, 3))[...] = 0

    np.testing.assert_array_equal(_numbered_windows()[:, :-1], tensors.observation.numpy())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_batch_arrives_unchanged_on_the_gpu() -> None:
    batch = _batch(_numbered_windows())

    tensors = to_tensors(batch, torch.device("cuda"))

    assert tensors.observation.is_cuda
    _assert_same(batch, tensors)
