"""The sampler of a memory: notified of changed slots before each call, owned by one memory, saved and restored."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.replay.samplers.by_age import ByAge
from framestow.replay.samplers.emphasize_recent import SETTINGS, EmphasizeRecent
from framestow.replay.samplers.mixture import Mixture, copy_sampler, with_parts
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.sampler import (
    Chances,
    Draw,
    Indices,
    Sampleable,
    Sampler,
    WatchedSlots,
    check_is_sampler,
)
from framestow.replay.samplers.uniform import Uniform

Arrays = Mapping[str, npt.NDArray[Any]]
MakeSampler = Callable[[dict[str, Any]], Sampler]  # from the settings in what ``Sampler.state`` returned

ARRAY = "__array__"  # key of a dict that replaces an array in JSON; its value is the name of the array
PREFIX = "sampler"  # of these names
PLAIN = int, float, str  # types of settings and of numbers of draws

# How to build each of framestow's samplers from its saved state, by the name of its class.
SAMPLERS: dict[str, MakeSampler] = {
    "Prioritized": lambda state: Prioritized(**state["settings"]),
    "Uniform": lambda state: Uniform(**state),
    "ByAge": lambda state: ByAge(state["half_life"]),
    "EmphasizeRecent": lambda state: EmphasizeRecent(*(state[name] for name in SETTINGS)),
    "Mixture": lambda state: Mixture(
        *((_make_sampler(part["kind"], part["state"]), part["share"]) for part in state["parts"])
    ),
}


def describe_sampler(sampler: Sampler, transitions: Sampleable) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return class and state of a sampler: values for JSON, and the arrays that they name."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    return {
        "kind": type(sampler).__name__,
        "state": _without_arrays(sampler.state(transitions), PREFIX, arrays),
    }, arrays


def make_saved_sampler(saved: dict[str, Any], arrays: Arrays) -> Sampler:
    """Return a new sampler of the saved class and settings; its state is not restored.

    Raises:
        IncompatibleError: a class that is not framestow's.
    """
    return _make_sampler(saved["kind"], _with_arrays(saved["state"], arrays))


def _make_sampler(kind: str, state: dict[str, Any]) -> Sampler:
    if kind not in SAMPLERS:
        raise IncompatibleError(
            f"sampler is not given: the memory was saved with a {kind}, which is not one of framestow's; load it with "
            f"sampler={kind}(...), or with another sampler, which starts without state"
        )
    return SAMPLERS[kind](state)


def restore_sampler(sampler: Sampler, saved: dict[str, Any], arrays: Arrays, transitions: Sampleable) -> None:
    """Restore a sampler of the saved class; call ``begin`` if it is of another class or if arrays are missing."""
    state = _with_arrays(saved["state"], arrays)
    if type(sampler).__name__ == saved["kind"] and _is_whole(saved["state"], arrays):
        sampler.restore(state, transitions)
    else:
        sampler.begin(transitions)


def _without_arrays(value: Any, name: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Return ``value`` with names instead of arrays; put these into ``arrays``."""
    if isinstance(value, dict):
        return {key: _without_arrays(one, f"{name}.{key}", arrays) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_arrays(one, f"{name}.{index}", arrays) for index, one in enumerate(value)]
    if isinstance(value, np.ndarray):
        while name in arrays:
            name += "_"
        arrays[name] = value
        return {ARRAY: name}
    return value.item() if isinstance(value, np.generic) else value


def _with_arrays(value: Any, arrays: Arrays) -> Any:
    """Return what ``_without_arrays`` was called with; ``None`` for a missing array."""
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return arrays.get(value[ARRAY])
        return {key: _with_arrays(one, arrays) for key, one in value.items()}
    return [_with_arrays(one, arrays) for one in value] if isinstance(value, list) else value


def _is_whole(value: Any, arrays: Arrays) -> bool:
    """Return whether all named arrays are there; a state that was rebuilt from the logs has none."""
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return value[ARRAY] in arrays
        return all(_is_whole(one, arrays) for one in value.values())
    return not isinstance(value, list) or all(_is_whole(one, arrays) for one in value)


_owners: WeakValueDictionary[int, NotifiedSampler] = WeakValueDictionary()
"""The last owner of a sampler, or of a part of a mixture, by its ``id``; it may have another sampler by now."""


class NotifiedSampler:
    """The sampler of a memory. Call it under the memory's lock.

    A sampler object, and each part of a mixture, belongs to one memory at a time, because its state is by slot. A
    memory releases it when it takes another one, is closed, cannot be built, or is garbage collected.

    Changed slots are cleared only after the sampler has processed them. So an interrupt loses none; at worst the
    sampler gets the same slots twice, which has no effect.
    """

    def __init__(self, sampler: Sampler | None, transitions: WatchedSlots) -> None:
        # The memory's step store, which records the slots that were filled or emptied.
        self._transitions = transitions
        # Whether the caller gave a sampler. If not, ``restore`` builds the saved one.
        self._is_chosen = sampler is not None
        self.sampler: Sampler = Uniform()
        self._num_changes = 0  # new samplers, and updates of priorities
        # Released: another memory may take the sampler. Taken: it did, and draws here raise.
        self._is_released, self._is_taken = False, False
        self.switch(Uniform() if sampler is None else sampler)

    def draw(self, batch_size: int, generator: np.random.Generator) -> Draw:
        """Draw from the stored transitions, of which there is at least one."""
        if self._is_taken:
            raise InvalidSettingsError(
                "the sampler was given to another memory after this one was closed: a sampler serves one memory; give "
                "this memory a new one, for instance memory.sampler = Uniform()"
            )
        if self._transitions.has_changed_slots:
            self._notify()
        return self.sampler.draw(batch_size, self._transitions, generator)

    def update_priorities(self, indices: Indices, priorities: npt.NDArray[np.floating[Any]]) -> None:
        """Pass checked priorities to the sampler; raise ``InvalidSettingsError`` if it uses none."""
        self._notify()
        self.sampler.update_priorities(indices, priorities, self._transitions)
        self._num_changes += 1

    @property
    def change_marker(self) -> Any:
        """A value that differs after an update of priorities, and after a new sampler, setting or phase."""
        attributes = (vars(part).items() for part in with_parts(self.sampler))
        return self._num_changes, [{name: one for name, one in each if isinstance(one, PLAIN)} for each in attributes]

    def total_mass(self) -> tuple[float, float] | None:
        """Return the sum of the masses of all transitions, and the smallest one; see ``Sampler.total_mass``."""
        self._notify()
        return self.sampler.total_mass(self._transitions)

    def chances(self, indices: Indices) -> Chances | None:
        """Return how the next draw draws these sampleable transitions; see ``Sampler.chances``."""
        self._notify()
        return self.sampler.chances(indices, self._transitions)

    def draw_on_copies(self, batch_size: int, generator: np.random.Generator) -> Indices:
        """Return what ``draw`` would return, by copies of the sampler and of ``generator``: neither goes on."""
        self._notify()
        return copy_sampler(self.sampler).draw(batch_size, self._transitions, copy.deepcopy(generator)).indices

    def switch(self, sampler: Sampler) -> None:
        """Use another sampler, which starts with all stored transitions.

        Raises:
            InvalidSettingsError: it is no sampler, or another memory uses it; nothing is changed.
        """
        check_is_sampler(sampler)
        self._take(sampler)
        if sampler.watches_slots:
            self._transitions.watch_slots(True)  # first, so that changes after an interrupt are recorded
        sampler.begin(self._transitions)
        self.sampler = sampler
        self._num_changes += 1
        if not sampler.watches_slots:
            self._transitions.watch_slots(False)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return class and state of the sampler: values for JSON, and the arrays that they name."""
        self._notify()
        return describe_sampler(self.sampler, self._transitions)

    def restore(self, saved: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore the saved sampler; the transitions are restored already.

        Without a chosen sampler, the saved one is recreated; one of another class starts without state. Raises
        ``IncompatibleError`` if none was chosen and the saved one is not framestow's.
        """
        sampler = self.sampler if self._is_chosen else make_saved_sampler(saved, arrays)
        self._take(sampler)
        self._transitions.watch_slots(False)
        self._transitions.watch_slots(sampler.watches_slots)
        restore_sampler(sampler, saved, arrays, self._transitions)
        self.sampler = sampler

    def release(self) -> None:
        """Allow another memory to take the sampler; until then, it still draws here."""
        self._is_released = True

    @contextmanager
    def release_on_error(self) -> Iterator[None]:
        """Release the sampler if the memory cannot be built, so that the caller can use it again."""
        with ExitStack() as on_error:
            on_error.callback(self.release)
            yield
            on_error.pop_all()

    def _take(self, sampler: Sampler) -> None:
        """Own a sampler and its parts from now on; raise ``InvalidSettingsError`` if another memory uses one."""
        parts = with_parts(sampler)
        if any(not owner._is_released for _, owner in self._other_owners(parts)):
            gc.collect()  # an unreachable memory owns nothing
        others = self._other_owners(parts)
        for part, owner in others:
            if not owner._is_released:
                raise InvalidSettingsError(
                    f"sampler is a {type(part).__name__} that another memory uses: its state is of that memory's "
                    "transitions; create one for each memory, or first give the other memory a new one"
                )
        for _, owner in others:
            owner.sampler, owner._is_taken = Uniform(), True
        for part in parts:
            _owners[id(part)] = self
        self._is_released, self._is_taken = False, False

    def _other_owners(self, parts: list[Sampler]) -> list[tuple[Sampler, NotifiedSampler]]:
        """Return each of ``parts`` that another memory owns, with its owner."""
        owners = ((part, _owners.get(id(part))) for part in parts)
        return [
            (part, owner)
            for part, owner in owners
            if owner is not None and owner is not self and any(part is owned for owned in with_parts(owner.sampler))
        ]

    def _notify(self) -> None:
        while self._transitions.has_changed_slots:
            self.sampler.slots_changed(self._transitions.changed_slots(), self._transitions)
            self._transitions.remove_changed_slots()
