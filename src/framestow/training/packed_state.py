"""The two files of a checkpoint as bytes: agent.safetensors and state.npz.

Both have a JSON tree of the values, and every array of the tree beside it. Neither can contain code, nor an array that
is larger than its bytes in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.torch
import torch

from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.replay.store.format import pack_arrays, unpack_arrays

TREE = "tree"  # name of the JSON tree among the arrays of an .npz file, and in the metadata of a .safetensors file
MOST_TREE_BYTES = 4 * 2**20  # parsed JSON takes some 30 times as much
_LENGTH_BYTES = 8  # of the length of the header, at the beginning of a .safetensors file


def pack_agent(state: dict[str, Any]) -> bytes:
    """Return the state of an agent as the bytes of a .safetensors file, which names tensors by their path.

    Values may be tensors, and what ``pack_state`` packs except bytes and arrays.

    >>> file = pack_agent({"online": {"bias": torch.ones(2)}, "num_updates": 7})
    >>> safetensors.torch.load(file)
    {'online.bias': tensor([1., 1.])}
    >>> unpack_agent(file)
    {'online': {'bias': tensor([1., 1.])}, 'num_updates': 7}
    """
    tensors: dict[str, torch.Tensor] = {}
    tree = _tree(_describe(state, "", [], tensors))
    return safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}, {TREE: tree})


def unpack_agent(stored: bytes) -> dict[str, Any]:
    """Return the state that ``pack_agent`` packed, with tensors on the CPU; raises ``ValueError`` for other bytes."""
    end = _LENGTH_BYTES + int.from_bytes(stored[:_LENGTH_BYTES], "little")
    if not _LENGTH_BYTES < end <= min(len(stored), MOST_TREE_BYTES):
        raise ValueError(f"its header ends at byte {end:,}: the file has {len(stored):,}, and a header some thousand")
    try:
        tensors = safetensors.torch.load(stored)
    except safetensors.SafetensorError as error:
        raise ValueError(f"not a file of tensors: {error}") from error
    return _unpack(json.loads(stored[_LENGTH_BYTES:end])["__metadata__"][TREE], tensors)


def tensors_of(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested dicts and lists, each with its path."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (dict, list, tuple)):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tensors_of(child, f"{name}.{key}" if name else str(key))


def pack_state(state: dict[str, Any]) -> bytes:
    """Return ``state`` as the bytes of an .npz file: a JSON tree, and every array and bytes object as an array.

    Values may be dicts with string keys, lists, tuples, None, bool, int of any size, float, str, bytes, NumPy scalars
    and arrays without Python objects.

    Raises:
        InvalidSettingsError: another kind of value, with its path; or more than ``unpack_state`` takes.

    >>> unpack_state(pack_state({"seed": 2**100, "left": (b"x", [None, 0.5])}))
    {'seed': 1267650600228229401496703205376, 'left': (b'x', [None, 0.5])}
    """
    arrays: list[npt.NDArray[Any]] = []
    tree = _tree(_describe(state, "state", arrays)).encode()
    named = {str(number): array for number, array in enumerate(arrays)}
    return pack_arrays({**named, TREE: np.frombuffer(tree, np.uint8)})


def unpack_state(stored: bytes) -> dict[str, Any]:
    """Return the state that ``pack_state`` packed; raises ``ValueError`` for other bytes."""
    try:
        arrays = unpack_arrays(stored, "")
    except DamagedDataError as error:
        raise ValueError(f"not a packed state: {error.__cause__}") from error
    tree = arrays.pop(TREE)
    if tree.nbytes > MOST_TREE_BYTES:
        raise ValueError(f"its tree has {tree.nbytes:,} bytes, and framestow writes at most {MOST_TREE_BYTES:,}")
    return _unpack(tree.tobytes(), arrays)


def _unpack(tree: str | bytes, named: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a JSON tree, which has each of ``named`` once: repeated, a small file would become large."""
    state = _rebuild(json.loads(tree), named)
    if named or not isinstance(state, dict):
        raise ValueError(f"its tree is no dictionary, or lacks {sorted(named)[:3]}")
    return state


def _tree(described: list[Any]) -> str:
    tree = json.dumps(described)
    if len(tree) > MOST_TREE_BYTES:
        raise InvalidSettingsError(
            f"the state has {len(tree):,} bytes beside its arrays: a checkpoint takes at most {MOST_TREE_BYTES:,}; "
            "keep long lists as arrays"
        )
    return tree


def _describe(
    value: Any, path: str, arrays: list[npt.NDArray[Any]], tensors: dict[str, torch.Tensor] | None = None
) -> list[Any]:
    """Return ``value`` as [kind, content]. The kind keeps strings of a state apart from our markers."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise InvalidSettingsError(f"{path} has keys {list(value)!r}: keys must be strings; rename them")
        start = f"{path}." if path else ""
        return ["dict", {key: _describe(child, f"{start}{key}", arrays, tensors) for key, child in value.items()}]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [_describe(child, f"{path}[{i}]", arrays, tensors) for i, child in enumerate(value)]]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["value", value]
    if tensors is not None and isinstance(value, torch.Tensor):
        tensors[path] = value
        return ["tensor", path]
    if isinstance(value, (bytes, bytearray)):
        arrays.append(np.frombuffer(bytes(value), np.uint8))
        return ["bytes", len(arrays) - 1]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        arrays.append(value)
        return ["array", len(arrays) - 1]
    raise InvalidSettingsError(
        f"{path} is a {type(value).__name__}: a state has numbers, strings, bytes and plain arrays; convert it"
    )


def _rebuild(described: list[Any], named: dict[str, Any]) -> Any:
    kind, content = described
    if kind == "dict":
        return {key: _rebuild(child, named) for key, child in content.items()}
    if kind in ("list", "tuple"):
        children = [_rebuild(child, named) for child in content]
        return children if kind == "list" else tuple(children)
    if kind == "value" and not isinstance(content, (dict, list)):
        return content
    if kind not in ("bytes", "array", "tensor"):
        raise ValueError(f"its tree has a value of kind {str(kind)[:60]!r}")
    array = named.pop(str(content))
    if kind == "tensor":
        return array
    return array.tobytes() if kind == "bytes" else array.copy()  # an unpacked array is read-only
