"""A memory's sampler, which is told of whatever came and left before it is asked for anything."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.replay.samplers.by_age import ByAge
from framestow.replay.samplers.emphasize_recent import SETTINGS, EmphasizeRecent
from framestow.replay.samplers.mixture import Mixture, with_parts
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.sampler import Draw, Held, Indices, Sampler, WatchedSlots, check_is_sampler
from framestow.replay.samplers.uniform import Uniform

Arrays = Mapping[str, npt.NDArray[Any]]
Making = Callable[[dict[str, Any]], Sampler]  # of what ``Sampler.state`` gave, of which it reads the settings

ARRAY = "__array__"  # the one key of what stands for an array among JSON-able values: its name
PREFIX = "sampler"  # of those names

MADE: dict[str, Making] = {
    "Prioritized": lambda state: Prioritized(**state["settings"]),
    "Uniform": lambda _: Uniform(),
    "ByAge": lambda state: ByAge(state["half_life"]),
    "EmphasizeRecent": lambda state: EmphasizeRecent(*(state[name] for name in SETTINGS)),
    "Mixture": lambda state: Mixture(*((_made(part["kind"], part["state"]), part["share"]) for part in state["parts"])),
}


def saved_sampler(sampler: Sampler, held: Held) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Class and state of a sampler: JSON-able values, and the arrays that they name."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    return {"kind": type(sampler).__name__, "state": _without_arrays(sampler.state(held), PREFIX, arrays)}, arrays


def make_saved_sampler(saved: dict[str, Any], arrays: Arrays) -> Sampler:
    """A new sampler of the class and the settings that ``saved_sampler`` gave; its state is not restored.

    Raises ``IncompatibleError`` for a class that is not framestow's.
    """
    return _made(saved["kind"], _with_arrays(saved["state"], arrays))


def _made(kind: str, state: dict[str, Any]) -> Sampler:
    if kind not in MADE:
        raise IncompatibleError(
            f"sampler is not given: the memory was saved with a {kind}, which is none of framestow's; load it with "
            f"sampler={kind}(...), or with another one, which begins afresh"
        )
    return MADE[kind](state)


def restore_sampler(sampler: Sampler, saved: dict[str, Any], arrays: Arrays, held: Held) -> None:
    """Let a sampler go on where one of its class was saved; any other one, or without the arrays, begins afresh."""
    state = _with_arrays(saved["state"], arrays)
    if type(sampler).__name__ == saved["kind"] and _is_whole(saved["state"], arrays):
        sampler.restore(state, held)
    else:
        sampler.begin(held)


def _without_arrays(value: Any, name: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """The same with names for arrays, which go into ``arrays``."""
    if isinstance(value, dict):
        return {key: _without_arrays(one, f"{name}.{key}", arrays) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_arrays(one, f"{name}.{place}", arrays) for place, one in enumerate(value)]
    if isinstance(value, np.ndarray):
        while name in arrays:
            name += "_"
        arrays[name] = value
        return {ARRAY: name}
    return value.item() if isinstance(value, np.generic) else value


def _with_arrays(value: Any, arrays: Arrays) -> Any:
    """What ``_without_arrays`` was given; None for an array that is not there."""
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return arrays.get(value[ARRAY])
        return {key: _with_arrays(one, arrays) for key, one in value.items()}
    return [_with_arrays(one, arrays) for one in value] if isinstance(value, list) else value


def _is_whole(value: Any, arrays: Arrays) -> bool:
    """Whether all arrays that are named are there: a state that was rebuilt from the logs alone has none."""
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return value[ARRAY] in arrays
        return all(_is_whole(one, arrays) for one in value.values())
    return not isinstance(value, list) or all(_is_whole(one, arrays) for one in value)


_owners: WeakValueDictionary[int, ToldSampler] = WeakValueDictionary()
"""Who was last given the sampler, or part of a mixture, of that ``id``; only an owner that still has it counts."""


class ToldSampler:
    """The sampler of a memory; every call under the memory's lock.

    A sampler object, and each part of a mixture, belongs to one memory at a time, since it knows that memory's slots.
    A memory lets go of it when it takes another one, is closed, cannot be built, or is garbage.

    Changes are forgotten only after the sampler took note of them. So an interrupt at any line loses none; at worst the
    same slots are told twice, with nothing between, which changes nothing.
    """

    def __init__(self, sampler: Sampler | None, held: WatchedSlots) -> None:
        self._held = held
        self._is_chosen = sampler is not None
        self.sampler: Sampler = Uniform()
        self.num_updates = 0
        """Of priorities so far, so that somebody sees that there is something to save."""
        self._is_released, self._is_taken = False, False
        self.switch(Uniform() if sampler is None else sampler)

    def draw(self, batch_size: int, generator: np.random.Generator) -> Draw:
        """Draw among what is held, which is at least one transition."""
        if self._is_taken:
            raise InvalidSettingsError(
                "sampler was given to another memory after this one was closed: give this one another, memory.sampler ="
                " Uniform() for instance"
            )
        self._tell()
        return self.sampler.draw(batch_size, self._held, generator)

    def update_priorities(self, indices: Indices, priorities: npt.NDArray[np.floating[Any]]) -> None:
        """Give the sampler checked priorities; ``InvalidSettingsError`` where it has none."""
        self._tell()
        self.sampler.update_priorities(indices, priorities, self._held)
        self.num_updates += 1

    def switch(self, sampler: Sampler) -> None:
        """Go on with another sampler, which begins with all that is held.

        Raises ``InvalidSettingsError``, before anything is changed, for what is none, and for one of another memory.
        """
        check_is_sampler(sampler)
        self._take(sampler)
        if sampler.watches_slots:
            self._held.watch_slots(True)  # before it begins, so that what comes after an interrupt is noted
        sampler.begin(self._held)
        self.sampler = sampler
        if not sampler.watches_slots:
            self._held.watch_slots(False)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Class and state of the sampler: JSON-able values, and the arrays that they name."""
        self._tell()
        return saved_sampler(self.sampler, self._held)

    def restore(self, saved: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on where a sampler was saved; what is held was restored before.

        Where none was chosen, the saved one is made; one of another class begins afresh. Raises
        ``IncompatibleError`` where the saved one is not framestow's and none was chosen.
        """
        sampler = self.sampler if self._is_chosen else make_saved_sampler(saved, arrays)
        self._take(sampler)
        self._held.watch_slots(False)
        self._held.watch_slots(sampler.watches_slots)
        restore_sampler(sampler, saved, arrays, self._held)
        self.sampler = sampler

    def release(self) -> None:
        """Let another memory take the sampler; until one does, it still draws here."""
        self._is_released = True

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Let go of the sampler where the memory cannot be built: whoever handles the error may use it again."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def _take(self, sampler: Sampler) -> None:
        """Note that a sampler and its parts are this memory's; ``InvalidSettingsError`` where one is another's."""
        parts = with_parts(sampler)
        if any(not owner._is_released for _, owner in self._other_owners(parts)):
            gc.collect()  # a memory that nobody can reach any more owns nothing
        others = self._other_owners(parts)
        for part, owner in others:
            if not owner._is_released:
                raise InvalidSettingsError(
                    f"sampler is a {type(part).__name__} that another memory draws by: it knows that memory's "
                    "transitions; give each memory one of its own, or first give the other memory another one"
                )
        for _, owner in others:
            owner.sampler, owner._is_taken = Uniform(), True
        for part in parts:
            _owners[id(part)] = self
        self._is_released, self._is_taken = False, False

    def _other_owners(self, parts: list[Sampler]) -> list[tuple[Sampler, ToldSampler]]:
        """Give each of ``parts`` that another memory has, with the owner."""
        owners = ((part, _owners.get(id(part))) for part in parts)
        return [
            (part, owner)
            for part, owner in owners
            if owner is not None and owner is not self and any(part is its for its in with_parts(owner.sampler))
        ]

    def _tell(self) -> None:
        while self._held.has_changed_slots:
            self.sampler.slots_changed(self._held.changed_slots(), self._held)
            self._held.forget_changed_slots()
