"""The newest more often, update by update: ERE."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow._core import draw_uniformly
from framestow.argument_checks import real_number, whole_number
from framestow.errors import InvalidSettingsError
from framestow.replay.samplers.sampler import Draw, Held, Sampler

SETTINGS = ("eta", "num_updates", "min_recent", "final_eta", "annealed_over")


class EmphasizeRecent(Sampler):
    """Draws uniformly from the newest transitions, from fewer of them with every update of a phase, then begins anew.

    Wang and Ross 2019, "Boosting Soft Actor-Critic: Emphasizing Recent Experience without Forgetting the Past": the
    k-th of a phase's K updates draws from the newest ::

        c_k = max(N * eta ** (1000 * k / K), min_recent)        k = 1 .. K

    so what is old is learnt from first, and what is new is not overwritten by it. A draw is an update. N is how many
    transitions are held; the paper has the size of the buffer there, which is the same once the memory is full. What is
    newer has the higher index: docs/sampling.md says what that is with many streams and with random retention.

    Arguments:
        eta: how fast the past is left; 1 is uniform. The paper's is 0.996 (between 0.99 and 1 anything is like it).
        num_updates: K. The paper makes as many as the episode had steps; ``begin_phase`` says so as it ends.
        min_recent: transitions that are drawn from at least, if they are held; 5,000 in the paper.
        final_eta: what eta is at last, 1 in the paper; it is reached in ``annealed_over`` draws, linearly, and stays.
        annealed_over: draws.

    Raises ``InvalidSettingsError`` for settings that cannot work.
    """

    def __init__(
        self,
        eta: float = 0.996,
        num_updates: int = 1000,
        min_recent: int = 5000,
        final_eta: float | None = None,
        annealed_over: int | None = None,
    ) -> None:
        eta = _checked_eta("eta", eta)
        final_eta = None if final_eta is None else _checked_eta("final_eta", final_eta)
        num_updates, min_recent = _checked_count("num_updates", num_updates), _checked_count("min_recent", min_recent)
        annealed_over = None if annealed_over is None else _checked_count("annealed_over", annealed_over)
        if (final_eta is None) != (annealed_over is None):
            raise InvalidSettingsError(
                f"final_eta is {final_eta} and annealed_over is {annealed_over}: one needs the other; give both or none"
            )
        self.eta, self.final_eta, self.annealed_over = eta, final_eta, annealed_over
        self.num_updates, self.min_recent = num_updates, min_recent
        self._updates_of_phase = num_updates
        self._draws_of_phase = 0
        self._num_draws = 0  # ever

    def begin_phase(self, num_updates: int) -> None:
        """Begin anew with k = 1, and K as given: the next ``num_updates`` draws are a phase, and all that follow."""
        self._updates_of_phase, self._draws_of_phase = _checked_count("num_updates", num_updates), 0

    def num_recent(self, num_held: int) -> int:
        """How many of ``num_held`` transitions the next draw is from: c_k.

        >>> sampler = EmphasizeRecent(eta=0.996, num_updates=1000, min_recent=5000)
        >>> sampler.num_recent(1_000_000), sampler.num_recent(3000)
        (996000, 3000)
        """
        update = self._draws_of_phase % self._updates_of_phase + 1
        share = self._current_eta() ** (1000 * update / self._updates_of_phase)
        return min(max(int(num_held * share), self.min_recent), num_held)

    def draw(self, batch_size: int, held: Held, generator: np.random.Generator) -> Draw:
        """Draw ``batch_size`` transitions with replacement; the weights are all 1."""
        num_held = len(held)
        oldest_rank = num_held - self.num_recent(num_held)
        ranks, weights = draw_uniformly(generator.random(batch_size), oldest_rank, num_held)
        self._num_draws += 1
        self._draws_of_phase += 1
        return Draw(held.held_at(ranks), weights)

    def state(self, held: Held) -> dict[str, Any]:  # noqa: ARG002
        """Give the settings, and how far the phase and the annealing are."""
        return {
            **{name: getattr(self, name) for name in SETTINGS},
            "num_draws": self._num_draws,
            "updates_of_phase": self._updates_of_phase,
            "draws_of_phase": self._draws_of_phase,
        }

    def restore(self, state: dict[str, Any], held: Held) -> None:  # noqa: ARG002
        """Go on where ``state`` was taken, by this sampler's own settings; with another K a phase begins."""
        counts = state["num_draws"], state["draws_of_phase"], state["updates_of_phase"]
        if min(counts) < 0 or not counts[2]:
            raise ValueError(f"{counts} are no numbers of draws and updates: take an older save")
        self._num_draws = counts[0]
        if state["num_updates"] == self.num_updates:
            self._draws_of_phase, self._updates_of_phase = counts[1:]

    def _current_eta(self) -> float:
        if self.final_eta is None or self.annealed_over is None:
            return self.eta
        return self.eta + (self.final_eta - self.eta) * min(self._num_draws / self.annealed_over, 1)


def _checked_count(name: str, count: int) -> int:
    return whole_number(name, count, 1, rule="it is a number of 1 or more; give another")


def _checked_eta(name: str, eta: float) -> float:
    return real_number(
        name, eta, 0, 1, rule="it is in 0 to 1; take 0.996, or 1 for uniform draws", is_least_excluded=True
    )
