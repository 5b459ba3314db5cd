"""``PackedPixels``: a tensor of packed pixels that unpacks when it is indexed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_map

from framestow.errors import InvalidStepError

Read: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Returns the pixels of steps, ``(*steps.shape, *shape)``, by their indices."""


class PackedPixels(torch.Tensor):
    """A tensor of packed pixels, ``(*steps.shape, *shape)``, as in ``storage[:]``.

    Indexing returns plain tensors; a slice of the first dimension stays packed. Other operations unpack all pixels into
    a plain tensor first. So samplers that read other keys of ``storage[:]`` do not unpack pixels.

    Raises:
        InvalidStepError: something is written to it.
    """

    _read: Read  # unpacks the pixels of some steps
    _steps: torch.Tensor  # index of each step; NONE where no step was written
    _nothing: torch.Tensor

    @staticmethod
    def __new__(cls, read: Read, steps: torch.Tensor, nothing: torch.Tensor) -> PackedPixels:
        """Create the tensor. ``steps``: int64 indices, on the device of the pixels; ``nothing``: empty pixels."""
        size = (*steps.shape, *nothing.shape[1:])
        made: PackedPixels = torch.Tensor._make_wrapper_subclass(cls, size, dtype=nothing.dtype, device=steps.device)
        made._read, made._steps, made._nothing = read, steps, nothing
        return made

    def unpack(self) -> torch.Tensor:
        """Return all pixels as a plain tensor."""
        return self._read(self._steps)

    def __getitem__(self, index: Any) -> torch.Tensor:
        is_deeper = isinstance(index, tuple) and len(index) > self._steps.ndim
        if is_deeper or index is None or index is Ellipsis:
            return self.unpack()[index]
        steps = self._steps[index]
        if isinstance(index, slice):
            return PackedPixels(self._read, steps, self._nothing)
        return self._read(steps)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # torch's method has no types
        return f"PackedPixels(shape={tuple(self.shape)}, dtype={self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's method has no types
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]
        name, _, overload = func.__name__.partition(".")
        if (name.endswith("_") or overload == "out") and isinstance(args[0], cls):
            raise InvalidStepError(
                f"{func} would write into packed pixels: they cannot be changed; copy them with clone() first"
            )
        plain = tree_map(lambda each: each.unpack() if isinstance(each, cls) else each, (args, kwargs or {}))
        return func(*plain[0], **plain[1])
