"""Arrays alone, by key or in a tuple, as observations and columns come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def map_arrays(change: Callable[..., Any], arrays: Any, *others: Any) -> Any:
    """Give ``arrays``, nested dicts and tuples of them, with each replaced by what ``change`` makes of it.

    ``others``, made alike, give it an argument more each.

    >>> import numpy as np
    >>> map_arrays(len, {"camera": np.zeros((3, 8, 8)), "joints": (np.zeros(3), np.zeros(3))})
    {'camera': 3, 'joints': (3, 3)}
    """
    if isinstance(arrays, Mapping):
        return {key: map_arrays(change, part, *(other[key] for other in others)) for key, part in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(map_arrays(change, *parts) for parts in zip(arrays, *others, strict=True))
    return change(arrays, *others)
