"""A memory's sampler, which is told of whatever came and left before it is asked for anything."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.replay.samplers.mixture import with_parts
from framestow.replay.samplers.sampler import Draw, Indices, Sampler, WatchedSlots, check_is_sampler
from framestow.replay.samplers.saved_samplers import make_saved_sampler, restore_sampler, saved_sampler
from framestow.replay.samplers.uniform import Uniform

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
