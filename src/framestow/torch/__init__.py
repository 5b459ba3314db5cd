"""Batches for PyTorch: as tensors, prepared while the learner runs, scaled and augmented on its device.

Needs the extra ``framestow[torch]``. docs/sampling.md has examples and figures.

=====================  ==========================================================================
``BatchLoader``        batches as tensors on a device, prepared on threads ahead of the learner
``SequenceLoader``     the same for sequences
``to_tensors``         one batch as tensors: a ``TensorBatch``, without a copy on the CPU; of sequences too
``scale_pixels``       ``uint8`` to floats from 0 to 1
``RandomShift``        DrQ's augmentation
``RandomCrop``         CURL's and RAD's; ``CenterCrop`` for acting
``Intensity``          DrQ's
``HorizontalFlip``     left for right
``Cutout``             RAD's
=====================  ==========================================================================
"""

from framestow.errors import MissingExtraError

try:
    import torch  # noqa: F401 -- an absolute import: PyTorch, not this module
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"framestow.torch needs {missing.name}: it is part of the extra 'torch', which is not installed; "
        'run: pip install "framestow[torch]"'
    ) from missing

from framestow.torch.batch_loader import BatchLoader, SequenceLoader
from framestow.torch.pixel_augmentation import (
    CenterCrop,
    Cutout,
    HorizontalFlip,
    Intensity,
    RandomCrop,
    RandomShift,
    scale_pixels,
)
from framestow.torch.tensor_batch import TensorBatch, TensorSequenceBatch, to_tensors

__all__ = [
    "BatchLoader",
    "CenterCrop",
    "Cutout",
    "HorizontalFlip",
    "Intensity",
    "RandomCrop",
    "RandomShift",
    "SequenceLoader",
    "TensorBatch",
    "TensorSequenceBatch",
    "scale_pixels",
    "to_tensors",
]
