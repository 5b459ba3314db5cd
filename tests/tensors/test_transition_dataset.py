"""The workers of a ``DataLoader`` share a store: endless draws that repeat by seed, or every transition once."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from framestow import FrameSpec, ReplayMemory
from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.torch import TransitionDataset

NUM_TRANSITIONS = 53
# Leaving an endless DataLoader ends workers whose queue PyTorch still feeds: one may abort then, after its last batch.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in.*_MultiProcessingDataLoaderIter:pytest.PytestUnraisableExceptionWarning"
)
needs_fork = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")


def memory_of(num_transitions: int, directory: Path | None = None) -> ReplayMemory:
    """Return a memory whose k-th transition has the action k, and frames of k and k + 1."""
    memory = ReplayMemory(1000, FrameSpec((2, 3)), 1000, stack=2, directory=directory, flush_every=None, seed=0)
    memory.begin(np.zeros((1, 2, 3), np.uint8))
    append(memory, num_transitions)
    return memory


def append(memory: ReplayMemory, count: int) -> None:
    first = len(memory)
    for step in range(first, first + count):
        memory.append([step], [step / 2], [False], [False], np.full((1, 2, 3), step + 1, np.uint8))


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dataset") / "store"
    memory_of(NUM_TRANSITIONS).save(folder)
    return folder


def loader_of(dataset: TransitionDataset, num_workers: int = 2, method: str = "fork", **options) -> DataLoader:
    context = method if num_workers else None
    return DataLoader(dataset, batch_size=None, num_workers=num_workers, multiprocessing_context=context, **options)


def indices(loader: DataLoader, num_batches: int) -> list[list[int]]:
    return [batch.index.tolist() for batch in islice(loader, num_batches)]


@needs_fork
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_of_workers_are_those_of_the_memory_as_tensors_of_one_block(num_workers: int, store):
    memory = ReplayMemory.load(store)

    for batch in islice(loader_of(TransitionDataset(store, 8, seed=0), num_workers), 4):
        expected = memory.get(batch.index.numpy())
        for name in ("observation", "action", "reward", "discount", "next_observation", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(expected, name), getattr(batch, name).numpy())
        starts = {tensor.untyped_storage().data_ptr() for tensor in (batch.observation, batch.next_observation)}
        assert len(starts) == 1
        assert batch.to("cpu").observation is batch.observation


@needs_fork
@pytest.mark.parametrize("is_persistent", [False, True])
def test_draws_repeat_by_seed_and_differ_between_workers_and_epochs(is_persistent: bool, store):
    def epochs(seed, first: int = 0) -> list[list[list[int]]]:
        dataset = TransitionDataset(store, 8, seed=seed)
        dataset.set_epoch(first)
        loader = loader_of(dataset, persistent_workers=is_persistent)
        return [indices(loader, 6) for _ in range(2)]

    one, again, other, later = epochs(0), epochs(0), epochs(1), epochs(0, first=1)

    assert one == again
    assert one[1] == later[0]
    drawn = [tuple(batch) for epoch in (*one, *other) for batch in epoch]
    assert len(set(drawn)) == len(drawn)


@needs_fork
@pytest.mark.slow
def test_spawned_workers_draw_what_forked_ones_do(store):
    loader = loader_of(TransitionDataset(store, 8, seed=3))
    forked = [indices(loader, 4) for _ in range(2)]
    dataset = TransitionDataset(store, 8, seed=3)
    dataset.set_epoch(1)  # one epoch: each spawned worker imports PyTorch

    spawned = indices(loader_of(dataset, method="spawn"), 4)

    assert forked[1] == spawned
    assert forked[0] != spawned


def test_without_a_seed_each_dataset_draws_differently(store):
    assert indices(loader_of(TransitionDataset(store, 8), 0), 3) != indices(
        loader_of(TransitionDataset(store, 8), 0), 3
    )


@needs_fork
@settings(max_examples=10)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2))
def test_an_epoch_has_every_transition_once_and_the_same_batches_with_any_number_of_workers(
    num_transitions: int, batch_size: int, num_workers: int
):
    with tempfile.TemporaryDirectory() as folder:
        memory_of(num_transitions).save(folder)
        dataset = TransitionDataset(folder, batch_size, seed=0, each_once=True)
        loader = loader_of(dataset, num_workers)
        first, second = (indices(loader, 10**6) for _ in range(2))
        alone = indices(loader_of(TransitionDataset(folder, batch_size, seed=0, each_once=True), 0), 10**6)

    assert first == alone
    for epoch in (first, second):
        assert list(range(num_transitions)) == sorted(index for batch in epoch for index in batch)
        assert len(dataset) == len(loader) == len(epoch)
        assert max(map(len, epoch)) <= batch_size
        assert min(map(len, epoch)) > 0
        assert max(map(len, epoch)) - min(map(len, epoch)) <= 1
    assert first != second or num_transitions < 10


def test_endless_draws_have_no_length(store):
    dataset = TransitionDataset(store, 8)
    for counted in (dataset, loader_of(dataset, 0)):
        with pytest.raises(TypeError, match="its draws are endless; give each_once=True"):
            len(counted)


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=needs_fork)])
def test_a_batch_size_of_the_data_loader_is_refused_with_the_way_to_write_it(num_workers: int, store):
    context = "fork" if num_workers else None
    loader = DataLoader(
        TransitionDataset(store, 8), batch_size=32, num_workers=num_workers, multiprocessing_context=context
    )

    with pytest.raises(InvalidSettingsError, match="give the DataLoader batch_size=None"):
        next(iter(loader))


def ranks_read(rank: int, folder: str, method: str, results) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    for each_once in (True, False):
        dataset = TransitionDataset(f"{folder}/store", 8, seed=0, each_once=each_once)
        loader = loader_of(dataset, 2 if method == "fork" else 1, method)  # each spawned worker imports PyTorch
        results.put((rank, each_once, indices(loader, 10**6 if each_once else 4)))
    torch.distributed.destroy_process_group()


@needs_fork
@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="PyTorch has no gloo here")
def test_ranks_share_an_epoch_and_draw_differently(tmp_path: Path):
    memory_of(NUM_TRANSITIONS).save(tmp_path / "store")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=ranks_read, args=(rank, str(tmp_path), method, results))
        for rank, method in enumerate(["fork", "spawn"])
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=120) for _ in range(4)]
    for process in processes:
        process.join()

    shares = [batches for _, each_once, batches in found if each_once]
    assert len(shares[0]) == len(shares[1])
    assert Counter(range(NUM_TRANSITIONS)) == Counter(index for share in shares for batch in share for index in batch)
    drawn = [tuple(batch) for _, each_once, batches in found if not each_once for batch in batches]
    assert len(set(drawn)) == len(drawn) == 8


def test_endless_draws_go_on_with_the_newest_generation_of_a_store_that_is_written(tmp_path: Path):
    with memory_of(10, tmp_path / "store") as memory:
        memory.flush()
        dataset = TransitionDataset(tmp_path / "store", 64, seed=0)
        once = TransitionDataset(tmp_path / "store", 4, seed=0, each_once=True)
        assert set(range(10)) == set(next(iter(dataset)).index.tolist())
        for _ in range(2):  # the generation before may stay
            append(memory, 10)
            memory.flush()

        assert max(next(iter(dataset)).index.tolist()) >= 20
        with pytest.raises(IncompatibleError, match=r"generation .* was replaced: an epoch over all transitions needs"):
            next(iter(once))


def test_workers_open_the_generation_that_the_parent_found(tmp_path: Path):
    memory = memory_of(10)
    memory.save(tmp_path / "store")
    dataset = TransitionDataset(tmp_path / "store", 64, seed=0)
    append(memory, 10)
    memory.save(tmp_path / "store", keep_previous=True)

    assert set(range(10)) == set(next(iter(dataset)).index.tolist())
    assert set(range(20)) == set(next(iter(TransitionDataset(tmp_path / "store", 256, seed=0))).index.tolist())


def test_a_default_device_of_pytorch_leaves_the_batches_on_the_cpu(store):
    dataset = TransitionDataset(store, 8, seed=0)

    with torch.device("meta"):
        batches = next(iter(dataset)), next(iter(TransitionDataset(store, 8, seed=0)))

    assert {batch.observation.device.type for batch in batches} == {"cpu"}
    assert batches[0].index.tolist() == batches[1].index.tolist()


def test_a_dataset_says_what_it_reads(store):
    assert f"TransitionDataset({store}, generation " in repr(TransitionDataset(store, 8))
    with pytest.raises(FileNotFoundError):
        TransitionDataset(store.parent / "nowhere", 8)
