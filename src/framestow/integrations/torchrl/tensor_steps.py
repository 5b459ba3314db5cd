"""TensorDicts of a collector as steps: which of their keys are pixels, and what the others tell of episodes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDictBase

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.integrations.torchrl.pixel_layout import spec_of_frames
from framestow.integrations.torchrl.step_batch import (
    StepBatch,
    checked_pixels,
    flags_of,
    numbers_of,
    order_of,
    rewards_of,
)

Key: TypeAlias = tuple[str, ...]

FEWEST_BYTES = 256  # of a picture; smaller arrays are kept beside
NOT_OF_NUMPY = (torch.bfloat16, torch.complex64, torch.complex128)
TRAJECTORIES = (("collector", "traj_ids"), ("traj_ids",))


class PixelKeys:
    """The keys of a TensorDict that are pixels, and what one step of each is.

    ``keys``: those of what a step begins with; each has its counterpart under ``"next"``.
    """

    def __init__(self, keys: list[Key], specs: list[FrameSpec]) -> None:
        self.keys, self.specs = keys, specs

    @classmethod
    def found_in(cls, data: TensorDictBase, asked: list[Key] | None) -> PixelKeys:
        """Take the keys that were ``asked`` for, or find them in ``data``, the first steps.

        Raises ``InvalidSettingsError`` where there are none, ``InvalidStepError`` where one is missing.
        """
        keys = sorted(_pictures_in(data) if asked is None else asked, key=_name)  # in a memory's order
        return cls(keys, [spec_of_frames(_flat(data, key)) for key in keys])

    def state(self) -> list[Any]:
        """Keys and specs as JSON has them."""
        return [
            [list(key), list(spec.shape), spec.dtype.name, spec.is_scaled]
            for key, spec in zip(self.keys, self.specs, strict=True)
        ]

    @classmethod
    def from_state(cls, state: list[Any]) -> PixelKeys:
        """Give what ``state`` was asked of."""
        specs = [FrameSpec(tuple(shape), dtype, is_scaled) for _, shape, dtype, is_scaled in state]
        return cls([tuple(part[0]) for part in state], specs)

    @property
    def all_keys(self) -> list[Key]:
        """The keys, and behind them those under ``"next"``, in the same order."""
        return [*self.keys, *(("next", *key) for key in self.keys)]

    @property
    def space(self) -> Any:
        """What a memory takes as its observation space: one spec, or a dict of them."""
        if len(self.keys) == 1:
            return self.specs[0]
        return dict(zip(map(_name, self.keys), self.specs, strict=True))

    def steps_of(self, data: TensorDictBase, is_time_first: bool) -> StepBatch:
        """Read the steps of ``data``, whose batch dimensions are all of its cells'.

        Raises ``InvalidStepError`` for a missing key, or for pixels of another shape or dtype.
        """
        num_steps = data.batch_size.numel()
        pixels = [_checked(data, key, spec) for key, spec in zip(self.all_keys, 2 * self.specs, strict=True)]
        terminated = flags_of(_array(data, ("next", "terminated")), num_steps)
        has_ended = terminated | flags_of(_array(data, ("next", "done")), num_steps)
        has_ended |= flags_of(_array(data, ("next", "truncated")), num_steps)
        trajectories = next((found for key in TRAJECTORIES if (found := _array(data, key)) is not None), None)
        rows, previous, width = order_of(tuple(data.batch_size), is_time_first)
        return StepBatch(
            pixels[: len(self.keys)],
            pixels[len(self.keys) :],
            rewards_of(_array(data, ("next", "reward")), num_steps),
            terminated,
            has_ended & ~terminated,
            flags_of(_array(data, ("is_init",)), num_steps),
            numbers_of(trajectories, num_steps),
            rows,
            previous,
            width,
        )


def _checked(data: TensorDictBase, key: Key, spec: FrameSpec) -> npt.NDArray[Any]:
    pixels = _flat(data, key)
    checked_pixels(_name(key), pixels, spec.shape, spec.dtype)
    return pixels


def _flat(data: TensorDictBase, key: Key) -> npt.NDArray[Any]:
    pixels = _array(data, key)
    if pixels is None:
        raise InvalidStepError(
            f"{_name(key)} is missing: every step takes what it began with and what it led to, the true last frame "
            f"of an episode included; collect with compact_obs=False, and leave no key out (there are "
            f"{sorted(map(str, data.keys(True, True)))})"
        )
    return pixels.reshape(data.batch_size.numel(), *pixels.shape[data.ndim :])


def _pictures_in(data: TensorDictBase) -> list[Key]:
    """Find the keys that also are under "next" and are called pixels, or have two axes and ``FEWEST_BYTES`` or more."""
    keys = [key if isinstance(key, tuple) else (key,) for key in data.keys(True, True)]
    found = [key for key in keys if key[0] != "next" and ("next", *key) in keys and _is_picture(data, key)]
    if not found:
        raise InvalidSettingsError(
            f"no pixels among {sorted(map(_name, keys))}: they are a key with two axes or more a step, and are under "
            "'next' as well; name them with pixels=, collect with compact_obs=False, or take a LazyTensorStorage"
        )
    return found


def _is_picture(data: TensorDictBase, key: Key) -> bool:
    value = data.get(key)
    shape = value.shape[data.ndim :]
    is_tensor = isinstance(value, torch.Tensor) and value.dtype not in NOT_OF_NUMPY
    is_large = len(shape) > 1 and shape.numel() * value.element_size() >= FEWEST_BYTES
    return is_tensor and (is_large or (key[-1] == "pixels" and len(shape) > 0))


def _array(data: TensorDictBase, key: Key) -> npt.NDArray[Any] | None:
    value = data.get(key, None)
    return None if value is None else np.asarray(value.detach().cpu().numpy())


def _name(key: Key) -> str:
    return ".".join(key)
