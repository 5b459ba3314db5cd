"""Batches as JAX arrays have the batch's values, and arrays that JAX references are not reused."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import numpy as np
import pytest

from framestow._core import OutputPool
from framestow.replay.reading.batch import Batch

jax = pytest.importorskip("jax", reason="make jax runs this in an environment of its own")
from framestow.jax import (  # noqa: E402 -- it needs JAX
    BatchLoader,
    JaxBatch,
    JaxSequenceBatch,
    SequenceLoader,
    to_jax,
)
from oracles.wrong_values import Call, Made, assert_wrong_values_are_refused, each_argument  # noqa: E402
from tensors.filled_memory import filled  # noqa: E402

FIELDS = [
    "observation", "action", "reward", "discount", "next_observation", "index", "weight", "terminated", "truncated",
]  # fmt: skip


def assert_same(expected: Batch, actual: JaxBatch) -> None:
    assert len(expected) == len(actual)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(expected, name), np.asarray(getattr(actual, name)), name)


def address(array: np.ndarray | jax.Array) -> int:
    return array.unsafe_buffer_pointer() if isinstance(array, jax.Array) else array.__array_interface__["data"][0]


def test_a_batch_becomes_jax_arrays_of_the_same_values():
    batch = filled().sample(32)

    arrays = to_jax(batch)

    assert_same(batch, arrays)
    assert all(isinstance(getattr(arrays, name), jax.Array) for name in FIELDS if name != "index")
    assert np.uint8 == arrays.observation.dtype
    assert np.float32 == arrays.reward.dtype


def test_the_index_stays_a_numpy_array_of_64_bits():
    batch = filled().sample(4)

    assert to_jax(batch).index is batch.index


def test_dicts_tuples_and_columns_keep_their_form():
    batch = filled().sample(4)
    parts = {name: getattr(batch, name) for name in FIELDS if "observation" not in name}
    joints = np.arange(8, dtype=np.float32).reshape(4, 2)
    whole = Batch(
        **parts,
        observation={"camera": batch.observation, "arm": (joints,)},
        next_observation={"camera": batch.next_observation, "arm": (joints + 1,)},
        extras={"log_prob": np.arange(4.0, dtype=np.float32)},
    )

    arrays = to_jax(whole)

    np.testing.assert_array_equal(batch.observation, arrays.observation["camera"])
    np.testing.assert_array_equal(joints + 1, arrays.next_observation["arm"][0])
    np.testing.assert_array_equal(np.arange(4.0), arrays.extras["log_prob"])


def test_a_pooled_array_is_shared_without_a_copy_and_not_reused_meanwhile():
    pool = OutputPool(max_buffers=2)
    windows = pool.take((32, 5, 84, 84))
    windows[...] = 7
    array = jax.numpy.from_dlpack(windows)
    place = address(windows)
    assert place == address(array)
    del windows
    gc.collect()

    for _ in range(4):
        pool.take((32, 5, 84, 84))[...] = 0

    assert (np.asarray(array) == 7).all()
    del array
    gc.collect()
    assert place in {address(array) for array in [pool.take((32, 5, 84, 84)), pool.take((32, 5, 84, 84))]}


def test_a_pooled_array_is_not_reused_while_an_asynchronous_computation_reads_it():
    pool = OutputPool(max_buffers=1)
    matrix = pool.take((700, 700), np.float32)
    matrix[...] = 1 / 700

    @jax.jit
    def to_a_power(matrix: jax.Array) -> jax.Array:
        for _ in range(40):
            matrix = matrix @ matrix
        return matrix.sum()

    expected = float(to_a_power(jax.numpy.from_dlpack(matrix.copy())))
    result = to_a_power(jax.numpy.from_dlpack(matrix))
    del matrix
    pool.take((700, 700), np.float32)[...] = 3  # another buffer, unless the computation is done

    assert expected == pytest.approx(float(result), rel=1e-5)


def test_two_views_of_one_pooled_array_are_shared_without_a_copy():
    frames = OutputPool().take((64, 4, 84, 84))
    batch = filled().sample(32)
    parts = {name: getattr(batch, name) for name in FIELDS if "observation" not in name}

    arrays = to_jax(Batch(**parts, observation=frames[:32], next_observation=frames[32:]))

    assert address(frames[:32]) == address(arrays.observation)
    assert address(frames[32:]) == address(arrays.next_observation)


def test_read_only_arrays_are_copied():
    batch = filled().sample(32)
    for name in FIELDS:
        getattr(batch, name).flags.writeable = False

    assert_same(batch, to_jax(batch))


def test_a_batch_can_be_passed_to_a_traced_function_and_is_a_pytree():
    batch = filled().sample(32)
    indices = []

    @jax.jit
    def total(batch: JaxBatch) -> jax.Array:
        indices.append(batch.index)
        return batch.reward.sum() + batch.observation.astype("float32").sum()

    result = total(to_jax(batch))

    assert [None] == indices
    assert float(batch.reward.sum() + batch.observation.sum(dtype=np.float64)) == pytest.approx(float(result), rel=1e-5)
    doubled = jax.tree_util.tree_map(lambda leaf: leaf + leaf, to_jax(batch))
    np.testing.assert_array_equal(2 * batch.reward, doubled.reward)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_loader_gives_what_sample_gives_in_the_same_order_and_kept_batches_stay(threads):
    sampled, kept = filled(), []

    with BatchLoader(filled(), 32, threads=threads) as loader:
        for _ in range(20):
            kept.append(next(loader))

    for batch in kept:
        assert_same(sampled.sample(32), batch)
    assert [] == list(loader)


def test_a_loader_on_a_named_device_and_with_another_draw():
    memory, sampled = filled(), filled()
    sizes = []

    def draw(batch_size: int):
        sizes.append(batch_size)
        return memory.draw_ahead(batch_size)

    with BatchLoader(memory, 8, jax.devices("cpu")[0], ahead=1, draw=draw) as loader:
        assert_same(sampled.sample(8), next(loader))

    assert [8, 8] == sizes


@pytest.mark.parametrize("borders", ["mask", "cross"])
def test_a_sequence_loader_gives_what_sample_sequences_gives(borders):
    sampled = filled()
    asked = {"overlap": 2, "burn_in": 3, "borders": borders}
    burn_ins = []

    @jax.jit
    def total(batch: JaxSequenceBatch) -> jax.Array:
        burn_ins.append(batch.burn_in)
        return (batch.reward * batch.learns).sum()

    with SequenceLoader(filled(), 8, 10, **asked) as loader:
        for _ in range(5):
            batch, expected = next(loader), sampled.sample_sequences(8, 10, **asked)
            for name in vars(expected):
                np.testing.assert_array_equal(getattr(expected, name), np.asarray(getattr(batch, name)), name)
            assert float((expected.reward * expected.learns).sum()) == pytest.approx(float(total(batch)), rel=1e-5)

    assert [3] == burn_ins


LOADER = {"batch_size": 4, "device": None, "ahead": 2, "threads": 1}
CALLS = {
    "BatchLoader": Call(lambda **given: BatchLoader(filled(), **given).close(), LOADER, {"device": "None"}),
    "SequenceLoader": Call(
        lambda **given: SequenceLoader(filled(), **given).close(),
        LOADER | {"length": 3, "overlap": 1, "burn_in": 0, "borders": "mask"},
        {"device": "None", "overlap": "0 None", "burn_in": "0"},
        {"device": ["cpu", "gpu"]},
    ),
    "to_jax": Call(to_jax, {"batch": Made(lambda: filled().sample(2)), "device": None}, {"device": "None"}),
}


@pytest.mark.parametrize(("call", "name"), each_argument(CALLS))
def test_a_wrong_argument_is_refused_with_its_value(call, name):
    assert_wrong_values_are_refused(call, name)


def test_the_example_of_the_docs_prints_its_documented_output(capsys):
    page = (Path(__file__).parents[2] / "docs/tensors.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [example] = [block for block in blocks if "framestow.jax" in block]

    exec(compile(example, "tensors.md", "exec"), {"__name__": "__main__"})

    assert f"# {capsys.readouterr().out.strip()}" in example
