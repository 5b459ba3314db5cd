"""What experiences carry behind ``s_next``: numbers of an info as columns, whatever else as pickled bytes."""

from __future__ import annotations

import pickle
from typing import Any, TypeAlias

import numpy as np

from framestow.errors import InvalidStepError

Others: TypeAlias = "tuple[Any, ...]"
Staged: TypeAlias = "tuple[Any, ...] | bytes"
Form: TypeAlias = "tuple[tuple[str, type], ...] | None"
"""Keys and types of an info that is made of numbers alone; ``None`` where there is no info."""

DTYPES = {bool: np.bool_, int: np.int64, float: np.float64}
INT64 = np.iinfo(np.int64)


class KeptOthers:
    """Keeps what follows ``s_next`` in a ring of ``capacity`` places.

    An info of Atari has the same few numbers at each step, 8 bytes each, where pickled bytes take 100 and a dict 300.
    So the ``first`` one settles which keys and types lie in columns. What is of another form, at the end of an episode
    for instance, is pickled. Either comes back equal, and is a copy.
    """

    def __init__(self, capacity: int, first: Others) -> None:
        self._has_form, self._form = _form_of(first)
        fields = [(f"number_{place}", DTYPES[kind]) for place, (_, kind) in enumerate(self._form or ())]
        self._numbers = np.zeros(capacity if fields else 0, fields or np.bool_)
        self._pickled: dict[int, bytes] = {}
        self._last_pickled = b""

    def staged(self, others: Others) -> Staged:
        """Give what ``put`` takes; ``InvalidStepError`` for what cannot be pickled."""
        has_form, form = _form_of(others)
        if has_form and self._has_form and form == self._form:
            return tuple(others[0].values()) if others else ()
        try:
            return pickle.dumps(others)
        except Exception as error:  # whatever an object's own pickling raises
            raise InvalidStepError(
                f"what follows s_next cannot be pickled, {error}: it is kept as bytes; leave out what cannot"
            ) from error

    def put(self, place: int, staged: Staged) -> None:
        """Let ``place`` have it, instead of what it had."""
        if isinstance(staged, bytes):
            if staged != self._last_pickled:
                self._last_pickled = staged  # where many are alike, one is kept
            self._pickled[place] = self._last_pickled
            return
        self._pickled.pop(place, None)
        if staged:
            self._numbers[place] = staged

    def at(self, place: int) -> Others:
        """Give what ``put`` was told for this place."""
        if place in self._pickled:
            return tuple(pickle.loads(self._pickled[place]))
        if self._form is None:
            return ()
        values = self._numbers[place].item() if self._form else ()
        return ({key: value for (key, _), value in zip(self._form, values, strict=True)},)


def _form_of(others: Others) -> tuple[bool, Form]:
    """Whether this is nothing at all or one info of plain numbers, and its keys and types.

    >>> _form_of(({"lives": 3},)), _form_of(()), _form_of(({"states": [1.0]},))
    ((True, (('lives', <class 'int'>),)), (True, None), (False, None))
    """
    if not others:
        return True, None
    if len(others) > 1 or type(others[0]) is not dict:
        return False, None
    for key, value in others[0].items():
        is_plain = type(key) is str and type(value) in DTYPES
        if not is_plain or (type(value) is int and not INT64.min <= value <= INT64.max):
            return False, None
    return True, tuple((key, type(value)) for key, value in others[0].items())
