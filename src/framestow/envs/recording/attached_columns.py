"""The extras of a memory that a recorder feeds: attached before a step, stored with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError

Extras = dict[str, npt.NDArray[Any]]


class PendingExtras:
    """What is to be stored with the next step, and with those that are in flight.

    Columns are checked before an environment is stepped: what the memory would refuse after it would be lost.
    """

    def __init__(self, memory: Any) -> None:
        self._checked = getattr(memory, "_checked_extras", None)
        self._attached: dict[str, Any] = {}
        self.of_whole: Extras | None = None
        """Of the step of all environments that is in flight."""
        self._of_sent: dict[int, Extras] = {}

    def add_extras(self, extras: Mapping[str, npt.ArrayLike]) -> None:
        """Keep a copy of ``extras`` for the next step, beside those that are there already."""
        self._attached |= {name: np.array(values) for name, values in extras.items()}

    def checked(self, num_rows: int) -> Extras | None:
        """Give what is attached as the memory stores it for ``num_rows`` rows; ``None`` where it keeps no extras.

        Raises ``InvalidStepError``, and forgets all of them, where one is missing, unknown or of another form.
        """
        attached, self._attached = self._attached, {}
        if self._checked is None and attached:
            raise InvalidStepError(
                f"extras have {', '.join(sorted(attached))}: the memory keeps none; declare them with it"
            )
        extras: Extras | None = None if self._checked is None else self._checked(attached, num_rows)
        self._attached = attached  # until their step has begun
        return extras

    def put_in_flight(self, extras: Extras | None, streams: npt.NDArray[Any] | None = None) -> None:
        """Keep ``extras`` until the step that they are of has arrived: of ``streams``, a row each, or of all."""
        if streams is None:
            self.of_whole = extras
        elif extras is not None:
            for row, stream in enumerate(streams.tolist()):
                self._of_sent[stream] = {name: values[row] for name, values in extras.items()}

    def detach(self) -> None:
        """Forget what is attached: its step has begun."""
        self._attached = {}

    def of_sent(self, streams: npt.NDArray[Any]) -> Extras | None:
        """Give what was taken for the steps of ``streams``, which have arrived, a row each; once."""
        rows = [self._of_sent.pop(stream) for stream in streams.tolist() if stream in self._of_sent]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]} if rows else None

    def drop(self) -> None:
        """Forget all of them."""
        self._attached, self.of_whole, self._of_sent = {}, None, {}
