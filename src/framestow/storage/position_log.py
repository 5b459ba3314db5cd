"""The positions of some frames of one stream, and the numbers of those frames in another storage."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FIRST_ROOM = 16  # positions

Positions = npt.NDArray[np.int64]


class PositionLog:
    """Ascending positions, each with its *ordinal*: how many came before it, for ever, whatever was dropped since.

    A copy (``copy.copy``) stays as it is when the log goes on; it shares what both have.

    >>> log = PositionLog()
    >>> for position in (3, 4, 9, 12):
    ...     log.append(position)
    >>> log.drop(first=4, before=10).tolist()
    [1, 2]
    >>> log.positions().tolist(), log.ordinals().tolist()
    ([3, 12], [0, 3])
    >>> log.places_from(np.array([0, 4, 12, 13])).tolist()
    [0, 1, 1, 2]
    """

    def __init__(self) -> None:
        self._rows = np.empty((2, FIRST_ROOM), np.int64)  # positions and ordinals
        self._start = self._stop = 0
        self.next_ordinal = 0
        """How many positions were ever added."""

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def nbytes(self) -> int:
        """Bytes taken."""
        return self._rows.nbytes

    def positions(self) -> Positions:
        """The positions held, ascending; a view."""
        return self._rows[0, self._start : self._stop]

    def ordinals(self) -> Positions:
        """The ordinals of the positions held, ascending; a view."""
        return self._rows[1, self._start : self._stop]

    def append(self, position: int) -> None:
        """Add a position above all others."""
        if self._stop == self._rows.shape[1]:
            self._move_to(self._rows[:, self._start : self._stop])
        self._rows[:, self._stop] = position, self.next_ordinal
        self._stop, self.next_ordinal = self._stop + 1, self.next_ordinal + 1

    def drop(self, first: int, before: int) -> Positions:
        """Forget the positions at ``first`` up to ``before``; give their ordinals."""
        begin, end = self.places_from(np.array([first, before])).tolist()
        dropped = self.ordinals()[begin:end].copy()
        if begin == 0:
            self._start += end
        elif len(dropped):
            self._move_to(np.delete(self._rows[:, self._start : self._stop], np.s_[begin:end], axis=1))
        return dropped

    def places_from(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each of ``positions``, the place among those held of the first that is not below it."""
        return np.asarray(np.searchsorted(self.positions(), positions), np.int64)

    def _move_to(self, held: npt.NDArray[np.int64]) -> None:
        """Take rows of its own for ``held``, with room to grow: older copies keep theirs."""
        rows = np.empty((2, max(FIRST_ROOM, 2 * held.shape[1])), np.int64)
        rows[:, : held.shape[1]] = held
        self._rows, self._start, self._stop = rows, 0, held.shape[1]
