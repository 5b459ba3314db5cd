"""What TorchRL's buffers get of our storage is bit for bit what they get of a LazyTensorStorage."""

import pytest
import torch
from torchrl.data import (
    LazyTensorStorage,
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


def buffer_of(storage, sampler=RandomSampler, **options):
    generator = torch.Generator().manual_seed(0)
    return TensorDictReplayBuffer(storage=storage, sampler=sampler(), batch_size=8, generator=generator, **options)


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize(
    ("ndim", "come_as", "padding"),
    [(1, "frames", "same"), (2, "frames", "constant"), (1, "stacks", "constant"), (2, "stacks", "same")],
)
def test_a_batch_is_that_of_stacks_in_a_tensor_storage(sampler, ndim, come_as, padding):
    play = Play(seed=0, num_envs=3, padding=padding)
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
    ours.storage.memory.check()
    assert ((1, 5, 6) if stacking else (5, 6)) == ours.storage.memory.settings.frame.shape
    assert 4 == ours.storage.memory.stack
