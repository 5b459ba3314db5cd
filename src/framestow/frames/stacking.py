"""Stack the last frames of each environment into observations, and pad the beginning of episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow._core import FrameStacks, join_frames
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import Frames, ObservationSpec, observation_spec

# Paddings of a run's first observations, as storages and stacks take them; 0: the run goes on.
ZEROS, LEAD_INS, BY_SETTING = 1, 2, 3

NOT_BEGUN = -1  # age of an environment without frames

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

    >>> join_channels(np.array([[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]])).tolist()  # two frames of two pixels
    [[[1, 2, 5, 6], [3, 4, 7, 8]]]
    """
    *sides, channels = stacks.shape[num_leading + 1 :]
    joined = empty((*stacks.shape[:num_leading], *sides, stacks.shape[num_leading] * channels), stacks.dtype)
    join_frames(stacks, num_leading, channels * stacks.itemsize, joined)
    return joined


class FrameStacker:
    """The current stacked observations of n environments, for the policy.

    At the beginning of an episode, the first frame or zeros fill the stack (``StackPadding``)::

        first_frame    f0 f0 f0 f0 | f0 f0 f0 f1 | f0 f0 f1 f2 | f0 f1 f2 f3 | f1 f2 f3 f4
        zeros           0  0  0 f0 |  0  0 f0 f1 |  0 f0 f1 f2 | f0 f1 f2 f3 | f1 f2 f3 f4

    Each frame is copied once, into a ring per environment; ``stacks`` builds the observations.

    >>> from framestow.frames.frame_spec import FrameSpec
    >>> stacker = FrameStacker(FrameSpec((1, 1)), stack=3, num_envs=1)
    >>> stacker.begin(np.array([0]), (np.array([[[7]]], np.uint8),))
    >>> stacker.append(np.array([0]), (np.array([[[8]]], np.uint8),))
    >>> stacker.stacks()[0].ravel()
    array([7, 7, 8], dtype=uint8)

    A run may begin with a whole stack, whose older frames are its *lead-ins*:

    >>> older = np.array([[[[1]], [[2]]]], np.uint8)
    >>> stacker.append(np.array([0]), (np.array([[[3]]], np.uint8),), np.array([2], np.uint8), (older,))
    >>> stacker.stacks()[0].ravel()
    array([1, 2, 3], dtype=uint8)
    """

    def __init__(
        self,
        spec: FrameSpec | ObservationSpec,
        stack: int,
        num_envs: int,
        padding: StackPadding = "first_frame",
        depths: Sequence[int] | None = None,
    ) -> None:
        """Create stacks without frames.

        Arguments:
            spec: the frames of an observation; of one array, its ``FrameSpec`` will do.
            stack: frames of a stack.
            num_envs: number of environments.
            padding: what fills the stack at the beginning of an episode.
            depths: frames of a stack, of each array; ``stack`` by default.
        """
        arrays = observation_spec(spec).frame_specs
        # Per key, ``(num_envs, depth, *frame)``: a ring for each environment. The frame of age a is at a % depth.
        self._recent = [
            np.zeros((num_envs, depth, *array.shape), array.dtype)
            for array, depth in zip(arrays, depths or [stack] * len(arrays), strict=True)
        ]
        # Frames since the episode's first one, of each environment and array.
        self._ages = [np.full(num_envs, NOT_BEGUN, np.int64) for _ in self._recent]
        self.native = tuple(
            FrameStacks(recent, ages, padding) for recent, ages in zip(self._recent, self._ages, strict=True)
        )
        """The native stacks, one per key, for the call that stores a step with its frames."""

    def newest_frames(self, env_ids: npt.NDArray[np.integer[Any]]) -> Frames:
        """Return copies of the newest frames of environments that have some, one array per key."""
        return tuple(
            recent[env_ids, ages[env_ids] % recent.shape[1]]
            for recent, ages in zip(self._recent, self._ages, strict=True)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the rings."""
        return sum(array.nbytes for array in (*self._recent, *self._ages))

    def begin(self, env_ids: npt.NDArray[np.integer], frames: Frames) -> None:
        """Start an episode on each of ``env_ids`` with its first frame, ``(m, *frame)`` of each array."""
        for stacks, part in zip(self.native, frames, strict=True):
            stacks.begin(env_ids, part)

    def append(
        self,
        env_ids: npt.NDArray[np.integer],
        frames: Frames,
        paddings: npt.NDArray[np.uint8] | None = None,
        lead_ins: Frames | None = None,
    ) -> None:
        """Add the next frame of each of ``env_ids``, ``(m, *frame)`` of each array.

        ``paddings`` and ``lead_ins``: those of ``FrameStorage.append``, for frames that begin a run.
        """
        older = [None] * len(self.native) if lead_ins is None else lead_ins
        for stacks, part, leading in zip(self.native, frames, older, strict=True):
            stacks.append(env_ids, part, paddings, leading)

    def stacks(self) -> list[npt.NDArray[Any]]:
        """Return the current stacks of all environments: a new array ``(num_envs, depth, *frame)`` per key.

        After the end of an episode, its last stack stays until the next ``begin``. An environment without frames is all
        zeros.
        """
        written = [np.empty_like(recent) for recent in self._recent]
        for stacks, out in zip(self.native, written, strict=True):
            stacks.write(out)
        return written
