"""``PackedPixels``: a tensor of packed pixels that unpacks when it is indexed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from framestow.errors import InvalidStepError

Read: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Returns the pixels of steps, ``(*steps.shape, *shape)``, by their indices."""


class PackedPixels(torch.Tensor):
    """A tensor of packed pixels, ``(*steps.shape, *shape)``, as in ``storage[:]``.

    Indexing returns plain tensors; a slice of the first dimension stays packed. Other operations unpack all pixels into
    a plain tensor first. So samplers that read other keys of ``storage[:]`` do not unpack pixels: TorchRL's
    ``SliceSampler`` reads ``storage[:]`` for each batch, and would unpack all that is stored.

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
        parts = index if isinstance(index, tuple) else (index,)
        if sum(map(_num_axes, parts)) > self._steps.ndim or any(part is Ellipsis for part in parts):
            return self.unpack()[index]
        steps = self._steps[index]
        if isinstance(index, slice):
            return PackedPixels(self._read, steps, self._nothing)
        return self._read(steps)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        _refuse_write("an assignment")

    def share_memory_(self) -> NoReturn:
        """Raise ``InvalidStepError``."""
        _refuse_write("share_memory_")

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.unpack()

    def __dlpack__(self, **options: Any) -> Any:
        return self.unpack().__dlpack__(**options)

    def numpy(self, *, force: bool = False) -> Any:
        """Return all pixels as an array."""
        return self.unpack().numpy(force=force)

    def tolist(self) -> Any:
        """Return all pixels as nested lists."""
        return self.unpack().tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # torch's method has no types
        return f"PackedPixels(shape={tuple(self.shape)}, dtype={self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's method has no types
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]
        arguments = func._schema.arguments
        given = dict(zip([each.name for each in arguments], args, strict=False)) | (kwargs or {})
        written = [given.get(each.name) for each in arguments if each.alias_info and each.alias_info.is_write]
        if any(isinstance(each, cls) for each in tree_leaves(written)):
            _refuse_write(func)
        plain = tree_map(lambda each: each.unpack() if isinstance(each, cls) else each, (args, kwargs or {}))
        return func(*plain[0], **plain[1])


def _num_axes(part: Any) -> int:
    """Return the number of axes that a part of an index takes."""
    is_mask = isinstance(part, torch.Tensor | np.ndarray) and str(part.dtype).endswith("bool")
    return part.ndim if is_mask else 1


def _refuse_write(call: Any) -> NoReturn:
    raise InvalidStepError(
        f"{call} would write into packed pixels: they cannot be changed; copy them with clone() first"
    )
