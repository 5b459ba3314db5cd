"""What a slot holds: what every step has, and the extras that a memory was told to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import as_array
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.replay.action_spec import ActionSpec

MAX_EXTRAS_BYTES = 64 * 1024  # of all extras of a step; more is an observation, and belongs into a storage
OF_BATCHES = (
    *("observation", "action", "reward", "discount", "next_observation", "index", "weight"),
    *("terminated", "truncated", "extras", "is_first", "mask", "learns", "burn_in"),
)


@dataclass(frozen=True)
class ExtraSpec:
    """One extra column: what it is called, and the dtype and shape of a step's value in it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def told(self) -> str:
        """Name, dtype and shape as a message or a table shows them."""
        return f"{self.name} {self.dtype}" + (f" {'x'.join(map(str, self.shape))}" if self.shape else "")


@dataclass(frozen=True)
class ExtrasSpec:
    """The extras of a memory, by name; in which order they were declared means nothing."""

    extras: tuple[ExtraSpec, ...] = ()

    @classmethod
    def from_declared(cls, declared: Mapping[str, npt.DTypeLike] | ExtrasSpec | None) -> ExtrasSpec:
        """Read ``{"name": dtype}``, a dtype being anything that ``numpy.dtype`` takes: ``(np.float32, (2, 512))``.

        Raises ``InvalidSettingsError`` for names that are none or that a batch has already, for anything but numbers
        and booleans of a fixed size, and for more than 64 KiB a step.

        >>> spec = ExtrasSpec.from_declared({"state": (np.float32, (2, 512)), "log_prob": "float32"})
        >>> [column.told for column in spec.extras], spec.dtype.itemsize
        (['log_prob float32', 'state float32 2x512'], 4100)
        """
        if isinstance(declared, cls):
            return declared
        if declared is not None and not isinstance(declared, Mapping):
            raise InvalidSettingsError(
                f"extras is {declared!r}: it must map names to dtypes; give {{'log_prob': np.float32}}"
            )
        spec = cls(tuple(_column(name, dtype) for name, dtype in sorted((declared or {}).items(), key=_name_of)))
        if spec.dtype.itemsize > MAX_EXTRAS_BYTES:
            raise InvalidSettingsError(
                f"extras take {spec.dtype.itemsize} bytes a step: {MAX_EXTRAS_BYTES} is the most; keep pictures as "
                "observations, which are compressed"
            )
        return spec

    @classmethod
    def from_state(cls, state: Mapping[str, tuple[str, Sequence[int]]]) -> ExtrasSpec:
        """Read back what ``state`` gave."""
        return cls.from_declared({name: np.dtype((dtype, tuple(shape))) for name, (dtype, shape) in state.items()})

    def state(self) -> dict[str, tuple[str, list[int]]]:
        """What a saved memory keeps of it: JSON-able values."""
        return {spec.name: (spec.dtype, list(spec.shape)) for spec in self.extras}

    def __bool__(self) -> bool:
        return bool(self.extras)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which they lie in a slot."""
        return tuple(spec.name for spec in self.extras)

    @property
    def dtype(self) -> np.dtype[Any]:
        """A step's values in all extras, one behind the other."""
        return np.dtype([(spec.name, spec.dtype, spec.shape) for spec in self.extras])

    @property
    def told(self) -> str:
        """All extras as a message or a table shows them."""
        return ", ".join(spec.told for spec in self.extras) or "none"

    def empty(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays of no step, ``(0, *shape)``, by name."""
        return {spec.name: np.empty((0, *spec.shape), spec.dtype) for spec in self.extras}

    def checked(self, extras: Mapping[str, npt.ArrayLike] | None, num_steps: int) -> dict[str, npt.NDArray[Any]] | None:
        """Give ``extras`` as stored, ``(num_steps, *shape)`` each; raise ``InvalidStepError`` if they break the spec.

        What the memory keeps as it is may be NaN or infinite. Numbers are cast where nothing but the precision of
        floats is lost by it.
        """
        if extras is not None and not isinstance(extras, Mapping):
            raise InvalidStepError(f"extras is {extras!r}: it must map names to arrays; give a dict")
        given = {} if extras is None else extras
        self._check_names(given)
        return {spec.name: _checked_values(spec, given[spec.name], num_steps) for spec in self.extras} or None

    def _check_names(self, given: Mapping[str, npt.ArrayLike]) -> None:
        unknown = sorted(str(name) for name in given.keys() - set(self.names))
        if unknown:
            raise InvalidStepError(
                f"extras have {', '.join(unknown)}: this memory keeps {self.told}; leave it out, or declare it when "
                "the memory is built"
            )
        missing = [name for name in self.names if name not in given]
        if missing:
            raise InvalidStepError(
                f"extras lack {', '.join(missing)}: every step of this memory has {', '.join(self.names)}; "
                f"give extras={{{missing[0]!r}: ...}}"
            )


NO_EXTRAS = ExtrasSpec()


def slot_record(num_streams: int, action: ActionSpec, extras: ExtrasSpec = NO_EXTRAS) -> np.dtype[Any]:
    """Fields of one slot, one behind the other, as the native timelines read and write them.

    ========  =========  =====================================================================
    field     bytes      meaning
    ========  =========  =====================================================================
    position  4          low 32 bits of the position that the step started at
    reward    4          ``float32``
    flags     1          bit 0: the episode terminated; bit 1: it was truncated
    history   1          frames of the observation before its newest one, padding not counted
    stream    1, 2 or 4  whose step it is
    action    as given   counted actions in the narrowest integer that holds their range
    extras    as given   the extras, by name; no such field where there are none
    ========  =========  =====================================================================

    >>> slot_record(8, ActionSpec.from_space(18)).itemsize
    12
    """
    stream = np.uint8 if num_streams <= 2**8 else np.uint16 if num_streams <= 2**16 else np.uint32
    fields: list[Any] = [
        ("position", np.uint32),
        ("reward", np.float32),
        ("flags", np.uint8),
        ("history", np.uint8),
        ("stream", stream),
        ("action", action.stored_dtype, action.shape),
    ]
    return np.dtype(fields + [("extras", extras.dtype)] * bool(extras))


def _name_of(item: tuple[Any, Any]) -> str:
    return str(item[0])


def _column(name: object, dtype: npt.DTypeLike) -> ExtraSpec:
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidSettingsError(
            f"extras has the name {name!r}: names are letters, digits and underscores, as Python's are"
        )
    if name in OF_BATCHES:
        raise InvalidSettingsError(f"extras has the name {name!r}: a batch has that already; take another name")
    try:
        whole = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise InvalidSettingsError(f"extra {name!r} is {dtype!r}: NumPy knows no such dtype: {error}") from error
    element, shape = (whole, ()) if whole.subdtype is None else whole.subdtype
    if element.kind not in "biuf" or element.itemsize > 8 or whole.itemsize == 0:  # a long double differs by machine
        way_out = "give its real and its imaginary part" if element.kind == "c" else "take another dtype"
        raise InvalidSettingsError(
            f"extra {name!r} is {whole}: an extra has numbers or booleans of up to 8 bytes, at least one a step; "
            f"{way_out}"
        )
    return ExtraSpec(name, element.name, tuple(int(side) for side in shape))


def _checked_values(spec: ExtraSpec, values: npt.ArrayLike, num_steps: int) -> npt.NDArray[Any]:
    array = as_array(f"extra {spec.name!r}", values, InvalidStepError)
    if array.shape != (num_steps, *spec.shape):
        raise InvalidStepError(
            f"extra {spec.name!r} has shape {array.shape}: {num_steps} environments take {(num_steps, *spec.shape)}; "
            "give one value for each environment"
        )
    dtype = np.dtype(spec.dtype)
    are_integers = array.dtype.kind in "iu" and dtype.kind in "iu"
    if not are_integers and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise InvalidStepError(
            f"extra {spec.name!r} has dtype {array.dtype}: this memory keeps {dtype} of it; convert it"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # what is out of range is told below
        stored = np.require(array, dtype, ["C", "ALIGNED"])
    is_changed = stored != array if are_integers else np.isinf(stored) & ~np.isinf(array)
    if is_changed.any():
        place = tuple(np.argwhere(is_changed)[0].tolist())
        raise InvalidStepError(
            f"extra {spec.name!r} is {array[place]} at row {place[0]}: {dtype} does not hold that; "
            "declare a wider dtype"
        )
    return stored
