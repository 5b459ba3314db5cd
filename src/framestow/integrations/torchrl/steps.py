"""TensorDicts as steps: which keys are pixels, what the others say of episodes, and which step follows which."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDictBase

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, ObservationSpec, observation_spec
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.observation_layout import (
    Arrays,
    ObservationLayout,
    Stacks,
    equal_rows,
    layouts_of_depth,
)

Indices = npt.NDArray[np.int64]

FEWEST_STREAMS = 8
NONE = -1  # no trajectory, row or step


class StepBatch(NamedTuple):
    """``n`` steps in the order in which their cells are overwritten.

    ================  ========================  ===========================================================
    field             shape                     meaning
    ================  ========================  ===========================================================
    pixels            arrays ``(n, *shape)``    what the step began with, one array a key, keys ascending
    next_pixels       the same                  what it led to
    rewards           ``(n,)`` float32          kept for whoever looks at the memory; 0 where not finite
    terminated        ``(n,)`` bool
    truncated         ``(n,)`` bool             also where only ``done`` is told
    is_first          ``(n,)`` bool             the step is told to begin an episode
    trajectories      ``(n,)`` int64            the collector's number of the trajectory; -1 where not told
    rows              ``(n,)`` int64            the environment, where the batch has a dimension of them; else -1
    previous          ``(n,)`` int64            which step of the batch is the one before in time; -1 for none
    width             int                       so many neighbours are of environments of their own
    ================  ========================  ===========================================================
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
    """Give ``rows``, ``previous`` and ``width`` of a batch of ``shape`` whose time is its first or its last dimension.

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


def num_streams_for(steps: StepBatch) -> int:
    """Give twice as many streams as the first steps have environments, that one may begin while another goes on."""
    most = max(steps.width, len(np.unique(steps.rows)), len(np.unique(steps.trajectories)))
    return max(FEWEST_STREAMS, 2 * most)


def flags_of(values: npt.NDArray[Any] | None, num_steps: int) -> npt.NDArray[np.bool_]:
    """Give flags of ``num_steps`` steps, of whatever further axes; none is up where they are not told."""
    if values is None:
        return np.zeros(num_steps, bool)
    return np.asarray(values.reshape(num_steps, -1).astype(bool).any(axis=1))


def numbers_of(values: npt.NDArray[Any] | None, num_steps: int) -> Indices:
    """Give a number a step; ``NONE`` where there is not just one."""
    if values is None or values.size != num_steps:
        return np.full(num_steps, NONE, np.int64)
    return values.reshape(num_steps).astype(np.int64)


def rewards_of(values: npt.NDArray[Any] | None, num_steps: int) -> npt.NDArray[np.float32]:
    """Give a finite reward a step; 0 where there is not just one."""
    if values is None or values.size != num_steps:
        return np.zeros(num_steps, np.float32)
    with np.errstate(over="ignore"):
        rewards = values.reshape(num_steps).astype(np.float32)
    return np.where(np.isfinite(rewards), rewards, np.float32(0))


def checked_pixels(name: str, pixels: npt.NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise ``InvalidStepError`` for pixels ``(n, *shape)`` that are not as those before."""
    if pixels.shape[1:] != shape or pixels.dtype != dtype:
        raise InvalidStepError(
            f"{name} is {pixels.dtype} of shape {pixels.shape[1:]} a step: it was {dtype} of shape {shape} in the "
            "first step; give all steps alike"
        )


RGB = 3


@dataclass(frozen=True)
class PixelLayout:
    """What comes is ``taken``, what is sampled is ``given``: the same, or single frames and their stacks."""

    taken: ObservationLayout
    given: ObservationLayout

    @property
    def depth(self) -> int:
        """How many frames a memory stacks."""
        return self.given.depth

    def parts_of(self, observations: Any) -> Arrays:
        """Give a memory's observations as stacks ``(n, depth, *frame)`` of each key."""
        spec = self.given.spec
        return spec.flattened(observations) if isinstance(spec, ObservationSpec) else [observations]

    def are_shifted(self, seen: Arrays, seen_next: Arrays) -> bool:
        """Whether every next stack is its stack moved on by a frame; of single frames it is what stacking makes it."""
        if self.taken.depth == 1:
            return True
        return all(
            bool(equal_rows(now[:, 1:], after[:, :-1]).all()) for now, after in zip(seen, seen_next, strict=True)
        )


def possible_layouts(space: Any, frame_stack: int | None, padding: StackPadding, dim: int) -> list[PixelLayout]:
    """Give the layouts to try, the most frugal first; the last fits whatever comes.

    ``frame_stack``: how many single frames to stack along ``dim``; ``None`` where what comes is given back as it is.
    """
    spec = observation_spec(space)
    whole = ObservationLayout.of_depth(spec, 1)
    if frame_stack is not None:
        stacks = tuple(_stacks_of_frames(leaf.shape, frame_stack, dim) for leaf in spec.leaf_frames)
        return [PixelLayout(whole, ObservationLayout(spec, frame_stack, padding, stacks))]
    layouts = []
    for depth in _possible_depths(spec):
        with suppress(InvalidSettingsError):  # another key is no stack of as many
            layouts += layouts_of_depth(spec, depth)
    return [PixelLayout(layout, layout) for layout in [*layouts, whole]]


def spec_of_frames(frames: npt.NDArray[Any]) -> FrameSpec:
    """Tell a frame's spec from the first ones that came, ``(n, *frame)``; floats from 0 to 1 are scaled pixels."""
    is_scaled = frames.dtype.kind == "f" and bool(((frames >= 0) & (frames <= 1)).all())
    return FrameSpec(frames.shape[1:], frames.dtype, is_scaled)


def _possible_depths(spec: AnySpec) -> list[int]:
    """Depths of grey and of RGB stacks, by the channels of the pictures of three axes or more, the deepest first."""
    depths = set()
    for shape in (leaf.shape for leaf in spec.leaf_frames if len(leaf.shape) > 2):
        channels = shape[0] if len(shape) > 3 or shape[0] <= shape[-1] else shape[-1]
        depths |= {channels, channels // RGB} if channels % RGB == 0 else {channels}
    return sorted(depths - {1}, reverse=True)


def _stacks_of_frames(shape: tuple[int, ...], depth: int, dim: int) -> Stacks:
    """How frames of ``shape`` are concatenated along ``dim``, as ``CatFrames`` does; grey ones without channel too."""
    if depth < 1:
        raise InvalidSettingsError(f"frame_stack is {depth}: a stack has at least 1 frame; leave it out to stack none")
    if len(shape) == 2 and dim == -3:
        return Stacks(0, depth)
    if dim not in (-1, -len(shape)):
        raise InvalidSettingsError(
            f"dim is {dim}: frames of shape {shape} are stacked along their first axis, {-len(shape)}, or their last, "
            "-1; give the axis of the channels"
        )
    axis = -1 if dim == -1 else 0
    return Stacks(axis, depth, shape[axis])


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
