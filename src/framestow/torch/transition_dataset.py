"""``TransitionDataset``: the transitions of a store for PyTorch's ``DataLoader``, and what is built on it."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from framestow.checks import check_seed, folder_path, truth_value, whole_number
from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.interface import one_line
from framestow.keywords import suggests_keywords
from framestow.replay.memory import ReplayMemory, check_batch_size
from framestow.replay.reading.batch import Batch
from framestow.replay.reports.inspection import inspect_memory
from framestow.replay.samplers.uniform import Uniform
from framestow.torch.tensor_batch import convert_batch, transfer_buffer_of

MOST_WORKERS = 1024
MOST_EPOCHS = 2**62


class LoadedBatch(Batch[Tensor]):
    """A ``TensorBatch`` that a ``DataLoader`` can pin, and that Lightning and others move by ``to``."""

    def pin_memory(self) -> LoadedBatch:
        """Return the batch in pinned memory; ``index`` stays."""
        return LoadedBatch(**vars(self.map(Tensor.pin_memory)))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> LoadedBatch:
        """Return the batch on a device; ``index`` stays on the CPU, for ``update_priorities``."""
        return LoadedBatch(**vars(self.map(lambda tensor: tensor.to(device, non_blocking=non_blocking))))


@suggests_keywords
class TransitionDataset(IterableDataset[LoadedBatch]):
    """Batches of the transitions of a store, read by the workers of a ``DataLoader``.

    ::

        loader = DataLoader(
            TransitionDataset("stores/breakout", 32, seed=0),
            batch_size=None,
            num_workers=4,
        )
        for batch in loader:  # endless
            target = (
                batch.reward
                + batch.discount
                * q(batch.next_observation.to("cuda")).max(1).values
            )

    Each worker opens the store for itself, read-only; all open the generation that was the newest when the dataset was
    made. Worker w of rank r draws in epoch e from ``(seed, r, w, e)``, however processes are started. An epoch begins
    with each iteration over the loader. Workers count them together, and ``set_epoch`` says which one is next.

    ==================  ==================================================================================
    ``each_once``       batches
    ==================  ==================================================================================
    ``False``           endless, as ``memory.sample`` draws them, by the saved sampler
    ``True``            every transition once in an epoch, shuffled, over all ranks. All ranks have equally
                        many batches, ``len(loader)``, of ``batch_size`` transitions or somewhat fewer; where
                        it is 1, some have 2. The workers of a rank take turns, so how many there are changes
                        no batch
    ==================  ==================================================================================

    While another process writes to the store, draws are endless. A worker that finds its generation replaced opens the
    newest one.

    Arguments:
        store: folder that ``memory.save`` wrote to, or the ``directory`` of a memory.
        batch_size: number of transitions in a batch. Give the ``DataLoader`` ``batch_size=None``.
        seed: seed of all draws; ``None`` takes fresh entropy.
        each_once: whether an epoch has every transition once.
        copy: as of ``ReplayMemory.sample``: whether you may write to the tensors.

    Raises:
        FileNotFoundError: there is no memory in the folder.
        IncompatibleError: from a worker: the generation was replaced, and ``each_once`` needs it.
        NothingToSampleError: from a worker: the memory is empty.
    """

    def __init__(
        self,
        store: str | PathLike[str],
        batch_size: int,
        seed: int | None = None,
        *,
        each_once: bool = False,
        copy: bool = False,
    ) -> None:
        self.store = folder_path("store", store).resolve()
        self.batch_size = check_batch_size(batch_size)
        self.each_once, self.copy = truth_value("each_once", each_once), truth_value("copy", copy)
        seed = check_seed(seed)
        self.seed = int(np.random.SeedSequence().entropy) if seed is None else seed  # type: ignore[arg-type]
        found = inspect_memory(self.store)
        self.generation, self._num_transitions = found.generation, found.transitions
        # The next epoch of each worker. Workers of any start method share the tensor with the process that made it.
        self._epochs: Tensor = torch.zeros(MOST_WORKERS, dtype=torch.int64, device="cpu").share_memory_()  # type: ignore[no-untyped-call]
        self._ranks = 0, 1  # this process among how many; of a process that was spawned, that of its parent

    def __repr__(self) -> str:
        return one_line(
            self, lambda: [str(self.store), f"generation {self.generation}", f"batches of {self.batch_size}"]
        )

    def __len__(self) -> int:
        """Return the number of batches of an epoch of this rank; raise ``TypeError`` for endless draws."""
        if not self.each_once:
            raise TypeError(
                "a TransitionDataset without each_once has no length: its draws are endless; give each_once=True, or "
                "count batches by itertools.islice(loader, number)"
            )
        return self._num_batches(self._num_transitions, _ranks(self._ranks)[1])

    def _num_batches(self, num_transitions: int, num_ranks: int) -> int:
        num_batches = -(-num_transitions // (num_ranks * self.batch_size))
        return min(num_batches, num_transitions // num_ranks)  # none is empty

    def set_epoch(self, epoch: int) -> None:
        """Begin with this epoch at the next iteration, for a training that goes on."""
        self._epochs.fill_(whole_number("epoch", epoch, 0, MOST_EPOCHS, rule="epochs count from 0 to 2**62"))

    def __iter__(self) -> Iterator[LoadedBatch]:
        worker = get_worker_info()
        number, num_workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        epoch = int(self._epochs[number])
        self._epochs[number] += 1  # here, and not with the first batch: an iteration may end before it
        rank, num_ranks = _ranks(self._ranks)
        if self.each_once:
            return self._epoch(epoch, rank, num_ranks, slice(number, None, num_workers))
        return self._draws(self._seed(rank, number, epoch))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ranks": _ranks(self._ranks)}

    def _draws(self, seed: int) -> Iterator[LoadedBatch]:
        """Yield batches without an end."""
        try:
            memory = ReplayMemory.open(self.store, generation=self.generation, seed=seed)
        except FileNotFoundError:  # a writer replaced it
            memory = ReplayMemory.open(self.store, seed=seed)
        with memory:
            while True:
                yield _load(memory.sample(self.batch_size, copy=self.copy))

    def _epoch(self, epoch: int, rank: int, num_ranks: int, of_worker: slice) -> Iterator[LoadedBatch]:
        """Yield the batches of one worker of a rank, which has one of ``num_ranks`` shares of all transitions."""
        try:
            memory = ReplayMemory.open(self.store, generation=self.generation, sampler=Uniform())
        except FileNotFoundError as error:
            raise IncompatibleError(
                f"{self.store}: generation {self.generation} was replaced: an epoch over all transitions needs a store "
                "that nobody writes to; leave each_once out, or make the dataset again"
            ) from error
        with memory:
            indices = memory.sampleable_indices()
            if len(indices) < num_ranks:
                raise InvalidSettingsError(
                    f"the store has {len(indices):,} transitions for {num_ranks:,} ranks: each needs at least one; "
                    "take fewer ranks"
                )
            np.random.default_rng(self._seed(epoch)).shuffle(indices)
            num_batches = self._num_batches(len(indices), num_ranks)
            batches = np.array_split(np.array_split(indices, num_ranks)[rank], num_batches)
            for batch in batches[of_worker]:
                yield _load(memory.get(batch, shares_frames=not self.copy))

    def _seed(self, *place: int) -> int:
        return int(np.random.SeedSequence(self.seed, spawn_key=place).generate_state(1, np.uint64)[0])


def _refuse_to_collate(*_: Any, **__: Any) -> Any:
    raise InvalidSettingsError(
        "a DataLoader joins the batches of a TransitionDataset: each of them is a batch already; give the DataLoader "
        "batch_size=None, and TransitionDataset(store, batch_size) the number of transitions"
    )


default_collate_fn_map[LoadedBatch] = _refuse_to_collate


def _ranks(otherwise: tuple[int, int]) -> tuple[int, int]:
    """Return rank and number of processes of ``torch.distributed``; ``otherwise`` where it does not run."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return otherwise


def _load(batch: Batch) -> LoadedBatch:
    """Return a batch whose tensors are one block, which a worker shares with its parent without another copy."""
    layout = transfer_buffer_of(batch)
    block = torch.empty(layout.nbytes, dtype=torch.uint8, device="cpu")
    if get_worker_info() is not None:
        block.share_memory_()  # type: ignore[no-untyped-call]
    layout.write_to(block)
    return LoadedBatch(**vars(convert_batch(batch, lambda array: layout.find(array, block))))
