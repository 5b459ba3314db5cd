"""Whether two runs are one and the same."""

from typing import Any

import numpy as np
import torch

from framestow.training.run import Run


def assert_equal_runs(one: Run, other: Run) -> None:
    assert one.tally == other.tally
    for part in ("online", "target"):
        for name, tensor in one.agent.state_dict()[part].items():
            assert torch.equal(tensor, other.agent.state_dict()[part][name]), (part, name)
    stored = one.memory.sampleable_indices()
    np.testing.assert_array_equal(stored, other.memory.sampleable_indices())
    _assert_equal_batches(one.memory.get(stored), other.memory.get(stored))
    _assert_equal_batches(one.memory.sample(64), other.memory.sample(64))  # the slots drawn next
    np.testing.assert_array_equal(one.memory.observations(), other.memory.observations())


def _assert_equal_batches(one: Any, other: Any) -> None:
    for name, array in vars(one).items():
        np.testing.assert_array_equal(array, getattr(other, name), err_msg=name)
