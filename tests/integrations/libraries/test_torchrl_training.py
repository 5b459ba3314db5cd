"""A DQN learns the same weights from our storage and from TorchRL's, bit for bit."""

import pytest
import torch
from torchrl.data import LazyTensorStorage

from framestow.integrations.torchrl import FramestowStorage
from integrations.libraries.torchrl_training import weights_after_training


@pytest.mark.exhaustive  # importing TorchRL's collectors takes seconds
@pytest.mark.parametrize("frames_alone", [False, True], ids=["stacks in", "frames in"])
def test_training_with_both_buffers_gives_the_same_weights(frames_alone):
    expected = weights_after_training(LazyTensorStorage(150))

    storage = FramestowStorage(150, frame_stack=4 if frames_alone else None)
    assert torch.equal(expected, weights_after_training(storage, frames_alone=frames_alone))
    assert 4 == storage.memory.stack
    assert not torch.equal(expected, weights_after_training(LazyTensorStorage(149)))
