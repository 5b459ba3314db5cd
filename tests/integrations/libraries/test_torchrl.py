"""What TorchRL's buffers get of our storage is bit for bit what they get of a LazyTensorStorage."""

from importlib import import_module

import numpy as np
import pytest
import torch
from torchrl.data import (
    LazyTensorStorage,
    PrioritizedSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
)

from framestow.integrations.torchrl import FramestowStorage
from integrations.libraries.torchrl_play import Play, assert_equal

SAMPLERS = {
    "RandomSampler": RandomSampler,
    "SamplerWithoutReplacement": SamplerWithoutReplacement,
    "SliceSampler by trajectories": lambda: SliceSampler(
        traj_key=("collector", "traj_ids"), num_slices=4, strict_length=False
    ),
    "SliceSampler by ends": lambda: SliceSampler(end_key=("next", "done"), num_slices=4, strict_length=False),
}


def has_segment_trees():
    try:
        import_module("torchrl._torchrl")
    except ImportError:
        return False
    return True


def buffer_of(storage, sampler=RandomSampler, **options):
    generator = torch.Generator().manual_seed(0)
    return TensorDictReplayBuffer(storage=storage, sampler=sampler(), batch_size=8, generator=generator, **options)


@pytest.mark.each_value
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize(
    ("ndim", "come_as", "padding"),
    [(1, "frames", "constant"), (2, "stacks", "same")],
)
def test_batches_equal_those_of_stacks_in_a_tensor_storage(sampler, ndim, come_as, padding):
    play = Play(seed=0, num_envs=3, padding=padding, shape=(1, 32, 33))
    stacking = {"frame_stack": 4, "padding": padding} if come_as == "frames" else {}
    theirs = buffer_of(LazyTensorStorage(45, ndim=ndim), sampler)
    ours = buffer_of(FramestowStorage(45, ndim=ndim, **stacking), sampler)
    for _ in range(7):  # 105 steps: the cursor goes round more than twice
        frames, stacks = play.batch(5)
        for buffer, data in ((theirs, stacks), (ours, frames if stacking else stacks)):
            buffer.extend(data.reshape(-1) if ndim == 1 else data.clone())

        assert len(theirs) == len(ours)
        assert_equal(theirs.sample(), ours.sample())
        assert_equal(theirs[:], ours[:])
    ours.storage.memory.inner.parts.check()
    assert 4 == ours.storage.memory.stack


@pytest.mark.exhaustive
@pytest.mark.skipif(not has_segment_trees(), reason="TorchRL's C++ was built for another PyTorch")
def test_priorities_draw_the_same_steps():
    theirs, ours = (
        buffer_of(storage, lambda: PrioritizedSampler(45, alpha=0.7, beta=0.5))
        for storage in (LazyTensorStorage(45), FramestowStorage(45, frame_stack=4))
    )
    play, errors = Play(seed=0, num_envs=3), torch.Generator().manual_seed(1)
    for _ in range(9):
        frames, stacks = play.batch(5)
        theirs.extend(stacks.reshape(-1))
        ours.extend(frames.reshape(-1))
        drawn = []
        for buffer in (theirs, ours):
            torch.manual_seed(0)
            np.random.seed(0)
            drawn.append(buffer.sample())
        assert_equal(*drawn)
        td_error = torch.rand(8, generator=errors)
        for buffer, batch in zip((theirs, ours), drawn, strict=True):
            batch["td_error"] = td_error
            buffer.update_tensordict_priority(batch)
