"""``EmphasizeRecent`` (ERE): uniform draws from fewer and fewer of the newest transitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow._core import draw_uniformly
from framestow.checks import real_number, whole_number
from framestow.errors import InvalidSettingsError
from framestow.keywords import suggests_keywords
from framestow.replay.samplers.sampler import Chances, Draw, Indices, Sampleable, Sampler, ranks_of

# Arguments of the constructor that ``state`` saves, in their order.
SETTINGS = ("eta", "num_updates", "min_recent", "final_eta", "annealed_over")


@suggests_keywords
class EmphasizeRecent(Sampler):
    """Draws uniformly from the newest transitions, from fewer with every update of a phase.

    Wang and Ross 2019, "Boosting Soft Actor-Critic: Emphasizing Recent Experience without Forgetting the Past". Every
    draw is an update. The k-th of a phase's K updates draws from the newest ::

        c_k = max(N * eta ** (1000 * k / K), min_recent)        k = 1 .. K

    transitions, so the last updates of a phase learn from the newest. N is the number of stored transitions; the paper
    uses the size of the buffer, which is the same once the memory is full. A newer transition has a higher index;
    docs/sampling.md has the order with several environments and with random retention.

    Arguments:
        eta: η, above 0; lower values emphasize recent transitions more, and 1 is uniform. The paper's is 0.996.
        num_updates: K. The paper uses the length of the last episode: pass it to ``begin_phase`` when one ends.
        min_recent: Minimum number of transitions to draw from, if stored; 5,000 in the paper.
        final_eta: Value that eta reaches linearly over ``annealed_over`` draws, then keeps; 1 in the paper.
        annealed_over: Number of draws until then.

    Raises:
        InvalidSettingsError: settings that cannot work.
    """

    def __init__(
        self,
        eta: float = 0.996,
        num_updates: int = 1000,
        min_recent: int = 5000,
        final_eta: float | None = None,
        annealed_over: int | None = None,
    ) -> None:
        eta = _check_eta("eta", eta)
        final_eta = None if final_eta is None else _check_eta("final_eta", final_eta)
        num_updates, min_recent = _check_count("num_updates", num_updates), _check_count("min_recent", min_recent)
        annealed_over = None if annealed_over is None else _check_count("annealed_over", annealed_over)
        if (final_eta is None) != (annealed_over is None):
            raise InvalidSettingsError(
                f"final_eta is {final_eta} and annealed_over is {annealed_over}: one needs the other; give both or none"
            )
        self.eta, self.final_eta, self.annealed_over = eta, final_eta, annealed_over
        self.num_updates, self.min_recent = num_updates, min_recent
        # K of the current phase; ``num_updates`` is that of the first one.
        self._updates_of_phase = num_updates
        # Draws since the phase began. The next draw is the k-th update, with k one more than this number modulo K.
        self._draws_of_phase = 0
        self._num_draws = 0  # since the memory began

    def begin_phase(self, num_updates: int) -> None:
        """Start a phase of ``num_updates`` draws at k = 1; later phases have the same length."""
        self._updates_of_phase, self._draws_of_phase = _check_count("num_updates", num_updates), 0

    def num_recent(self, num_transitions: int) -> int:
        """Return c_k: how many of ``num_transitions`` transitions the next draw is from.

        >>> from framestow import EmphasizeRecent
        >>> sampler = EmphasizeRecent(eta=0.996, num_updates=1000, min_recent=5000)
        >>> sampler.num_recent(1_000_000), sampler.num_recent(3000)
        (996000, 3000)
        """
        update = self._draws_of_phase % self._updates_of_phase + 1
        share = self._current_eta() ** (1000 * update / self._updates_of_phase)
        return min(max(int(num_transitions * share), self.min_recent), num_transitions)

    def draw(self, batch_size: int, transitions: Sampleable, generator: np.random.Generator) -> Draw:
        """Draw ``batch_size`` transitions with replacement; the weights are all 1."""
        num_transitions = len(transitions)
        oldest_rank = num_transitions - self.num_recent(num_transitions)
        ranks, weights = draw_uniformly(generator.random(batch_size), oldest_rank, num_transitions)
        self._num_draws += 1
        self._draws_of_phase += 1
        return Draw(transitions.sampleable_at(ranks), weights)

    def chances(self, indices: Indices, transitions: Sampleable) -> Chances:
        """Return 1 / c_k for the newest c_k transitions and 0 for older ones, and weights of 1."""
        num_transitions = len(transitions)
        num_recent = self.num_recent(num_transitions)
        is_recent = ranks_of(indices, transitions) >= num_transitions - num_recent
        return Chances(is_recent / num_recent, np.ones(len(indices)))

    def state(self, transitions: Sampleable) -> dict[str, Any]:  # noqa: ARG002
        """Return the settings, and the progress of the phase and of the annealing."""
        return {
            **{name: getattr(self, name) for name in SETTINGS},
            "num_draws": self._num_draws,
            "updates_of_phase": self._updates_of_phase,
            "draws_of_phase": self._draws_of_phase,
        }

    def restore(self, state: dict[str, Any], transitions: Sampleable) -> None:  # noqa: ARG002
        """Restore the progress, but keep this sampler's settings; with another K a phase begins."""
        counts = state["num_draws"], state["draws_of_phase"], state["updates_of_phase"]
        if min(counts) < 0 or not counts[2]:
            raise ValueError(f"{counts} are not numbers of draws and updates: take an older save")
        self._num_draws = counts[0]
        if state["num_updates"] == self.num_updates:
            self._draws_of_phase, self._updates_of_phase = counts[1:]

    def _current_eta(self) -> float:
        if self.final_eta is None or self.annealed_over is None:
            return self.eta
        return self.eta + (self.final_eta - self.eta) * min(self._num_draws / self.annealed_over, 1)


def _check_count(name: str, count: int) -> int:
    return whole_number(name, count, 1, rule="it must be at least 1")


def _check_eta(name: str, eta: float) -> float:
    rule = "it must be above 0 and at most 1; take 0.996, or 1 for uniform draws"
    return real_number(name, eta, 0, 1, rule=rule, is_least_excluded=True)
