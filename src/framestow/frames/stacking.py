"""Stacks of the last frames: the padding rule, and a stacker for n streams."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow._core import FrameStacks
from framestow.frames.frame_spec import FrameSpec

NOT_BEGUN = -1  # the age of a stream that has never seen a frame

StackPadding: TypeAlias = Literal["first_frame", "zeros"]
"""What stands in a stack before an episode's first frame f0: that frame again, or zeros of its dtype.

===============  ======================================  ======================================================
padding          stacks of four as the episode goes on   who pads so
===============  ======================================  ======================================================
``first_frame``  ``f0 f0 f0 f0 | f0 f0 f0 f1 | ...``     Gymnasium, Baselines' ``FrameStack``, envpool
``zeros``        ``0 0 0 f0 | 0 0 f0 f1 | ...``          Mnih et al. (2015) in their Lua code, Dopamine, Berkeley
===============  ======================================  ======================================================

Native code pads in ``_core/stack_padding.hpp`` alone, Python in ``pad_window``.
"""

STACK_PADDINGS: tuple[StackPadding, ...] = get_args(StackPadding)


def pad_window(window: npt.NDArray[Any], num_padded: int, padding: StackPadding) -> None:
    """Fill the first ``num_padded`` frames of ``window``, ``(length, *frame)``, whose others are there already.

    >>> window = np.array([7, 7, 3, 4])
    >>> pad_window(window, 2, "zeros")
    >>> window
    array([0, 0, 3, 4])
    """
    if num_padded:
        window[:num_padded] = 0 if padding == "zeros" else window[num_padded]


class FrameStacker:
    """The last ``stack`` frames of each of n streams: what the policy sees.

    An episode younger than the stack is padded at its beginning, by its first frame or by zeros (``StackPadding``)::

        first_frame    f0 f0 f0 f0 | f0 f0 f0 f1 | f0 f0 f1 f2 | f0 f1 f2 f3 | f1 f2 f3 f4
        zeros           0  0  0 f0 |  0  0 f0 f1 |  0 f0 f1 f2 | f0 f1 f2 f3 | f1 f2 f3 f4

    A frame is copied once, into the ring of its stream; stacks are put together when they are asked for.

    >>> stacker = FrameStacker(FrameSpec((1, 1)), stack=3, num_streams=1)
    >>> stacker.begin(np.array([0]), np.array([[[7]]], np.uint8))
    >>> stacker.append(np.array([0]), np.array([[[8]]], np.uint8))
    >>> stacker.stacks().ravel()
    array([7, 7, 8], dtype=uint8)
    """

    def __init__(self, spec: FrameSpec, stack: int, num_streams: int, padding: StackPadding = "first_frame") -> None:
        self._recent = np.zeros((num_streams, stack, *spec.shape), spec.dtype)
        self._ages = np.full(num_streams, NOT_BEGUN, np.int64)  # frames since the episode's first one
        self._stacks = FrameStacks(self._recent, self._ages, padding)

    @property
    def nbytes(self) -> int:
        """Bytes of the rings."""
        return self._recent.nbytes + self._ages.nbytes

    @property
    def has_begun(self) -> npt.NDArray[np.bool_]:
        """Which streams have a stack, shape ``(num_streams,)``."""
        return np.asarray(self._ages != NOT_BEGUN)

    def begin(self, streams: npt.NDArray[np.integer], frames: npt.NDArray[Any]) -> None:
        """Start an episode on each of ``streams`` with its first frame, ``frames`` of shape ``(m, *frame)``."""
        self._stacks.begin(streams, frames)

    def append(self, streams: npt.NDArray[np.integer], frames: npt.NDArray[Any]) -> None:
        """Add the next frame of each of ``streams``, ``frames`` of shape ``(m, *frame)``."""
        self._stacks.append(streams, frames)

    def stacks(self) -> npt.NDArray[Any]:
        """Stacks of all streams as they stand, a fresh array ``(num_streams, stack, *frame)``.

        The stack of an ended episode stays until the next one begins; a stream that never began is all zeros.
        """
        stacks = np.empty_like(self._recent)
        self._stacks.write(stacks)
        return stacks
