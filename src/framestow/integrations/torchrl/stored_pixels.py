"""The pixels of a storage: TensorDicts in, tensors out."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from framestow.integrations.torchrl.packed_pixels import PackedPixels
from framestow.integrations.torchrl.pixel_steps import PixelSteps
from framestow.integrations.torchrl.tensor_steps import Key, PixelKeys


class StoredPixels:
    """Which keys are pixels, and the steps of them that are held, by the indices that they got."""

    def __init__(self, keys: PixelKeys, steps: PixelSteps) -> None:
        self.keys, self.steps = keys, steps

    def read(self, numbers: torch.Tensor) -> dict[Key, torch.Tensor]:
        """Give the pixels of steps by their indices, ``(*numbers.shape, *shape)`` of each key, to be written to.

        Raises ``NothingToSampleError`` for one that is not held.
        """
        before, after = self.steps.transitions(numbers.reshape(-1).cpu().numpy())
        tensors = [torch.from_numpy(np.array(part)) for part in (*before, *after)]  # a memory's own share frames
        whole = [part.reshape(*numbers.shape, *part.shape[1:]).to(numbers.device) for part in tensors]
        return dict(zip(self.keys.all_keys, whole, strict=True))

    def packed(self, numbers: torch.Tensor) -> dict[Key, torch.Tensor]:
        """Give the same, none of it unpacked before it is looked at."""
        nothing = [torch.from_numpy(part) for part in self.steps.nothing_given()]
        return {
            key: PackedPixels(partial(self._read_key, key), numbers, part)
            for key, part in zip(self.keys.all_keys, 2 * nothing, strict=True)
        }

    def are_those(self, data: TensorDictBase, numbers: torch.Tensor) -> bool:
        """Whether the pixels in ``data``, if it has any, are those of the steps with these indices."""
        given = {key: data.get(key, None) for key in self.keys.all_keys}
        if all(pixels is None for pixels in given.values()):
            return True
        held = self.read(numbers)
        return all(pixels is None or torch.equal(pixels.to(numbers.device), held[key]) for key, pixels in given.items())

    def state(self) -> dict[str, Any]:
        """What is saved beside the memory, as JSON has it."""
        return {"keys": self.keys.state(), "num_steps": self.steps.num_steps, "steps": self.steps.state()}

    def _read_key(self, key: Key, numbers: torch.Tensor) -> torch.Tensor:
        return self.read(numbers)[key]
