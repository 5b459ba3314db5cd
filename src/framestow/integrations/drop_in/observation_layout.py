"""How a library's observations, of one array or of several, are stacks of the frames that a memory keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, ObservationSpec, observation_spec
from framestow.frames.stacking import StackPadding
from framestow.integrations.stacked_observations import Stacks

Arrays: TypeAlias = "list[npt.NDArray[Any]]"
"""An array for each leaf of an observation, in the order of ``ObservationSpec``; one where it is a single array."""

RGB = 3


@dataclass(frozen=True)
class ObservationLayout:
    """Observations of ``spec`` as stacks of ``depth`` frames, and what pads the first ones of an episode.

    ``stacks`` says along which axis each array of an observation is a stack. With a depth of 1 an observation is a
    frame of its own, which holds for any observation whatever.

    >>> from framestow import FrameSpec
    >>> layout = ObservationLayout.of_depth(FrameSpec((84, 84, 12)), 4)
    >>> layout.frame_space.shape
    (84, 84, 3)
    """

    spec: AnySpec
    depth: int
    padding: StackPadding
    stacks: tuple[Stacks, ...]

    @classmethod
    def of_depth(cls, space: Any, depth: int, padding: StackPadding = "first_frame") -> ObservationLayout:
        """Lay out observations of ``space`` as ``depth`` frames each; ``InvalidSettingsError`` where that cannot be.

        Arrays are stacks along the axis of their channels: of a picture the shorter one of its first and its last axis,
        of a vector its only one, of more than three axes the first.
        """
        spec = observation_spec(space)
        return cls(spec, depth, padding, tuple(_stacks(leaf.shape, depth) for leaf in _leaf_frames(spec)))

    @property
    def frame_space(self) -> Any:
        """What a memory takes as its observation space: one frame of each array."""
        return self._arranged(
            [
                FrameSpec(stacks.frame_shape(leaf.shape), leaf.dtype)
                for stacks, leaf in zip(self.stacks, _leaf_frames(self.spec), strict=True)
            ]
        )

    def stacks_of(self, observations: Any) -> Arrays:
        """Give observations ``(n, *shape)`` as stacks ``(n, depth, *frame)`` of each leaf: views where they can be.

        Raises ``InvalidStepError`` naming what is missing, too much, or of another shape.
        """
        parts = self.spec.flattened(observations) if isinstance(self.spec, ObservationSpec) else [observations]
        return [
            stacks.stacks_first(_of_shape(np.asarray(part), leaf.shape))
            for stacks, part, leaf in zip(self.stacks, parts, _leaf_frames(self.spec), strict=True)
        ]

    def newest_of(self, stacks: Arrays) -> Any:
        """Give the newest frame of each stack, ``(n, *frame)``, in the form that a memory takes."""
        return self._arranged([part[:, -1] for part in stacks])

    def as_came(self, observations: Any) -> Any:
        """Give a memory's observations, ``(n, depth, *frame)``, as the library's, ``(n, *shape)``."""
        if not isinstance(self.spec, ObservationSpec):
            return self.stacks[0].as_came(observations)
        parts = self.spec.flattened(observations)
        return self.spec.rebuilt(tuple(stacks.as_came(part) for stacks, part in zip(self.stacks, parts, strict=True)))

    def is_padded(self, stacks: Arrays) -> npt.NDArray[np.bool_]:
        """Which stacks, ``(n, depth, *frame)`` each, are an episode's first observation as ``padding`` makes it."""
        fits = np.ones(len(stacks[0]), bool)
        for part in stacks:
            older = part[:, :-1]
            fits &= equal_rows(older, part[:, -1:] if self.padding == "first_frame" else np.zeros_like(part[:, -1:]))
        return fits

    def padded_at(self, observations: Any, rows: npt.NDArray[np.int64]) -> Any:
        """Give a memory's observations, ``(n, depth, *frame)``, those of ``rows`` as an episode's first; a copy."""
        parts = self.spec.flattened(observations) if isinstance(self.spec, ObservationSpec) else [observations]
        padded = [part.copy() for part in parts]
        for part in padded:
            part[rows, :-1] = part[rows, -1:] if self.padding == "first_frame" else 0
        return self.spec.rebuilt(tuple(padded)) if isinstance(self.spec, ObservationSpec) else padded[0]

    def _arranged(self, parts: list[Any]) -> Any:
        return self.spec.arranged(parts) if isinstance(self.spec, ObservationSpec) else parts[0]


def layouts_to_try(space: Any) -> Iterator[ObservationLayout]:
    """Give the layouts that observations of ``space`` may have, the most frugal first; the last fits whatever comes.

    Pictures of ``uint8`` are tried as stacks: of grey frames, of RGB frames where the channels are a multiple of three.
    """
    pictures = [
        leaf for leaf in _leaf_frames(observation_spec(space)) if len(leaf.shape) > 2 and leaf.dtype == np.uint8
    ]
    channels = pictures[0].shape[_channel_axis(pictures[0].shape)] if pictures else 1
    depths = [channels, channels // RGB] if channels % RGB == 0 else [channels]
    for depth in depths:
        if depth > 1:
            try:
                yield ObservationLayout.of_depth(space, depth, "first_frame")
                yield ObservationLayout.of_depth(space, depth, "zeros")
            except InvalidSettingsError:  # another array of the observation is no stack of as many
                continue
    yield ObservationLayout.of_depth(space, 1)


def equal_rows(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which rows along the first axis are equal, bit for bit where they are floats; the others broadcast.

    >>> equal_rows(np.array([[1.0, np.nan], [0.0, 2.0]]), np.array([[1.0, np.nan], [-0.0, 2.0]]))
    array([ True, False])
    """
    if some.dtype.kind == "f":
        bits = f"u{some.dtype.itemsize}"
        some, others = np.ascontiguousarray(some).view(bits), np.ascontiguousarray(others).view(bits)
    equal: npt.NDArray[np.bool_] = (some == others).reshape(len(some), -1).all(axis=1)
    return equal


def _leaf_frames(spec: AnySpec) -> tuple[FrameSpec, ...]:
    return spec.leaf_frames if isinstance(spec, ObservationSpec) else (spec,)


def _of_shape(observations: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Give ``observations`` as ``(n, *shape)``; a number without an axis may lack it."""
    if observations.shape[1:] != shape and not (shape == (1,) and observations.ndim == 1):
        raise InvalidStepError(
            f"observations have shape {observations.shape}: the observation space says (num_streams, "
            f"{', '.join(map(str, shape))}); give those of every stream"
        )
    return observations.reshape(-1, *shape)


def _channel_axis(shape: tuple[int, ...]) -> int:
    """The axis along which frames are stacked, 0 or -1."""
    return 0 if len(shape) > 3 or shape[0] <= shape[-1] else -1


def _stacks(shape: tuple[int, ...], depth: int) -> Stacks:
    axis = _channel_axis(shape)
    if depth < 1 or shape[axis] % depth:
        raise InvalidSettingsError(
            f"frame_stack is {depth}: observations of shape {shape} have {shape[axis]} channels, which are no multiple "
            "of that; take 1 to keep each observation as a frame of its own"
        )
    channels = shape[axis] // depth
    return Stacks(axis, depth, None if channels == 1 and len(shape) > 1 and depth > 1 else channels)
