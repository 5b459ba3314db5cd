"""Describe the shape, dtype and range of an action, and check actions before they are stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.checks import is_number
from framestow.errors import InvalidSettingsError
from framestow.interface import cached_property

Bound = int | tuple[int, ...] | None
INT64 = np.iinfo(np.int64)

MAX_SAVED_ELEMENTS = 2**20  # of an action in a store, so that a few digits do not take much memory


@dataclass(frozen=True)
class ActionSpec:
    """Shape, dtype and range of one action.

    An action is an integer (``Discrete``), several integers (``MultiDiscrete``, ``MultiBinary``), or an array
    (``Box``). Integer actions are stored in the narrowest dtype that fits their range, and are returned as ``int64``.
    Actions of a ``Box`` keep their dtype.

    ``low`` and ``high`` are inclusive bounds: one for all elements, or one per element in C order. Both are ``None``
    for a ``Box``.
    """

    shape: tuple[int, ...]
    dtype: str
    low: Bound = None
    high: Bound = None

    def __post_init__(self) -> None:
        for name in ("shape", "low", "high"):  # JSON gives lists
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))

    @classmethod
    def from_space(cls, space: Any) -> ActionSpec:
        """Return the spec of a Gymnasium space, read from its attributes without importing Gymnasium.

        Accepts ``Discrete``, ``MultiDiscrete``, ``MultiBinary`` and ``Box``. An integer n means ``Discrete(n)``. Raises
        ``InvalidSettingsError`` for any other space.

        >>> ActionSpec.from_space(18).stored_dtype
        dtype('uint8')
        """
        if isinstance(space, cls):
            return space
        if isinstance(space, (int, np.integer)) and not isinstance(space, bool):
            return cls._make_counted((), int(space), 0)
        if hasattr(space, "nvec"):
            counts = np.asarray(space.nvec)
            starts = np.broadcast_to(getattr(space, "start", 0), counts.shape)
            return cls._make_counted(counts.shape, counts.ravel().tolist(), starts.ravel().tolist())
        if hasattr(space, "n") and getattr(space, "shape", ()) == ():
            return cls._make_counted((), int(space.n), int(getattr(space, "start", 0)))
        if hasattr(space, "n") and _has_elements(space.shape):
            return cls(_sides(space.shape), "int64", 0, 1)
        if hasattr(space, "low") and hasattr(space, "high"):
            dtype = np.dtype(space.dtype)
            if is_number(dtype) and dtype != np.bool_:
                return cls(_sides(space.shape), dtype.name)
        raise InvalidSettingsError(
            f"action_space is {space!r}: an action must be one integer or one array; give a Discrete, MultiDiscrete, "
            "MultiBinary or Box, or the number of actions"
        )

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ActionSpec:
        """Return the spec with these fields, from JSON; raise ``ValueError`` for what no spec can have."""
        spec = cls(**state)
        is_shape = isinstance(spec.shape, tuple) and _are_integers(spec.shape, 0)
        is_shape = is_shape and math.prod(spec.shape) <= MAX_SAVED_ELEMENTS
        if not is_number(np.dtype(spec.dtype)) or not is_shape:
            raise ValueError(f"an action of shape {spec.shape} and dtype {spec.dtype} is not an array of numbers")
        if (spec.low is None) != (spec.high is None):
            raise ValueError(f"actions from {spec.low} to {spec.high} have one bound")
        for bound in (spec.low, spec.high):
            bounds = bound if isinstance(bound, tuple) else () if bound is None else (bound,)
            is_one_each = not isinstance(bound, tuple) or len(bound) == math.prod(spec.shape)
            if not is_one_each or not _are_integers(bounds, INT64.min):
                raise ValueError(f"{bound!r} is no bound of actions of shape {spec.shape}")
        return spec

    @classmethod
    def _make_counted(cls, shape: tuple[int, ...], counts: int | list[int], starts: int | list[int]) -> ActionSpec:
        numbers = counts if isinstance(counts, list) else [counts]
        firsts = starts if isinstance(starts, list) else [starts]
        if min(numbers, default=0) < 1:
            raise InvalidSettingsError(
                f"action_space has {counts} actions: every element of an action needs at least 1 value; "
                "give a larger space"
            )
        lasts = [first + number - 1 for first, number in zip(firsts, numbers, strict=True)]
        if min(firsts) < INT64.min or max(lasts) > INT64.max:
            raise InvalidSettingsError(
                f"action_space runs from {min(firsts)} to {max(lasts)}: actions must fit int64; count from 0"
            )
        if isinstance(counts, list):
            return cls(_sides(shape), "int64", tuple(firsts), tuple(lasts))
        return cls((), "int64", firsts[0], lasts[0])

    @property
    def space(self) -> int | ActionSpec:
        """A space that ``from_space`` makes this spec of: the number of actions, or the spec itself."""
        return self.num_actions if self.shape == () and self.low == 0 else self

    @property
    def is_counted(self) -> bool:
        """Whether an action consists of bounded integers: True for all spaces but ``Box``."""
        return self.low is not None

    @property
    def num_actions(self) -> int:
        """Number of actions of a ``Discrete``; raises ``InvalidSettingsError`` for any other space."""
        if self.shape or not isinstance(self.low, int) or not isinstance(self.high, int):
            raise InvalidSettingsError(
                f"actions of shape {self.shape} have no number of actions: only a Discrete has; use a Discrete"
            )
        return self.high - self.low + 1

    @cached_property
    def stored_dtype(self) -> np.dtype[Any]:
        """Dtype that actions are stored in."""
        if not self.is_counted:
            return np.dtype(self.dtype)
        low, high = self.widest
        if low >= 0:
            return np.min_scalar_type(high)
        narrowest = np.min_scalar_type(min(low, -1 - high))
        # A single signed integer may take one size more than it needs: existing stores have it so.
        wide = np.promote_types(narrowest, np.min_scalar_type(high))
        return narrowest if self.shape or wide.kind == "f" else wide

    @cached_property
    def widest(self) -> tuple[int, int]:
        """The smallest and the largest value of any element of an integer action."""
        ranges = self.ranges
        return min(ranges)[0], max(high for _, high in ranges)

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """Inclusive bounds of each element of an integer action, in C order; empty for a ``Box``.

        >>> ActionSpec.from_space(4).ranges
        [(0, 3)]
        """
        if self.low is None or self.high is None:
            return []
        count = math.prod(self.shape)
        lows = self.low if isinstance(self.low, tuple) else (self.low,) * count
        highs = self.high if isinstance(self.high, tuple) else (self.high,) * count
        return list(zip(lows, highs, strict=True))

    def are_outside(self, actions: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the elements of ``actions``, ``(n, *shape)``, out of bounds; all False for a ``Box``."""
        if not self.is_counted:
            return np.zeros(actions.shape, np.bool_)
        bounds = np.array(self.ranges, np.int64).reshape(*self.shape, 2)
        if actions.dtype == np.uint64:  # NumPy compares uint64 with int64 as floats
            return (actions > INT64.max) | self.are_outside(np.minimum(actions, INT64.max).astype(np.int64))
        return (actions < bounds[..., 0]) | (actions > bounds[..., 1])


def _sides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(side) for side in shape)


def _has_elements(shape: Sequence[int]) -> bool:
    return all(side > 0 for side in shape)


def _are_integers(values: tuple[Any, ...], least: int) -> bool:
    return all(type(value) is int and least <= value <= INT64.max for value in values)
