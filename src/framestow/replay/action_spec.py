"""The shape and range of one action, and how it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError


@dataclass(frozen=True)
class ActionSpec:
    """One action: an integer of ``Discrete``, or an array of a ``Box``.

    Discrete actions are stored in the narrowest integer that holds the range and handed out as ``int64``; those of a
    ``Box`` keep their dtype. ``low`` and ``high`` are inclusive bounds of every element, ``None`` where there are none.
    """

    shape: tuple[int, ...]
    dtype: str
    low: int | None = None
    high: int | None = None

    @classmethod
    def from_space(cls, space: Any) -> ActionSpec:
        """Read the spec off a Gymnasium ``Discrete`` or ``Box`` by its attributes, without importing Gymnasium.

        An ``int`` n stands for ``Discrete(n)``. Raises ``InvalidSettingsError`` for any other space.
        """
        if isinstance(space, cls):
            return space
        if isinstance(space, int) and not isinstance(space, bool):
            num_actions, start = space, 0
        elif hasattr(space, "n") and getattr(space, "shape", ()) == ():
            num_actions, start = int(space.n), int(getattr(space, "start", 0))
        elif hasattr(space, "low") and hasattr(space, "high") and np.dtype(space.dtype).kind in "fiu":
            return cls(tuple(int(side) for side in space.shape), np.dtype(space.dtype).name)
        else:
            raise InvalidSettingsError(
                f"action_space is {space!r}: actions are one integer or one array; give a Discrete, a Box, "
                "or the number of actions"
            )
        if num_actions < 1:
            raise InvalidSettingsError(f"action_space has {num_actions} actions: at least one is needed")
        return cls((), "int64", start, start + num_actions - 1)

    @property
    def num_actions(self) -> int:
        """How many actions there are; raises ``InvalidSettingsError`` where they are not counted."""
        if self.low is None or self.high is None:
            raise InvalidSettingsError("the actions of a Box cannot be counted: only Discrete ones can; use a Discrete")
        return self.high - self.low + 1

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Element type of the stored column."""
        if self.low is None or self.high is None:
            return np.dtype(self.dtype)
        return np.promote_types(np.min_scalar_type(self.low), np.min_scalar_type(self.high))

    def checked(self, actions: npt.ArrayLike, num_steps: int) -> npt.NDArray[Any]:
        """Give ``actions`` as stored, ``(num_steps, *shape)``; raise ``InvalidStepError`` if they break the spec."""
        array = np.asarray(actions)
        if array.shape != (num_steps, *self.shape):
            raise InvalidStepError(
                f"actions have shape {array.shape}: {num_steps} streams take {(num_steps, *self.shape)}; "
                "give one action a stream"
            )
        if self.low is not None and self.high is not None:
            if array.dtype.kind not in "iu":
                raise InvalidStepError(f"actions have dtype {array.dtype}: they are counted; give integers")
            outside = np.flatnonzero((array < self.low) | (array > self.high))
            if outside.size:
                raise InvalidStepError(
                    f"action is {array[outside[0]]} at row {outside[0]}: actions run from {self.low} to {self.high}; "
                    "check the policy or the action_space"
                )
            return np.require(array, self.stored_dtype, ["C", "ALIGNED"])
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise InvalidStepError(f"actions have dtype {array.dtype}: the space keeps {self.dtype}; convert them")
        with np.errstate(over="ignore"):  # what is too large for the dtype becomes infinite, and is refused as such
            stored = np.require(array, self.stored_dtype, ["C", "ALIGNED"])
        if stored.dtype.kind == "f" and not np.isfinite(stored).all():
            row = int(np.argwhere(~np.isfinite(stored))[0, 0])
            raise InvalidStepError(f"action is {array[row]} at row {row}: actions must be finite; check the policy")
        return stored
