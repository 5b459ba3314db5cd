"""Transitions in proportion to their priorities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import Priorities
from framestow.argument_checks import real_number, whole_number
from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.replay.samplers.sampler import Draw, Held, Indices, Sampler, Slots

PIECE = 2**16  # transitions that are restored or saved at once
SETTINGS = ("alpha", "beta", "final_beta", "annealed_over", "epsilon")
PAGE_STEPS = 4096  # whose weights the native tree keeps together
BYTES_A_PAGE = 16 * 1024 + 272 * 12 + 64  # with the sums and minima of its 272 nodes, and its place in the tree


class Prioritized(Sampler):
    """Draws a transition i with probability p_i^α / Σ p_k^α (Schaul et al. 2016, the proportional variant).

    ::

        p_i      |td_error| + epsilon, as ``memory.update_priorities`` was told; a new one has the largest so far, and
                 the very first 1
        weight   (N P(i))^-β / max_k (N P(k))^-β = (P_min / P(i))^β: the maximum is over all that are held, as in the
                 paper, not over the batch
        a batch  one draw from each of ``batch_size`` equal parts of Σ p_k^α

    So a batch comes in the order of its slots; mix it where the order of rows means something. A transition of priority
    zero is never drawn, which takes ``epsilon=0``.

    Arguments:
        alpha: how much priorities count; 0 draws uniformly.
        beta: how much of the bias the weights take back, 0 to 1.
        final_beta: what β becomes by equal steps over ``annealed_over`` draws; ``None`` leaves it.
        annealed_over: draws (batches) until then.
        epsilon: what keeps a transition of no error in the draw.

    The defaults are the paper's, which anneals β to 1. Keeps 4.8 bytes a transition; saved as 4 bytes each, anew with
    each generation. Raises ``InvalidSettingsError`` for arguments out of range.
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
            _checked("alpha", alpha, 10),
            _checked("beta", beta, 1),
            _checked("epsilon", epsilon, 1e30),
        )
        if (final_beta is None) != (annealed_over is None):
            raise InvalidSettingsError(
                f"final_beta is {final_beta} and annealed_over {annealed_over}: beta becomes final_beta over so many "
                "draws; give both or none"
            )
        if final_beta is not None and annealed_over is not None:
            final_beta = _checked("final_beta", final_beta, 1)
            annealed_over = whole_number("annealed_over", annealed_over, 1, rule="it takes at least 1 draw")
        self.alpha, self.beta, self.final_beta = alpha, beta, final_beta
        self.annealed_over, self.epsilon = annealed_over, epsilon
        self.num_draws = 0
        self._priorities = Priorities(alpha, epsilon)

    @property
    def nbytes(self) -> int:
        """Bytes of the priorities and of their sums."""
        return self._priorities.nbytes

    @property
    def bytes_a_step(self) -> float:
        """Bytes of a priority and its part of the sums."""
        return BYTES_A_PAGE / PAGE_STEPS

    @property
    def current_beta(self) -> float:
        """β of the next draw."""
        if self.final_beta is None or self.annealed_over is None:
            return self.beta
        return self.beta + (self.final_beta - self.beta) * min(1.0, self.num_draws / self.annealed_over)

    def draw(self, batch_size: int, held: Held, generator: np.random.Generator) -> Draw:
        """Draw in proportion; raise ``NothingToSampleError`` where all priorities are zero."""
        if not self._priorities.total > 0.0:
            raise NothingToSampleError(
                f"all {len(held)} transitions have priority 0: none of them is ever drawn; update their priorities, or "
                "build the sampler with an epsilon"
            )
        slots, weights = self._priorities.draw(generator.random(batch_size), self.current_beta)
        self.num_draws += 1
        return Draw(held.indices_in(slots), weights)

    def begin(self, held: Held) -> None:
        """Give all that are held the priority 1, and begin β anew."""
        fresh = Priorities(self.alpha, self.epsilon)
        for indices in _pieces(held.held_runs()):
            fresh.take_note(held.slots_of(indices), indices)
        self._priorities, self.num_draws = fresh, 0

    def slots_changed(self, slots: Slots, held: Held) -> None:
        """Give what came the largest priority so far, and what left none."""
        self._priorities.take_note(slots, held.indices_in(slots))

    def update_priorities(self, indices: Indices, priorities: npt.NDArray[np.floating[Any]], held: Held) -> None:
        """Take the TD errors of transitions, of any sign; what is no more held is left out, the last duplicate counts.

        Raises ``InvalidSettingsError``, and changes nothing, for one whose power is too large for single precision.
        """
        if not self._priorities.update(held.find_slots(indices), priorities):
            raise InvalidSettingsError(
                f"priorities hold {np.abs(priorities).max()}: to the power of alpha={self.alpha} they must be finite "
                "in float32; clip the errors"
            )

    def state(self, held: Held) -> dict[str, Any]:
        """Settings, draws so far, and the weights p^α by runs of indices."""
        runs = held.held_runs()
        weights = np.empty(int(runs[:, 1].sum()), np.float32)
        start = 0
        for indices in _pieces(runs):
            weights[start : start + len(indices)] = self._priorities.weights(held.slots_of(indices))
            start += len(indices)
        return {
            "settings": {name: getattr(self, name) for name in SETTINGS},
            "num_draws": self.num_draws,
            "largest": self._priorities.largest,
            "runs": runs,
            "weights": weights,
        }

    def restore(self, state: dict[str, Any], held: Held) -> None:
        """Go on from there, with this sampler's own settings; what is no more held is left out.

        Weights that were raised to another α are raised to this one's. Those of α = 0 tell no priorities and stay.
        """
        runs, weights = _checked_runs(state["runs"], state["weights"])
        saved_alpha = float(state["settings"]["alpha"])
        exponent = self.alpha / saved_alpha if saved_alpha else 1.0
        restored = Priorities(self.alpha, self.epsilon)
        restored.restore(_NO_INDICES, np.empty(0, np.float32), float(state["largest"]) ** exponent)
        for indices in _pieces(held.held_runs()):
            restored.take_note(held.slots_of(indices), indices)
        start = 0
        for indices in _pieces(runs):
            of_piece = weights[start : start + len(indices)]
            raised = of_piece if exponent == 1.0 else np.where(of_piece > 0, of_piece**exponent, np.float32(0))
            restored.restore(held.find_slots(indices), raised, restored.largest)
            start += len(indices)
        self._priorities, self.num_draws = restored, int(state["num_draws"])


_NO_INDICES: Indices = np.empty(0, np.int64)


def _pieces(runs: Indices) -> Iterator[Indices]:
    """The indices of runs, some at a time, so that a million transitions take no arrays of their own."""
    for first, count in runs.tolist():
        for start in range(first, first + count, PIECE):
            yield np.arange(start, min(start + PIECE, first + count))


def _checked(name: str, value: float, most: float) -> float:
    return real_number(name, value, 0, most, rule=f"it lies in 0 to {most:g}")


def _checked_runs(runs: npt.NDArray[Any], weights: npt.NDArray[Any]) -> tuple[Indices, npt.NDArray[np.float32]]:
    """Raise ``ValueError`` for runs of indices and their weights that no sampler can have saved."""
    if runs.dtype != np.int64 or runs.ndim != 2 or runs.shape[1] != 2 or weights.dtype != np.float32:
        raise ValueError("priorities are not runs of indices and their weights")
    first, count = runs[:, 0], runs[:, 1]
    if weights.shape != (count.sum(),) or (count < 1).any() or (first < 0).any() or (np.diff(first) < count[:-1]).any():
        raise ValueError(f"{len(runs)} runs of indices do not have {weights.size} priorities")
    return runs, weights
