"""The positions of some frames of one stream, numbered in the order in which they came."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FIRST_ROOM = 16  # positions


class PositionLog:
    """An ascending queue of positions; the number of one (its *ordinal*) stays while older ones are dropped.

    >>> log = PositionLog()
    >>> for position in (3, 4, 9):
    ...     log.append(position)
    >>> log.ordinals_from(np.array([0, 4, 5, 10])).tolist()
    [0, 1, 2, 3]
    >>> log.drop(before_ordinal=2)
    >>> log.ordinals_from(np.array([5])).tolist(), log.positions().tolist()
    ([2], [9])
    """

    def __init__(self, first_ordinal: int = 0, positions: npt.NDArray[np.int64] | None = None) -> None:
        self.first_ordinal = first_ordinal
        self._room = np.empty(FIRST_ROOM, np.int64) if positions is None else positions.astype(np.int64)
        self._start, self._stop = 0, 0 if positions is None else len(positions)

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def nbytes(self) -> int:
        """Bytes taken."""
        return self._room.nbytes

    def positions(self, ordinals: range | None = None) -> npt.NDArray[np.int64]:
        """The positions with ``ordinals``, all that are held if ``None``, ascending; a view."""
        held = self._room[self._start : self._stop]
        return (
            held if ordinals is None else held[ordinals.start - self.first_ordinal : ordinals.stop - self.first_ordinal]
        )

    def append(self, position: int) -> None:
        """Add a position above all others."""
        if self._stop == len(self._room):
            held = self.positions()
            self._room = np.empty(max(FIRST_ROOM, 2 * len(held)), np.int64)
            self._room[: len(held)] = held
            self._start, self._stop = 0, len(held)
        self._room[self._stop] = position
        self._stop += 1

    def drop(self, before_ordinal: int) -> None:
        """Forget the positions below that ordinal."""
        num_dropped = min(max(before_ordinal - self.first_ordinal, 0), len(self))
        self._start += num_dropped
        self.first_ordinal += num_dropped

    def ordinals_from(self, positions: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Give, for each of ``positions``, the ordinal of the first one held that is not below it."""
        return np.asarray(self.first_ordinal + np.searchsorted(self.positions(), positions), np.int64)
