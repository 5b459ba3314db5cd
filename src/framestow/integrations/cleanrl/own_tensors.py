"""Tensors as CleanRL's buffers give them: nobody else's, on the device that a script names."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def own_tensor(array: npt.NDArray[Any], device: Any) -> torch.Tensor:
    """Give a copy of ``array`` on ``device``.

    Both observations of a batch are views of the same frames, and a learner may write to its tensors.
    """
    return torch.from_numpy(np.array(array, order="C")).to(device)


def chosen_device(device: Any) -> torch.device:
    """``"auto"`` is a GPU where there is one; without one, what asks for it gets the CPU, as in CleanRL."""
    chosen = torch.device("cuda" if device == "auto" else device)
    return chosen if chosen.type != "cuda" or torch.cuda.is_available() else torch.device("cpu")
