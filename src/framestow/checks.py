"""Checks of arguments, one function for each kind of value.

Each returns the checked value or raises an error with the argument's name, its value and the rule.
"""

from __future__ import annotations

import difflib
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from framestow.errors import FramestowError, InvalidSettingsError, InvalidStepError

INT64_MAX = np.iinfo(np.int64).max

Named = TypeVar("Named")


def whole_number(name: str, value: Any, least: int, most: float = math.inf, *, rule: str) -> int:
    """Return ``value`` as an ``int``; NumPy integers are accepted, booleans and floats are not.

    Raises:
        InvalidSettingsError: another type, or a number below ``least`` or above ``most``; the message has the ``rule``.

    >>> whole_number(
    ...     "stack", np.int64(4), 1, rule="an observation has at least 1 frame"
    ... )
    4
    """
    try:
        number = None if isinstance(value, (bool, np.bool_)) else int(operator.index(value))
    except TypeError:
        number = None
    if number is None:
        is_whole = isinstance(value, (float, np.floating)) and math.isfinite(value) and value == int(value)
        written = f", write {int(value):_}" if is_whole else ""
        raise InvalidSettingsError(f"{name} is {value!r}: it must be a whole number{written}; {rule}")
    if not least <= number <= most:
        raise InvalidSettingsError(f"{name} is {number}: {rule}")
    return number


def real_number(
    name: str,
    value: Any,
    least: float,
    most: float = math.inf,
    *,
    rule: str,
    is_least_excluded: bool = False,
    may_be_infinite: bool = False,
) -> float:
    """Return ``value`` as a ``float``; integers and NumPy numbers are accepted, booleans are not.

    Raises:
        InvalidSettingsError: another type, NaN, or a number out of range; the message has the ``rule``.

    >>> real_number("discount", 1, 0, 1, rule="it must be from 0 to 1")
    1.0
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise InvalidSettingsError(f"{name} is {value!r}: it must be a number; {rule}")
    number = float(value)
    is_in_range = least <= number <= most and not (is_least_excluded and number == least)
    if not is_in_range or (math.isinf(number) and not may_be_infinite):
        raise InvalidSettingsError(f"{name} is {value}: {rule}")
    return number


def truth_value(name: str, value: Any) -> bool:
    """Return ``value`` as a ``bool``; raise ``InvalidSettingsError`` unless it is ``True`` or ``False``."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidSettingsError(f"{name} is {value!r}: it must be True or False")
    return bool(value)


def one_of(name: str, value: Any, choices: Sequence[str], way_out: str = "") -> None:
    """Raise ``InvalidSettingsError`` unless ``value`` is one of the strings in ``choices``."""
    if not isinstance(value, str) or value not in choices:
        wanted = ", ".join(map(repr, choices))
        raise InvalidSettingsError(f"{name} is {value!r}: it must be one of {wanted}{way_out and '; ' + way_out}")


def find_by_name(kind: str, name: Any, table: Mapping[str, Named]) -> Named:
    """Return ``table[name]``; raise ``InvalidSettingsError`` with the nearest name, or all names, if there is none."""
    if isinstance(name, str) and name in table:
        return table[name]
    raise InvalidSettingsError(f"{kind} is {name!r}: no {kind} has this name; {nearest_name(name, table)}")


def nearest_name(name: Any, names: Iterable[str]) -> str:
    """Return a question with the nearest of ``names``, or a list of all of them.

    >>> nearest_name("natur", ["nature", "machado2018"])
    "did you mean 'nature'?"
    >>> nearest_name("random_seed", ["seed", "stack"])
    "did you mean 'seed'?"
    >>> nearest_name("goals", ["seed", "stack"])
    "choose one of 'seed', 'stack'"
    """
    names, given = list(names), str(name).lower()
    parts = [each for each in names if len(given) > 2 and (each in given or given in each)]
    nearest = difflib.get_close_matches(given, names, n=1) or difflib.get_close_matches(given, parts, n=1, cutoff=0)
    return f"did you mean {nearest[0]!r}?" if nearest else f"choose one of {', '.join(map(repr, names))}"


def check_seed(seed: Any) -> int | None:
    """Return ``seed`` as an ``int`` or ``None``; raise ``InvalidSettingsError`` for another value."""
    rule = "it must be a whole number from 0 up, or None for a random one"
    if seed is None:
        return None
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidSettingsError(f"seed is {seed!r}: {rule}")
    return int(seed)


def folder_path(name: str, value: Any) -> Path:
    """Return ``value`` as the path of a folder, which may be missing; raise ``InvalidSettingsError`` for another value.

    A folder of that path cannot exist where it, or one above it, is a file.
    """
    path = any_path(name, value)
    found = next((one for one in (path, *path.parents) if os.path.exists(one)), None)
    if found is not None and not found.is_dir():
        raise InvalidSettingsError(f"{name} is {value}: it must be a folder, and {found} is a file; check the path")
    return path


def any_path(name: str, value: Any) -> Path:
    """Return ``value`` as a path; raise ``InvalidSettingsError`` unless it is a path that is not empty.

    ``~`` is the user's home, as in a shell, and ``missing/../new`` is ``new``.
    """
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str) or not os.fspath(value):
        raise InvalidSettingsError(
            f"{name} is {value!r}: it must be the path of a folder; give '.' for the current one"
        )
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        raise InvalidSettingsError(
            f"{name} is {value!r}: no such home is known ({error}); give the whole path"
        ) from error
    return path.resolve() if ".." in path.parts else path


def check_callable(name: str, value: Any, form: str) -> None:
    """Raise ``InvalidSettingsError`` unless ``value`` is a function; ``form`` shows what to give."""
    if not callable(value):
        raise InvalidSettingsError(f"{name} is {value!r}: it must be a function; give {form}")


def as_array(
    name: str, given: Any, error_class: Callable[[str], FramestowError] = InvalidSettingsError
) -> npt.NDArray[Any]:
    """Return ``given`` as a NumPy array; raise ``error_class`` for ragged lists and tensors on a device."""
    try:
        return np.asarray(given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise error_class(
            f"{name} cannot be converted to an array ({error}): a tensor must be on the CPU, without a gradient, of a "
            f"dtype of NumPy; give {name}.detach().cpu(), and bfloat16 as .float()"
            if hasattr(given, "detach")
            else f"{name} cannot be converted to an array ({error}): its rows must have one shape; give an array"
        ) from error


def as_flags(
    name: str, given: Any, error_class: Callable[[str], FramestowError] = InvalidStepError
) -> npt.NDArray[np.bool_]:
    """Return ``given`` as an array of booleans; the numbers 0 and 1 are flags, as libraries give them.

    Raises:
        error_class: any other value, such as 0.5, NaN or ``"False"``.

    >>> as_flags("done", [0.0, 1.0]).tolist()
    [False, True]
    """
    array = as_array(name, given, error_class)
    if array.dtype == np.bool_:
        return array
    wrong = array[(array != 0) & (array != 1)] if array.dtype.kind in "iuf" else array
    if wrong.size or array.dtype.kind not in "iuf":
        value = wrong.flat[0].item() if wrong.size and array.dtype.kind in "iuf" else given
        raise error_class(f"{name} is {value!r}: it must be True or False (1 or 0); give a boolean")
    return array.astype(np.bool_)


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether ``dtype`` is a boolean, an integer or a float of NumPy.

    Another library's, such as ``float8_e5m2`` of ml_dtypes, has no format that native code could read.
    """
    return dtype.kind in "biuf" and dtype.isbuiltin != 2  # 2: registered by another library


def numpy_dtype(name: str, value: Any) -> np.dtype[Any]:
    """Return ``value`` as a NumPy dtype; raise ``InvalidSettingsError`` for ``None``, which NumPy takes for float64."""
    try:
        dtype: np.dtype[Any] | None = None if value is None else np.dtype(value)
    except (TypeError, ValueError):
        dtype = None
    if dtype is None:
        raise InvalidSettingsError(f"{name} is {value!r}: it must be a NumPy dtype; give one such as np.float32")
    return dtype


def check_indices(indices: Any, most_axes: int | None = None) -> npt.NDArray[np.int64]:
    """Return indices of transitions as a contiguous ``int64`` array; a single number becomes an array of one.

    Raises:
        InvalidSettingsError: they are no integers, or have more than ``most_axes`` axes.

    >>> check_indices([3, 5]).tolist(), check_indices([]).tolist()
    ([3, 5], [])
    """
    array = as_array("indices", indices)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidSettingsError(f"indices have dtype {array.dtype}: they must be integers; cast them")
    if array.size and array.dtype == np.uint64 and array.max() > INT64_MAX:
        raise InvalidSettingsError(f"an index is {array.max()}: indices must fit into int64; take them from a batch")
    if most_axes is not None and array.ndim > most_axes:
        raise InvalidSettingsError(
            f"indices have shape {array.shape}: they must have {most_axes} axis; flatten them with .ravel()"
        )
    return array.astype(np.int64, copy=False) if most_axes is None else np.ascontiguousarray(array, np.int64)


def check_rows(
    indices: Any, name: str, values: Any, row_shape: tuple[int, ...] = ()
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return indices of any shape as one axis, without -1 (masked steps), and their rows of ``values``.

    Raises:
        InvalidSettingsError: they are no integers.
        InvalidStepError: ``values`` have another shape than ``(*indices.shape, *row_shape)``.

    >>> [
    ...     array.tolist()
    ...     for array in check_rows(
    ...         [[3, -1], [4, 5]], "rewards", [[0.5, 0.0], [1.5, 2.5]]
    ...     )
    ... ]
    [[3, 4, 5], [0.5, 1.5, 2.5]]
    """
    asked, array = check_indices(indices), as_array(name, values, InvalidStepError)
    shape = asked.shape + row_shape
    if asked.shape == array.shape == (0,):
        array = array.reshape(shape)  # an empty list has rows of any shape
    if array.shape != shape:
        raise InvalidStepError(
            f"{name} has shape {array.shape}: indices of shape {asked.shape} take values of shape {shape}; give one "
            "value for each index"
        )
    is_step = asked != -1
    return asked[is_step], array[is_step]
