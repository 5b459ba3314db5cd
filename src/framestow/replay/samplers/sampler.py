"""``Sampler``, the base class of all samplers, and ``Sampleable``, the transitions that a sampler draws from."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from framestow._core import are_priorities
from framestow.checks import as_array, check_indices
from framestow.errors import InvalidSettingsError
from framestow.interface import one_line, plain_arguments

Indices = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int64]


class Draw(NamedTuple):
    """The ``indices`` and importance ``weights`` of the drawn transitions, both ``(batch,)``."""

    indices: Indices
    weights: npt.NDArray[np.float32]


class Chances(NamedTuple):
    """How a sampler draws some transitions next, each ``(n,)``."""

    probabilities: npt.NDArray[np.float64]
    """Probability that one draw is this transition."""
    weights: npt.NDArray[np.float64]
    """Importance weight that it would have; NaN in a mixture whose parts give different ones."""
    priorities: npt.NDArray[np.float64] | None = None
    """Its priority; ``None`` if the sampler has none."""


class Sampleable(Protocol):
    """The transitions that can be sampled now, by rank, index and slot. All arrays have one axis.

    ::

        rank    0 is the oldest, ``len`` minus 1 the newest; changes when transitions are evicted
        index   number of the transition; never reused
        slot    number below ``num_slots``; constant while the transition is stored, reused afterwards
    """

    def __len__(self) -> int:
        """Return the number of sampleable transitions."""

    def sampleable_at(self, ranks: Indices) -> Indices:
        """Return the indices of the transitions with these ranks."""

    def sampleable_indices(self) -> Indices:
        """Return all indices, ascending."""

    def sampleable_spans(self) -> Indices:
        """Return all indices as spans of consecutive ones, ascending: first index and length, ``(spans, 2)``."""

    def is_sampleable(self, indices: Indices) -> npt.NDArray[np.bool_]:
        """Return which of ``indices`` are sampleable."""

    @property
    def num_slots(self) -> int:
        """Upper bound of slots; it may grow to a little more than the maximum number of transitions."""

    def slots_of(self, indices: Indices) -> Slots:
        """Return the slots of transitions; raise ``IndexError`` if one is not sampleable."""

    def find_slots(self, indices: Indices) -> Slots:
        """Return the slots of transitions; -1 for those that are not sampleable."""

    def indices_in(self, slots: Slots) -> Indices:
        """Return the transitions in ``slots``, -1 for none that is sampleable; raise ``IndexError`` for no slot."""


class WatchedSlots(Sampleable, Protocol):
    """Sampleable transitions that record, on request, which slots were filled or emptied."""

    @property
    def has_changed_slots(self) -> bool:
        """Whether any slot has changed."""

    def watch_slots(self, is_watched: bool) -> None:
        """Start to record changes, or stop and clear the record; has no effect if they are recorded already."""

    def changed_slots(self) -> Slots:
        """Return the changed slots, ascending, each once, at most 65,536 of them."""

    def remove_changed_slots(self) -> None:
        """Remove the slots that ``changed_slots`` returned last from the record."""


@runtime_checkable
class Sampler(Protocol):
    """Base class of samplers: draws transitions by index, without their frames and rewards.

    To write a sampler, derive from it and write ``draw``; the other methods are optional.

    >>> import numpy as np
    >>> from framestow import Draw, Sampler
    >>> class Newest(Sampler):
    ...     def draw(self, batch_size, transitions, generator):
    ...         ranks = np.full(batch_size, len(transitions) - 1)
    ...         return Draw(
    ...             transitions.sampleable_at(ranks),
    ...             np.ones(batch_size, np.float32),
    ...         )

    The memory calls all methods under its lock, one at a time, so a sampler needs no locks. It calls ``slots_changed``
    of a class with ``watches_slots = True`` alone. An interrupt (Ctrl-C) can
    end any call between two of its lines.
    """

    watches_slots: bool = False

    @property
    def nbytes(self) -> int:
        """Number of bytes that the sampler takes now."""
        return 0

    @property
    def bytes_a_step(self) -> float:
        """Maximum number of bytes for each transition; counted in the memory's ``max_bytes``."""
        return 0.0

    def __repr__(self) -> str:
        """Return the call that builds such a sampler, with its plain settings."""
        return one_line(self, lambda: plain_arguments(self))

    @abstractmethod
    def draw(self, batch_size: int, transitions: Sampleable, generator: np.random.Generator) -> Draw:
        """Draw ``batch_size`` of ``transitions``, of which there is at least one, with replacement.

        Arguments:
            batch_size: Number of transitions to return.
            transitions: The transitions that can be sampled now.
            generator: The memory's random generator. Use no other one, so that the same seed gives the same draws.
        """

    def begin(self, transitions: Sampleable) -> None:
        """Start with these transitions; clear all state of before, which belongs to another memory or is outdated."""
        if self.watches_slots and len(transitions):
            self.slots_changed(transitions.slots_of(transitions.sampleable_indices()), transitions)

    def slots_changed(self, slots: Slots, transitions: Sampleable) -> None:
        """Update the state of ``slots``, ascending, which were filled or emptied since the last call.

        With ``watches_slots``, the memory calls it before a draw, an update or a save if any slot changed. After an
        interrupt it passes the same slots again.

        Arguments:
            slots: The changed slots, each once.
            transitions: The transitions that can be sampled now; ``indices_in(slots)`` says what the slots have.
        """
        del slots, transitions

    def update_priorities(
        self, indices: Indices, priorities: npt.NDArray[np.floating[Any]], transitions: Sampleable
    ) -> None:
        """Set new priorities (TD errors of any sign) of transitions, some of which may be evicted already.

        Arguments:
            indices: Indices of transitions, ``(n,)``, as a batch has them.
            priorities: Their new priorities, ``(n,)``; all are finite.
            transitions: The transitions that can be sampled now.

        Raises:
            InvalidSettingsError: the sampler has no priorities, or refuses these before anything changes.
        """
        del indices, priorities, transitions
        raise InvalidSettingsError(
            f"sampler is a {type(self).__name__}: it does not use priorities; build the memory with "
            "sampler=Prioritized()"
        )

    def check_update(self, priorities: npt.NDArray[np.floating[Any]]) -> bool:
        """Return whether ``update_priorities`` would use these priorities; it changes nothing.

        A ``Mixture`` and a ``ReplayEnsemble`` ask all samplers first, so that they update all or none. Write it if your
        ``update_priorities`` refuses some priorities.

        Raises:
            InvalidSettingsError: it would refuse them.
        """
        del priorities
        return type(self).update_priorities is not Sampler.update_priorities

    def total_mass(self, transitions: Sampleable) -> tuple[float, float] | None:
        """Return the sum of the masses of all transitions, and the smallest one.

        A draw is in proportion to the masses, so that several memories can be sampled as one. ``None``, the default, if
        the sampler draws in another way.
        """
        del transitions
        return None

    def chances(self, indices: Indices, transitions: Sampleable) -> Chances | None:
        """Return how the next draw draws these transitions, all of them sampleable; it changes nothing.

        ``None``, the default, if the sampler cannot say it. ``framestow view`` shows it.
        """
        del indices, transitions
        return None

    def state(self, transitions: Sampleable) -> dict[str, Any]:
        """Return the state to save: values for JSON and NumPy arrays, in dicts and lists of any depth."""
        del transitions
        return {}

    def restore(self, state: dict[str, Any], transitions: Sampleable) -> None:
        """Restore what ``state`` returned. Some transitions may be lost since then; ``begin`` was not called.

        Raises:
            ValueError: values that ``state`` cannot have returned.
        """
        del state, transitions


def ranks_of(indices: Indices, transitions: Sampleable) -> npt.NDArray[np.int64]:
    """Return the ranks of sampleable transitions: the inverse of ``Sampleable.sampleable_at``."""
    spans = transitions.sampleable_spans()
    ranks_of_firsts = np.cumsum(spans[:, 1]) - spans[:, 1]
    numbers = np.searchsorted(spans[:, 0], indices, side="right") - 1
    ranks: npt.NDArray[np.int64] = ranks_of_firsts[numbers] + indices - spans[numbers, 0]
    return ranks


def check_is_sampler(given: object) -> None:
    """Raise ``InvalidSettingsError`` unless ``given`` is a sampler object, not a class."""
    if isinstance(given, type) or not isinstance(given, Sampler):
        raise InvalidSettingsError(
            f"sampler is {given!r}: it must be a sampler object; give Uniform(), for instance, or an object of a class "
            "that derives from Sampler"
        )


Priorities = npt.NDArray[np.floating[Any]]


def check_priorities(indices: Any, priorities: Any) -> tuple[Indices, Priorities]:
    """Return both as arrays with one axis, the priorities as float32 or float64.

    Raises:
        InvalidSettingsError: a wrong shape, dtype or device, or values that are not finite.

    >>> check_priorities([7, 8], [0.5, -2])
    (array([7, 8]), array([ 0.5, -2. ]))
    """
    if are_priorities(indices, priorities):  # the usual arrays, at a tenth of the cost
        return indices, priorities
    numbers = check_indices(indices)
    checked = as_array("priorities", priorities)
    if checked.dtype.kind not in "fiub" and checked.size:
        raise InvalidSettingsError(f"priorities have dtype {checked.dtype}: they must be real numbers; cast them")
    if checked.shape != numbers.shape:
        raise InvalidSettingsError(
            f"priorities have shape {checked.shape} and indices {numbers.shape}: each transition has one; "
            "give arrays of the same shape"
        )
    numbers, checked = numbers.ravel(), checked.ravel()
    checked = checked if checked.dtype in (np.float32, np.float64) else checked.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(checked))
    if wrong.size:
        raise InvalidSettingsError(
            f"priority of transition {numbers[wrong[0]]} is {checked[wrong[0]]}: priorities must be finite; "
            "clip the errors, or omit that transition"
        )
    return numbers, np.ascontiguousarray(checked)
