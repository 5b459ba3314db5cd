"""``Mixture``: a share of every batch from each of several samplers."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.checks import real_number
from framestow.errors import InvalidSettingsError
from framestow.interface import one_line
from framestow.replay.samplers.sampler import (
    Chances,
    Draw,
    Indices,
    Sampleable,
    Sampler,
    Slots,
    check_is_sampler,
)

ROUNDING = 1e-9  # of a transition: 0.55 * 100 is not exactly 55 in binary


class Mixture(Sampler):
    """Draws a share of each batch by each of several samplers: ``Mixture((Uniform(), 0.5), (Prioritized(), 0.5))``.

    A batch has the first part's transitions first, then the second's, and so on, with the weights of their samplers. A
    share that is not a whole number of transitions is rounded up or down at random, so that its mean is exact and the
    batch keeps its size (systematic sampling, Madow 1949).

    ``update_priorities`` passes all priorities to every part that uses them, no matter which part drew the transitions.

    Arguments:
        parts: Pairs of a sampler and its share, a number above 0. Shares are relative to their sum.

    Raises:
        InvalidSettingsError: parts or shares that cannot work.
    """

    def __init__(self, *parts: tuple[Sampler, float]) -> None:
        if not parts:
            raise InvalidSettingsError("the mixture has no parts: it needs at least one; give pairs (sampler, share)")
        for part in parts:
            if not isinstance(part, tuple) or len(part) != 2:
                raise InvalidSettingsError(
                    f"a part of the mixture is {part!r}: it must be a pair; give (sampler, share)"
                )
            sampler, share = part
            check_is_sampler(sampler)
            name = f"the share of {type(sampler).__name__}"
            real_number(name, share, 0, rule="it must be above 0; to omit a part, remove it", is_least_excluded=True)
        all_parts = [part for sampler, _ in parts for part in with_parts(sampler)]
        if len({id(part) for part in all_parts}) < len(all_parts):
            raise InvalidSettingsError(
                "one sampler is two parts of the mixture: each part needs a sampler object; add their shares"
            )
        self.parts = parts
        # The samplers of ``parts``, in the order in which their transitions stand in a batch.
        self._samplers = [sampler for sampler, _ in parts]
        total = math.fsum(share for _, share in parts)
        # Where each part of a batch ends, as a share of it.
        self._ends = [*itertools.accumulate(share / total for _, share in parts[:-1]), 1.0]
        self.watches_slots = any(sampler.watches_slots for sampler in self._samplers)

    def __repr__(self) -> str:
        return one_line(self, lambda: map(repr, self.parts))

    @property
    def nbytes(self) -> int:
        """Number of bytes of all parts together."""
        return sum(sampler.nbytes for sampler in self._samplers)

    @property
    def bytes_a_step(self) -> float:
        """Maximum number of bytes of all parts together for each transition."""
        return sum(sampler.bytes_a_step for sampler in self._samplers)

    def draw(self, batch_size: int, transitions: Sampleable, generator: np.random.Generator) -> Draw:
        """Draw each part's share of ``batch_size`` transitions."""
        counts = self._counts(batch_size, generator)
        draws = [
            sampler.draw(count, transitions, generator)
            for sampler, count in zip(self._samplers, counts, strict=True)
            if count
        ]
        return Draw(*map(np.concatenate, zip(*draws, strict=True)))

    def begin(self, transitions: Sampleable) -> None:
        """Call ``begin`` of every part."""
        for sampler in self._samplers:
            sampler.begin(transitions)

    def slots_changed(self, slots: Slots, transitions: Sampleable) -> None:
        """Notify the parts that watch slots."""
        for sampler in self._samplers:
            if sampler.watches_slots:
                sampler.slots_changed(slots, transitions)

    def update_priorities(
        self, indices: Indices, priorities: npt.NDArray[np.floating[Any]], transitions: Sampleable
    ) -> None:
        """Pass priorities to the parts that use them.

        Raises:
            InvalidSettingsError: before anything changes, if no part uses priorities or one refuses these.
        """
        prioritized = self._prioritized(priorities)
        if not prioritized:
            super().update_priorities(indices, priorities, transitions)
        for sampler in prioritized:
            sampler.update_priorities(indices, priorities, transitions)

    def check_update(self, priorities: npt.NDArray[np.floating[Any]]) -> bool:
        """Return whether a part uses priorities; raise ``InvalidSettingsError`` if one refuses these."""
        return bool(self._prioritized(priorities))

    def chances(self, indices: Indices, transitions: Sampleable) -> Chances | None:
        """Return the mean probability over the parts, by their shares, and the priorities of the first that has some.

        ``None`` if a part cannot say its probabilities.
        """
        of_parts = [sampler.chances(indices, transitions) for sampler in self._samplers]
        total = math.fsum(share for _, share in self.parts)
        probabilities, weights = np.zeros(len(indices)), np.full(len(indices), np.nan)
        priorities: npt.NDArray[np.float64] | None = None
        is_first, differs = np.ones(len(indices), np.bool_), np.zeros(len(indices), np.bool_)
        for (_, share), chances in zip(self.parts, of_parts, strict=True):
            if chances is None:
                return None
            probabilities += share / total * chances.probabilities
            priorities = chances.priorities if priorities is None else priorities
            may_draw = chances.probabilities > 0.0
            differs |= may_draw & ~is_first & (weights != chances.weights)
            weights[may_draw & is_first] = chances.weights[may_draw & is_first]
            is_first &= ~may_draw
        return Chances(probabilities, np.where(differs, np.nan, weights), priorities)

    def state(self, transitions: Sampleable) -> dict[str, Any]:
        """Return the class, the share and the state of every part."""
        return {
            "parts": [
                {"kind": type(sampler).__name__, "share": share, "state": sampler.state(transitions)}
                for sampler, share in self.parts
            ]
        }

    def restore(self, state: dict[str, Any], transitions: Sampleable) -> None:
        """Restore every part; call ``begin`` of a part whose class is not the saved one."""
        saved = state["parts"]
        for number, sampler in enumerate(self._samplers):
            if number < len(saved) and saved[number]["kind"] == type(sampler).__name__:
                sampler.restore(saved[number]["state"], transitions)
            else:
                sampler.begin(transitions)

    def _prioritized(self, priorities: npt.NDArray[np.floating[Any]]) -> list[Sampler]:
        """Return the parts that use these priorities; raise ``InvalidSettingsError`` if one refuses them."""
        return [sampler for sampler in self._samplers if sampler.check_update(priorities)]

    def _counts(self, batch_size: int, generator: np.random.Generator) -> list[int]:
        """Return how many transitions each part draws: exact for whole numbers, otherwise on average."""
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


def copy_sampler(sampler: Sampler) -> Sampler:
    """Return a copy whose draws do not change ``sampler``; it shares the priorities, which draws do not change."""
    if isinstance(sampler, Mixture):
        return Mixture(*((copy_sampler(part), share) for part, share in sampler.parts))
    return copy.copy(sampler)


def with_parts(sampler: Sampler) -> list[Sampler]:
    """Return ``sampler`` and, if it is a mixture, all of its parts, at any depth."""
    parts = sampler._samplers if isinstance(sampler, Mixture) else []
    return [sampler, *itertools.chain.from_iterable(map(with_parts, parts))]
