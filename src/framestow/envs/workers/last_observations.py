"""The last good observation of each environment: where it lies, and how it is handed out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.envs.workers.slab import Slab


class LastObservations:
    """Knows which half of the slab holds each environment's last good observation, and keeps its other parts."""

    def __init__(self, slab: Slab, num_envs: int) -> None:
        self._slab, self._num_envs = slab, num_envs
        self._halves = [0] * num_envs
        self._others: list[list[Any]] = [[]] * num_envs
        self._is_known = [False] * num_envs
        self._lent = [[_read_only(array) for array in half] for half in slab.halves]

    def free_half(self, number: int) -> int:
        """Give the half that the environment may write to."""
        return 1 - self._halves[number]

    def free_half_of_all(self) -> int:
        """Give a half that every environment may write to; those whose last observation lies there are moved away."""
        half = self._halves[0]
        self.bring(range(self._num_envs), half)
        return 1 - half

    def note(self, number: int, half: int, others: list[Any] | None) -> None:
        """Take note of a new one: written into that half, with those other parts."""
        self._halves[number] = half
        self._is_known[number] = True
        if others is not None:
            self._others[number] = others

    def note_all(self, half: int) -> None:
        """Take note of new ones of all environments, written into that half, whose other parts are none."""
        self._halves = [half] * self._num_envs

    def bring(self, numbers: Sequence[int], half: int) -> None:
        """Copy those of some environments to a half, where they are not there."""
        if self._halves.count(half) == self._num_envs:
            return
        for number in numbers:
            if self._halves[number] != half:
                for to, source in zip(self._slab.halves[half], self._slab.halves[1 - half], strict=True):
                    to[number] = source[number]
                self._halves[number] = half

    def put(self, number: int, observation: Any) -> None:
        """Set one, as one reads it from a saved state; ``None`` where there was none."""
        if observation is None:
            return
        half = self.free_half(number)
        self.note(number, half, self._slab.write(half, number, observation))

    def of(self, number: int) -> Any:
        """Give one as the caller's own; ``None`` before the first reset."""
        if not self._is_known[number]:
            return None
        rows = self._slab.halves[self._halves[number]]
        return self._slab.parts.joined([np.copy(array[number])[()] for array in rows], self._others[number])

    def of_all(self, copies: bool) -> Any:
        """Give those of all, which lie in one half: the caller's own, or lent until the second write from now."""
        half = self._halves[0]
        arrays = [array.copy() for array in self._slab.halves[half]] if copies else self._lent[half]
        return self._batched(arrays, self._others)

    def of_some(self, numbers: npt.NDArray[np.intp]) -> Any:
        """Give those of some, a row each, as the caller's own."""
        halves = np.array(self._halves)[numbers]
        arrays = []
        for first, second in zip(*self._slab.halves, strict=True):
            rows = first[numbers]
            rows[halves == 1] = second[numbers[halves == 1]]
            arrays.append(rows)
        return self._batched(arrays, [self._others[number] for number in numbers])

    def _batched(self, arrays: Sequence[npt.NDArray[Any]], others: Sequence[list[Any]]) -> Any:
        return self._slab.parts.joined(arrays, self._slab.parts.batched_others(others))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
