"""All pixels of a storage as one tensor, none of which is unpacked before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_map

from framestow.errors import InvalidStepError

Read: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Gives the pixels of steps, ``(*steps.shape, *shape)``, by their indices."""


class PackedPixels(torch.Tensor):
    """Pixels ``(*steps.shape, *shape)`` of the steps with these indices, packed.

    Indexing it gives plain tensors of what was asked for; a slice of the first dimension stays packed. Whatever else is
    done with it unpacks all of it into a plain tensor first. Writing into it raises ``InvalidStepError``.

    It is what a storage's ``storage[:]`` has for pixels: samplers look at the other keys of that, and nobody waits for
    pictures that nobody looks at.
    """

    _read: Read
    _steps: torch.Tensor
    _nothing: torch.Tensor

    @staticmethod
    def __new__(cls, read: Read, steps: torch.Tensor, nothing: torch.Tensor) -> PackedPixels:
        """``steps``: int64 indices, on the device that the pixels are wanted on; ``nothing``: the pixels of no step."""
        size = (*steps.shape, *nothing.shape[1:])
        made: PackedPixels = torch.Tensor._make_wrapper_subclass(cls, size, dtype=nothing.dtype, device=steps.device)
        made._read, made._steps, made._nothing = read, steps, nothing
        return made

    def unpacked(self) -> torch.Tensor:
        """Give all of it as a plain tensor."""
        return self._read(self._steps)

    def __getitem__(self, index: Any) -> torch.Tensor:
        is_deeper = isinstance(index, tuple) and len(index) > self._steps.ndim
        if is_deeper or index is None or index is Ellipsis:
            return self.unpacked()[index]
        steps = self._steps[index]
        if isinstance(index, slice):
            return PackedPixels(self._read, steps, self._nothing)
        return self._read(steps)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # torch names no types
        return f"PackedPixels(shape={tuple(self.shape)}, dtype={self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own names no types
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]
        if func._schema.is_mutable and isinstance(args[0], cls):
            raise InvalidStepError(
                f"{func} would write into packed pixels: they stay as they came; copy them with clone() first"
            )
        plain = tree_map(lambda each: each.unpacked() if isinstance(each, cls) else each, (args, kwargs or {}))
        return func(*plain[0], **plain[1])
