"""The workers of PyTorch's ``DataLoader`` draw differently."""

from __future__ import annotations

import multiprocessing
from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from oracles.readers import NUM_BATCHES, NUM_READERS, assert_drawn_differently, save_transitions
from oracles.store_datasets import InheritedByWorkers, OpenedInWorkers

needs_fork = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readers") / "store"
    save_transitions(folder)
    return folder


def drawn_by_workers(dataset: IterableDataset, method: str, num_batches: int) -> np.ndarray:
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=method)
    return np.concatenate([np.asarray(ten) for ten in islice(loader, num_batches // 10)])


@needs_fork
@pytest.mark.parametrize("is_inherited", [False, True])
def test_forked_workers_of_a_data_loader_draw_differently(is_inherited, store):
    dataset = InheritedByWorkers(store) if is_inherited else OpenedInWorkers(store, seeded=False)

    assert_drawn_differently(drawn_by_workers(dataset, "fork", NUM_READERS * NUM_BATCHES))


@pytest.mark.slow
def test_spawned_workers_of_a_data_loader_draw_differently(store):
    dataset = OpenedInWorkers(store, seeded=False)

    assert_drawn_differently(drawn_by_workers(dataset, "spawn", NUM_READERS * NUM_BATCHES))


@needs_fork
def test_workers_that_open_a_store_with_their_seeds_draw_the_same_for_the_same_seed_of_pytorch(store):
    dataset, drawn = OpenedInWorkers(store, seeded=True), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(drawn_by_workers(dataset, "fork", 20))

    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert len({batch.tobytes() for batch in np.concatenate(drawn[1:])}) == 40
