"""How a library's observations, of one array or of several, are stacks of the frames that a memory keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, Leaf, ObservationSpec, observation_spec
from framestow.frames.stacking import STACK_PADDINGS, StackPadding, pad_window

StackedOn: TypeAlias = Literal["no", "first_axis", "last_axis"]
"""Whether observations are stacks: ``first_axis`` as ``(4, 84, 84)``, ``last_axis`` as ``(84, 84, 4)``; newest last."""

STACKED_ON: tuple[StackedOn, ...] = get_args(StackedOn)


class Stacks(NamedTuple):
    """How observations are stacked: ``depth`` frames along ``axis`` of an observation, 0 or -1, oldest first.

    A frame takes one place of that axis and lacks it, or, where ``channels`` is not ``None``, as many places as it has
    channels.

    >>> Stacks(0, 4).frame_shape((4, 84, 84)), Stacks(-1, 4, channels=3).frame_shape((84, 84, 12))
    ((84, 84), (84, 84, 3))
    """

    axis: int
    depth: int
    channels: int | None = None

    @classmethod
    def of_shape(cls, shape: tuple[int, ...], stacked_on: StackedOn) -> Stacks | None:
        """Say how observations of ``shape`` are stacked; ``None`` where they are not."""
        if stacked_on not in STACKED_ON:
            raise InvalidSettingsError(
                f"stacked_on is {stacked_on!r}: it must be one of {', '.join(map(repr, STACKED_ON))}; take 'no'"
            )
        if stacked_on == "no":
            return None
        if len(shape) < 2:
            raise InvalidSettingsError(f"observations have shape {shape}: a stack has more axes than one; take 'no'")
        axis = 0 if stacked_on == "first_axis" else -1
        return cls(axis, shape[axis])

    def frame_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one frame of observations of ``shape``."""
        return self.stacks_first(np.empty((0, *shape), np.uint8)).shape[2:]

    def one_frame_of(self, bounds: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give the newest frame of an array that is shaped as one observation, bounds for instance."""
        return np.asarray(self.stacks_first(bounds[None])[0, -1])

    def frames(self, observations: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
        """Give the newest frame of each observation of an episode, ``(T + 1, *frame)``.

        Raises ``InvalidSettingsError``, beginning with ``where``, if the older frames of an observation are not the
        newer ones of the observation before: stacking the frames again would make other observations.
        """
        stacks = self.stacks_first(observations)
        is_shifted = (stacks[1:, :-1] == stacks[:-1, 1:]).reshape(len(stacks) - 1, -1).all(axis=1)
        if not is_shifted.all():
            raise InvalidSettingsError(
                f"{where}: observation {int(np.argmin(is_shifted)) + 1} is not the one before moved on by one frame: "
                f"these are no stacks along axis {self.axis}, or not of consecutive frames; take stacked_on='no'"
            )
        return np.ascontiguousarray(stacks[:, -1])

    def paddings_of(self, first_observation: npt.NDArray[Any]) -> set[StackPadding]:
        """Say which paddings explain an episode's first observation: both where its frame is black, perhaps none."""
        window = self.stacks_first(first_observation[None])[0]
        fitting: set[StackPadding] = set()
        for padding in STACK_PADDINGS:
            padded = window.copy()
            pad_window(padded, self.depth - 1, padding)
            if np.array_equal(padded, window):
                fitting.add(padding)
        return fitting

    def stacks_first(self, observations: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give observations ``(n, *shape)`` as ``(n, depth, *frame)``: a view where NumPy can make one."""
        if self.channels is None:
            return observations if self.axis == 0 else np.moveaxis(observations, self.axis, 1)
        at = observations.ndim - 1 if self.axis < 0 else self.axis + 1
        shape = observations.shape
        split = observations.reshape(*shape[:at], self.depth, self.channels, *shape[at + 1 :])
        return np.moveaxis(split, at, 1)

    def to_library(self, stacks: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give stacks ``(n, depth, *frame)`` as observations ``(n, *shape)`` again: what ``stacks_first`` undoes.

        >>> stacks = Stacks(-1, 4, channels=3)
        >>> observations = np.arange(2 * 5 * 12).reshape(2, 5, 12)
        >>> bool((stacks.to_library(stacks.stacks_first(observations)) == observations).all())
        True
        """
        at = stacks.ndim - 1 if self.axis < 0 else self.axis + 1
        if self.channels is None:
            return stacks if self.axis == 0 else np.moveaxis(stacks, 1, at)
        split = np.moveaxis(stacks, 1, at - 1 if self.axis < 0 else at)
        at = split.ndim - 2 if self.axis < 0 else at
        return split.reshape(*split.shape[:at], self.depth * self.channels, *split.shape[at + 2 :])


Arrays: TypeAlias = "list[npt.NDArray[Any]]"
"""An array for each leaf of an observation, in the order of ``ObservationSpec``; one where it is a single array."""

RGB = 3
WORD_BYTES = (8, 4, 2, 1)


@dataclass(frozen=True)
class ObservationLayout:
    """Observations of ``spec`` as stacks of ``depth`` frames, and what pads the first ones of an episode.

    ``stacks`` says along which axis each array of an observation is a stack, and is ``None`` for one that belongs to
    the newest frame as a whole. With a depth of 1 all do, which holds for any observation whatever.

    >>> from framestow import FrameSpec
    >>> layout = ObservationLayout.of_depth(FrameSpec((84, 84, 12)), 4)
    >>> layout.frame_space.shape
    (84, 84, 3)
    """

    spec: AnySpec
    depth: int
    padding: StackPadding
    stacks: tuple[Stacks | None, ...]

    @classmethod
    def of_depth(cls, space: Any, depth: int, padding: StackPadding = "first_frame") -> ObservationLayout:
        """Lay out observations of ``space`` as ``depth`` frames each; ``InvalidSettingsError`` where that cannot be.

        Arrays are stacks along the axis of their channels: of a picture the shorter one of its first and its last axis,
        of a vector its only one, of more than three axes the first.
        """
        spec = _spec_of(space)
        return cls(spec, depth, padding, tuple(_stacks(frame.shape, depth) for frame in spec.leaf_frames))

    @classmethod
    def of_pictures(cls, space: Any, depth: int, padding: StackPadding = "first_frame") -> ObservationLayout:
        """Lay out pictures alone as stacks, and any other array, the state of a robot for instance, as a whole."""
        spec = _spec_of(space)
        stacks = (_stacks(frame.shape, depth) if _is_picture(frame) else None for frame in spec.leaf_frames)
        return cls(spec, depth, padding, tuple(stacks))

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The arrays of an observation, in the order of ``stacks``."""
        return self.spec.leaves if isinstance(self.spec, ObservationSpec) else (Leaf((), self.spec),)

    @property
    def frame_space(self) -> Any:
        """What a memory takes as its observation space: one frame of each array."""
        return self._arranged(
            [
                frame if stacks is None else replace(frame, shape=stacks.frame_shape(frame.shape))
                for stacks, frame in zip(self.stacks, self.spec.leaf_frames, strict=True)
            ]
        )

    def arrays_of(self, observations: Any, num_envs: int) -> Arrays:
        """Give observations as an array ``(num_envs, *shape)`` of each leaf, in C order: copied only if need be.

        Raises ``InvalidStepError`` naming what is missing, too much, or of another shape or dtype.
        """
        parts = self.spec.flattened(observations) if isinstance(self.spec, ObservationSpec) else [observations]
        return [_checked(np.asarray(part), num_envs, leaf) for part, leaf in zip(parts, self.leaves, strict=True)]

    def stacks_of(self, arrays: Arrays) -> Arrays:
        """Give the arrays of n observations as stacks ``(n, depth, *frame)``: views; as ``(n, 1, *shape)`` if none."""
        return [
            array[:, None] if stacks is None else stacks.stacks_first(array)
            for stacks, array in zip(self.stacks, arrays, strict=True)
        ]

    def newest_of(self, stacks: Arrays) -> Any:
        """Give the newest frame of each stack, ``(n, *frame)``, in the form that a memory takes."""
        return self._arranged([np.ascontiguousarray(part[:, -1]) for part in stacks])

    def to_library(self, observations: Any) -> Any:
        """Give a memory's observations, ``(n, depth, *frame)``, as the library's, ``(n, *shape)``."""
        parts = self.spec.flattened(observations) if isinstance(self.spec, ObservationSpec) else [observations]
        came = tuple(
            part[:, -1] if stacks is None else stacks.to_library(part)
            for stacks, part in zip(self.stacks, parts, strict=True)
        )
        return self.spec.rebuilt(came) if isinstance(self.spec, ObservationSpec) else came[0]

    def is_padded(self, stacks: Arrays) -> npt.NDArray[np.bool_]:
        """Which stacks, of each leaf, are an episode's first observation as ``padding`` makes it."""
        fits = np.ones(len(stacks[0]), bool)
        for part in stacks:
            padding = part[:, -1:] if self.padding == "first_frame" else np.zeros_like(part[:, -1:])
            fits &= equal_rows(part[:, :-1], np.broadcast_to(padding, part[:, :-1].shape))
        return fits

    def padded_at(self, observations: Any, rows: npt.NDArray[np.int64]) -> Any:
        """Give a memory's observations, ``(n, depth, *frame)``, those of ``rows`` as an episode's first; a copy."""
        parts = self.spec.flattened(observations) if isinstance(self.spec, ObservationSpec) else [observations]
        padded = [part.copy() for part in parts]
        for part in padded:
            part[rows, :-1] = part[rows, -1:] if self.padding == "first_frame" else 0
        return self._arranged(padded)

    def _arranged(self, parts: list[Any]) -> Any:
        return self.spec.arranged(parts) if isinstance(self.spec, ObservationSpec) else parts[0]


def layouts_to_try(space: Any) -> list[ObservationLayout]:
    """Give the layouts that observations of ``space`` may have, the most frugal first; the last fits whatever comes.

    Pictures of ``uint8``, and those scaled to 0 to 1, are tried as stacks: of grey frames, of RGB frames where the
    channels are a multiple of three.
    """
    pictures = [frame.shape for frame in _spec_of(space).leaf_frames if _is_picture(frame)]
    channels = pictures[0][_channel_axis(pictures[0])] if pictures else 1
    depths = [channels, channels // RGB] if channels % RGB == 0 else [channels]
    stacked = [layout for depth in depths if depth > 1 for layout in _layouts_of_depth(space, depth)]
    return [*stacked, ObservationLayout.of_depth(space, 1)]


def layouts_of_depth(space: Any, depth: int) -> list[ObservationLayout]:
    """Give the layouts that observations of ``space`` may have as stacks of ``depth`` frames, the most frugal first.

    Raises ``InvalidSettingsError`` where there is none.
    """
    if depth == 1:
        return [ObservationLayout.of_depth(space, 1)]
    return list(_layouts_of_depth(space, depth)) or [ObservationLayout.of_depth(space, depth)]  # says why


def _layouts_of_depth(space: Any, depth: int) -> Iterator[ObservationLayout]:
    """Give the layouts where every array is a stack, then those where pictures alone are."""
    of_all = None
    for laid_out in (ObservationLayout.of_depth, ObservationLayout.of_pictures):
        try:
            layouts = [laid_out(space, depth, padding) for padding in STACK_PADDINGS]
        except InvalidSettingsError:  # one of these arrays is no stack of as many
            continue
        if any(layouts[0].stacks) and layouts != of_all:
            yield from layouts
        of_all = layouts


def equal_rows(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which rows along the first axis of two arrays of one shape and dtype are equal, bit for bit.

    >>> equal_rows(np.array([[1.0, np.nan], [0.0, 2.0]]), np.array([[1.0, np.nan], [-0.0, 2.0]]))
    array([ True, False])
    """
    if some[:1].size == 0:
        return np.ones(len(some), bool)
    equal: npt.NDArray[np.bool_] = (_as_words(some) == _as_words(others)).all(axis=1)
    return equal


def _as_words(rows: npt.NDArray[Any]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Rows as words of as many bytes as divide them: compared in a third of the time that bytes take."""
    flat = rows.reshape(len(rows), -1)
    if flat.strides[1] != flat.itemsize:
        flat = np.ascontiguousarray(flat)
    row_bytes = flat.shape[1] * flat.itemsize
    return flat.view(f"u{next(word for word in WORD_BYTES if row_bytes % word == 0)}")


def _spec_of(space: Any) -> AnySpec:
    """The spec of a space; a number, as of a ``Discrete``, is a vector of one element."""
    if getattr(space, "shape", None) == () and hasattr(space, "dtype"):
        return FrameSpec((1,), space.dtype)
    return observation_spec(space)


def _is_picture(frame: FrameSpec) -> bool:
    return len(frame.shape) > 2 and (frame.dtype == np.uint8 or frame.is_scaled)


def _checked(array: npt.NDArray[Any], num_envs: int, leaf: Leaf) -> npt.NDArray[Any]:
    """Give ``array`` as ``(num_envs, *shape)``; a number without an axis may lack it."""
    frame = leaf.frame
    expected = (num_envs, *frame.shape)
    if array.shape != expected and not (frame.shape == (1,) and array.shape == (num_envs,)):
        raise InvalidStepError(
            f"observations{leaf.place} have shape {array.shape}: the observation space says {expected}, the first axis "
            "being the environments; give those of every environment"
        )
    if array.dtype != frame.dtype:
        raise InvalidStepError(
            f"observations{leaf.place} have dtype {array.dtype}: the observation space says {frame.dtype}, and nothing "
            "is cast; give them as the space has them"
        )
    return np.ascontiguousarray(array).reshape(expected)


def _channel_axis(shape: tuple[int, ...]) -> int:
    """The axis along which frames are stacked, 0 or -1."""
    return 0 if len(shape) > 3 or shape[0] <= shape[-1] else -1


def _stacks(shape: tuple[int, ...], depth: int) -> Stacks | None:
    """How arrays of ``shape`` are stacks; ``None`` for a depth of 1."""
    if depth == 1:
        return None
    axis = _channel_axis(shape)
    if depth < 1 or shape[axis] % depth:
        raise InvalidSettingsError(
            f"frame_stack is {depth}: observations of shape {shape} have {shape[axis]} channels, which are no multiple "
            "of that; take 1 to keep each observation as a frame of its own"
        )
    channels = shape[axis] // depth
    return Stacks(axis, depth, None if channels == 1 and len(shape) > 1 else channels)
