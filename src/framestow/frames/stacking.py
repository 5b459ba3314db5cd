"""Join frames into observations, and pad the beginning of episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow._core import join_frames

StackPadding: TypeAlias = Literal["first_frame", "zeros"]
"""Padding of a stack before an episode's first frame f0: copies of f0, or zeros.

===============  ======================================  ======================================================
padding          first stacks of an episode              used by
===============  ======================================  ======================================================
``first_frame``  ``f0 f0 f0 f0 | f0 f0 f0 f1 | ...``     Gymnasium, Baselines' ``FrameStack``, envpool
``zeros``        ``0 0 0 f0 | 0 0 f0 f1 | ...``          Mnih et al. (2015) in their Lua code, Dopamine, Berkeley
===============  ======================================  ======================================================

Native code pads in ``_core/frame_stacks.hpp``, Python in ``pad_window``.
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


def join_channels(
    stacks: npt.NDArray[Any],
    num_leading: int = 1,
    empty: Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]] = np.empty,
) -> npt.NDArray[Any]:
    """Return stacks ``(..., depth, *frame)`` with the channels of all frames on the last axis, in an ``empty`` array.

    ``num_leading``: number of axes before the frames, each of which is in C order.

    >>> # two frames of two pixels
    >>> join_channels(np.array([[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]])).tolist()
    [[[1, 2, 5, 6], [3, 4, 7, 8]]]
    """
    *sides, channels = stacks.shape[num_leading + 1 :]
    joined = empty((*stacks.shape[:num_leading], *sides, stacks.shape[num_leading] * channels), stacks.dtype)
    join_frames(stacks, num_leading, channels * stacks.itemsize, joined)
    return joined
