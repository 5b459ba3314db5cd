"""``Prioritized``: transitions in proportion to their priorities, by a native sum tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import Priorities
from framestow.checks import real_number, whole_number
from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.interface import warn_caller
from framestow.keywords import suggests_keywords
from framestow.replay.samplers.sampler import Chances, Draw, Indices, Sampleable, Sampler, Slots

DRAWS_WITHOUT_UPDATE = 1_000  # after these one warning

PIECE = 2**16  # transitions saved or restored at once
# Arguments of the constructor that ``state`` saves.
SETTINGS = ("alpha", "beta", "final_beta", "annealed_over", "epsilon")
PAGE_STEPS = 4096  # transitions whose weights the native tree stores together
BYTES_A_PAGE = 16 * 1024 + 272 * 12 + 64  # weights, sums and minima of 272 nodes, and the index in the tree


@suggests_keywords
class Prioritized(Sampler):
    """Draws a transition i with probability p_i^α / Σ p_k^α (Schaul et al. 2016, the proportional variant).

    ::

        p_i      |td_error| + epsilon, from ``memory.update_priorities``; a new transition has the largest p so far,
                 or 1 before any update
        weight   (N P(i))^-β / max_k (N P(k))^-β = (P_min / P(i))^β; the maximum is over all stored transitions, as in
                 the paper, not over the batch
        a batch  one draw from each of ``batch_size`` equal parts of Σ p_k^α (stratified)

    After 1,000 draws without any update of a priority, it warns once.

    A batch is in the order of the memory's slots: shuffle it if the order of rows matters. A transition with priority
    0, which needs ``epsilon=0``, is never drawn.

    Arguments:
        alpha: α, 0 to 10; larger values make priorities count more, and 0 draws uniformly.
        beta: β, 0 to 1; 1 corrects the bias of the draws completely.
        final_beta: Value that β reaches linearly over ``annealed_over`` draws; ``None`` keeps β constant.
        annealed_over: Number of draws until then; ``num_draws`` counts them. A batch is one, or several for sequences
            with ``borders="inside"``.
        epsilon: Added to each error, so that a transition with an error of 0 can be drawn.

    The defaults are the paper's, which anneals β to 1. Takes 4.8 bytes per transition in RAM, and 4 in each saved
    generation. Raises ``InvalidSettingsError`` for arguments out of range.
    """

    watches_slots = True

    def __init__(
        self,
        alpha: float = 0.6,
        beta: float = 0.4,
        final_beta: float | None = None,
        annealed_over: int | None = None,
        epsilon: float = 1e-6,
    ) -> None:
        alpha, beta, epsilon = (
            _check_number("alpha", alpha, 10),
            _check_number("beta", beta, 1),
            _check_number("epsilon", epsilon, 1e30),
        )
        if (final_beta is None) != (annealed_over is None):
            raise InvalidSettingsError(
                f"final_beta is {final_beta} and annealed_over is {annealed_over}: one needs the other; give both or "
                "none"
            )
        if final_beta is not None and annealed_over is not None:
            final_beta = _check_number("final_beta", final_beta, 1)
            annealed_over = whole_number("annealed_over", annealed_over, 1, rule="annealing takes at least 1 draw")
        self.alpha, self.beta, self.final_beta = alpha, beta, final_beta
        self.annealed_over, self.epsilon = annealed_over, epsilon
        self.num_draws = 0
        # Draws until the warning that nobody updates priorities; never 0 after an update.
        self._draws_until_warning = DRAWS_WITHOUT_UPDATE
        # The native sum tree: p^α of every slot, by slot; 0 for an empty one.
        self._priorities = Priorities(alpha, epsilon)

    @property
    def nbytes(self) -> int:
        """Number of bytes of the priorities and their sums."""
        return self._priorities.nbytes

    @property
    def bytes_a_step(self) -> float:
        """Number of bytes of a priority and its part of the sums."""
        return BYTES_A_PAGE / PAGE_STEPS

    @property
    def current_beta(self) -> float:
        """β of the next draw."""
        if self.final_beta is None or self.annealed_over is None:
            return self.beta
        return self.beta + (self.final_beta - self.beta) * min(1.0, self.num_draws / self.annealed_over)

    def draw(self, batch_size: int, transitions: Sampleable, generator: np.random.Generator) -> Draw:
        """Draw in proportion to p^α; raise ``NothingToSampleError`` if all priorities are 0."""
        if not self._priorities.total > 0.0:
            raise NothingToSampleError(
                f"all {len(transitions)} transitions have priority 0: none can be drawn; update their priorities, or "
                "build the sampler with an epsilon above 0"
            )
        slots, weights = self._priorities.draw(generator.random(batch_size), self.current_beta)
        self.num_draws += 1
        self._draws_until_warning -= 1
        if not self._draws_until_warning:
            _warn_of_no_update()
        return Draw(transitions.indices_in(slots), weights)

    def begin(self, transitions: Sampleable) -> None:
        """Give all transitions priority 1, and restart the annealing of β."""
        fresh = Priorities(self.alpha, self.epsilon)
        for indices in _pieces(transitions.sampleable_spans()):
            fresh.mark_changed(transitions.slots_of(indices), indices)
        self._priorities, self.num_draws = fresh, 0

    def slots_changed(self, slots: Slots, transitions: Sampleable) -> None:
        """Give new transitions the largest priority so far, and evicted ones none."""
        self._priorities.mark_changed(slots, transitions.indices_in(slots))

    def update_priorities(
        self, indices: Indices, priorities: npt.NDArray[np.floating[Any]], transitions: Sampleable
    ) -> None:
        """Set priorities from TD errors of any sign. Evicted transitions are ignored; the last duplicate counts.

        Raises:
            InvalidSettingsError: before anything changes, if a power p^α is not finite in ``float32``.
        """
        self._update(transitions.find_slots(indices), priorities)
        self._draws_until_warning = 0

    def check_update(self, priorities: npt.NDArray[np.floating[Any]]) -> bool:
        """Return ``True``; raise ``InvalidSettingsError`` if a power p^α is not finite in ``float32``."""
        self._update(np.full(len(priorities), -1, np.int64), priorities)  # of no slot
        return True

    def _update(self, slots: Slots, priorities: npt.NDArray[np.floating[Any]]) -> None:
        if not self._priorities.update(slots, priorities):
            raise InvalidSettingsError(
                f"a priority is {np.abs(priorities).max()}: to the power of alpha={self.alpha} it must be finite in "
                "float32; clip the errors"
            )

    def chances(self, indices: Indices, transitions: Sampleable) -> Chances | None:
        """Return p^α / Σ p^α, (P_min / P(i))^β and p; ``None`` if all priorities are 0."""
        if not self._priorities.total > 0.0:
            return None
        masses = self._priorities.weights(transitions.slots_of(indices)).astype(np.float64)
        shares = np.divide(self._priorities.smallest, masses, out=np.ones(len(masses)), where=masses > 0.0)
        priorities = masses ** (1 / self.alpha) if self.alpha > 0 else None
        return Chances(masses / self._priorities.total, shares**self.current_beta, priorities)

    def total_mass(self, transitions: Sampleable) -> tuple[float, float]:  # noqa: ARG002
        """Return Σ p^α and the smallest p^α above 0; infinity if there is none."""
        return self._priorities.total, self._priorities.smallest

    def state(self, transitions: Sampleable) -> dict[str, Any]:
        """Return the settings, the number of draws, and the weights p^α by spans of indices."""
        spans = transitions.sampleable_spans()
        weights = np.empty(int(spans[:, 1].sum()), np.float32)
        start = 0
        for indices in _pieces(spans):
            weights[start : start + len(indices)] = self._priorities.weights(transitions.slots_of(indices))
            start += len(indices)
        return {
            "settings": {name: getattr(self, name) for name in SETTINGS},
            "num_draws": self.num_draws,
            "largest": self._priorities.largest,
            "runs": spans,
            "weights": weights,
        }

    def restore(self, state: dict[str, Any], transitions: Sampleable) -> None:
        """Restore priorities and draws, but keep this sampler's settings; evicted transitions are ignored.

        Saved weights p^α are converted to this sampler's α. Those saved with α = 0 have no priorities and are kept.
        """
        spans, weights = _check_spans(state["runs"], state["weights"])
        saved_alpha = float(state["settings"]["alpha"])
        exponent = self.alpha / saved_alpha if saved_alpha else 1.0
        restored = Priorities(self.alpha, self.epsilon)
        restored.restore(_NO_INDICES, np.empty(0, np.float32), float(state["largest"]) ** exponent)
        for indices in _pieces(transitions.sampleable_spans()):
            restored.mark_changed(transitions.slots_of(indices), indices)
        start = 0
        for indices in _pieces(spans):
            of_piece = weights[start : start + len(indices)]
            raised = of_piece if exponent == 1.0 else np.where(of_piece > 0, of_piece**exponent, np.float32(0))
            restored.restore(transitions.find_slots(indices), raised, restored.largest)
            start += len(indices)
        self._priorities, self.num_draws = restored, int(state["num_draws"])
        self._draws_until_warning = 0  # who only reads a saved memory updates nothing


_NO_INDICES: Indices = np.empty(0, np.int64)


def _pieces(spans: Indices) -> Iterator[Indices]:
    """Yield the indices of spans in pieces, so that a million transitions need no large arrays."""
    for first, count in spans.tolist():
        for start in range(first, first + count, PIECE):
            yield np.arange(start, min(start + PIECE, first + count))


def _warn_of_no_update() -> None:
    warn_caller(
        f"{DRAWS_WITHOUT_UPDATE:,} batches were drawn by Prioritized and no priority was updated: all transitions are "
        "drawn alike; call update_priorities(batch.index, td_errors) of the memory (of a buffer, its own) after each "
        "update of the network, or draw by Uniform()",
        UserWarning,
    )


def _check_number(name: str, value: float, most: float) -> float:
    return real_number(name, value, 0, most, rule=f"it must be from 0 to {most:g}")


def _check_spans(spans: npt.NDArray[Any], weights: npt.NDArray[Any]) -> tuple[Indices, npt.NDArray[np.float32]]:
    """Return both; raise ``ValueError`` for spans and weights that no sampler can have saved."""
    if spans.dtype != np.int64 or spans.ndim != 2 or spans.shape[1] != 2 or weights.dtype != np.float32:
        raise ValueError("the saved priorities are not spans of indices with weights")
    first, count = spans[:, 0], spans[:, 1]
    if weights.shape != (count.sum(),) or (count < 1).any() or (first < 0).any() or (np.diff(first) < count[:-1]).any():
        raise ValueError(f"{len(spans)} spans of indices do not fit {weights.size} saved priorities")
    return spans, weights
