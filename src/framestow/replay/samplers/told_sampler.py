"""A memory's sampler, which is told of whatever came and left before it is asked for anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.replay.samplers.sampler import Draw, Indices, Sampler, WatchedSlots, check_is_sampler
from framestow.replay.samplers.saved_samplers import make_saved_sampler, restore_sampler, saved_sampler
from framestow.replay.samplers.uniform import Uniform


class ToldSampler:
    """The sampler of a memory; every call under the memory's lock.

    Changes are forgotten only after the sampler took note of them. So an interrupt at any line loses none; at worst the
    same slots are told twice, with nothing between, which changes nothing.
    """

    def __init__(self, sampler: Sampler | None, held: WatchedSlots) -> None:
        self._held = held
        self._is_chosen = sampler is not None
        self.sampler: Sampler = Uniform() if sampler is None else sampler
        self.num_updates = 0
        """Of priorities so far, so that somebody sees that there is something to save."""
        self.switch(self.sampler)

    def draw(self, batch_size: int, generator: np.random.Generator) -> Draw:
        """Draw among what is held, which is at least one transition."""
        self._tell()
        return self.sampler.draw(batch_size, self._held, generator)

    def update_priorities(self, indices: Indices, priorities: npt.NDArray[np.floating[Any]]) -> None:
        """Give the sampler checked priorities; ``InvalidSettingsError`` where it has none."""
        self._tell()
        self.sampler.update_priorities(indices, priorities, self._held)
        self.num_updates += 1

    def switch(self, sampler: Sampler) -> None:
        """Go on with another sampler, which begins with all that is held.

        Raises ``InvalidSettingsError``, before anything is changed, for what is none.
        """
        check_is_sampler(sampler)
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
        self._held.watch_slots(False)
        self._held.watch_slots(sampler.watches_slots)
        restore_sampler(sampler, saved, arrays, self._held)
        self.sampler = sampler

    def _tell(self) -> None:
        while self._held.has_changed_slots:
            self.sampler.slots_changed(self._held.changed_slots(), self._held)
            self._held.forget_changed_slots()
