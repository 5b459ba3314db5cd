"""Observations that are stacks of frames already: back to single frames, which a memory stacks again."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.frames.stacking import STACK_PADDINGS, StackPadding, pad_window

StackedOn: TypeAlias = Literal["no", "first_axis", "last_axis"]
"""Whether observations are stacks: ``first_axis`` as ``(4, 84, 84)``, ``last_axis`` as ``(84, 84, 4)``; newest last."""

STACKED_ON: tuple[StackedOn, ...] = get_args(StackedOn)


class Stacks(NamedTuple):
    """How observations are stacked: ``depth`` frames along ``axis`` of an observation, 0 or -1, oldest first.

    A frame takes one place of that axis and lacks it, or, where ``channels`` is not ``None``, as many places as it has
    channels.

    >>> Stacks(0, 4).frame_shape((4, 84, 84)), Stacks(-1, 4, channels=3).frame_shape((84, 84, 12))
    ((84, 84), (84, 84, 3))
    """

    axis: int
    depth: int
    channels: int | None = None

    @classmethod
    def of_shape(cls, shape: tuple[int, ...], stacked_on: StackedOn) -> Stacks | None:
        """Say how observations of ``shape`` are stacked; ``None`` where they are not."""
        if stacked_on not in STACKED_ON:
            raise InvalidSettingsError(
                f"stacked_on is {stacked_on!r}: it must be one of {', '.join(map(repr, STACKED_ON))}; take 'no'"
            )
        if stacked_on == "no":
            return None
        if len(shape) < 2:
            raise InvalidSettingsError(f"observations have shape {shape}: a stack has more axes than one; take 'no'")
        axis = 0 if stacked_on == "first_axis" else -1
        return cls(axis, shape[axis])

    def frame_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one frame of observations of ``shape``."""
        return self.stacks_first(np.empty((0, *shape), np.uint8)).shape[2:]

    def one_frame_of(self, bounds: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give the newest frame of an array that is shaped as one observation, bounds for instance."""
        return np.asarray(self.stacks_first(bounds[None])[0, -1])

    def frames(self, observations: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
        """Give the newest frame of each observation of an episode, ``(T + 1, *frame)``.

        Raises ``InvalidSettingsError``, beginning with ``where``, if the older frames of an observation are not the
        newer ones of the observation before: stacking the frames again would make other observations.
        """
        stacks = self.stacks_first(observations)
        is_shifted = (stacks[1:, :-1] == stacks[:-1, 1:]).reshape(len(stacks) - 1, -1).all(axis=1)
        if not is_shifted.all():
            raise InvalidSettingsError(
                f"{where}: observation {int(np.argmin(is_shifted)) + 1} is not the one before moved on by one frame: "
                f"these are no stacks along axis {self.axis}, or not of consecutive frames; take stacked_on='no'"
            )
        return np.ascontiguousarray(stacks[:, -1])

    def paddings_of(self, first_observation: npt.NDArray[Any]) -> set[StackPadding]:
        """Say which paddings explain an episode's first observation: both where its frame is black, perhaps none."""
        window = self.stacks_first(first_observation[None])[0]
        fitting: set[StackPadding] = set()
        for padding in STACK_PADDINGS:
            padded = window.copy()
            pad_window(padded, self.depth - 1, padding)
            if np.array_equal(padded, window):
                fitting.add(padding)
        return fitting

    def stacks_first(self, observations: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give observations ``(n, *shape)`` as ``(n, depth, *frame)``: a view where NumPy can make one."""
        if self.channels is None:
            return observations if self.axis == 0 else np.moveaxis(observations, self.axis, 1)
        at = observations.ndim - 1 if self.axis < 0 else self.axis + 1
        shape = observations.shape
        split = observations.reshape(*shape[:at], self.depth, self.channels, *shape[at + 1 :])
        return np.moveaxis(split, at, 1)

    def as_came(self, stacks: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give stacks ``(n, depth, *frame)`` as observations ``(n, *shape)`` again: what ``stacks_first`` undoes.

        >>> stacks = Stacks(-1, 4, channels=3)
        >>> observations = np.arange(2 * 5 * 12).reshape(2, 5, 12)
        >>> bool((stacks.as_came(stacks.stacks_first(observations)) == observations).all())
        True
        """
        at = stacks.ndim - 1 if self.axis < 0 else self.axis + 1
        if self.channels is None:
            return stacks if self.axis == 0 else np.moveaxis(stacks, 1, at)
        split = np.moveaxis(stacks, 1, at - 1 if self.axis < 0 else at)
        at = split.ndim - 2 if self.axis < 0 else at
        return split.reshape(*split.shape[:at], self.depth * self.channels, *split.shape[at + 2 :])
