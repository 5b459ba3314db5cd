"""Save the state of a vector environment, in one format for ``SerialVectorEnv`` and ``WorkerVectorEnv``."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.argument_checks import check_seed
from framestow.envs.seeding import replacement_seed
from framestow.errors import IncompatibleError


class PendingLosses:
    """Lost episodes that the next step must report, and the seeds of replaced environments.

    A replaced environment is seeded at its first reset. The seed of the ``k``-th replacement of environment ``i`` is
    from ``SeedSequence(seed, spawn_key=(i, k))``. So the same losses give the same run, and no game is played twice.
    """

    def __init__(self, seed: int | None, num_envs: int) -> None:
        self.unreported: dict[int, str] = {}
        """Environments whose next step must report a lost episode, each with the reason."""
        self.first_seeds: dict[int, int] = {}
        """Replaced environments that were not reset yet, each with its seed."""
        # By environment: how often it was replaced, so that no replacement plays an earlier game again.
        self._num_replacements = [0] * num_envs
        self.seed_from(seed)

    def seed_from(self, seed: int | None) -> None:
        """Derive the seeds of replacements from ``seed``; ``None`` takes a random one."""
        # What the seeds of all replacements are derived from.
        self._entropy: Any = np.random.SeedSequence(check_seed(seed)).entropy

    def mark_replaced(self, numbers: Iterable[int]) -> None:
        """Draw the seeds of environments that were replaced."""
        for number in numbers:
            self.first_seeds[number] = replacement_seed(self._entropy, number, self._num_replacements[number])
            self._num_replacements[number] += 1

    def mark_reset(self, numbers: Iterable[int]) -> None:
        """Remove environments that were reset: their lost episodes need no report."""
        for number in numbers:
            self.unreported.pop(number, None)
            self.first_seeds.pop(number, None)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "untold": {str(number): why for number, why in self.unreported.items()},
            "first_seeds": {str(number): seed for number, seed in self.first_seeds.items()},
            "num_replacements": list(self._num_replacements),
            "entropy": self._entropy,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of ``state_dict``."""
        self.unreported = {int(number): str(why) for number, why in state["untold"].items()}
        self.first_seeds = {int(number): int(seed) for number, seed in state["first_seeds"].items()}
        self._num_replacements = [int(count) for count in state["num_replacements"]]
        self._entropy = state["entropy"]


# Entries of a saved state.
_KEYS = ("autoreset_mode", "envs", "has_ended", "needs_reset", "observations", "pending_seed", "lost")


def vector_state(
    mode: AutoresetMode,
    envs: list[dict[str, Any]],
    *,
    has_ended: npt.NDArray[np.bool_],
    needs_reset: npt.NDArray[np.bool_],
    observations: Sequence[Any],
    pending_seed: int | None,
    lost: PendingLosses,
) -> dict[str, Any]:
    """Return the state of a vector environment; all values are copies.

    Arguments:
        mode: autoreset mode.
        envs: the entry of each environment, from ``framestow.envs.vector.env_state.env_entry``.
        has_ended: environments whose episode has ended without a reset yet, ``(n,)``.
        needs_reset: environments that were never reset, or need it after a failure, ``(n,)``.
        observations: the last observation of each environment.
        pending_seed: seed for the first reset without a seed.
        lost: lost episodes that were not reported yet.
    """
    return {
        "autoreset_mode": mode.value,
        "envs": envs,
        "has_ended": has_ended.copy(),
        "needs_reset": needs_reset.copy(),
        "observations": deepcopy(list(observations)),
        "pending_seed": pending_seed,
        "lost": lost.state_dict(),
    }


def check_vector_state(state: dict[str, Any], mode: AutoresetMode, num_envs: int) -> None:
    """Raise ``IncompatibleError`` unless the state is of the same number of environments and the same mode."""
    missing = [key for key in _KEYS if key not in state]
    if missing:
        raise IncompatibleError(
            f"state has no {missing}: it is not of a vector environment; give what state_dict() returned"
        )
    if state["autoreset_mode"] != mode.value or len(state["envs"]) != num_envs:
        raise IncompatibleError(
            f"state is of {len(state['envs'])} environments with {state['autoreset_mode']}: these are "
            f"{num_envs} with {mode.value}; use the same number and mode"
        )


def restart_stateless_envs(state: dict[str, Any], lost: PendingLosses) -> None:
    """Mark the running episodes of environments without a saved state as lost, with a ``UserWarning``.

    All environments without a saved state are seeded like replacements.
    """
    whys = {number: entry["why"] for number, entry in enumerate(state["envs"]) if entry["state"] is None}
    if not whys or np.all(state["needs_reset"]):
        return
    lost.mark_replaced(whys)
    is_over = np.asarray(state["needs_reset"])
    if state["autoreset_mode"] != AutoresetMode.SAME_STEP.value:  # SAME_STEP has already begun the next episode
        is_over = is_over | state["has_ended"]
    running = [number for number in whys if not is_over[number]]
    for number in running:
        lost.unreported.setdefault(number, f"resumed without a state: {whys[number]}")
    if running:
        warnings.warn(
            f"environments {running} restart, and their episodes count as truncated: they have no saved state, "
            f"{', '.join(sorted({whys[number] for number in running}))}",
            UserWarning,
            stacklevel=3,
        )
