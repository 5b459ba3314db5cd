"""Reads TensorDicts as steps: finds the pixel keys, the episode flags, and the order of steps.

``PixelKeys.steps_of`` converts a TensorDict to a ``StepBatch``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDictBase

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import equal_rows

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Pixels: TypeAlias = "tuple[npt.NDArray[Any], ...]"
"""One array per key, keys ascending."""

NONE = -1  # no trajectory, row or step


class StepBatch(NamedTuple):
    """``n`` steps in the order in which their cells are overwritten.

    ================  ========================  ===============================================================
    field             shape                     meaning
    ================  ========================  ===============================================================
    pixels            arrays ``(n, *shape)``    pixels before the step, one array per key
    next_pixels       arrays ``(n, *shape)``    pixels after the step
    terminated        ``(n,)`` bool
    truncated         ``(n,)`` bool             also set if only ``done`` is set
    is_first          ``(n,)`` bool             ``is_init``: the step starts an episode
    trajectories      ``(n,)`` int64            the collector's trajectory number; -1 if unknown
    rows              ``(n,)`` int64            environment, if the batch has a dimension of them; else -1
    previous          ``(n,)`` int64            position in the batch of the step that it continues; -1 for none
    is_skipping       ``(n,)`` bool             the step before it in its trajectory ends with other pixels
    ================  ========================  ===============================================================
    """

    pixels: Pixels
    next_pixels: Pixels
    terminated: Flags
    truncated: Flags
    is_first: Flags
    trajectories: Indices
    rows: Indices
    previous: Indices
    is_skipping: Flags

    def __len__(self) -> int:  # a tuple would count its fields
        return len(self.terminated)


def order_of(shape: tuple[int, ...], is_time_first: bool) -> tuple[Indices, Flags, int]:
    """Return the rows of a batch of ``shape``, which steps have a step before them, and how many positions before.

    Time is the first or last dimension.

    >>> order_of((3,), True)
    (array([-1, -1, -1]), array([False,  True,  True]), 1)
    >>> order_of((2, 3), False)
    (array([0, 0, 0, 1, 1, 1]), array([False,  True,  True, False,  True,  True]), 1)
    >>> order_of((2, 3), True)
    (array([0, 1, 2, 0, 1, 2]), array([False, False, False,  True,  True,  True]), 3)
    """
    numbers = np.arange(math.prod(shape), dtype=np.int64)
    if len(shape) == 1:
        return np.full_like(numbers, NONE), numbers > 0, 1
    if is_time_first:
        width = math.prod(shape[1:])
        return numbers % width, numbers >= width, width
    rows, steps = np.divmod(numbers, shape[-1])
    return rows, steps > 0, 1


def flags_of(values: npt.NDArray[Any] | None, num_steps: int) -> npt.NDArray[np.bool_]:
    """Return one flag per step, the OR over further axes; all false if ``values`` is ``None``."""
    if values is None:
        return np.zeros(num_steps, np.bool_)
    flags = values.reshape(num_steps, -1).astype(np.bool_)
    return flags[:, 0] if flags.shape[1] == 1 else np.asarray(flags.any(axis=1))


def numbers_of(values: npt.NDArray[Any] | None, num_steps: int) -> Indices:
    """Return one number per step; ``NONE`` unless there is exactly one."""
    if values is None or values.size != num_steps:
        return np.full(num_steps, NONE, np.int64)
    return values.reshape(num_steps).astype(np.int64)


def spec_of_frames(frames: npt.NDArray[Any]) -> FrameSpec:
    """Return the spec of the first frames, ``(n, *frame)``; floats from 0 to 1 are scaled pixels."""
    is_scaled = frames.dtype.kind == "f" and bool(((frames >= 0) & (frames <= 1)).all())
    return FrameSpec(frames.shape[1:], frames.dtype, is_scaled)


Key: TypeAlias = tuple[str, ...]

MIN_IMAGE_BYTES = 256  # smaller arrays are stored with the other keys
UNSUPPORTED_DTYPES = (torch.bfloat16, torch.complex64, torch.complex128)
# Keys that may have the collector's trajectory number, first found.
TRAJECTORIES = (("collector", "traj_ids"), ("traj_ids",))


class PixelKeys:
    """The pixel keys of a TensorDict, and the spec of each.

    ``keys`` are the keys before the step; each is also under ``"next"``.
    """

    def __init__(self, keys: list[Key], specs: list[FrameSpec]) -> None:
        self.keys, self.specs = keys, specs

    @classmethod
    def find_in(cls, data: TensorDictBase, asked: list[Key] | None) -> PixelKeys:
        """Return the ``asked`` keys, or those found in ``data``, the first steps.

        Raises:
            InvalidSettingsError: there are none.
            InvalidStepError: one is missing.
        """
        keys = sorted(_image_keys(data) if asked is None else asked, key=name_of)  # the memory's order
        return cls(keys, [spec_of_frames(_flat(data, key)) for key in keys])

    def state(self) -> list[Any]:
        """Return keys and specs as JSON."""
        return [
            [list(key), list(spec.shape), spec.dtype.name, spec.is_scaled]
            for key, spec in zip(self.keys, self.specs, strict=True)
        ]

    @classmethod
    def from_state(cls, state: list[Any]) -> PixelKeys:
        """Return the pixel keys of a ``state``."""
        specs = [FrameSpec(tuple(shape), dtype, is_scaled) for _, shape, dtype, is_scaled in state]
        return cls([tuple(part[0]) for part in state], specs)

    @property
    def all_keys(self) -> list[Key]:
        """The keys, followed by those under ``"next"`` in the same order."""
        return [*self.keys, *(("next", *key) for key in self.keys)]

    def steps_of(self, data: TensorDictBase, is_time_first: bool) -> StepBatch:
        """Return the steps of ``data``. All its batch dimensions are dimensions of the storage.

        Raises:
            InvalidStepError: a key is missing, or the shape or dtype of pixels changed.
        """
        num_steps, num_keys = data.batch_size.numel(), len(self.keys)
        pixels = tuple(_check_pixels(data, key, spec) for key, spec in zip(self.all_keys, 2 * self.specs, strict=True))
        before, after = pixels[:num_keys], pixels[num_keys:]
        ends = data.get("next")
        terminated = flags_of(_array(ends, "terminated"), num_steps)
        has_ended = flags_of(_array(ends, "truncated"), num_steps)
        has_ended |= flags_of(_array(ends, "done"), num_steps) | terminated
        is_first = flags_of(_array(data, "is_init"), num_steps)
        found = next((found for key in TRAJECTORIES if (found := _array(data, key)) is not None), None)
        trajectories = numbers_of(found, num_steps)
        rows, follows, shift = order_of(tuple(data.batch_size), is_time_first)
        follows &= ~is_first
        follows[shift:] &= ~has_ended[:-shift] & (trajectories[shift:] == trajectories[:-shift])
        is_skipping = follows & (trajectories != NONE)
        if follows.any():
            for some, others in zip(before, after, strict=True):
                follows[shift:] &= equal_rows(some[shift:], others[:-shift])
        previous = np.where(follows, np.arange(num_steps) - shift, NONE)
        truncated = has_ended & ~terminated
        return StepBatch(
            before,
            after,
            terminated,
            truncated,
            is_first,
            trajectories,
            rows,
            previous,
            is_skipping & ~follows,
        )


def _check_pixels(data: TensorDictBase, key: Key, spec: FrameSpec) -> npt.NDArray[Any]:
    pixels = _flat(data, key)
    if pixels.shape[1:] != spec.shape or pixels.dtype != spec.dtype:
        raise InvalidStepError(
            f"{name_of(key)} is {pixels.dtype} of shape {pixels.shape[1:]} per step: it must be {spec.dtype} of shape "
            f"{spec.shape}, as in the first step; convert it"
        )
    return pixels


def _flat(data: TensorDictBase, key: Key) -> npt.NDArray[Any]:
    pixels = _array(data, key)
    if pixels is None:
        raise InvalidStepError(
            f"{name_of(key)} is missing: every step needs the pixels before and after it, including the true last "
            f"frame of an episode; collect with compact_obs=False and without dropping keys (the keys are "
            f"{sorted(map(str, data.keys(True, True)))})"
        )
    return pixels.reshape(data.batch_size.numel(), *pixels.shape[data.ndim :])


def _image_keys(data: TensorDictBase) -> list[Key]:
    """Return keys also under "next" that are named pixels or have 2 axes and at least ``MIN_IMAGE_BYTES``."""
    keys = [key if isinstance(key, tuple) else (key,) for key in data.keys(True, True)]
    found = [key for key in keys if key[0] != "next" and ("next", *key) in keys and _is_picture(data, key)]
    if not found:
        raise InvalidSettingsError(
            f"no pixels among {sorted(map(name_of, keys))}: pixels have at least two axes per step and are also under "
            "'next'; name them with pixels=, collect with compact_obs=False, or use a LazyTensorStorage"
        )
    return found


def _is_picture(data: TensorDictBase, key: Key) -> bool:
    value = data.get(key)
    shape = value.shape[data.ndim :]
    is_tensor = isinstance(value, torch.Tensor) and value.dtype not in UNSUPPORTED_DTYPES
    is_large = len(shape) > 1 and shape.numel() * value.element_size() >= MIN_IMAGE_BYTES
    return is_tensor and (is_large or (key[-1] == "pixels" and len(shape) > 0))


def _array(data: TensorDictBase, key: str | Key) -> npt.NDArray[Any] | None:
    value = data.get(key, None)
    return None if value is None else np.asarray(value.numpy(force=True))


def name_of(key: Key) -> str:
    """Return ``key`` as one name."""
    return ".".join(key)
