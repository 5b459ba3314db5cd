"""Batches as PyTorch tensors, loaded on background threads, and DrQ's random shift.

Needs the extra ``framestow[torch]``. docs/tensors.md has examples and figures.

=====================  ==========================================================================
``BatchLoader``        iterates over batches of transitions as tensors; threads prepare the next ones
``SequenceLoader``     iterates over batches of sequences as tensors
``TransitionDataset``  batches of a store for PyTorch's ``DataLoader``
``to_tensors``         converts one batch to a ``TensorBatch`` or ``TensorSequenceBatch``
``scale_pixels``       converts ``uint8`` pixels to floats from 0 to 1
``RandomShift``        shifts images at random, as DrQ does
=====================  ==========================================================================
"""

from framestow.extras import check_library, missing_extra
from framestow.interface import public_names

try:
    check_library(__name__, "torch")
    import torch  # noqa: F401 -- an absolute import: PyTorch, not this module
except ModuleNotFoundError as missing:
    raise missing_extra(__name__, missing.name, "torch") from missing

from framestow.torch.batch_loader import BatchLoader, SequenceLoader
from framestow.torch.pixel_augmentation import RandomShift, scale_pixels
from framestow.torch.tensor_batch import TensorBatch, TensorSequenceBatch, to_tensors
from framestow.torch.transition_dataset import TransitionDataset

__all__ = [
    "BatchLoader",
    "RandomShift",
    "SequenceLoader",
    "TensorBatch",
    "TensorSequenceBatch",
    "TransitionDataset",
    "scale_pixels",
    "to_tensors",
]

__dir__ = public_names(__name__)
