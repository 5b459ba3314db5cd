"""How observations consist of frames: which axis of which array is a stack, decided by shape alone.

``StackLayout`` says it of one array, ``ObservationLayout`` of a whole observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.checks import whole_number
from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import ArraySpec, FrameSpec
from framestow.frames.observation_spec import ObservationSpec, observation_spec
from framestow.frames.stacking import join_channels
from framestow.interface import cached_property, listed

MAX_STACK = 256  # frames; a stored step keeps its history in one byte
PICTURE_SIDE = 32  # pixels; a picture has two axes of at least as many
MOST_DETECTED = 16  # entries of an axis that is taken for a stack without ``stack_axis``
COLOURS = 3  # entries of an axis that is taken for one colour picture

ONE_ENVIRONMENT_S = (
    "build the memory with the spaces of one environment, env.single_observation_space and env.single_action_space"
)
"""The way out of a memory that was built with the spaces of a vector environment."""

Arrays: TypeAlias = "list[npt.NDArray[Any]]"
"""One array per array of an observation, in the order of ``ObservationSpec``."""

AxisChoice: TypeAlias = "int | Literal['none'] | tuple[int, int]"
"""Axis of the stacked frames, 0 or -1, alone or with the number of frames on it; ``"none"``: no stack."""


class StackLayout(NamedTuple):
    """Stack of ``depth`` frames along ``axis`` of an observation, 0 or -1, oldest frame first.

    With ``channels=None`` the frames have no such axis. Otherwise each frame has ``channels`` entries along it.

    >>> (
    ...     StackLayout(0, 4).frame_shape((4, 84, 84)),
    ...     StackLayout(-1, 4, channels=3).frame_shape((84, 84, 12)),
    ... )
    ((84, 84), (84, 84, 3))
    """

    axis: int
    depth: int
    channels: int | None = None

    def frame_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of one frame of an observation of ``shape``."""
        own = () if self.channels is None else (self.channels,)
        return (*own, *shape[1:]) if self.axis == 0 else (*shape[:-1], *own)

    def observation_shape(self, frame: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an observation of frames of shape ``frame``: the inverse of ``frame_shape``."""
        if self.channels is None:
            return (self.depth, *frame) if self.axis == 0 else (*frame, self.depth)
        entries = self.depth * self.channels
        return (entries, *frame[1:]) if self.axis == 0 else (*frame[:-1], entries)

    def split(self, observations: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return observations ``(n, *shape)`` as frames ``(n, depth, *frame)``, as a view if possible."""
        if self.channels is None:
            return observations if self.axis == 0 else np.moveaxis(observations, -1, 1)
        n, *shape = observations.shape
        if self.axis == 0:
            return observations.reshape(n, self.depth, self.channels, *shape[1:])
        return np.moveaxis(observations.reshape(n, *shape[:-1], self.depth, self.channels), -2, 1)

    def join(self, frames: npt.NDArray[Any], num_leading: int = 1, empty: Any = np.empty) -> npt.NDArray[Any]:
        """Return frames ``(..., depth, *frame)`` as observations ``(..., *shape)``: the inverse of ``split``.

        A view, except of channels joined on the last axis: ``empty(shape, dtype)`` makes the array for those.
        ``num_leading``: number of axes before the frames.

        >>> stacks = StackLayout(-1, 4, channels=3)
        >>> observations = np.arange(2 * 5 * 12).reshape(2, 5, 12)
        >>> bool((stacks.join(stacks.split(observations).copy()) == observations).all())
        True
        """
        if self.channels is None:
            return frames if self.axis == 0 else np.moveaxis(frames, num_leading, -1)
        if self.axis == 0:
            entries = self.depth * self.channels
            return frames.reshape(*frames.shape[:num_leading], entries, *frames.shape[num_leading + 2 :])
        return join_channels(frames, num_leading, empty)

    def piece_bytes(self, frame: FrameSpec) -> int:
        """Return the bytes that lie together of one frame in an observation of the spec ``frame``."""
        channels = frame.dtype.itemsize * (self.channels or 1)
        return channels if self.axis < 0 else frame.nbytes // self.depth


@dataclass(frozen=True)
class ObservationLayout:
    """Observations of ``spec`` as stacks of frames; ``stacks`` has an entry per array, ``None`` where it is no stack.

    It is decided when a memory is built, and never changes. ``find_stack`` has the rules.

    >>> ObservationLayout.of_space(FrameSpec((84, 84, 12))).frame_space.frame_specs[
    ...     0
    ... ].shape
    (84, 84, 3)
    """

    spec: ObservationSpec
    stacks: tuple[StackLayout | None, ...]
    frame_space: ObservationSpec
    """Spec of one frame of each array."""
    takes_frames: bool = False
    """Whether the memory was built with the space of one frame: ``begin`` and ``append`` take single frames."""

    @property
    def stores_as_given(self) -> bool:
        """Whether what ``begin`` and ``append`` take is stored: frames, or whole observations that are one frame."""
        return self.takes_frames or self.depth == 1

    @classmethod
    def of_space(
        cls, space: Any, stack_axis: AxisChoice | Mapping[str, AxisChoice] | Sequence[StackLayout | None] | None = None
    ) -> ObservationLayout:
        """Return the layout of observations of ``space``.

        Arguments:
            space: Space of whole observations.
            stack_axis: Axis of the stacked frames in every picture, or of the arrays that a dict names. ``None``
                decides by shape.

        Raises:
            InvalidSettingsError: an array has no such axis, or the number of frames does not divide it.
        """
        spec = observation_spec(space)
        arrays = spec.arrays
        if (
            isinstance(stack_axis, tuple)
            and stack_axis
            and all(isinstance(one, StackLayout | None) for one in stack_axis)
        ):
            stacks = stack_axis  # of a saved memory
        else:
            stacks = tuple(map(_as_stacks, arrays, _choices(arrays, stack_axis)))
        frames = [
            frame if each is None else replace(frame, shape=each.frame_shape(frame.shape))
            for frame, each in zip(spec.frame_specs, stacks, strict=True)
        ]
        return cls(spec, stacks, spec.with_frames(frames))

    @classmethod
    def of_arguments(cls, space: Any, stack: int | None, stack_axis: Any) -> ObservationLayout:
        """Return the layout of ``stack`` frames of a space, or for ``None`` that of its whole observations."""
        if stack is None:
            return cls.of_space(space, stack_axis)
        if stack_axis is not None:
            raise InvalidSettingsError(
                f"stack_axis is {stack_axis!r} and stack is {stack!r}: with stack, the space is that of one frame, and "
                "stacks are on the first axis; give one of the two"
            )
        stack = whole_number("stack", stack, 1, MAX_STACK, rule=f"an observation has 1 to {MAX_STACK} frames")
        return cls.of_frames(space, stack)

    @classmethod
    def of_frames(cls, space: Any, stack: int) -> ObservationLayout:
        """Return the layout with stacks of ``stack`` frames of ``space`` on the first axis, in all arrays."""
        frames = observation_spec(space)
        return replace(cls.of_stacks(frames, (StackLayout(0, stack),) * len(frames.frame_specs)), takes_frames=True)

    @classmethod
    def of_stacks(cls, frames: ObservationSpec, stacks: tuple[StackLayout | None, ...]) -> ObservationLayout:
        """Return the layout with these ``stacks`` of ``frames``."""
        specs = [
            frame if each is None else replace(frame, shape=each.observation_shape(frame.shape))
            for frame, each in zip(frames.frame_specs, stacks, strict=True)
        ]
        return cls(frames.with_frames(specs), stacks, frames)

    @cached_property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """Arrays of an observation, in the order of ``stacks``."""
        return self.spec.arrays

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Number of frames in each array."""
        return tuple(1 if stacks is None else stacks.depth for stacks in self.stacks)

    @property
    def depth(self) -> int:
        """Number of frames in the deepest array: the memory's ``stack``."""
        return max(self.depths)

    @cached_property
    def native_arrays(self) -> tuple[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], int, int], ...]:
        """Of each array, for the native ``Planner``, what observations, frames and stored frames look like.

        As empty arrays ``(0, *shape)``; then the number of frames, and the bytes of each that lie together.
        """
        return tuple(
            (
                np.empty((0, *array.observed_shape), array.frame.dtype),
                np.empty((0, *frame.observed_shape), array.frame.dtype),
                frame.frame.empty(0),
                depth,
                array.frame.nbytes if stacks is None else stacks.piece_bytes(array.frame),
            )
            for array, stacks, depth, frame in zip(
                self.arrays, self.stacks, self.depths, self.frame_space.arrays, strict=True
            )
        )

    @property
    def stack_axis(self) -> Any:
        """The argument that gives these stacks to the arrays of the space: one choice, or a dict by key."""
        choices = ["none" if stacks is None else (stacks.axis, stacks.depth) for stacks in self.stacks]
        keys = [array.key for array in self.arrays]
        return dict(zip(keys, choices, strict=True)) if any(keys) else choices[0]

    def flatten(self, observations: Any, name: str = "observation") -> tuple[Any, ...]:
        """Return the arrays of observations; raise ``InvalidStepError`` for missing or extra ones."""
        return self.spec.flatten(observations, name)

    def flatten_given(self, frames: Any, name: str = "observation") -> tuple[Any, ...]:
        """Return the arrays of what ``begin`` and ``append`` take; errors call whole observations ``name``."""
        return self.frame_space.flatten(frames) if self.stores_as_given else self.spec.flatten(frames, name)

    def has_axis_of(self, num_envs: int) -> bool:
        """Return whether the first axis of each array could be one of ``num_envs`` environments, 2 or more."""
        return num_envs > 1 and all(array.observed_shape[:1] == (num_envs,) for array in self.arrays)

    def split(self, arrays: Sequence[npt.NDArray[Any]]) -> Arrays:
        """Return views of n observations as frames, ``(n, depth, *frame)`` per array."""
        stored = [array_spec.as_stored(array) for array_spec, array in zip(self.arrays, arrays, strict=True)]
        return [
            array[:, None] if stacks is None else stacks.split(array)
            for stacks, array in zip(self.stacks, stored, strict=True)
        ]

    def join(self, frames: Sequence[npt.NDArray[Any]], num_leading: int = 1, empty: Any = np.empty) -> Any:
        """Return frames ``(..., depth, *frame)``, one array per array, as ``StackLayout.join`` joins them."""
        newest: tuple[Any, ...] = (*(slice(None),) * num_leading, -1)
        parts = [
            part[newest] if stacks is None else stacks.join(part, num_leading, empty)
            for stacks, part in zip(self.stacks, frames, strict=True)
        ]
        return self.spec.rebuild(parts)


def find_stack(shape: tuple[int, ...]) -> StackLayout | None:
    """Return the stack that an array of ``shape`` is taken for; ``None`` if it is a single frame.

    A picture has at least three axes, two of them of 32 or more. Its first or last axis is a stack if it has 2 to 16
    entries, but not 3, which are colours; the shorter one if both are. With three axes, 6, 9, 12 and 15 entries are
    colour frames of three channels.

    >>> (
    ...     find_stack((84, 84, 4)),
    ...     find_stack((84, 84, 12)),
    ...     find_stack((84, 84, 3)),
    ...     find_stack((17,)),
    ... )
    (StackLayout(axis=-1, depth=4, channels=None), StackLayout(axis=-1, depth=4, channels=3), None, None)
    """
    if not is_picture(shape):
        return None
    fitting = [axis for axis in (0, -1) if 2 <= shape[axis] <= MOST_DETECTED and shape[axis] != COLOURS]
    return stacks_on(shape, min(fitting, key=lambda axis: shape[axis])) if fitting else None


def is_picture(shape: tuple[int, ...]) -> bool:
    """Return whether an array of ``shape`` is taken for a picture, alone or stacked."""
    return len(shape) > 2 and sum(side >= PICTURE_SIDE for side in shape) >= 2


def stacks_on(shape: tuple[int, ...], axis: int, depth: int | None = None) -> StackLayout:
    """Return the stack of ``depth`` frames on ``axis``; of colour frames if ``None`` and three axes allow them."""
    size = shape[axis]
    if depth is None:
        is_colour = len(shape) == 3 and size > COLOURS and size % COLOURS == 0
        depth = size // COLOURS if is_colour else size
    is_vector = len(shape) == 1  # whose frames are vectors too
    return StackLayout(axis, depth, None if depth == size and not is_vector else size // depth)


def _choices(arrays: Sequence[ArraySpec], stack_axis: Any) -> list[Any]:
    """Return the choice for each array; ``None`` decides by shape."""
    if isinstance(stack_axis, Mapping):
        keys = [array.key for array in arrays]
        unknown = [key for key in stack_axis if key not in keys]
        if unknown:
            raise InvalidSettingsError(
                f"stack_axis has the key {unknown[0]!r}: the observation space has {listed(keys)}; use these"
            )
        return [stack_axis.get(key) for key in keys]
    if len(arrays) == 1:
        return [stack_axis]
    return [stack_axis if is_picture(array.frame.shape) else None for array in arrays]


def _as_stacks(array: ArraySpec, choice: Any) -> StackLayout | None:
    """Return the stack that ``choice`` makes of an array."""
    shape, name = array.frame.shape, f"stack_axis{array.subscript}"
    if choice is None:
        return find_stack(shape)
    if choice == "none":
        return None
    axis, depth = choice if isinstance(choice, tuple) and len(choice) == 2 else (choice, None)
    if axis not in (0, -1) or isinstance(axis, bool):
        raise InvalidSettingsError(
            f"{name} is {choice!r}: it must be 0, -1, 'none', or a pair of an axis and a number of frames; leave it "
            "out to decide by shape"
        )
    if depth is not None:
        depth = whole_number(name, depth, 1, shape[axis], rule=f"axis {axis} of {shape} has {shape[axis]} entries")
        if shape[axis] % depth:
            raise InvalidSettingsError(
                f"{name} is {choice!r}: axis {axis} of {shape} has {shape[axis]} entries, which must be a multiple of "
                "the number of frames; give a number that divides it"
            )
    stacks = stacks_on(shape, axis, depth)
    if stacks.depth > MAX_STACK:
        raise InvalidSettingsError(
            f"{name} is {choice!r}: axis {axis} of {shape} has {stacks.depth} frames, and an observation has at most "
            f"{MAX_STACK}; give 'none'"
        )
    return None if stacks.depth == 1 else stacks
