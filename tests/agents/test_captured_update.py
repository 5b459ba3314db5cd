"""What a captured update keeps of a batch. The capture itself needs a GPU: test_dqn.py."""

import torch

from agents.agents_and_batches import ATARI, build_agent, random_batch
from framestow.agents.captured_update import clone_inputs, copy_inputs, has_same_shapes
from framestow.torch.tensor_batch import to_tensors
from framestow.training.recipes import RECIPES


def test_an_update_from_copied_inputs_equals_one_from_the_batch() -> None:
    """So an update reads no other field: of a captured one, the others are those of the first batch."""
    for recipe in RECIPES:
        first, second = (to_tensors(random_batch(seed, ATARI, 4)) for seed in range(2))
        inputs = clone_inputs(first)
        copy_inputs(second, inputs)

        from_copies = build_agent(recipe, shape=ATARI)._compute_update(inputs)

        assert torch.equal(from_copies, build_agent(recipe, shape=ATARI)._compute_update(second)), recipe


def test_copied_inputs_are_not_views_of_the_batch() -> None:
    batch = to_tensors(random_batch(0))
    inputs = clone_inputs(batch)
    before = inputs.observation.clone()

    batch.observation.fill_(7)

    assert torch.equal(inputs.observation, before)


def test_batches_of_other_sizes_are_told_apart() -> None:
    assert has_same_shapes(to_tensors(random_batch(0)), to_tensors(random_batch(1)))
    assert not has_same_shapes(to_tensors(random_batch(0)), to_tensors(random_batch(0, size=5)))
