"""Observations of several arrays: Dict and Tuple spaces, nested, as the frames that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec


def map_arrays(change: Callable[..., Any], arrays: Any, *others: Any) -> Any:
    """Give ``arrays``, nested dicts and tuples of them, with each replaced by what ``change`` makes of it.

    ``others``, made alike, give it an argument more each.

    >>> import numpy as np
    >>> map_arrays(len, {"camera": np.zeros((3, 8, 8)), "joints": (np.zeros(3), np.zeros(3))})
    {'camera': 3, 'joints': (3, 3)}
    """
    if isinstance(arrays, Mapping):
        return {key: map_arrays(change, part, *(other[key] for other in others)) for key, part in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(map_arrays(change, *parts) for parts in zip(arrays, *others, strict=True))
    return change(arrays, *others)


Frames: TypeAlias = "npt.NDArray[Any] | tuple[npt.NDArray[Any], ...]"
"""Frames as storages take them: one array, or one for each leaf of an ``ObservationSpec``, in the order of its leaves.
All of them have the same leading axes."""

SPACE, FRAMES = "observation_space", "frames"  # what messages call the outermost of what they are about
NUMBERS = "biuf"  # kinds of dtypes


@dataclass(frozen=True)
class Leaf:
    """One array of an observation: where it stands in it, and how its frames are kept.

    A number without axes, as of a ``Discrete``, is kept as a vector of one element, and handed out as it came.
    """

    path: tuple[str | int, ...]
    frame: FrameSpec
    has_axes: bool = True

    @property
    def key(self) -> str:
        """The path as a name for tables: keys and places joined by points.

        >>> Leaf(("arm", 0), FrameSpec((7,), np.float32)).key
        'arm.0'
        """
        return ".".join(map(str, self.path))

    @property
    def place(self) -> str:
        """The path as code that stands behind the name of an observation.

        >>> Leaf(("arm", 0), FrameSpec((7,), np.float32)).place
        "['arm'][0]"
        """
        return "".join(f"[{key!r}]" for key in self.path)

    def as_stored(self, frames: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give frames as they came, ``(n, *shape)``, with the axis that a number lacks."""
        return frames if self.has_axes else frames.reshape(*frames.shape, 1)

    def of(self, observation: Any) -> npt.NDArray[Any]:
        """Give the frames of this leaf out of an observation, as they are kept: a view.

        >>> Leaf(("arm", 0), FrameSpec((1,)), has_axes=False).of({"arm": (np.array([7, 8]),)}).tolist()
        [[7], [8]]
        """
        for key in self.path:
            observation = observation[key]
        return self.as_stored(observation)

    def as_observed(self, frames: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give a view of frames as they are kept, behind any leading axes, without the axis that a number lacks."""
        return frames if self.has_axes else frames[..., 0]


@dataclass(frozen=True)
class ObservationSpec:
    """An observation of several arrays: a dict by key or a tuple of frames, and of further dicts and tuples.

    Its *leaves*, the arrays, have one order: keys ascending, a tuple's parts as they stand, depth first. So the order
    in which a space names its keys changes nothing. ``structure`` is made like the observation, with the number of
    the leaf where that has an array.

    >>> spec = observation_spec({"joints": FrameSpec((7,), np.float32), "camera": FrameSpec((64, 64, 3))})
    >>> [leaf.key for leaf in spec.leaves], spec.nbytes, spec.structure
    (['camera', 'joints'], 12316, {'camera': 0, 'joints': 1})
    >>> {key: frame.shape for key, frame in spec.rebuilt(spec.empty(2)).items()}
    {'camera': (2, 64, 64, 3), 'joints': (2, 7)}
    """

    structure: Any
    leaves: tuple[Leaf, ...]

    @property
    def leaf_frames(self) -> tuple[FrameSpec, ...]:
        """How the frames of each leaf are kept."""
        return tuple(leaf.frame for leaf in self.leaves)

    @property
    def nbytes(self) -> int:
        """Bytes of one uncompressed frame of every leaf."""
        return sum(leaf.frame.nbytes for leaf in self.leaves)

    def flattened(self, frames: Any) -> list[Any]:
        """Give what stands in ``frames`` for each leaf, as it stands there.

        Raises ``InvalidStepError`` naming the key unless ``frames`` has all keys of this observation, and no others.
        """
        flat: list[Any] = []
        _flatten(self.structure, frames, FRAMES, flat)
        return flat

    def rebuilt(self, frames: Frames) -> Any:
        """Put arrays, one a leaf, into the form of this observation: views where a number lacks its axis."""
        return self.arranged([leaf.as_observed(part) for leaf, part in zip(self.leaves, frames, strict=True)])

    def arranged(self, parts: Sequence[Any]) -> Any:
        """Put anything that there is one of for each leaf into the form of this observation, as it is."""
        return _rebuilt(self.structure, parts)

    def empty(self, *leading: int) -> tuple[npt.NDArray[Any], ...]:
        """Make arrays for frames behind the axes ``leading``, one a leaf, with arbitrary contents."""
        return tuple(leaf.frame.empty(*leading) for leaf in self.leaves)

    def state(self) -> dict[str, Any]:
        """What a snapshot keeps: nested JSON-able values, ``FrameSpec.state`` for each leaf."""
        return _state(self.structure, self.leaves)


AnySpec: TypeAlias = "FrameSpec | ObservationSpec"


def observation_spec(space: Any) -> AnySpec:
    """Read the spec off a Gymnasium space by its attributes, or off a dict or tuple of spaces, without importing it.

    ===================================  ========================================================
    space                                gives
    ===================================  ========================================================
    ``Box`` or ``FrameSpec``             ``FrameSpec``
    ``Dict``, a mapping by strings       an ``ObservationSpec`` whose observations are dicts
    ``Tuple``, a tuple or list           one whose observations are tuples
    within those, shape ``()``           a number: ``Discrete``, or a ``Box`` without axes
    within those, any other shape        ``Box``, ``MultiDiscrete``, ``MultiBinary``
    ``Text``, ``Graph``, ``Sequence``,   refused with ``InvalidSettingsError``, which names
    ``OneOf``, Python objects            the key
    ===================================  ========================================================
    """
    parts = _parts_of(space)
    if isinstance(space, ObservationSpec):
        return space
    if parts is None:
        return FrameSpec.from_space(space)
    leaves: list[Leaf] = []
    structure = _structure(space, (), leaves)
    if not leaves:
        raise InvalidSettingsError(f"{SPACE} is {space!r}: it must have at least one part; give a Dict with a Box")
    return ObservationSpec(structure, tuple(leaves))


def spec_from_state(state: dict[str, Any]) -> AnySpec:
    """Read back what ``state`` of either kind gave."""
    if "shape" in state:
        return FrameSpec.from_state(state)
    leaves: list[Leaf] = []
    return ObservationSpec(_structure_from_state(state, (), leaves), tuple(leaves))


def only_frame(spec: AnySpec, what: str) -> FrameSpec:
    """Give the spec of observations of one array; ``InvalidSettingsError`` naming the keys where there are several.

    ``what``: who takes no others, as a message says it: "an export to the DQN Replay Dataset takes".
    """
    if isinstance(spec, FrameSpec):
        return spec
    keys = ", ".join(leaf.key for leaf in spec.leaves)
    raise InvalidSettingsError(f"observations are of {keys}: {what} one array a frame; keep that key in a memory alone")


def each_leaf(change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], frames: Frames) -> Frames:
    """Apply ``change`` to frames as storages take them: to the one array, or to that of each leaf.

    >>> each_leaf(lambda frames: frames[:1], (np.array([1, 2]), np.array([3, 4])))
    (array([1]), array([3]))
    """
    return tuple(map(change, frames)) if isinstance(frames, tuple) else change(frames)


def _parts_of(space: Any) -> Mapping[Any, Any] | Sequence[Any] | None:
    """The spaces that ``space`` is made of; None where it is none of several."""
    if isinstance(space, Mapping):
        return space
    if isinstance(space, Sequence) and not isinstance(space, str):  # Gymnasium's OneOf has spaces too, and is none
        return space
    return None


def _structure(space: Any, path: tuple[str | int, ...], leaves: list[Leaf]) -> Any:
    """Number the leaves of ``space``, which stands at ``path``, and add them to ``leaves``."""
    parts = _parts_of(space)
    if isinstance(parts, Mapping):
        unnamed = [key for key in parts if not isinstance(key, str)]
        if unnamed:
            raise InvalidSettingsError(f"{_name(path)} has the key {unnamed[0]!r}: keys must be strings; rename it")
        return {key: _structure(parts[key], (*path, key), leaves) for key in sorted(parts)}
    if parts is not None:
        return tuple(_structure(part, (*path, place), leaves) for place, part in enumerate(parts))
    leaves.append(_leaf(space, path))
    return len(leaves) - 1


def _leaf(space: Any, path: tuple[str | int, ...]) -> Leaf:
    if isinstance(space, FrameSpec):
        return Leaf(path, space)
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    try:
        if shape is None or dtype is None or np.dtype(dtype).kind not in NUMBERS:
            raise InvalidSettingsError("a part of an observation is one array of numbers of a fixed shape")
        if shape == ():
            return Leaf(path, FrameSpec((1,), dtype), has_axes=False)
        return Leaf(path, FrameSpec.from_space(space))
    except (InvalidSettingsError, TypeError) as error:
        raise InvalidSettingsError(
            f"{_name(path)} is {space!r}: {str(error).partition(';')[0]}; leave it out or convert it in a wrapper"
        ) from error


def _name(path: tuple[str | int, ...]) -> str:
    return SPACE + "".join(f"[{key!r}]" for key in path)


def _flatten(structure: Any, frames: Any, name: str, flat: list[Any]) -> None:
    """Add to ``flat`` what stands in ``frames``, which messages call ``name``, for the leaves of ``structure``."""
    if isinstance(structure, dict):
        if not isinstance(frames, Mapping):
            raise InvalidStepError(
                f"{name} are a {type(frames).__name__}: this memory takes a dict of {', '.join(structure)}; give one "
                "array of frames for each key"
            )
        if frames.keys() != structure.keys():
            raise InvalidStepError(
                f"{name} have the keys {', '.join(map(str, frames))}: this memory takes {', '.join(structure)}; give "
                "one array of frames for each of these, and no other"
            )
        for key, part in structure.items():
            _flatten(part, frames[key], f"{name}[{key!r}]", flat)
    elif isinstance(structure, tuple):
        if not isinstance(frames, (tuple, list)) or len(frames) != len(structure):
            told = f"{len(frames)} parts" if isinstance(frames, (tuple, list)) else f"a {type(frames).__name__}"
            raise InvalidStepError(
                f"{name} are {told}: this memory takes a tuple of {len(structure)} parts; give one array of frames "
                "for each"
            )
        for place, part in enumerate(structure):
            _flatten(part, frames[place], f"{name}[{place}]", flat)
    else:
        flat.append(frames)


def _rebuilt(structure: Any, frames: Sequence[Any]) -> Any:
    if isinstance(structure, dict):
        return {key: _rebuilt(part, frames) for key, part in structure.items()}
    if isinstance(structure, tuple):
        return tuple(_rebuilt(part, frames) for part in structure)
    return frames[structure]


def _state(structure: Any, leaves: tuple[Leaf, ...]) -> dict[str, Any]:
    if isinstance(structure, dict):
        return {"dict": {key: _state(part, leaves) for key, part in structure.items()}}
    if isinstance(structure, tuple):
        return {"tuple": [_state(part, leaves) for part in structure]}
    leaf: Leaf = leaves[structure]
    shape = list(leaf.frame.shape) if leaf.has_axes else []
    return {**leaf.frame.state(), "shape": shape}


def _structure_from_state(state: dict[str, Any], path: tuple[str | int, ...], leaves: list[Leaf]) -> Any:
    if "dict" in state:
        parts = state["dict"]
        return {key: _structure_from_state(parts[key], (*path, key), leaves) for key in sorted(parts)}
    if "tuple" in state:
        return tuple(_structure_from_state(part, (*path, place), leaves) for place, part in enumerate(state["tuple"]))
    has_axes = state["shape"] != []
    leaves.append(Leaf(path, FrameSpec.from_state(state if has_axes else state | {"shape": [1]}), has_axes))
    return len(leaves) - 1
