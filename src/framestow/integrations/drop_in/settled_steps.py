"""Which steps of several streams may be drawn, where one is only when its n-step return is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


class SettledSteps:
    """What a `Sampler` is told of as held: of each stream the steps whose returns are known, the newest of them.

    Step ``row`` of ``stream`` has the number ``row * num_envs + stream``, which is its index here. This modulo
    ``num_slots`` is its place in a ring, whose place ``first_place`` is slot 0. It leaves when the step that takes its
    slot is settled. The steps of a stream are settled in order: as drawable, or as passed over, where their return can
    never be known.
    """

    def __init__(self, num_rows: int, num_envs: int, first_place: int = 0) -> None:
        self.num_slots, self._num_streams, self._first_place = num_rows * num_envs, num_envs, first_place
        self._is_drawable = np.zeros(self.num_slots, bool)
        self.newest = np.full(num_envs, -1, np.int64)
        """Row of each stream's newest settled step; -1 before the first."""

    @property
    def nbytes(self) -> int:
        """Bytes of what is known of each slot."""
        return self._is_drawable.nbytes

    def settle(self, numbers: Indices, are_drawable: npt.NDArray[np.bool_]) -> None:
        """Settle the next steps of any streams; broken off by an interrupt it may be called again."""
        self._is_drawable[self.slots_for(numbers)] = are_drawable
        rows, streams = np.divmod(numbers, self._num_streams)
        np.maximum.at(self.newest, streams, rows)

    def slots_for(self, numbers: Indices) -> Indices:
        """Give the slots that steps have, settled or not."""
        return (numbers - self._first_place) % self.num_slots

    def __len__(self) -> int:
        return int(np.count_nonzero(self._is_drawable))

    def indices_in(self, slots: Indices) -> Indices:
        """Give the numbers of the steps in ``slots``, -1 where there is none that may be drawn."""
        numbers = self._newest_in(slots)
        return np.where(self._is_drawable[slots], numbers, -1)

    def find_slots(self, indices: Indices) -> Indices:
        """Give the slots of steps, -1 for those that may not be drawn."""
        slots = self.slots_for(indices)
        return np.where(self._is_drawable[slots] & (self._newest_in(slots) == indices), slots, -1)

    def slots_of(self, indices: Indices) -> Indices:
        """Give the slots of steps that may be drawn; ``IndexError`` for another one."""
        slots = self.find_slots(indices)
        if (slots < 0).any():
            raise IndexError(f"step {indices[slots < 0][0]} may not be drawn")
        return slots

    def is_held(self, indices: Indices) -> npt.NDArray[np.bool_]:
        """Which of ``indices`` may be drawn."""
        return np.asarray(self.find_slots(indices) >= 0)

    def held_indices(self) -> Indices:
        """Give the numbers of all steps that may be drawn, ascending."""
        return np.sort(self._newest_in(np.flatnonzero(self._is_drawable)))

    def held_at(self, ranks: Indices) -> Indices:
        """Give the numbers of the steps of those ranks, 0 being the oldest."""
        return self.held_indices()[ranks]

    def held_runs(self) -> Indices:
        """Give all numbers as runs of consecutive ones: first and how many of each, ``(runs, 2)``."""
        numbers = self.held_indices()
        starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        return np.stack([numbers[starts], np.diff(starts, append=len(numbers))], axis=1)

    def _newest_in(self, slots: Indices) -> Indices:
        """Give the newest settled steps that these slots can hold."""
        places = (slots + self._first_place) % self.num_slots
        newest = self.newest[places % self._num_streams] * self._num_streams + places % self._num_streams
        return np.asarray(newest - (newest - places) % self.num_slots)
