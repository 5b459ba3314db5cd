"""Nested state as bytes and back, without pickle: numbers, strings, bytes and arrays in dicts and lists."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np

from framestow.errors import InvalidSettingsError
from framestow.replay.store.snapshot import pack_arrays

_TREE = "tree"  # the name of the JSON text among the arrays


def pack_state(state: dict[str, Any]) -> bytes:
    """Return ``state`` as the bytes of an .npz file: a JSON tree, and beside it every array and bytes object.

    Takes dicts with string keys, lists, tuples, None, bool, int of any size, float, str, bytes, NumPy scalars and
    arrays without Python objects. Raises :class:`~framestow.errors.InvalidSettingsError` naming the place of anything
    else.

    >>> unpack_state(pack_state({"seed": 2**100, "left": (b"x", [None, 0.5])}))
    {'seed': 1267650600228229401496703205376, 'left': (b'x', [None, 0.5])}
    """
    leaves: list[np.ndarray[Any, Any]] = []
    tree = json.dumps(_describe(state, "state", leaves)).encode()
    arrays: dict[str, Any] = {str(number): leaf for number, leaf in enumerate(leaves)}
    arrays[_TREE] = np.frombuffer(tree, np.uint8)
    return pack_arrays(arrays)


def unpack_state(stored: bytes) -> dict[str, Any]:
    """Return the state that :func:`pack_state` packed; raises ``ValueError`` if it is no such thing."""
    try:
        with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
            tree = json.loads(arrays[_TREE].tobytes())
            leaves = [arrays[str(number)] for number in range(len(arrays.files) - 1)]
    except (KeyError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"not a packed state: {error}") from error
    state: dict[str, Any] = _rebuild(tree, leaves)
    return state


def _describe(value: Any, place: str, leaves: list[np.ndarray[Any, Any]]) -> list[Any]:
    """Describe ``value`` as [kind, content], which no user's key or string can be mistaken for."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise InvalidSettingsError(f"{place} has keys {list(value)!r}: keys must be strings; rename them")
        return ["dict", {key: _describe(child, f"{place}.{key}", leaves) for key, child in value.items()}]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [_describe(child, f"{place}[{i}]", leaves) for i, child in enumerate(value)]]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["value", value]
    if isinstance(value, (bytes, bytearray)):
        leaves.append(np.frombuffer(bytes(value), np.uint8))
        return ["bytes", len(leaves) - 1]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        leaves.append(value)
        return ["array", len(leaves) - 1]
    raise InvalidSettingsError(
        f"{place} is a {type(value).__name__}: a state holds numbers, strings, bytes and plain arrays; convert it"
    )


def _rebuild(described: list[Any], leaves: list[np.ndarray[Any, Any]]) -> Any:
    kind, content = described
    if kind == "dict":
        return {key: _rebuild(child, leaves) for key, child in content.items()}
    if kind in ("list", "tuple"):
        children = [_rebuild(child, leaves) for child in content]
        return children if kind == "list" else tuple(children)
    if kind == "bytes":
        return leaves[content].tobytes()
    return leaves[content] if kind == "array" else content
