"""Describe observations: one array, or the arrays of Dict and Tuple spaces, also nested."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import ArraySpec, FrameSpec, refuse_array
from framestow.interface import cached_property, listed
from framestow.refusals import Refusal


def map_arrays(change: Callable[..., Any], arrays: Any, *others: Any) -> Any:
    """Return nested dicts and tuples ``arrays`` with ``change`` applied to each array.

    ``others`` have the same structure, and give ``change`` one more argument each.

    >>> import numpy as np
    >>> map_arrays(
    ...     len,
    ...     {"camera": np.zeros((3, 8, 8)), "joints": (np.zeros(3), np.zeros(3))},
    ... )
    {'camera': 3, 'joints': (3, 3)}
    """
    if type(arrays) is np.ndarray:  # the usual case first; a Mapping is slow to ask for
        return change(arrays, *others)
    if isinstance(arrays, Mapping):
        return {key: map_arrays(change, part, *(other[key] for other in others)) for key, part in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(map_arrays(change, *parts) for parts in zip(arrays, *others, strict=True))
    return change(arrays, *others)


Frames: TypeAlias = tuple[npt.NDArray[Any], ...]
"""Frames inside a memory: one array for each array of an observation, in the order of its spec. All have the same
leading axes."""

SPACE, FRAMES = "observation_space", "frames"  # names of the outermost object in error messages
NUMBERS = "biuf"  # kinds of dtypes


@dataclass(frozen=True)
class ObservationSpec:
    """An observation: one array, or several in nested dicts and tuples.

    ``arrays`` are in depth-first order: dicts by ascending key, tuples by number. So the order of keys in a space does
    not matter. ``structure`` is nested like the observation, with each array's index in ``arrays`` in its place.

    >>> spec = observation_spec(
    ...     {
    ...         "joints": FrameSpec((7,), np.float32),
    ...         "camera": FrameSpec((64, 64, 3)),
    ...     }
    ... )
    >>> [array.key for array in spec.arrays], spec.nbytes, spec.structure
    (['camera', 'joints'], 12316, {'camera': 0, 'joints': 1})
    >>> frames = [frame.empty(2) for frame in spec.frame_specs]
    >>> {key: frame.shape for key, frame in spec.rebuild(frames).items()}
    {'camera': (2, 64, 64, 3), 'joints': (2, 7)}
    """

    structure: Any
    arrays: tuple[ArraySpec, ...]

    @cached_property
    def is_one_array(self) -> bool:
        """Whether an observation is an array, and no dict or tuple."""
        return isinstance(self.structure, int)

    @cached_property
    def frame_specs(self) -> tuple[FrameSpec, ...]:
        """The frame spec of each array."""
        return tuple(array.frame for array in self.arrays)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one uncompressed frame of every array."""
        return sum(array.frame.nbytes for array in self.arrays)

    def flatten(self, frames: Any, name: str = FRAMES) -> tuple[Any, ...]:
        """Return the arrays of ``frames``, one per key.

        Raises:
            InvalidStepError: the frames lack a key or have another one; the message calls them ``name``.
        """
        if self.is_one_array:
            return (frames,)
        flat: list[Any] = []
        _flatten(self.structure, frames, name, flat)
        return tuple(flat)

    def rebuild(self, frames: Sequence[npt.NDArray[Any]]) -> Any:
        """Return stored arrays, one per key, in the structure of this observation; scalars lose their axis."""
        return self.arrange([array.as_observed(part) for array, part in zip(self.arrays, frames, strict=True)])

    def arrange(self, parts: Sequence[Any]) -> Any:
        """Return ``parts``, one per key, in the structure of this observation."""
        return _rebuild(self.structure, parts)

    def with_frames(self, frames: Sequence[FrameSpec]) -> ObservationSpec:
        """Return this spec with other frames for its arrays."""
        arrays = (replace(array, frame=frame) for array, frame in zip(self.arrays, frames, strict=True))
        return ObservationSpec(self.structure, tuple(arrays))

    def state(self) -> dict[str, Any]:
        """Return the spec as nested JSON-able values, with ``FrameSpec.state`` for each array."""
        return _state(self.structure, self.arrays)


def observation_spec(space: Any) -> ObservationSpec:
    """Return the spec of a Gymnasium space, or of a dict or tuple of spaces, without importing Gymnasium.

    ==========================================================  ==============================================
    space                                                       result
    ==========================================================  ==============================================
    ``Box`` or ``FrameSpec``                                    one array
    ``Dict``, or a mapping with string keys                     dicts
    ``Tuple``, or a tuple or list                               tuples
    in these: ``Box``, ``MultiDiscrete``, ``MultiBinary``       an array
    in these: ``Discrete``, ``Box`` of shape ``()``, ``dtype``  an array of scalars
    ``Text``, ``Graph``, ``Sequence``, ``OneOf``, others        ``InvalidSettingsError`` that names the key
    ==========================================================  ==============================================
    """
    if isinstance(space, ObservationSpec):
        return space
    if _parts_of(space) is None:
        if getattr(space, "shape", None) == () and not isinstance(space, np.generic):
            raise InvalidSettingsError(
                f"{SPACE} is {space!r}: its observations are single numbers, and a memory takes arrays with an axis; "
                "give {'state': space}, and observations as {'state': observation}, or one-hot vectors "
                "(gymnasium.wrappers.FlattenObservation)"
            )
        return ObservationSpec(0, (ArraySpec((), FrameSpec.from_space(space)),))
    arrays: list[ArraySpec] = []
    structure = _structure(space, (), arrays)
    if not arrays:
        raise InvalidSettingsError(f"{SPACE} is {space!r}: it must have at least one part; give a Dict with a Box")
    return ObservationSpec(structure, tuple(arrays))


def space_of(spec: ObservationSpec) -> Any:
    """Return a space that ``observation_spec`` makes ``spec`` of: a ``FrameSpec``, or a dict or tuple of them.

    A number in a dict or tuple is its NumPy dtype.

    >>> space_of(
    ...     observation_spec(
    ...         {"joints": FrameSpec((7,), np.float32), "lives": np.dtype(np.int64)}
    ...     )
    ... )["lives"]
    dtype('int64')
    """
    return spec.arrange([array.frame if array.has_axes else array.frame.dtype for array in spec.arrays])


def spec_from_state(state: dict[str, Any]) -> ObservationSpec:
    """Return the ``ObservationSpec`` that ``state`` returned the values of."""
    arrays: list[ArraySpec] = []
    return ObservationSpec(_structure_from_state(state, (), arrays), tuple(arrays))


def only_frame(spec: ObservationSpec, what: str) -> FrameSpec:
    """Return the frame if observations are one array; raise ``InvalidSettingsError`` with the keys if they are several.

    ``what`` begins the error message's rule, such as "an export to the DQN Replay Dataset takes".
    """
    if spec.is_one_array:
        return spec.arrays[0].frame
    keys = listed(array.key for array in spec.arrays)
    raise InvalidSettingsError(
        f"observations are of {keys}: {what} one array per frame; store this key alone in a memory"
    )


def refuse_none(name: str, given: Any) -> None:
    """Raise ``InvalidStepError`` if an observation or a frame is ``None``, as some loops have it at an end."""
    if given is None:
        raise Refusal.NO_OBSERVATION.error(name=name)


def equal_rows(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which rows of two arrays of equal shape and dtype are equal, bit for bit.

    >>> equal_rows(
    ...     np.array([[1.0, np.nan], [0.0, 2.0]]),
    ...     np.array([[1.0, np.nan], [-0.0, 2.0]]),
    ... )
    array([ True, False])
    """
    if some[:1].size == 0:
        return np.ones(len(some), np.bool_)
    equal: npt.NDArray[np.bool_] = (_as_words(some) == _as_words(others)).all(axis=1)
    return equal


def _as_words(rows: npt.NDArray[Any]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return rows as their largest possible words: comparing words is quicker than comparing bytes."""
    flat = rows.reshape(len(rows), -1)
    if flat.strides[1] != flat.itemsize:
        flat = np.ascontiguousarray(flat)
    return flat.view(f"u{math.gcd(flat.shape[1] * flat.itemsize, 8)}")


def _parts_of(space: Any) -> Mapping[Any, Any] | Sequence[Any] | None:
    """Return the spaces within a Dict or Tuple space; None for other spaces."""
    if isinstance(space, Mapping):
        return space
    if isinstance(space, Sequence) and not isinstance(space, str):  # excludes OneOf, which also has .spaces
        return space
    return None


def _structure(space: Any, path: tuple[str | int, ...], arrays: list[ArraySpec]) -> Any:
    """Append the arrays of ``space``, which is at ``path``, to ``arrays``; return the structure of their numbers."""
    parts = _parts_of(space)
    if parts and not isinstance(parts, Mapping) and all(isinstance(part, Integral) for part in parts):
        raise InvalidSettingsError(
            f"{_name(path)} is {space!r}: numbers are the shape of a frame, and a space has a dtype too; give "
            f"FrameSpec({tuple(parts)}), with its dtype unless that is uint8"
        )
    if isinstance(parts, Mapping):
        unnamed = [key for key in parts if not isinstance(key, str)]
        if unnamed:
            raise InvalidSettingsError(f"{_name(path)} has the key {unnamed[0]!r}: keys must be strings; rename it")
        return {key: _structure(parts[key], (*path, key), arrays) for key in sorted(parts)}
    if parts is not None:
        return tuple(_structure(part, (*path, index), arrays) for index, part in enumerate(parts))
    arrays.append(_array(space, path))
    return len(arrays) - 1


def _array(space: Any, path: tuple[str | int, ...]) -> ArraySpec:
    if isinstance(space, FrameSpec):
        return ArraySpec(path, space)
    refuse_array(_name(path), space)
    shape, dtype = (
        getattr(space, "shape", None),
        getattr(space, "dtype", space if isinstance(space, np.dtype) else None),
    )
    try:
        if shape is None or dtype is None or np.dtype(dtype).kind not in NUMBERS:
            raise TypeError("a part of an observation is one array of numbers of a fixed shape")
        if shape == ():
            return ArraySpec(path, FrameSpec((1,), dtype), has_axes=False)
        return ArraySpec(path, FrameSpec.from_space(space))
    except (InvalidSettingsError, TypeError) as error:
        raise InvalidSettingsError(
            f"{_name(path)} is {space!r}: {str(error).partition(';')[0]}; leave it out or convert it in a wrapper"
        ) from error


def _name(path: tuple[str | int, ...]) -> str:
    return SPACE + "".join(f"[{key!r}]" for key in path)


def _flatten(structure: Any, frames: Any, name: str, flat: list[Any]) -> None:
    """Append the arrays of ``frames`` to ``flat``, in the order of ``structure``; error messages call them ``name``."""
    if isinstance(structure, dict):
        if type(frames) is not dict and not isinstance(frames, Mapping):  # a Mapping is slow to ask for
            refuse_none(name, frames)
            raise Refusal.NO_DICT.error(name=name, kind=type(frames).__name__, keys=listed(structure))
        if frames.keys() != structure.keys():
            raise Refusal.OTHER_KEYS.error(name=name, given=listed(frames), keys=listed(structure))
        for key, part in structure.items():
            _flatten(part, frames[key], f"{name}[{key!r}]", flat)
    elif isinstance(structure, tuple):
        if not isinstance(frames, (tuple, list)) or len(frames) != len(structure):
            refuse_none(name, frames)
            kind = f"{len(frames)} parts" if isinstance(frames, (tuple, list)) else f"a {type(frames).__name__}"
            raise Refusal.NO_TUPLE.error(name=name, given=kind, count=len(structure))
        for index, part in enumerate(structure):
            _flatten(part, frames[index], f"{name}[{index}]", flat)
    else:
        flat.append(frames)


def _rebuild(structure: Any, frames: Sequence[Any]) -> Any:
    if isinstance(structure, dict):
        return {key: _rebuild(part, frames) for key, part in structure.items()}
    if isinstance(structure, tuple):
        return tuple(_rebuild(part, frames) for part in structure)
    return frames[structure]


def _state(structure: Any, arrays: tuple[ArraySpec, ...]) -> dict[str, Any]:
    if isinstance(structure, dict):
        return {"dict": {key: _state(part, arrays) for key, part in structure.items()}}
    if isinstance(structure, tuple):
        return {"tuple": [_state(part, arrays) for part in structure]}
    array: ArraySpec = arrays[structure]
    shape = list(array.frame.shape) if array.has_axes else []
    return {**array.frame.state(), "shape": shape}


def _structure_from_state(state: dict[str, Any], path: tuple[str | int, ...], arrays: list[ArraySpec]) -> Any:
    if "dict" in state:
        parts = state["dict"]
        return {key: _structure_from_state(parts[key], (*path, key), arrays) for key in sorted(parts)}
    if "tuple" in state:
        return tuple(_structure_from_state(part, (*path, index), arrays) for index, part in enumerate(state["tuple"]))
    has_axes = state["shape"] != []
    arrays.append(ArraySpec(path, FrameSpec.from_state(state if has_axes else state | {"shape": [1]}), has_axes))
    return len(arrays) - 1
