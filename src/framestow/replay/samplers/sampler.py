"""What every sampler promises."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from framestow._core import are_priorities
from framestow.argument_checks import as_array
from framestow.argument_checks import checked_indices as indices_of
from framestow.errors import InvalidSettingsError

Indices = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int64]


class Draw(NamedTuple):
    """Indices of the transitions drawn, and their importance weights; both of shape ``(batch,)``."""

    indices: Indices
    weights: npt.NDArray[np.float32]


class Held(Protocol):
    """The transitions that may be drawn now, by rank, by index and by slot; arrays in and out have one axis.

    ::

        rank    0 is the oldest, ``len`` minus 1 the newest; another one whenever something leaves
        index   which transition it is, of all that ever came; never given twice
        slot    where it lies: below ``num_slots``, the same while it is held, given to others afterwards
    """

    def __len__(self) -> int:
        """How many there are."""

    def held_at(self, ranks: Indices) -> Indices:
        """Give the indices of those ranks."""

    def held_indices(self) -> Indices:
        """Give all indices, ascending."""

    def held_runs(self) -> Indices:
        """Give all indices as runs of consecutive ones, ascending: first index and number of each, ``(runs, 2)``."""

    def is_held(self, indices: Indices) -> npt.NDArray[np.bool_]:
        """Which of ``indices`` may be drawn."""

    @property
    def num_slots(self) -> int:
        """All slots are below this; it may grow, and is not much more than the most transitions there may be."""

    def slots_of(self, indices: Indices) -> Slots:
        """Give the slots of transitions; IndexError for one that may not be drawn."""

    def find_slots(self, indices: Indices) -> Slots:
        """Give the slots of transitions, -1 for those that may not be drawn."""

    def indices_in(self, slots: Slots) -> Indices:
        """Give the transitions in ``slots``, -1 where there is none that may be drawn; IndexError for no slot."""


class WatchedSlots(Held, Protocol):
    """What is held, by somebody who notes into which slots something came and which it left, if that is wanted."""

    @property
    def has_changed_slots(self) -> bool:
        """Whether there are slots to tell."""

    def watch_slots(self, is_watched: bool) -> None:
        """Note changes from now on, or none any more, and forget all of them; does nothing where they are noted."""

    def changed_slots(self) -> Slots:
        """Give the slots that changed since they were last forgotten, ascending, each once, but at most 65,536."""

    def forget_changed_slots(self) -> None:
        """Forget those that were given last: somebody has been told."""


@runtime_checkable
class Sampler(Protocol):
    """Draws transitions by their index. It is told which may be drawn, and sees neither frames nor rewards.

    A class of yours takes it as its base and writes ``draw``; the rest says "nothing" until it is written too. All
    calls come under the memory's lock, one at a time, so none has to think of threads. An interrupt (Ctrl-C) may break
    off any call between two of its lines.
    """

    watches_slots: bool = False
    """Whether ``slots_changed`` is to be called; a constant of the class."""

    @property
    def nbytes(self) -> int:
        """What it keeps now, in bytes."""
        return 0

    @property
    def bytes_a_step(self) -> float:
        """What it keeps for each transition at most, in bytes; a memory with a budget sets so much aside."""
        return 0.0

    @abstractmethod
    def draw(self, batch_size: int, held: Held, generator: np.random.Generator) -> Draw:
        """Draw ``batch_size`` of ``held``, which are at least one, with replacement.

        ``generator`` is the memory's; whoever draws from it alone gives the same draws for the same seed.
        """

    def begin(self, held: Held) -> None:
        """Begin with a memory, or afresh: what was known before is of another one, or out of date."""
        if self.watches_slots and len(held):
            self.slots_changed(held.slots_of(held.held_indices()), held)

    def slots_changed(self, slots: Slots, held: Held) -> None:
        """Take note that transitions came into ``slots``, ascending, or left them since the last call.

        Called before a draw, an update and a save, if there is such a slot and ``watches_slots`` says so. The same
        slots are told again where an interrupt broke the call off.
        """
        del slots, held

    def update_priorities(self, indices: Indices, priorities: npt.NDArray[np.floating[Any]], held: Held) -> None:
        """Take new priorities (TD errors, of any sign) of transitions, of which some may have left meanwhile.

        Both have the same shape; all are finite. Raises ``InvalidSettingsError`` where there are no priorities.
        """
        del indices, priorities, held
        raise InvalidSettingsError(
            f"sampler is a {type(self).__name__}: it draws by no priorities; build the memory with "
            "sampler=Prioritized()"
        )

    def state(self, held: Held) -> dict[str, Any]:
        """What is saved with a memory: JSON-able values and NumPy arrays, in dicts and lists of any depth."""
        del held
        return {}

    def restore(self, state: dict[str, Any], held: Held) -> None:
        """Take over what ``state`` gave; ``held`` may be less than it was then. ``begin`` was not called.

        Raises ``ValueError`` for what ``state`` cannot have given.
        """
        del state, held


def check_is_sampler(given: object) -> None:
    """Raise ``InvalidSettingsError`` for what is no sampler, a class of samplers among it."""
    if isinstance(given, type) or not isinstance(given, Sampler):
        raise InvalidSettingsError(
            f"sampler is {given!r}: it must be a sampler; give one that is made, Uniform() for instance, or an object "
            "of a class of yours that derives from Sampler"
        )


Priorities = npt.NDArray[np.floating[Any]]


def checked_priorities(indices: Any, priorities: Any) -> tuple[Indices, Priorities]:
    """Give both as arrays with one axis, the priorities as float32 or float64.

    Raises ``InvalidSettingsError`` for another shape, dtype or device than can be taken, and for what is not finite.

    >>> checked_priorities([7, 8], [0.5, -2])
    (array([7, 8]), array([ 0.5, -2. ]))
    """
    if are_priorities(indices, priorities):  # what a learner gives usually, at a tenth of the cost
        return indices, priorities
    checked_indices = indices_of(indices)
    checked = as_array("priorities", priorities)
    if checked.dtype.kind not in "fiub" and checked.size:
        raise InvalidSettingsError(f"priorities are of {checked.dtype}: they must be real numbers; cast them")
    if checked.shape != checked_indices.shape:
        raise InvalidSettingsError(
            f"priorities have shape {checked.shape} and indices {checked_indices.shape}: each transition has one; "
            "give arrays of one shape"
        )
    checked_indices, checked = checked_indices.ravel(), checked.ravel()
    checked = checked if checked.dtype in (np.float32, np.float64) else checked.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(checked))
    if wrong.size:
        raise InvalidSettingsError(
            f"priority of transition {checked_indices[wrong[0]]} is {checked[wrong[0]]}: priorities must be finite; "
            "clip the errors, or leave that transition out"
        )
    return checked_indices, np.ascontiguousarray(checked)
