"""Stack the last frames of each stream into observations, and pad the beginning of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow._core import FrameStacks
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, ObservationSpec

NOT_BEGUN = -1  # age of a stream without frames

StackPadding: TypeAlias = Literal["first_frame", "zeros"]
"""Padding of a stack before an episode's first frame f0: copies of f0, or zeros.

===============  ======================================  ======================================================
padding          first stacks of an episode              used by
===============  ======================================  ======================================================
``first_frame``  ``f0 f0 f0 f0 | f0 f0 f0 f1 | ...``     Gymnasium, Baselines' ``FrameStack``, envpool
``zeros``        ``0 0 0 f0 | 0 0 f0 f1 | ...``          Mnih et al. (2015) in their Lua code, Dopamine, Berkeley
===============  ======================================  ======================================================

Native code pads in ``_core/stack_padding.hpp``, Python in ``pad_window``.
"""

STACK_PADDINGS: tuple[StackPadding, ...] = get_args(StackPadding)


def pad_window(window: npt.NDArray[Any], num_padded: int, padding: StackPadding) -> None:
    """Fill the first ``num_padded`` frames of ``window``, ``(length, *frame)``; the others are already set.

    >>> window = np.array([7, 7, 3, 4])
    >>> pad_window(window, 2, "zeros")
    >>> window
    array([0, 0, 3, 4])
    """
    if num_padded:
        window[:num_padded] = 0 if padding == "zeros" else window[num_padded]


class FrameStacker:
    """The current stacked observations of n streams, for the policy.

    At the beginning of an episode, the first frame or zeros fill the stack (``StackPadding``)::

        first_frame    f0 f0 f0 f0 | f0 f0 f0 f1 | f0 f0 f1 f2 | f0 f1 f2 f3 | f1 f2 f3 f4
        zeros           0  0  0 f0 |  0  0 f0 f1 |  0 f0 f1 f2 | f0 f1 f2 f3 | f1 f2 f3 f4

    Each frame is copied once, into a ring per stream; ``stacks`` builds the observations.

    >>> stacker = FrameStacker(FrameSpec((1, 1)), stack=3, num_streams=1)
    >>> stacker.begin(np.array([0]), np.array([[[7]]], np.uint8))
    >>> stacker.append(np.array([0]), np.array([[[8]]], np.uint8))
    >>> stacker.stacks().ravel()
    array([7, 7, 8], dtype=uint8)
    """

    def __init__(self, spec: FrameSpec, stack: int, num_streams: int, padding: StackPadding = "first_frame") -> None:
        self._recent = np.zeros((num_streams, stack, *spec.shape), spec.dtype)
        self._ages = np.full(num_streams, NOT_BEGUN, np.int64)  # frames since the episode's first frame
        self._stacks = FrameStacks(self._recent, self._ages, padding)

    @property
    def nbytes(self) -> int:
        """Bytes of the rings."""
        return self._recent.nbytes + self._ages.nbytes

    @property
    def has_begun(self) -> npt.NDArray[np.bool_]:
        """Mask of the streams that have a frame, ``(num_streams,)``."""
        return np.asarray(self._ages != NOT_BEGUN)

    def begin(self, streams: npt.NDArray[np.integer], frames: npt.NDArray[Any]) -> None:
        """Start an episode on each of ``streams`` with its first frame, ``frames`` of shape ``(m, *frame)``."""
        self._stacks.begin(streams, frames)

    def append(self, streams: npt.NDArray[np.integer], frames: npt.NDArray[Any]) -> None:
        """Add the next frame of each of ``streams``, ``frames`` of shape ``(m, *frame)``."""
        self._stacks.append(streams, frames)

    def unstack(
        self,
        streams: npt.NDArray[np.int32],
        is_open: npt.NDArray[np.bool_],
        observations: Sequence[npt.NDArray[Any]],
        next_observations: Sequence[npt.NDArray[Any]],
        pieces: Sequence[tuple[int, int]],
        flags: npt.NDArray[np.uint8],
    ) -> tuple[tuple[npt.NDArray[Any], ...], bool]:
        """Compare observations with the stacks of ``streams`` and with the next observations (``FrameStacks.unstack``).

        All sequences have one entry per leaf. Returns the newest frames of the next observations, and whether all flags
        are still set.
        """
        frames = np.empty((len(streams), *self._recent.shape[2:]), self._recent.dtype)
        are_set = self._stacks.unstack(
            streams, is_open, observations[0], next_observations[0], *pieces[0], frames, flags
        )
        return (frames,), are_set

    def stacks(self) -> npt.NDArray[Any]:
        """Return the current stacks of all streams as a new array ``(num_streams, stack, *frame)``.

        After the end of an episode, its last stack stays until the next ``begin``. A stream without frames is all
        zeros.
        """
        stacks = np.empty_like(self._recent)
        self._stacks.write(stacks)
        return stacks


class Stacker(Protocol):
    """Interface of ``FrameStacker`` and ``KeyedStacker``."""

    @property
    def nbytes(self) -> int:
        """Bytes of the rings."""

    def begin(self, streams: npt.NDArray[np.integer], frames: Any) -> None:
        """Start an episode on each of ``streams`` with its first frame."""

    def append(self, streams: npt.NDArray[np.integer], frames: Any) -> None:
        """Add the next frame of each of ``streams``."""

    def unstack(
        self,
        streams: npt.NDArray[np.int32],
        is_open: npt.NDArray[np.bool_],
        observations: Sequence[npt.NDArray[Any]],
        next_observations: Sequence[npt.NDArray[Any]],
        pieces: Sequence[tuple[int, int]],
        flags: npt.NDArray[np.uint8],
    ) -> tuple[tuple[npt.NDArray[Any], ...], bool]:
        """Compare observations with the stacks of ``streams`` and with the next observations."""

    def stacks(self) -> Any:
        """Return the current stacks of all streams as new arrays."""


class KeyedStacker:
    """The current stacks of observations of several arrays, with one ``FrameStacker`` per leaf.

    Frames and stacks are tuples with one array per leaf.
    """

    def __init__(
        self, spec: ObservationSpec, stack: int, num_streams: int, padding: StackPadding = "first_frame"
    ) -> None:
        self._stackers = [FrameStacker(frame, stack, num_streams, padding) for frame in spec.leaf_frames]

    @property
    def nbytes(self) -> int:
        """Bytes of the rings of all leaves."""
        return sum(stacker.nbytes for stacker in self._stackers)

    def begin(self, streams: npt.NDArray[np.integer], frames: tuple[npt.NDArray[Any], ...]) -> None:
        """Start an episode on each of ``streams`` with its first frame, ``(m, *frame)`` for each leaf."""
        for stacker, part in zip(self._stackers, frames, strict=True):
            stacker.begin(streams, part)

    def append(self, streams: npt.NDArray[np.integer], frames: tuple[npt.NDArray[Any], ...]) -> None:
        """Add the next frame of each of ``streams``, ``(m, *frame)`` for each leaf."""
        for stacker, part in zip(self._stackers, frames, strict=True):
            stacker.append(streams, part)

    def unstack(
        self,
        streams: npt.NDArray[np.int32],
        is_open: npt.NDArray[np.bool_],
        observations: Sequence[npt.NDArray[Any]],
        next_observations: Sequence[npt.NDArray[Any]],
        pieces: Sequence[tuple[int, int]],
        flags: npt.NDArray[np.uint8],
    ) -> tuple[tuple[npt.NDArray[Any], ...], bool]:
        """Compare observations with the stacks of ``streams`` and with the next observations."""
        frames, are_set = [], False
        for stacker, *leaf in zip(self._stackers, observations, next_observations, pieces, strict=True):
            before, after, piece = leaf
            (newest,), are_set = stacker.unstack(streams, is_open, [before], [after], [piece], flags)
            frames.append(newest)
        return tuple(frames), are_set  # a flag that one leaf clears stays cleared

    def stacks(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the current stacks of all streams as new arrays ``(num_streams, stack, *frame)``, one per leaf."""
        return tuple(stacker.stacks() for stacker in self._stackers)


def make_stacker(spec: AnySpec, stack: int, num_streams: int, padding: StackPadding = "first_frame") -> Stacker:
    """Return a new stacker for observations of ``spec``."""
    kind = KeyedStacker if isinstance(spec, ObservationSpec) else FrameStacker
    return kind(spec, stack, num_streams, padding)  # type: ignore[arg-type]  # mypy joins the two constructors
