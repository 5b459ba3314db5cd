"""Observations as the frames that they are stacks of: shared with their neighbours, an array only while one is used.

A frame belongs to as many observations as a stack is deep. Kept as arrays these cost a stack each; as ``LazyFrames``,
which hold references, they cost a frame each. The idea is OpenAI Baselines' (``common/atari_wrappers.py``), and
Gymnasium had it until version 1.0. Baselines' class keeps the array that it was once asked for and drops the frames, so
an observation that was looked at costs a whole stack from then on (its issues 295, 896 and 943). These never keep it.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError

StackAxis: TypeAlias = Literal["first", "last", "channels"]
"""Along which axis frames are put together, oldest first.

============  ==============================================  ==================  ===============================
axis          is                                              4 frames (84, 84)   4 frames (84, 84, 3)
============  ==============================================  ==================  ===============================
``first``     a new first one, as Gymnasium's                 (4, 84, 84)         (4, 84, 84, 3)
``last``      a new last one                                  (84, 84, 4)         (84, 84, 3, 4)
``channels``  the frames' own last one, as Baselines'         (84, 336)           (84, 84, 12)
============  ==============================================  ==================  ===============================
"""

STACK_AXES: tuple[StackAxis, ...] = get_args(StackAxis)
DLPACK_CPU = (1, 0)  # kDLCPU and the number of the device


class LazyArray(ABC):
    """What stands for an array and puts it together whenever it is asked for."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # as of arrays: comparing gives no single answer

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
        """Write the array into ``out``, which has its shape; another dtype is cast to, as ``astype`` does."""

    @property
    def ndim(self) -> int:
        """Number of axes of the array."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Put the array together: a new one each time, which the caller owns.

        ``dtype``: of the array, that of the frames by default. Raises ``InvalidSettingsError``, a ``ValueError`` as
        NumPy asks, for ``copy=False``: there is no array yet that could be given.
        """
        if copy is False:
            raise InvalidSettingsError(
                f"copy is False: {type(self).__name__} is put together anew for each array; leave copy out"
            )
        array = np.empty(self.shape, self.dtype if dtype is None else dtype)
        self.write(array)
        return array

    def __dlpack__(self, **asked: Any) -> Any:
        """Hand an array over by DLPack: so ``torch.as_tensor(lazy)`` takes one array, not one number after another."""
        return np.asarray(self).__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CPU

    def __eq__(self, other: object) -> Any:
        """Compare element by element, as the array does; ``np.array_equal`` gives one answer."""
        return np.asarray(self) == (np.asarray(other) if isinstance(other, LazyArray) else other)

    def __ne__(self, other: object) -> Any:
        return np.asarray(self) != (np.asarray(other) if isinstance(other, LazyArray) else other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"


class LazyFrames(LazyArray):
    """A stack of frames that are shared with other stacks, and never kept as an array.

    >>> frames = [np.full((84, 84), step, np.uint8) for step in range(5)]
    >>> first, second = LazyFrames(frames[:4]), LazyFrames(frames[1:])  # three frames are in both, once
    >>> first
    LazyFrames(shape=(4, 84, 84), dtype=uint8)
    >>> np.asarray(second)[:, 0, 0], second[3] is frames[4]
    (array([1, 2, 3, 4], dtype=uint8), False)
    >>> np.shares_memory(second[3], frames[4]), second[3].flags.writeable
    (True, False)

    What it is asked, it answers as the array would: ``lazy[i]`` is ``np.asarray(lazy)[i]`` whatever the axis. So it
    does what Gymnasium's did, which stacked on a new first axis, and with ``axis="channels"`` what Baselines' does:

    ======================  =================================  ===================================
    call                    ``first``, and ``last``            ``channels``
    ======================  =================================  ===================================
    ``len(lazy)``           of the array's first axis          the same
    ``lazy[i]``             a part of the array                the same
    ``lazy.count()``        how many frames                    length of the last axis (Baselines)
    ``lazy.frame(i)``       frame i                            ``array[..., i]`` (Baselines)
    ======================  =================================  ===================================

    A frame that is given out alone (``frame(i)``, and ``lazy[i]`` along the first axis) is the shared one, read-only;
    all else is a new array. Whoever makes one gives frames that nobody writes to any more: ``FrameStack`` of
    ``framestow.integrations.gymnasium`` copies each once and makes it read-only.

    ``==`` compares element by element and ``hash`` is refused, both as of an array. In one pickle a frame is written
    once, however many stacks have it. ``copy`` shares the frames, and so does ``deepcopy`` those that nobody can write
    to: wrappers copy observations deeply, and would end the sharing.
    """

    __slots__ = ("_axis", "_frames")

    def __init__(self, frames: Iterable[npt.ArrayLike], axis: StackAxis = "first") -> None:
        """``frames``: at least one, oldest first, all of one shape and dtype; arrays are shared, not copied.

        Raises ``InvalidSettingsError`` if they differ, or have no last axis to be joined along.
        """
        self._frames = tuple(map(np.asarray, frames))
        self._axis: StackAxis = axis
        if not self._frames:
            raise InvalidSettingsError("frames are none: a stack has at least one; give the last ones, oldest first")
        shape, dtype = self._frames[0].shape, self._frames[0].dtype
        for place, frame in enumerate(self._frames):
            if frame.shape != shape or frame.dtype != dtype:
                raise InvalidSettingsError(
                    f"frame {place} is {frame.dtype} of shape {frame.shape}: the first one is {dtype} of shape "
                    f"{shape}, and a stack is of one kind; give the frames of one environment"
                )
        if axis not in STACK_AXES:
            raise InvalidSettingsError(f"axis is {axis!r}: must be one of {', '.join(map(repr, STACK_AXES))}")
        if axis == "channels" and not shape:
            raise InvalidSettingsError("frames are numbers: they have no last axis to be joined along; take 'first'")

    @property
    def axis(self) -> StackAxis:
        """Along which axis the frames are put together."""
        return self._axis

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array.

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
        """How many frames; along ``channels`` how long the last axis is, as Baselines counts.

        >>> LazyFrames([np.zeros((84, 84, 1))] * 4, axis="channels").count()
        4
        """
        return self.shape[-1] if self._axis == "channels" else len(self._frames)

    def frame(self, number: int) -> npt.NDArray[Any]:
        """Give frame ``number``, 0 being the oldest and -1 the newest: a read-only view, without putting all together.

        Along ``channels`` it is that place of the last axis, without the axis, as Baselines gives it. Raises
        ``IndexError`` where there is none.

        >>> LazyFrames([np.zeros((84, 84, 1))] * 4, axis="channels").frame(-1).shape
        (84, 84)
        """
        if self._axis != "channels":
            return read_only(self._frames[number])
        place = range(self.count())[number]
        channels = self._frames[0].shape[-1]
        return read_only(self._frames[place // channels])[..., place % channels]

    def write(self, out: npt.NDArray[Any]) -> None:
        """Write the array into ``out``, which has its shape; another dtype is cast to, as ``astype`` does."""
        if self._axis == "channels":
            frame = self._frames[0].shape
            out = out.reshape(*frame[:-1], len(self._frames), frame[-1])  # splitting an axis is always a view
            out = np.moveaxis(out, -2, 0)
        elif self._axis == "last":
            out = np.moveaxis(out, -1, 0)
        for place, each in enumerate(self._frames):
            out[place] = each

    def __getitem__(self, index: Any) -> Any:
        """Give that part of the array; of a single frame along the first axis, the frame itself, read-only."""
        if self._axis == "first":
            if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
                return read_only(self._frames[index])
            if isinstance(index, slice) and self._frames[index]:
                return np.asarray(LazyFrames(self._frames[index]))
        part = np.asarray(self)[index]
        return part.copy() if isinstance(part, np.ndarray) else part  # a view would keep all of the array

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return map(read_only, self._frames) if self._axis == "first" else iter(np.asarray(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._frames, tuple(map(is_frozen, self._frames)), self._axis)

    def __copy__(self) -> LazyFrames:
        return LazyFrames(self._frames, self._axis)

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyFrames:
        frames = [frame if is_frozen(frame) else copy.deepcopy(frame, memo) for frame in self._frames]
        return LazyFrames(frames, self._axis)


class LazyFramesBatch(LazyArray):
    """Observations of several environments, each its own ``LazyFrames``; stands for the array ``(n, *shape)`` of them.

    ``batch[i]`` is the observation of environment ``i``, to be kept; a slice, a list of numbers or a mask gives a
    smaller batch. All else is as for ``LazyFrames``.

    >>> frames = [np.zeros((84, 84), np.uint8)] * 4
    >>> batch = LazyFramesBatch([LazyFrames(frames), LazyFrames(frames)])
    >>> batch.shape, batch[1], len(batch[[True, False]])
    ((2, 4, 84, 84), LazyFrames(shape=(4, 84, 84), dtype=uint8), 1)
    """

    __slots__ = ("_observations",)

    def __init__(self, observations: Iterable[LazyFrames]) -> None:
        """``observations``: at least one, all of one shape and dtype, or ``InvalidSettingsError`` is raised."""
        self._observations = tuple(observations)
        kinds = {(lazy.shape, lazy.dtype) for lazy in self._observations}
        if len(kinds) != 1:
            raise InvalidSettingsError(
                f"observations are of the shapes and dtypes {sorted(map(str, kinds))}: a batch has at least one, and "
                "all alike; give those of one vector environment"
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
        """Write the array into ``out``, which has its shape; another dtype is cast to, as ``astype`` does."""
        for place, lazy in enumerate(self._observations):
            lazy.write(out[place])

    def __getitem__(self, index: Any) -> Any:
        """Give the observation of one environment, or a batch of several; a tuple gives that part of the array."""
        if isinstance(index, tuple):
            part = np.asarray(self)[index]
            return part.copy() if isinstance(part, np.ndarray) else part
        chosen = np.arange(len(self))[index]
        if chosen.ndim == 0:
            return self._observations[chosen]
        if chosen.ndim == 1 and chosen.size:
            return LazyFramesBatch(self._observations[place] for place in chosen)
        return np.asarray(self)[index]

    def __iter__(self) -> Iterator[LazyFrames]:
        return iter(self._observations)

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyFramesBatch, (self._observations,)


def read_only(frame: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give ``frame`` as an array that cannot be written to: itself, or a view."""
    if frame.flags.writeable:
        frame = frame.view()
        frame.flags.writeable = False
    return frame


def is_frozen(frame: npt.NDArray[Any]) -> bool:
    """Whether nobody can write to ``frame``, neither here nor through another array that it is a view of."""
    return not frame.flags.writeable and (frame.flags.owndata or isinstance(frame.base, bytes))  # bytes: of a pickle


def _unpickled(frames: tuple[npt.NDArray[Any], ...], were_frozen: tuple[bool, ...], axis: StackAxis) -> LazyFrames:
    for frame, was_frozen in zip(frames, were_frozen, strict=True):
        if was_frozen:
            frame.flags.writeable = False  # which a pickle does not keep
    return LazyFrames(frames, axis)
