"""How observations are stacked: which frames an array of an environment consists of, and where they lie in it.

``ObservationLayout`` describes how observations consist of frames, and ``Stacks`` how one of their arrays does.
``layouts_to_try``, ``layouts_of_depth`` and ``possible_layouts`` list the layouts that are possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import as_array
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, ArraySpec, ObservationSpec, observation_spec
from framestow.frames.stacking import STACK_PADDINGS, StackPadding, pad_window
from framestow.replay.memory_settings import MAX_STACK

Arrays: TypeAlias = "list[npt.NDArray[Any]]"
"""One array per key of an observation, in the order of ``ObservationSpec``."""

StackedOn: TypeAlias = Literal["no", "first_axis", "last_axis"]
"""Stack axis: ``first_axis`` for ``(4, 84, 84)``, ``last_axis`` for ``(84, 84, 4)``, ``no`` for none; newest last."""

STACKED_ON: tuple[StackedOn, ...] = get_args(StackedOn)


class Stacks(NamedTuple):
    """Stack of ``depth`` frames along ``axis`` of an observation, 0 or -1, oldest frame first.

    With ``channels=None`` the frames have no such axis. Otherwise each frame has ``channels`` entries along it.

    >>> Stacks(0, 4).frame_shape((4, 84, 84)), Stacks(-1, 4, channels=3).frame_shape((84, 84, 12))
    ((84, 84), (84, 84, 3))
    """

    axis: int
    depth: int
    channels: int | None = None

    @classmethod
    def of_shape(cls, shape: tuple[int, ...], stacked_on: StackedOn) -> Stacks | None:
        """Return the stacks of observations of ``shape``; ``None`` if they are not stacked."""
        if stacked_on not in STACKED_ON:
            raise InvalidSettingsError(
                f"stacked_on is {stacked_on!r}: it must be one of {', '.join(map(repr, STACKED_ON))}; use 'no'"
            )
        if stacked_on == "no":
            return None
        if len(shape) < 2:
            raise InvalidSettingsError(f"observations have shape {shape}: a stack has at least 2 axes; use 'no'")
        axis = 0 if stacked_on == "first_axis" else -1
        return cls(axis, shape[axis])

    def frame_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of one frame of observations of ``shape``."""
        return self.stacks_first(np.empty((0, *shape), np.uint8)).shape[2:]

    def one_frame_of(self, bounds: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the newest frame of one observation, or of an array of its shape such as bounds."""
        return np.asarray(self.stacks_first(bounds[None])[0, -1])

    def frames(self, observations: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
        """Return the newest frame of each observation of an episode, ``(T + 1, *frame)``.

        Raises:
            InvalidSettingsError: with ``where`` as its prefix, if an observation is not the previous one shifted by one
                frame. Stacking the frames again would then not restore the observations.
        """
        stacks = self.stacks_first(observations)
        is_shifted = (stacks[1:, :-1] == stacks[:-1, 1:]).reshape(len(stacks) - 1, -1).all(axis=1)
        if not is_shifted.all():
            raise InvalidSettingsError(
                f"{where}: observation {int(np.argmin(is_shifted)) + 1} is not the previous one shifted by one frame: "
                f"these are not stacks of consecutive frames along axis {self.axis}; use stacked_on='no'"
            )
        return np.ascontiguousarray(stacks[:, -1])

    def paddings_of(self, first_observation: npt.NDArray[Any]) -> set[StackPadding]:
        """Return the paddings that match an episode's first observation: none, one, or both if its frame is black."""
        window = self.stacks_first(first_observation[None])[0]
        fitting: set[StackPadding] = set()
        for padding in STACK_PADDINGS:
            padded = window.copy()
            pad_window(padded, self.depth - 1, padding)
            if np.array_equal(padded, window):
                fitting.add(padding)
        return fitting

    def stacks_first(self, observations: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return observations ``(n, *shape)`` as ``(n, depth, *frame)``, as a view if possible."""
        if self.channels is None:
            return observations if self.axis == 0 else np.moveaxis(observations, self.axis, 1)
        at = observations.ndim - 1 if self.axis < 0 else self.axis + 1
        shape = observations.shape
        split = observations.reshape(*shape[:at], self.depth, self.channels, *shape[at + 1 :])
        return np.moveaxis(split, at, 1)

    def piece_bytes(self, frame: FrameSpec) -> int:
        """Return the bytes that lie together of one frame in an observation of the spec ``frame``."""
        channels = frame.dtype.itemsize * (self.channels or 1)
        return channels if self.axis < 0 else frame.nbytes // self.depth

    def to_library(self, stacks: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return stacks ``(n, depth, *frame)`` as observations ``(n, *shape)``: the inverse of ``stacks_first``.

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


RGB_CHANNELS = 3  # of a colour picture
WORD_BYTES = (8, 4, 2, 1)  # of the integers that rows are compared as, widest first


@dataclass(frozen=True)
class ObservationLayout:
    """Observations of ``spec`` as stacks of ``depth`` frames, and the padding of an episode's first stacks.

    ``stacks`` has one entry per key of an observation: its stacks, or ``None`` if the whole array belongs to the
    newest frame. With a depth of 1 all entries are ``None``; this layout fits every observation.

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
        """Return the layout with all arrays of ``space`` as stacks of ``depth`` frames.

        Stack axes: for images the shorter of the first and the last axis, for vectors the only axis, for more than
        three axes the first. Raises ``InvalidSettingsError`` if an axis is not a multiple of ``depth``.
        """
        spec = _spec_of(space)
        return cls(spec, depth, padding, tuple(_stacks(frame.shape, depth) for frame in spec.frame_specs))

    @classmethod
    def of_pictures(cls, space: Any, depth: int, padding: StackPadding = "first_frame") -> ObservationLayout:
        """Return the layout with only the images of ``space`` as stacks, not vectors such as a robot's state."""
        spec = _spec_of(space)
        stacks = (_stacks(frame.shape, depth) if _is_picture(frame) else None for frame in spec.frame_specs)
        return cls(spec, depth, padding, tuple(stacks))

    @cached_property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """Arrays of an observation, in the order of ``stacks``."""
        return self.spec.arrays if isinstance(self.spec, ObservationSpec) else (ArraySpec((), self.spec),)

    @cached_property
    def frame_space(self) -> AnySpec:
        """The memory's observation space: one frame of each array."""
        frames = [
            frame if stacks is None else replace(frame, shape=stacks.frame_shape(frame.shape))
            for stacks, frame in zip(self.stacks, self.spec.frame_specs, strict=True)
        ]
        return _with_frames(self.spec, frames)

    @cached_property
    def is_as_stored(self) -> bool:
        """Whether the memory's observations have the library's shape."""
        return isinstance(self.spec, FrameSpec) and self.stacks[0] == Stacks(0, self.depth)

    @cached_property
    def pieces(self) -> tuple[tuple[int, int], ...]:
        """Number of stacked frames and bytes of their pieces, of each array, for the native ``unstack``."""
        return tuple(
            (1, frame.nbytes) if stacks is None else (stacks.depth, stacks.piece_bytes(frame))
            for stacks, frame in zip(self.stacks, self.spec.frame_specs, strict=True)
        )

    def arrays_of(self, observations: Any, num_envs: int, name: str = "observation") -> Arrays:
        """Return observations as one C-contiguous array ``(num_envs, *shape)`` per key, copied only if necessary.

        Raises:
            InvalidStepError: missing or extra arrays, wrong shapes or dtypes.
        """
        if isinstance(self.spec, FrameSpec):
            return [_check_array(observations, num_envs, self.arrays[0], name)]
        parts = self.spec.flatten(observations, name)
        return [
            _check_array(part, num_envs, array_spec, name) for part, array_spec in zip(parts, self.arrays, strict=True)
        ]

    def stacks_of(self, arrays: Arrays) -> Arrays:
        """Return views of n observations as stacks ``(n, depth, *frame)``, or ``(n, 1, *shape)`` if not stacked."""
        return [
            array[:, None] if stacks is None else stacks.stacks_first(array)
            for stacks, array in zip(self.stacks, arrays, strict=True)
        ]

    def newest_of(self, stacks: Arrays) -> Any:
        """Return the newest frame of each stack, ``(n, *frame)``, in the form that a memory takes."""
        return self.arrange([np.ascontiguousarray(part[:, -1]) for part in stacks])

    def arrange(self, parts: Sequence[npt.NDArray[Any]]) -> Any:
        """Return arrays, one per key as they are stored, in the form of observations."""
        return self.spec.rebuild(tuple(parts)) if isinstance(self.spec, ObservationSpec) else parts[0]

    def to_library(self, observations: Any) -> Any:
        """Return a memory's observations ``(n, depth, *frame)`` in the library's shape ``(n, *shape)``."""
        parts = zip(self.stacks, self._split(observations), strict=True)
        return self.arrange([part[:, -1] if stacks is None else stacks.to_library(part) for stacks, part in parts])

    def is_padded(self, stacks: Arrays) -> npt.NDArray[np.bool_]:
        """Return which stacks are padded as an episode's first observation, in all arrays."""
        fits = np.ones(len(stacks[0]), bool)
        for part in stacks:
            padding = part[:, -1:] if self.padding == "first_frame" else np.zeros_like(part[:, -1:])
            fits &= equal_rows(part[:, :-1], np.broadcast_to(padding, part[:, :-1].shape))
        return fits

    def pad_rows(self, observations: Any, rows: npt.NDArray[np.int64]) -> Any:
        """Return a copy of a memory's observations with those of ``rows`` padded as an episode's first observation."""
        padded = [part.copy() for part in self._split(observations)]
        for part in padded:
            part[rows, :-1] = part[rows, -1:] if self.padding == "first_frame" else 0
        return self.arrange(padded)

    def _split(self, observations: Any) -> Arrays:
        if isinstance(self.spec, FrameSpec):
            return [observations]
        parts = zip(self.arrays, self.spec.flatten(observations), strict=True)
        return [array_spec.as_stored(part) for array_spec, part in parts]


def layouts_to_try(space: Any) -> list[ObservationLayout]:
    """Return the possible layouts of observations of ``space``, the most compact first; the last fits always.

    Images of ``uint8`` or of floats from 0 to 1 may be stacks of grey frames. If their channels are a multiple of
    three, they may also be stacks of RGB frames.
    """
    pictures = [frame.shape for frame in _spec_of(space).frame_specs if _is_picture(frame)]
    channels = pictures[0][_channel_axis(pictures[0])] if pictures else 1
    depths = [channels, channels // RGB_CHANNELS] if channels % RGB_CHANNELS == 0 else [channels]
    stacked = [layout for depth in depths if 1 < depth <= MAX_STACK for layout in _layouts_of_depth(space, depth)]
    return [*stacked, ObservationLayout.of_depth(space, 1)]


def layouts_of_depth(space: Any, depth: int) -> list[ObservationLayout]:
    """Return the possible layouts of ``space`` with stacks of ``depth`` frames, the most compact first.

    Raises:
        InvalidSettingsError: there is none.
    """
    if depth == 1:
        return [ObservationLayout.of_depth(space, 1)]
    return list(_layouts_of_depth(space, depth)) or [ObservationLayout.of_depth(space, depth)]  # raises the reason


def _layouts_of_depth(space: Any, depth: int) -> Iterator[ObservationLayout]:
    """Yield the layouts with all arrays stacked, then those with only images stacked."""
    of_all = None
    for laid_out in (ObservationLayout.of_depth, ObservationLayout.of_pictures):
        try:
            layouts = [laid_out(space, depth, padding) for padding in STACK_PADDINGS]
        except InvalidSettingsError:  # an array is not a stack of this depth
            continue
        if any(layouts[0].stacks) and layouts != of_all:
            yield from layouts
        of_all = layouts


def equal_rows(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which rows of two arrays of equal shape and dtype are equal, bit for bit.

    >>> equal_rows(np.array([[1.0, np.nan], [0.0, 2.0]]), np.array([[1.0, np.nan], [-0.0, 2.0]]))
    array([ True, False])
    """
    if some[:1].size == 0:
        return np.ones(len(some), bool)
    equal: npt.NDArray[np.bool_] = (_as_words(some) == _as_words(others)).all(axis=1)
    return equal


def _as_words(rows: npt.NDArray[Any]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return rows as their largest possible words: comparing words takes a third of the time of bytes."""
    flat = rows.reshape(len(rows), -1)
    if flat.strides[1] != flat.itemsize:
        flat = np.ascontiguousarray(flat)
    row_bytes = flat.shape[1] * flat.itemsize
    return flat.view(f"u{next(word for word in WORD_BYTES if row_bytes % word == 0)}")


def _spec_of(space: Any) -> AnySpec:
    """Return the spec of a space; a number, such as of a ``Discrete``, becomes a vector of one element."""
    if getattr(space, "shape", None) == () and hasattr(space, "dtype"):
        return FrameSpec((1,), space.dtype)
    return observation_spec(space)


def _is_picture(frame: FrameSpec) -> bool:
    return len(frame.shape) > 2 and (frame.dtype == np.uint8 or frame.is_scaled)


def _check_array(given: Any, num_envs: int, array_spec: ArraySpec, name: str) -> npt.NDArray[Any]:
    """Return ``given`` as ``(num_envs, *shape)``; numbers may come as ``(num_envs,)``."""
    frame = array_spec.frame
    array: npt.NDArray[Any] = given
    expected = num_envs, *frame.shape
    is_usual = type(array) is np.ndarray and array.shape == expected and array.dtype == frame.dtype
    if is_usual and array.flags.c_contiguous:
        return array
    array = as_array(f"{name}{array_spec.subscript}", given, InvalidStepError)
    if array.shape != expected and not (frame.shape == (1,) and array.shape == (num_envs,)):
        raise InvalidStepError(
            f"{name}{array_spec.subscript} has shape {array.shape}: {num_envs} environments take {expected}, with the "
            "environments as the first axis; give one observation per environment"
        )
    if array.dtype != frame.dtype:
        raise InvalidStepError(
            f"{name}{array_spec.subscript} has dtype {array.dtype}: the observation space requires {frame.dtype}, "
            "and nothing is cast; convert it"
        )
    return np.ascontiguousarray(array).reshape(expected)


def _channel_axis(shape: tuple[int, ...]) -> int:
    """Return the axis along which frames are stacked, 0 or -1."""
    return 0 if len(shape) > 3 or shape[0] <= shape[-1] else -1


def _stacks(shape: tuple[int, ...], depth: int) -> Stacks | None:
    """Return the stacks of arrays of ``shape``; ``None`` for a depth of 1."""
    if depth == 1:
        return None
    axis = _channel_axis(shape)
    if depth < 1 or shape[axis] % depth:
        raise InvalidSettingsError(
            f"frame_stack is {depth}: observations of shape {shape} have {shape[axis]} channels, which must be a "
            "multiple of it; give 1 to store each observation as one frame"
        )
    channels = shape[axis] // depth
    return Stacks(axis, depth, None if channels == 1 and len(shape) > 1 else channels)


def possible_layouts(space: AnySpec, observation: Any, num_envs: int, stack: int | None) -> list[ObservationLayout]:
    """Return the layouts that the shapes of the first observations allow in a memory of ``space``, best first."""
    parts = space.flatten(observation, "observation") if isinstance(space, ObservationSpec) else [observation]
    arrays = space.arrays if isinstance(space, ObservationSpec) else (ArraySpec((), space),)
    shapes = []
    for array_spec, part in zip(arrays, parts, strict=True):
        shape = as_array(f"observation{array_spec.subscript}", part, InvalidStepError).shape
        if shape[:1] != (num_envs,):
            raise InvalidStepError(
                f"observation{array_spec.subscript} has shape {shape}: the first axis must have {num_envs} "
                "environments; give one observation for each, or for a single one a Python bool as terminated"
            )
        shapes.append(shape[1:] or array_spec.frame.shape)
    if shapes != [frame.shape for frame in space.frame_specs]:
        return _layouts_of_shapes(space, arrays, shapes, stack)
    if stack is None:
        return layouts_to_try(space)
    if stack == 1:
        return layouts_of_depth(space, 1)
    frames = [(num_envs, *shape) for shape in shapes]
    stacks = [(num_envs, stack, *shape) for shape in shapes]
    raise InvalidStepError(
        f"observation has shape {', '.join(map(str, frames))}, one frame each: the memory has stack={stack}; give "
        f"stacks such as {', '.join(map(str, stacks))}, or single frames to begin and append; "
        "stack=1 keeps them whole"
    )


def _layouts_of_shapes(
    space: AnySpec, arrays: Sequence[ArraySpec], shapes: Sequence[tuple[int, ...]], stack: int | None
) -> list[ObservationLayout]:
    """Return the layouts of observations of ``shapes`` that are stacks of frames of ``space``."""
    layouts: list[ObservationLayout] = []
    for axis in (0, -1):
        ways = [
            _stacks_between(array_spec.frame.shape, shape, axis)
            for array_spec, shape in zip(arrays, shapes, strict=True)
        ]
        for array_spec, shape, fitting in zip(arrays, shapes, ways, strict=True):
            if not fitting:
                raise InvalidStepError(
                    f"observation{array_spec.subscript} has shape {shape} for each environment: a frame of the "
                    f"observation_space has {array_spec.frame.shape}; give stacks (stack, *frame) or (*frame, stack), "
                    "or declare the space of the whole observation"
                )
        stacks = tuple(fitting[0] for fitting in ways)
        depths = {one.depth for one in stacks if one is not None}
        depth = max(depths)
        if len(depths) == 1 and stack in (None, depth) and depth <= MAX_STACK:
            whole = _with_frames(
                space,
                [replace(array_spec.frame, shape=shape) for array_spec, shape in zip(arrays, shapes, strict=True)],
            )
            found = (ObservationLayout(whole, depth, padding, stacks) for padding in STACK_PADDINGS)
            layouts += [layout for layout in found if layout not in layouts]
    if not layouts:
        wanted = f"{stack} frames" if stack is not None else f"the same number of frames, at most {MAX_STACK}"
        raise InvalidStepError(
            f"observation has shapes {', '.join(map(str, shapes))} for each environment: its arrays must be stacks of "
            f"{wanted}; build the memory with that stack, or leave stack out"
        )
    return layouts


def _stacks_between(frame: tuple[int, ...], shape: tuple[int, ...], axis: int) -> list[Stacks | None]:
    """Return how observations of ``shape`` can be stacks of ``frame``, those along ``axis`` first.

    >>> _stacks_between((84, 84), (84, 84, 4), 0), _stacks_between((84, 84, 3), (84, 84, 12), 0)
    ([Stacks(axis=-1, depth=4, channels=None)], [Stacks(axis=-1, depth=4, channels=3)])
    """
    if shape == frame:
        return [None]
    found: list[Stacks | None] = []
    for at in (axis, -1 - axis):
        rest, frame_rest = (shape[1:], frame[1:]) if at == 0 else (shape[:-1], frame[:-1])
        if rest == frame:
            found.append(Stacks(at, shape[at]))
        elif len(shape) == len(frame) and rest == frame_rest and shape[at] % frame[at] == 0:
            found.append(Stacks(at, shape[at] // frame[at], frame[at]))
    return found


def _with_frames(spec: AnySpec, frames: Sequence[FrameSpec]) -> AnySpec:
    """Return ``spec`` with other frames for its arrays."""
    if isinstance(spec, FrameSpec):
        return frames[0]
    arrays = tuple(replace(array_spec, frame=frame) for array_spec, frame in zip(spec.arrays, frames, strict=True))
    return ObservationSpec(spec.structure, arrays)
