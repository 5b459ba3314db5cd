"""The last frames of environments as ``LazyFrames``, for wrappers that stack frames without a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.wrappers.utils import create_zero_array

from framestow.checks import as_array
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.lazy_frames import LazyFrames, LazyFramesBatch, StackAxis
from framestow.frames.observation_spec import map_arrays


class RecentFrames:
    """The last frames of one array of an environment's observations; each is copied once and then shared."""

    def __init__(self, space: Any, stack_size: int, padding: Any, axis: StackAxis) -> None:
        """``padding``: frame before an episode's first frame; ``None`` repeats the first frame."""
        self._shape, self._dtype, self._axis = tuple(space.shape), np.dtype(space.dtype), axis
        # The last ``stack_size`` frames, oldest first, each read-only; empty before the first episode.
        self._frames: tuple[npt.NDArray[Any], ...] = ()
        self._num_padded = stack_size - 1
        self._padding = None if padding is None else self.copy_frame(padding)

    def copy_frame(self, frame: Any) -> npt.NDArray[Any]:
        """Return a read-only copy of ``frame``; raise ``InvalidStepError`` if it does not match the space."""
        array = as_array("observation", frame, InvalidStepError)
        if array.shape != self._shape or not np.can_cast(array.dtype, self._dtype, "same_kind"):
            raise InvalidStepError(
                f"observation is {array.dtype} of shape {array.shape}: the observation space requires {self._dtype} of "
                f"shape {self._shape}; correct the environment or its space"
            )
        copied = np.array(array, self._dtype)
        copied.flags.writeable = False
        return copied

    def begin(self, frame: npt.NDArray[Any]) -> LazyFrames:
        """Start an episode with ``frame``, a result of ``copy_frame``; return the observation."""
        self._frames = ((frame if self._padding is None else self._padding),) * self._num_padded + (frame,)
        return self.observation

    def append(self, frame: npt.NDArray[Any]) -> LazyFrames:
        """Add ``frame``, a result of ``copy_frame``; return the observation."""
        self._frames = (*self._frames[1:], frame)
        return self.observation

    @property
    def observation(self) -> LazyFrames:
        """The observation: the last frames."""
        return LazyFrames(self._frames, self._axis)


class TracksOfFrames:
    """A ``StepSink`` that has the last frames of each environment of a vector environment, instead of a memory."""

    def __init__(self, space: Any, num_envs: int, stack_size: int, padding_type: Any, axis: StackAxis) -> None:
        trees = [recent_frames(space, stack_size, padding_type, axis) for _ in range(num_envs)]
        # By key or part of an observation: the last frames of each environment.
        self._recent = map_arrays(lambda *parts: list(parts), *trees)
        self._num_envs, self.stack = num_envs, stack_size

    def begin(self, frames: Any, env_ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None) -> None:
        """Start an episode in each of ``env_ids``, by default all, with its row of ``frames``."""
        self._each(RecentFrames.begin, frames, env_ids)

    def append(
        self,
        actions: npt.ArrayLike,  # noqa: ARG002 -- a StepSink takes these
        rewards: npt.ArrayLike,  # noqa: ARG002
        terminated: npt.ArrayLike,  # noqa: ARG002
        truncated: npt.ArrayLike,  # noqa: ARG002
        frames: Any,
        env_ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Add to each of ``env_ids`` its row of ``frames``."""
        self._each(RecentFrames.append, frames, env_ids)

    def observations(self) -> Any:
        """Return the observations of all environments: a ``LazyFramesBatch``, or a dict or tuple of them."""
        return map_arrays(lambda recent: LazyFramesBatch(one.observation for one in recent), self._recent)

    def _each(self, change: Any, frames: Any, env_ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None) -> None:
        numbers = range(self._num_envs) if env_ids is None else env_ids

        def copy_rows(recent: list[RecentFrames], rows: Any) -> list[npt.NDArray[Any]]:
            return [recent[number].copy_frame(row) for number, row in zip(numbers, rows, strict=True)]

        def change_each(recent: list[RecentFrames], rows: list[npt.NDArray[Any]]) -> None:
            for number, row in zip(numbers, rows, strict=True):
                change(recent[number], row)

        map_arrays(change_each, self._recent, map_arrays(copy_rows, self._recent, frames))


def recent_frames(space: Any, stack_size: int, padding_type: Any, axis: StackAxis) -> Any:
    """Return one ``RecentFrames`` per key of an observation of ``space``, in the structure of the observation."""
    if isinstance(padding_type, str) and padding_type in ("reset", "zero"):
        padding = create_zero_array(space)
    elif isinstance(padding_type, str) or padding_type not in space:
        raise InvalidSettingsError(
            f"padding_type is {padding_type!r}: it must be 'reset', 'zero' or an observation of {space}"
        )
    else:
        padding = padding_type

    def recent(space: Any, padding: Any) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: recent(part, padding[key]) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(map(recent, space.spaces, padding))
        repeats_first = isinstance(padding_type, str) and padding_type == "reset"
        return RecentFrames(space, stack_size, None if repeats_first else padding, axis)

    return recent(space, padding)
