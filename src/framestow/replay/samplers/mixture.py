"""A part of every batch from each of several samplers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import real_number
from framestow.errors import InvalidSettingsError
from framestow.replay.samplers.sampler import Draw, Held, Indices, Sampler, Slots, check_is_sampler

ROUNDING = 1e-9  # of a transition: 0.55 of 100 are 55, though not in binary


class Mixture(Sampler):
    """Draws a share of each batch by each of several samplers: ``Mixture((Uniform(), 0.5), (Prioritized(), 0.5))``.

    A batch has the first part's transitions first, then the second's, and so on, each with the weight that its own
    sampler gave. A share that is not a whole number of transitions is rounded up or down at random, such that its mean
    is the share and the batch keeps its size (systematic sampling, Madow 1949); a whole number is always exact.

    Every part is told what it would be told alone: which slots changed, and the priorities of all transitions that
    ``update_priorities`` gets, whichever part drew them.

    Arguments:
        parts: pairs of a sampler and its share; shares are above 0 and are taken in proportion to their sum.

    Raises ``InvalidSettingsError`` for shares that cannot work.
    """

    def __init__(self, *parts: tuple[Sampler, float]) -> None:
        if not parts:
            raise InvalidSettingsError("a mixture has no parts: it draws by at least one; give pairs (sampler, share)")
        for part in parts:
            if not isinstance(part, tuple) or len(part) != 2:
                raise InvalidSettingsError(f"a part of a mixture is {part!r}: it is a pair; give (sampler, share)")
            sampler, share = part
            check_is_sampler(sampler)
            what = f"the share of {type(sampler).__name__}"
            real_number(what, share, 0, rule="it is a number above 0; leave that part out", is_least_excluded=True)
        all_parts = [part for sampler, _ in parts for part in with_parts(sampler)]
        if len({id(part) for part in all_parts}) < len(all_parts):
            raise InvalidSettingsError("one sampler is two parts of a mixture: each keeps its own; add their shares")
        self.parts = parts
        self._samplers = [sampler for sampler, _ in parts]
        total = math.fsum(share for _, share in parts)
        # Where each part ends, of 1.
        self._ends = [*itertools.accumulate(share / total for _, share in parts[:-1]), 1.0]
        self.watches_slots = any(sampler.watches_slots for sampler in self._samplers)

    @property
    def nbytes(self) -> int:
        """Bytes that all parts take together."""
        return sum(sampler.nbytes for sampler in self._samplers)

    @property
    def bytes_a_step(self) -> float:
        """Bytes that all parts take together for a step."""
        return sum(sampler.bytes_a_step for sampler in self._samplers)

    def draw(self, batch_size: int, held: Held, generator: np.random.Generator) -> Draw:
        """Draw each part's share of ``batch_size`` transitions."""
        counts = self._counts(batch_size, generator)
        draws = [
            sampler.draw(count, held, generator) for sampler, count in zip(self._samplers, counts, strict=True) if count
        ]
        return Draw(*map(np.concatenate, zip(*draws, strict=True)))

    def begin(self, held: Held) -> None:
        """Begin every part afresh."""
        for sampler in self._samplers:
            sampler.begin(held)

    def slots_changed(self, slots: Slots, held: Held) -> None:
        """Tell the parts that watch."""
        for sampler in self._samplers:
            if sampler.watches_slots:
                sampler.slots_changed(slots, held)

    def update_priorities(self, indices: Indices, priorities: npt.NDArray[np.floating[Any]], held: Held) -> None:
        """Tell the parts that draw by priority; ``InvalidSettingsError`` where there is none."""
        takers = [sampler for sampler in self._samplers if _takes_priorities(sampler)]
        if not takers:
            super().update_priorities(indices, priorities, held)
        for sampler in takers:
            sampler.update_priorities(indices, priorities, held)

    def state(self, held: Held) -> dict[str, Any]:
        """Give the class, the share and the state of every part."""
        return {
            "parts": [
                {"kind": type(sampler).__name__, "share": share, "state": sampler.state(held)}
                for sampler, share in self.parts
            ]
        }

    def restore(self, state: dict[str, Any], held: Held) -> None:
        """Give every part its own back; one that is of another class than the saved one begins afresh."""
        saved = state["parts"]
        for number, sampler in enumerate(self._samplers):
            if number < len(saved) and saved[number]["kind"] == type(sampler).__name__:
                sampler.restore(saved[number]["state"], held)
            else:
                sampler.begin(held)

    def _counts(self, batch_size: int, generator: np.random.Generator) -> list[int]:
        """How many each part draws: whole numbers are exact, and the others are on average."""
        counts, offset, before = [], None, 0
        for end in self._ends:
            exact = batch_size * end
            stop = round(exact)
            if abs(exact - stop) > ROUNDING:
                offset = generator.random() if offset is None else offset
                stop = math.ceil(exact - offset)
            counts.append(stop - before)
            before = stop
        return counts


def with_parts(sampler: Sampler) -> list[Sampler]:
    """Give ``sampler`` and, where it is a mixture, all of its parts, those of mixtures in it too."""
    parts = sampler._samplers if isinstance(sampler, Mixture) else []
    return [sampler, *itertools.chain.from_iterable(map(with_parts, parts))]


def _takes_priorities(sampler: Sampler) -> bool:
    """Whether a sampler has an ``update_priorities`` of its own; a mixture, whether one of its parts has."""
    if isinstance(sampler, Mixture):
        return any(_takes_priorities(part) for part in sampler._samplers)
    return type(sampler).update_priorities is not Sampler.update_priorities
