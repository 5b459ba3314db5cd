"""An update as a CUDA graph: one launch instead of some hundred, which take longer than the kernels of a DQN.

The technique is that of PyTorch's documentation, "CUDA Graphs: whole-network capture".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from framestow.torch.tensor_batch import TensorBatch

ORDINARY_UPDATES = 3  # before the capture: they choose kernels and allocate what stays allocated
# Fields that are copied for a replay.
INPUTS = ("observation", "action", "reward", "discount", "next_observation", "weight")


class CapturedUpdate:
    """Calls ``compute`` for the first batches, then captures it and replays it with the tensors of each batch.

    Arguments:
        compute: Updates networks in place and returns numbers. It may read the fields ``INPUTS`` of the batch and
            must not wait for the device.
        generator: The CUDA generator from which ``compute`` draws.

    A batch of other shapes than the captured one is computed without the graph.
    """

    def __init__(self, compute: Callable[[TensorBatch], Tensor], generator: torch.Generator) -> None:
        self._compute, self._generator = compute, generator
        self._num_ordinary = 0  # updates before the capture, so far
        # The tensors that the graph reads; None before the first update.
        self._inputs: TensorBatch | None = None
        self._graph: torch.cuda.CUDAGraph | None = None  # None before the capture
        self._numbers: Tensor  # of the last replay

    def __call__(self, tensors: TensorBatch) -> Tensor:
        """Make the update and return its numbers, which later updates do not overwrite."""
        if self._inputs is None:
            self._inputs = clone_inputs(tensors)
        elif not has_same_shapes(tensors, self._inputs):
            return self._compute(tensors)
        else:
            copy_inputs(tensors, self._inputs)
        if self._num_ordinary < ORDINARY_UPDATES:
            self._num_ordinary += 1
            return self._compute_aside(self._inputs)
        if self._graph is None:
            self._graph = self._capture(self._inputs)
        self._graph.replay()
        return self._numbers.clone()

    def _compute_aside(self, inputs: TensorBatch) -> Tensor:
        """Compute on another stream: what autograd remembers of the usual one would spoil the capture."""
        usual = torch.cuda.current_stream()
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(usual)
        with torch.cuda.stream(aside):
            numbers = self._compute(inputs)
        usual.wait_stream(aside)
        return numbers

    def _capture(self, inputs: TensorBatch) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads copy the next batches
            self._numbers = self._compute(inputs)
        return graph


def clone_inputs(tensors: TensorBatch) -> TensorBatch:
    """Return a batch whose ``INPUTS`` are contiguous copies; the other fields are those of ``tensors``."""
    return replace(tensors, **{name: getattr(tensors, name).clone() for name in INPUTS})


def copy_inputs(source: TensorBatch, destination: TensorBatch) -> None:
    """Copy the ``INPUTS`` of ``source`` into those of ``destination``."""
    for name in INPUTS:
        getattr(destination, name).copy_(getattr(source, name), non_blocking=True)


def has_same_shapes(first: TensorBatch, second: TensorBatch) -> bool:
    """Return whether the observations of both batches have the same shape."""
    return bool(first.observation.shape == second.observation.shape)
