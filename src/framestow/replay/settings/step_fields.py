"""Define the fields of a stored step, and check the user's extra fields.

Every step has a position, a reward, flags, an environment and an action (``slot_record``). Extras are further numbers
per step, declared as ``extras={"log_prob": np.float32}``. One that is ``Summed`` is stored like any other;
``reading/summed_extras.py`` sums it when a batch is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, BORDER, TAKEN, TERMINATED, TRUNCATED
from framestow.checks import is_number, numpy_dtype
from framestow.errors import InvalidSettingsError
from framestow.interface import cached_property
from framestow.replay.reading.batch import Batch, SequenceBatch
from framestow.replay.settings.action_spec import ActionSpec

MAX_EXTRAS_BYTES = 64 * 1024  # of all extras of one step; larger data belongs in the observation, which is compressed
# Names of fields of a batch, which no extra field may have.
BATCH_FIELDS = ("learns", *(field.name for batch in (Batch, SequenceBatch) for field in fields(batch)))


@dataclass(frozen=True)
class Summed:
    """An extra field that a transition has as the discounted sum over its steps, as it has its reward.

    >>> import numpy as np
    >>> from framestow import FrameSpec, ReplayMemory, Summed
    >>> extras = {
    ...     "cost": Summed(np.float32),
    ...     "objectives": Summed((np.float32, (2,))),
    ... }
    >>> memory = ReplayMemory(
    ...     100,
    ...     FrameSpec((2, 2)),
    ...     4,
    ...     stack=4,
    ...     n_step=3,
    ...     discount=0.5,
    ...     extras=extras,
    ... )
    >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
    >>> for step in range(3):
    ...     values = {"cost": [1.0], "objectives": [[step, 8.0]]}
    ...     _ = memory.append(
    ...         [0],
    ...         [0.0],
    ...         [step == 2],
    ...         [False],
    ...         np.ones((1, 2, 2), np.uint8),
    ...         extras=values,
    ...     )
    >>> batch = memory.get([0, 2])
    >>> batch.extras["cost"].tolist(), batch.extras["objectives"].tolist()
    ([1.75, 1.0], [[1.0, 14.0], [2.0, 8.0]])

    Batches of transitions have the sum of γᵏ times the value of the k-th step, over the steps of the return: up to
    ``n_step``, and no step behind the end of the episode. γ is the memory's ``discount``. Sequences, episodes and
    ``steps_from`` have the values of single steps, and ``set_extras`` sets those.

    Arguments:
        dtype: ``float16``, ``float32`` or ``float64``, or a pair of one of them and a shape.
    """

    dtype: npt.DTypeLike


@dataclass(frozen=True)
class ExtraSpec:
    """Name, dtype and shape of one extra field of a step, and whether transitions have its sum."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_summed: bool = False

    @property
    def description(self) -> str:
        """Name, dtype and shape as text."""
        return f"{self.name} {self.dtype}" + (f" {'x'.join(map(str, self.shape))}" if self.shape else "")


@dataclass(frozen=True)
class ExtrasSpec:
    """All extras of a memory, sorted by name."""

    extras: tuple[ExtraSpec, ...] = ()

    @classmethod
    def from_declared(cls, declared: Mapping[str, npt.DTypeLike | Summed] | ExtrasSpec | None) -> ExtrasSpec:
        """Return the spec of ``{"name": dtype}``, where a dtype is anything ``numpy.dtype`` accepts, or ``Summed``.

        Raises:
            InvalidSettingsError: a name that is no identifier or that a batch already uses, for anything but numbers
                and booleans of a fixed size (floats for a sum), and for more than 64 KiB per step.

        >>> spec = ExtrasSpec.from_declared(
        ...     {"state": (np.float32, (2, 512)), "log_prob": "float32"}
        ... )
        >>> [extra.description for extra in spec.extras], spec.dtype.itemsize
        (['log_prob float32', 'state float32 2x512'], 4100)
        """
        if isinstance(declared, cls):
            return declared
        if declared is not None and not isinstance(declared, Mapping):
            raise InvalidSettingsError(
                f"extras is {declared!r}: it must map names to dtypes; give {{'log_prob': np.float32}}"
            )
        by_name = sorted((declared or {}).items(), key=lambda item: str(item[0]))
        spec = cls(tuple(_extra_spec(name, dtype) for name, dtype in by_name))
        if spec.dtype.itemsize > MAX_EXTRAS_BYTES:
            raise InvalidSettingsError(
                f"extras take {spec.dtype.itemsize} bytes per step: at most {MAX_EXTRAS_BYTES} are allowed; store "
                "images as observations, which are compressed"
            )
        return spec

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ExtrasSpec:
        """Return the spec of the values that ``state`` returned; other keys are ignored."""
        dtypes = {name: np.dtype((dtype, tuple(shape))) for name, (dtype, shape) in state.get("extras", {}).items()}
        summed = state.get("summed", ())
        return cls.from_declared({name: Summed(one) if name in summed else one for name, one in dtypes.items()})

    def state(self) -> dict[str, Any]:
        """Return the spec as values for JSON: ``extras`` by name, and the names ``summed`` if there are some."""
        state = {"extras": {spec.name: (spec.dtype, list(spec.shape)) for spec in self.extras}}
        return state | ({"summed": list(self.summed)} if self.summed else {})

    @cached_property
    def summed(self) -> tuple[str, ...]:
        """Names of the extras that transitions have as sums."""
        return tuple(spec.name for spec in self.extras if spec.is_summed)

    def __bool__(self) -> bool:
        return bool(self.extras)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the extras, in the order of their bytes in a slot."""
        return tuple(spec.name for spec in self.extras)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Structured dtype of all extras of one step."""
        return np.dtype([(spec.name, spec.dtype, spec.shape) for spec in self.extras])

    @property
    def description(self) -> str:
        """All extras as text."""
        return ", ".join(spec.description for spec in self.extras) or "none"

    def empty(self) -> dict[str, npt.NDArray[Any]]:
        """Return an array of zero steps, ``(0, *shape)``, for each name."""
        return {spec.name: np.empty((0, *spec.shape), spec.dtype) for spec in self.extras}


NO_EXTRAS = ExtrasSpec()


ALL_FLAGS = TERMINATED | TRUNCATED | TAKEN | BEGINS_EPISODE | BORDER


@lru_cache(maxsize=64)
def slot_record(num_envs: int, action: ActionSpec, extras: ExtrasSpec = NO_EXTRAS) -> np.dtype[Any]:
    """Return the structured dtype of one slot, as the native step stores read and write it.

    ========  =========  =====================================================================
    field     bytes      meaning
    ========  =========  =====================================================================
    position  4          low 32 bits of the position of the step's first frame
    reward    4          ``float32``
    flags     1          ``TERMINATED``, ``TRUNCATED``, ``TAKEN``, ``BEGINS_EPISODE`` and ``BORDER``
    history   1          frames of the observation before its newest frame, without padding
    env_id    1, 2, 4    number of the environment; the width fits ``num_envs``
    action    as given   ``ActionSpec.stored_dtype``
    extras    as given   the extras by name; this field is missing without extras
    ========  =========  =====================================================================

    >>> slot_record(8, ActionSpec.from_space(18)).itemsize
    12
    """
    env_id = np.uint8 if num_envs <= 2**8 else np.uint16 if num_envs <= 2**16 else np.uint32
    fields: list[Any] = [
        ("position", np.uint32),
        ("reward", np.float32),
        ("flags", np.uint8),
        ("history", np.uint8),
        ("env_id", env_id),
        ("action", action.stored_dtype, action.shape),
    ]
    return np.dtype(fields + [("extras", extras.dtype)] * bool(extras))


def offset_of(record: np.dtype[Any], name: str) -> int:
    """Return where ``"reward"``, or the extra of that name, begins in a slot.

    >>> offset_of(slot_record(8, ActionSpec.from_space(18)), "reward")
    4
    """
    fields: Any = record.fields
    of_extras: Any = record["extras"].fields if name != "reward" else None
    return int(fields["reward"][1] if of_extras is None else fields["extras"][1] + of_extras[name][1])


def _extra_spec(name: object, dtype: npt.DTypeLike | Summed) -> ExtraSpec:
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidSettingsError(
            f"extras has the name {name!r}: a name must be a Python identifier; use letters, digits and underscores"
        )
    if name in BATCH_FIELDS:
        raise InvalidSettingsError(f"extras has the name {name!r}: a batch already has this field; use another name")
    is_summed = isinstance(dtype, Summed)
    whole = numpy_dtype(f"extra {name!r}", dtype.dtype if isinstance(dtype, Summed) else dtype)
    element, shape = (whole, ()) if whole.subdtype is None else whole.subdtype
    if not is_number(element) or element.itemsize > 8 or whole.itemsize == 0:  # long doubles differ by machine
        way_out = "store the real and the imaginary part" if element.kind == "c" else "use another dtype"
        raise InvalidSettingsError(
            f"extra {name!r} is {whole}: an extra must be at least one number or boolean of up to 8 bytes; {way_out}"
        )
    if is_summed and element.kind != "f":
        raise InvalidSettingsError(
            f"extra {name!r} is Summed of {whole}: a discounted sum has fractions; give Summed(np.float32)"
        )
    return ExtraSpec(name, element.name, tuple(int(side) for side in shape), is_summed)
