"""Observations that share their frames: ``LazyFrames`` and ``LazyFramesBatch``.

Consecutive stacked observations have most frames in common. As arrays, each observation takes the memory of a whole
stack; as ``LazyFrames``, which only reference frames, it takes one frame.

The idea is from OpenAI Baselines (``common/atari_wrappers.py``); Gymnasium had it until version 1.0. The Baselines
class caches the array on first use and then takes the memory of a whole stack (its issues 295, 896 and 943). Here,
converting an observation to an array does not keep the array alive.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.checks import as_array, one_of
from framestow.errors import InvalidSettingsError

StackAxis: TypeAlias = Literal["first", "last", "channels"]
"""The axis that frames are stacked along, oldest first.

============  ==============================================  ==================  ===============================
value         axis                                            4 frames (84, 84)   4 frames (84, 84, 3)
============  ==============================================  ==================  ===============================
``first``     a new first axis, as in Gymnasium               (4, 84, 84)         (4, 84, 84, 3)
``last``      a new last axis                                 (84, 84, 4)         (84, 84, 3, 4)
``channels``  the last axis of the frames, as in Baselines    (84, 336)           (84, 84, 12)
============  ==============================================  ==================  ===============================
"""

STACK_AXES: tuple[StackAxis, ...] = get_args(StackAxis)
DLPACK_CPU = (1, 0)  # kDLCPU, device number


class LazyArray(ABC):
    """Base class of objects that behave like an array and build it on each use."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # as for arrays, == does not return a single bool

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the frames."""

    @abstractmethod
    def write(self, out: npt.NDArray[Any]) -> None:
        """Write the array into ``out`` of the same shape; another dtype is cast as ``astype`` does."""

    @property
    def ndim(self) -> int:
        """Number of axes of the array."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return a new array, of the frames' dtype unless ``dtype`` is given.

        Raises:
            InvalidSettingsError: ``copy=False`` (a ``ValueError``, as NumPy requires).
        """
        if copy is False:
            raise InvalidSettingsError(
                f"copy is False: {type(self).__name__} always returns a new array; leave copy out"
            )
        array = np.empty(self.shape, self.dtype if dtype is None else dtype)
        self.write(array)
        return array

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a NumPy function with arrays."""
        return func(*_as_arrays(args), **_as_arrays(kwargs))

    def __dlpack__(self, **asked: Any) -> Any:
        """Export a new array by DLPack, so that ``torch.as_tensor(lazy)`` does not convert number by number."""
        return np.asarray(self).__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CPU

    def __eq__(self, other: object) -> Any:
        """Compare element by element, as arrays do; use ``np.array_equal`` for a single bool."""
        return np.asarray(self) == (np.asarray(other) if isinstance(other, LazyArray) else other)

    def __ne__(self, other: object) -> Any:
        return np.asarray(self) != (np.asarray(other) if isinstance(other, LazyArray) else other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"


class LazyFrames(LazyArray):
    """A stacked observation that shares its frames with other observations.

    >>> import numpy as np
    >>> from framestow.integrations.gymnasium import LazyFrames
    >>> frames = [np.full((84, 84), step, np.uint8) for step in range(5)]
    >>> # three frames are shared
    >>> first, second = (
    ...     LazyFrames(frames[:4]),
    ...     LazyFrames(frames[1:]),
    ... )
    >>> first
    LazyFrames(shape=(4, 84, 84), dtype=uint8)
    >>> np.asarray(second)[:, 0, 0], second[3] is frames[4]
    (array([1, 2, 3, 4], dtype=uint8), False)
    >>> np.shares_memory(second[3], frames[4]), second[3].flags.writeable
    (True, False)

    It behaves like its array: ``lazy[i]`` equals ``np.asarray(lazy)[i]``. With ``axis="first"`` it works like
    Gymnasium's former class, with ``axis="channels"`` like the class of Baselines:

    ======================  =================================  ===================================
    call                    ``first`` and ``last``             ``channels``
    ======================  =================================  ===================================
    ``len(lazy)``           length of the array's first axis   the same
    ``lazy[i]``             element i of the array             the same
    ``lazy.count()``        number of frames                   length of the last axis (Baselines)
    ``lazy.frame(i)``       frame i                            ``array[..., i]`` (Baselines)
    ======================  =================================  ===================================

    Single frames (``frame(i)``, and ``lazy[i]`` along the first axis) are read-only views of the shared frames; all
    other results are new arrays. Do not write to the frames after creating ``LazyFrames``. ``FrameStack`` of
    ``framestow.integrations.gymnasium`` copies each frame once and makes it read-only.

    As for arrays, ``==`` compares element by element and ``hash`` raises ``TypeError``. A pickle contains a shared
    frame only once. ``copy`` shares the frames; ``deepcopy`` shares the read-only ones, since wrappers often deep-copy
    observations.
    """

    __slots__ = ("_axis", "_frames")

    def __init__(self, frames: Iterable[npt.ArrayLike], axis: StackAxis = "first") -> None:
        """Create an observation from at least one frame, oldest first; arrays are referenced, not copied.

        Raises:
            InvalidSettingsError: frames of different shapes or dtypes, or without the axis to join along.
        """
        if not isinstance(frames, Iterable) or isinstance(frames, (str, bytes, Mapping)):
            raise InvalidSettingsError(f"frames is {frames!r}: it must be a list of arrays, oldest first; give [frame]")
        self._frames = tuple(as_array("a frame", frame) for frame in frames)
        self._axis: StackAxis = axis
        if not self._frames:
            raise InvalidSettingsError("frames are empty: a stack needs at least one frame; give them oldest first")
        shape, dtype = self._frames[0].shape, self._frames[0].dtype
        for index, frame in enumerate(self._frames):
            if frame.shape != shape or frame.dtype != dtype:
                raise InvalidSettingsError(
                    f"frame {index} is {frame.dtype} of shape {frame.shape}: it must be {dtype} of shape {shape} as "
                    "the first frame; give the frames of one environment"
                )
        one_of("axis", axis, STACK_AXES)
        if axis == "channels" and not shape:
            raise InvalidSettingsError("frames are scalars: axis='channels' needs frames with an axis; use 'first'")

    @property
    def axis(self) -> StackAxis:
        """The axis that the frames are stacked along."""
        return self._axis

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array.

        >>> import numpy as np
        >>> from framestow.integrations.gymnasium import LazyFrames
        >>> frames = [np.zeros((84, 84, 1), np.uint8)] * 4
        >>> LazyFrames(frames, axis="channels").shape, LazyFrames(frames).shape
        ((84, 84, 4), (4, 84, 84, 1))
        """
        depth, frame = len(self._frames), self._frames[0].shape
        if self._axis == "first":
            return (depth, *frame)
        if self._axis == "last":
            return (*frame, depth)
        return (*frame[:-1], depth * frame[-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the frames."""
        return self._frames[0].dtype

    def count(self) -> int:
        """Return the number of frames; for ``channels`` the length of the last axis, as Baselines does.

        >>> import numpy as np
        >>> from framestow.integrations.gymnasium import LazyFrames
        >>> LazyFrames([np.zeros((84, 84, 1))] * 4, axis="channels").count()
        4
        """
        return self.shape[-1] if self._axis == "channels" else len(self._frames)

    def frame(self, number: int) -> npt.NDArray[Any]:
        """Return a read-only view of frame ``number``; 0 is the oldest and -1 the newest.

        For ``channels`` return ``array[..., number]``, as Baselines does. Raises ``IndexError`` for an unknown number.

        >>> import numpy as np
        >>> from framestow.integrations.gymnasium import LazyFrames
        >>> LazyFrames([np.zeros((84, 84, 1))] * 4, axis="channels").frame(-1).shape
        (84, 84)
        """
        if self._axis != "channels":
            return read_only(self._frames[number])
        index = range(self.count())[number]
        channels = self._frames[0].shape[-1]
        return read_only(self._frames[index // channels])[..., index % channels]

    def write(self, out: npt.NDArray[Any]) -> None:
        """Write the array into ``out`` of the same shape; another dtype is cast as ``astype`` does."""
        if self._axis == "channels":
            frame = self._frames[0].shape
            out = out.reshape(*frame[:-1], len(self._frames), frame[-1])  # splitting an axis is always a view
            out = np.moveaxis(out, -2, 0)
        elif self._axis == "last":
            out = np.moveaxis(out, -1, 0)
        _write_frames(self._frames, out)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a NumPy function with arrays. ``np.stack`` of ``LazyFrames`` copies each frame once, not twice.

        >>> import numpy as np
        >>> from framestow.integrations.gymnasium import LazyFrames
        >>> np.stack([LazyFrames([np.zeros((84, 84))] * 4)] * 32).shape
        (32, 4, 84, 84)
        """
        if func is np.stack and len(args) == 1 and not kwargs:
            with suppress(InvalidSettingsError):  # of other objects, or of several shapes: NumPy says what is wrong
                return np.asarray(LazyFramesBatch(args[0]))
        return super().__array_function__(func, types, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        """Return a part of the array; a single frame along the first axis is a read-only view of the shared frame."""
        if self._axis == "first":
            if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
                return read_only(self._frames[index])
            if isinstance(index, slice) and self._frames[index]:
                return np.asarray(LazyFrames(self._frames[index]))
        part = np.asarray(self)[index]
        return part.copy() if isinstance(part, np.ndarray) else part  # a view would keep the whole array alive

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return map(read_only, self._frames) if self._axis == "first" else iter(np.asarray(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self._frames, tuple(map(is_frozen, self._frames)), self._axis)

    def __copy__(self) -> LazyFrames:
        return LazyFrames(self._frames, self._axis)

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyFrames:
        frames = [frame if is_frozen(frame) else copy.deepcopy(frame, memo) for frame in self._frames]
        return LazyFrames(frames, self._axis)


class LazyFramesBatch(LazyArray):
    """Observations of n environments, each a ``LazyFrames``; behaves like an array ``(n, *shape)``.

    ``batch[i]`` is the ``LazyFrames`` of environment ``i``, ready to be stored. A slice, a list of numbers or a mask
    returns a smaller batch. Everything else works as for ``LazyFrames``.

    >>> import numpy as np
    >>> from framestow.integrations.gymnasium import LazyFrames, LazyFramesBatch
    >>> frames = [np.zeros((84, 84), np.uint8)] * 4
    >>> batch = LazyFramesBatch([LazyFrames(frames), LazyFrames(frames)])
    >>> batch.shape, batch[1], len(batch[[True, False]])
    ((2, 4, 84, 84), LazyFrames(shape=(4, 84, 84), dtype=uint8), 1)
    """

    __slots__ = ("_observations",)

    def __init__(self, observations: Iterable[LazyFrames]) -> None:
        """Create a batch of at least one observation; ``InvalidSettingsError`` for different shapes or dtypes."""
        given = tuple(observations) if isinstance(observations, Iterable) else (observations,)
        if not all(isinstance(observation, LazyFrames) for observation in given):
            raise InvalidSettingsError(
                f"observations are {observations!r}: each must be LazyFrames; give those of one vector environment"
            )
        self._observations = given
        kinds = {(lazy.shape, lazy.dtype) for lazy in self._observations}
        if len(kinds) != 1:
            raise InvalidSettingsError(
                f"observations have the shapes and dtypes {sorted(map(str, kinds))}: a batch needs at least one "
                "observation, all of one shape and dtype; give those of one vector environment"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return (len(self._observations), *self._observations[0].shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the frames."""
        return self._observations[0].dtype

    def write(self, out: npt.NDArray[Any]) -> None:
        """Write the array into ``out`` of the same shape; another dtype is cast as ``astype`` does."""
        if out.flags.c_contiguous and all(lazy.axis == "first" for lazy in self._observations):
            frames = [frame for lazy in self._observations for frame in lazy._frames]
            _write_frames(frames, out.reshape(len(frames), *out.shape[2:]))
            return
        for index, lazy in enumerate(self._observations):
            lazy.write(out[index])

    def __getitem__(self, index: Any) -> Any:
        """Return one observation, or a batch of several; for a tuple return a part of the array."""
        if isinstance(index, tuple):
            part = np.asarray(self)[index]
            return part.copy() if isinstance(part, np.ndarray) else part
        chosen = np.arange(len(self))[index]
        if chosen.ndim == 0:
            return self._observations[chosen]
        if chosen.ndim == 1 and chosen.size:
            return LazyFramesBatch(self._observations[number] for number in chosen)
        return np.asarray(self)[index]

    def __iter__(self) -> Iterator[LazyFrames]:
        return iter(self._observations)

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyFramesBatch, (self._observations,)


def _write_frames(frames: Sequence[npt.NDArray[Any]], out: npt.NDArray[Any]) -> None:
    """Write each of ``frames`` into its row of ``out``: in one call, in half of the time, if the rows lie together."""
    if out.flags.c_contiguous and out.ndim > 1:
        np.concatenate(frames, out=out.reshape(len(out) * out.shape[1], *out.shape[2:]), casting="unsafe")
        return
    for index, each in enumerate(frames):
        out[index] = each


def _as_arrays(values: Any) -> Any:
    """Return arguments of a NumPy function with an array for each ``LazyArray``."""
    if isinstance(values, LazyArray):
        return np.asarray(values)
    if isinstance(values, dict):
        return {name: _as_arrays(value) for name, value in values.items()}
    return type(values)(map(_as_arrays, values)) if type(values) in (list, tuple) else values


def read_only(frame: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``frame`` itself or a view of it, read-only."""
    if frame.flags.writeable:
        frame = frame.view()
        frame.flags.writeable = False
    return frame


def is_frozen(frame: npt.NDArray[Any]) -> bool:
    """Return whether ``frame`` is read-only and not a view of a writeable array."""
    if frame.flags.writeable:
        return False
    if isinstance(frame.base, np.ndarray):  # a view, also of an array that a pickle of protocol 5 brought
        return is_frozen(frame.base)
    return frame.flags.owndata or isinstance(frame.base, bytes)  # bytes: unpickled


def _unpickle(frames: tuple[npt.NDArray[Any], ...], were_frozen: tuple[bool, ...], axis: StackAxis) -> LazyFrames:
    for frame, was_frozen in zip(frames, were_frozen, strict=True):
        if was_frozen:
            frame.flags.writeable = False  # pickles do not save this flag
    return LazyFrames(frames, axis)
