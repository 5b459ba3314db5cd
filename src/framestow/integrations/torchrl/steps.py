"""Reads TensorDicts as steps: finds the pixel keys, the episode flags, and the order of steps.

``PixelKeys.steps_of`` converts a TensorDict to a ``StepBatch``. ``PixelForm`` describes how pixels are stacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDictBase

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, ObservationSpec, observation_spec
from framestow.replay.observation_layout import Arrays, Stacks

Indices = npt.NDArray[np.int64]

MIN_ENVS = 8  # of a memory, however few environments the first batch has
NONE = -1  # no trajectory, row or step


class StepBatch(NamedTuple):
    """``n`` steps in the order in which their cells are overwritten.

    ================  ========================  ===============================================================
    field             shape                     meaning
    ================  ========================  ===============================================================
    pixels            arrays ``(n, *shape)``    pixels before the step, one array per key, keys ascending
    next_pixels       arrays ``(n, *shape)``    pixels after the step
    rewards           ``(n,)`` float32          only for users of the memory; 0 if missing or not finite
    terminated        ``(n,)`` bool
    truncated         ``(n,)`` bool             also set if only ``done`` is set
    is_first          ``(n,)`` bool             ``is_init``: the step starts an episode
    trajectories      ``(n,)`` int64            the collector's trajectory number; -1 if unknown
    rows              ``(n,)`` int64            environment, if the batch has a dimension of them; else -1
    previous          ``(n,)`` int64            position of the previous step in time in the batch; -1 for none
    width             int                       number of neighbouring steps from different environments
    ================  ========================  ===============================================================
    """

    pixels: Arrays
    next_pixels: Arrays
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    is_first: npt.NDArray[np.bool_]
    trajectories: Indices
    rows: Indices
    previous: Indices
    width: int

    def __len__(self) -> int:  # a tuple would count its fields
        return len(self.rewards)


def order_of(shape: tuple[int, ...], is_time_first: bool) -> tuple[Indices, Indices, int]:
    """Return ``rows``, ``previous`` and ``width`` of a batch of ``shape`` with time as the first or last dimension.

    >>> order_of((3,), True)
    (array([-1, -1, -1]), array([-1,  0,  1]), 1)
    >>> order_of((2, 3), False)
    (array([0, 0, 0, 1, 1, 1]), array([-1,  0,  1, -1,  3,  4]), 1)
    >>> order_of((2, 3), True)
    (array([0, 1, 2, 0, 1, 2]), array([-1, -1, -1,  0,  1,  2]), 3)
    """
    numbers = np.arange(int(np.prod(shape)), dtype=np.int64)
    if len(shape) == 1:
        return np.full_like(numbers, NONE), numbers - 1, 1
    if is_time_first:
        width = int(np.prod(shape[1:]))
        return numbers % width, np.where(numbers < width, NONE, numbers - width), width
    rows, steps = np.divmod(numbers, shape[-1])
    return rows, np.where(steps == 0, NONE, numbers - 1), 1


def num_envs_for(steps: StepBatch) -> int:
    """Return the initial number of environments: twice the number of environments in the first steps, at least 8."""
    most = max(steps.width, len(np.unique(steps.rows)), len(np.unique(steps.trajectories)))
    return max(MIN_ENVS, 2 * most)


def flags_of(values: npt.NDArray[Any] | None, num_steps: int) -> npt.NDArray[np.bool_]:
    """Return one flag per step, the OR over further axes; all false if ``values`` is ``None``."""
    if values is None:
        return np.zeros(num_steps, bool)
    return np.asarray(values.reshape(num_steps, -1).astype(bool).any(axis=1))


def numbers_of(values: npt.NDArray[Any] | None, num_steps: int) -> Indices:
    """Return one number per step; ``NONE`` unless there is exactly one."""
    if values is None or values.size != num_steps:
        return np.full(num_steps, NONE, np.int64)
    return values.reshape(num_steps).astype(np.int64)


def rewards_of(values: npt.NDArray[Any] | None, num_steps: int) -> npt.NDArray[np.float32]:
    """Return one finite reward per step; 0 unless there is exactly one."""
    if values is None or values.size != num_steps:
        return np.zeros(num_steps, np.float32)
    with np.errstate(over="ignore"):
        rewards = values.reshape(num_steps).astype(np.float32)
    return np.where(np.isfinite(rewards), rewards, np.float32(0))


@dataclass(frozen=True)
class PixelForm:
    """The form of pixels: those of ``spec`` are added, and returned like that or as ``stacks`` of them."""

    spec: AnySpec
    stacks: tuple[Stacks, ...] | None

    @classmethod
    def of_space(cls, space: Any, frame_stack: int | None, dim: int) -> PixelForm:
        """Return the form of pixels of ``space``, with ``frame_stack`` single frames stacked along ``dim`` if given."""
        spec = observation_spec(space)
        if frame_stack is None:
            return cls(spec, None)
        return cls(spec, tuple(_stacks_of_frames(array.shape, frame_stack, dim) for array in spec.frame_specs))

    def arrange(self, parts: Arrays, rows: Any) -> Any:
        """Return these rows of arrays, one per key, in the form that a memory takes."""
        some = tuple(part[rows] for part in parts)
        return self.spec.rebuild(some) if isinstance(self.spec, ObservationSpec) else some[0]

    def parts_of(self, observations: Any) -> Arrays:
        """Return a memory's observations as one array per key."""
        return self.spec.flatten(observations) if isinstance(self.spec, ObservationSpec) else [observations]

    def newest(self, observations: Any) -> Arrays:
        """Return the newest added pixels in a memory's observations, ``(n, *shape)`` per key."""
        parts = self.parts_of(observations)
        return parts if self.stacks is None else [part[:, -1] for part in parts]

    def sampled(self, observations: Any) -> Arrays:
        """Return a memory's observations as the pixels of samples, one array per key."""
        parts = self.parts_of(observations)
        if self.stacks is None:
            return parts
        return [stacks.join(part) for stacks, part in zip(self.stacks, parts, strict=True)]

    def no_pixels(self) -> Arrays:
        """Return empty pixels as sampled, ``(0, *shape)`` per key."""
        shapes = [frame.shape for frame in self.spec.frame_specs]
        if self.stacks is not None:
            shapes = [each.observation_shape(shape) for each, shape in zip(self.stacks, shapes, strict=True)]
        return [np.empty((0, *shape), frame.dtype) for shape, frame in zip(shapes, self.spec.frame_specs, strict=True)]


def spec_of_frames(frames: npt.NDArray[Any]) -> FrameSpec:
    """Return the spec of the first frames, ``(n, *frame)``; floats from 0 to 1 are scaled pixels."""
    is_scaled = frames.dtype.kind == "f" and bool(((frames >= 0) & (frames <= 1)).all())
    return FrameSpec(frames.shape[1:], frames.dtype, is_scaled)


def _stacks_of_frames(shape: tuple[int, ...], depth: int, dim: int) -> Stacks:
    """Return the stacks of frames of ``shape``, concatenated along ``dim`` as by ``CatFrames``."""
    if depth < 1:
        raise InvalidSettingsError(f"frame_stack is {depth}: it must be at least 1; leave it out for no stacking")
    if len(shape) == 2 and dim == -3:
        return Stacks(0, depth)
    if dim not in (-1, -len(shape)):
        raise InvalidSettingsError(
            f"dim is {dim}: for frames of shape {shape} it must be {-len(shape)}, the first axis, or -1, the last; "
            "give the axis of the channels"
        )
    axis = -1 if dim == -1 else 0
    return Stacks(axis, depth, shape[axis])


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
        keys = sorted(_image_keys(data) if asked is None else asked, key=_name)  # the memory's order
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

    @property
    def space(self) -> Any:
        """The memory's observation space: one spec, or a dict of them."""
        if len(self.keys) == 1:
            return self.specs[0]
        return dict(zip(map(_name, self.keys), self.specs, strict=True))

    def steps_of(self, data: TensorDictBase, is_time_first: bool) -> StepBatch:
        """Return the steps of ``data``. All its batch dimensions are dimensions of the storage.

        Raises:
            InvalidStepError: a key is missing, or the shape or dtype of pixels changed.
        """
        num_steps = data.batch_size.numel()
        pixels = [_check_pixels(data, key, spec) for key, spec in zip(self.all_keys, 2 * self.specs, strict=True)]
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


def _check_pixels(data: TensorDictBase, key: Key, spec: FrameSpec) -> npt.NDArray[Any]:
    pixels = _flat(data, key)
    if pixels.shape[1:] != spec.shape or pixels.dtype != spec.dtype:
        raise InvalidStepError(
            f"{_name(key)} is {pixels.dtype} of shape {pixels.shape[1:]} per step: it must be {spec.dtype} of shape "
            f"{spec.shape}, as in the first step; convert it"
        )
    return pixels


def _flat(data: TensorDictBase, key: Key) -> npt.NDArray[Any]:
    pixels = _array(data, key)
    if pixels is None:
        raise InvalidStepError(
            f"{_name(key)} is missing: every step needs the pixels before and after it, including the true last frame "
            f"of an episode; collect with compact_obs=False and without dropping keys (the keys are "
            f"{sorted(map(str, data.keys(True, True)))})"
        )
    return pixels.reshape(data.batch_size.numel(), *pixels.shape[data.ndim :])


def _image_keys(data: TensorDictBase) -> list[Key]:
    """Return keys also under "next" that are named pixels or have 2 axes and at least ``MIN_IMAGE_BYTES``."""
    keys = [key if isinstance(key, tuple) else (key,) for key in data.keys(True, True)]
    found = [key for key in keys if key[0] != "next" and ("next", *key) in keys and _is_picture(data, key)]
    if not found:
        raise InvalidSettingsError(
            f"no pixels among {sorted(map(_name, keys))}: pixels have at least two axes per step and are also under "
            "'next'; name them with pixels=, collect with compact_obs=False, or use a LazyTensorStorage"
        )
    return found


def _is_picture(data: TensorDictBase, key: Key) -> bool:
    value = data.get(key)
    shape = value.shape[data.ndim :]
    is_tensor = isinstance(value, torch.Tensor) and value.dtype not in UNSUPPORTED_DTYPES
    is_large = len(shape) > 1 and shape.numel() * value.element_size() >= MIN_IMAGE_BYTES
    return is_tensor and (is_large or (key[-1] == "pixels" and len(shape) > 0))


def _array(data: TensorDictBase, key: Key) -> npt.NDArray[Any] | None:
    value = data.get(key, None)
    return None if value is None else np.asarray(value.detach().cpu().numpy())


def _name(key: Key) -> str:
    return ".".join(key)
