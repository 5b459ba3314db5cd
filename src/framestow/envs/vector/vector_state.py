"""Episodes, seeds and losses of the environments of a vector environment, and the format in which they are saved.

``SerialVectorEnv`` and ``WorkerVectorEnv`` share all of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.checks import check_seed
from framestow.envs.seeding import replacement_seed, seed_of_each
from framestow.envs.vector.autoreset import POLICIES
from framestow.envs.vector.infos import batch_infos
from framestow.errors import IncompatibleError, InvalidStepError
from framestow.interface import plural


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

    @property
    def has_any(self) -> bool:
        """Whether a step must report a loss, or a reset must take the seed of a replacement."""
        return bool(self.unreported or self.first_seeds)

    def seed_from(self, seed: int | None) -> None:
        """Derive the seeds of replacements from ``seed``; ``None`` takes a random one."""
        # What the seeds of all replacements are derived from.
        self._entropy: Any = np.random.SeedSequence(check_seed(seed)).entropy

    def mark_replaced(self, env_ids: Iterable[int]) -> None:
        """Draw the seeds of environments that were replaced."""
        for env_id in env_ids:
            self.first_seeds[env_id] = replacement_seed(self._entropy, env_id, self._num_replacements[env_id])
            self._num_replacements[env_id] += 1

    def mark_reset(self, env_ids: Iterable[int]) -> None:
        """Remove environments that were reset: their lost episodes need no report."""
        for env_id in env_ids:
            self.unreported.pop(env_id, None)
            self.first_seeds.pop(env_id, None)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "untold": {str(env_id): why for env_id, why in self.unreported.items()},
            "first_seeds": {str(env_id): seed for env_id, seed in self.first_seeds.items()},
            "num_replacements": list(self._num_replacements),
            "entropy": self._entropy,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of ``state_dict``."""
        self.unreported = {int(env_id): str(why) for env_id, why in state["untold"].items()}
        self.first_seeds = {int(env_id): int(seed) for env_id, seed in state["first_seeds"].items()}
        self._num_replacements = [int(count) for count in state["num_replacements"]]
        self._entropy = state["entropy"]


# Entries of a saved state.
_KEYS = ("autoreset_mode", "envs", "has_ended", "needs_reset", "observations", "pending_seed", "lost")


class EpisodeStates:
    """Which environments have a running, ended or lost episode, and the seeds of their next resets."""

    def __init__(self, mode: AutoresetMode, num_envs: int, seed: int | None) -> None:
        self.num_envs = num_envs
        self.policy = POLICIES[mode]
        """What a step does in an environment whose episode has ended."""
        self.has_ended = np.zeros(num_envs, np.bool_)
        """By environment: its episode ended in the last step. The policy says what the next step does then."""
        self.needs_reset = np.ones(num_envs, np.bool_)
        """By environment: it was never reset, or needs it after a failure."""
        self.lost = PendingLosses(seed, num_envs)
        # Seed of the first reset that gives none; None after any reset.
        self._pending_seed = check_seed(seed)

    @property
    def mode(self) -> AutoresetMode:
        """The autoreset mode."""
        return self.policy.mode

    def begin_reset(
        self, mask: npt.NDArray[np.bool_], seed: int | Sequence[int | None] | None
    ) -> dict[int, int | None]:
        """Return the seed for the reset of each environment in ``mask``; ``None`` keeps its generators as they are.

        Arguments:
            mask: The environments to reset, ``(num_envs,)``.
            seed: One number from which each environment gets a seed, or one for each. Without it, the first reset takes
                the constructor's, and a replaced environment takes that of its replacement.

        Raises:
            InvalidStepError: ``mask`` leaves out an environment that has no episode, so no observation.
            InvalidSettingsError: the seed is no seed, or not one for each environment.
        """
        left_idle = self.needs_reset & ~mask
        if left_idle.any():
            raise InvalidStepError(
                f"reset_mask leaves out environments {np.flatnonzero(left_idle).tolist()}, which have no episode: "
                "step() needs one in every environment; reset all environments first"
            )
        if seed is None and self.needs_reset.all():
            seed = self._pending_seed
        seeds = seed_of_each(seed, self.num_envs)
        if isinstance(seed, (int, np.integer)):
            self.lost.seed_from(int(seed))
        return {
            env_id: self.lost.first_seeds.get(env_id) if seeds[env_id] is None else seeds[env_id]
            for env_id in np.flatnonzero(mask).tolist()
        }

    def mark_reset(self, env_ids: Sequence[int]) -> None:
        """Mark environments whose reset is complete."""
        self.lost.mark_reset(env_ids)
        self.needs_reset[env_ids], self.has_ended[env_ids] = False, False
        self._pending_seed = None

    def check_step(self) -> None:
        """Raise ``InvalidStepError`` unless every environment can step now."""
        if self.needs_reset.any():
            raise InvalidStepError("environments have no running episode: step() needs one; call reset()")
        self.policy.check(self.has_ended)

    def require_reset(self) -> None:
        """Take no step before a reset of all environments: some have stepped, and the caller gets no result."""
        self.needs_reset[:] = True

    def batch_infos(self, infos: Sequence[dict[str, Any]], env_ids: Sequence[int]) -> dict[str, Any]:
        """Combine the infos of ``env_ids`` as Gymnasium does; if it cannot, all environments need a reset.

        Raises:
            InvalidStepError: Gymnasium cannot combine them.
        """
        try:
            return batch_infos(infos, env_ids, self.num_envs)
        except InvalidStepError:
            self.require_reset()
            raise

    def state_dict(self, envs: list[dict[str, Any]], observations: Sequence[Any]) -> dict[str, Any]:
        """Return the state of the vector environment; all values are copies.

        Arguments:
            envs: The entry of each environment, from ``framestow.envs.vector.env_state.env_entry``.
            observations: The last observation of each environment.
        """
        return {
            "autoreset_mode": self.mode.value,
            "envs": envs,
            "has_ended": self.has_ended.copy(),
            "needs_reset": self.needs_reset.copy(),
            "observations": deepcopy(list(observations)),
            "pending_seed": self._pending_seed,
            "lost": self.lost.state_dict(),
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise ``IncompatibleError`` unless the state is of the same number of environments and the same mode."""
        missing = [key for key in _KEYS if key not in state]
        if missing:
            raise IncompatibleError(
                f"state has no {missing}: it is not of a vector environment; give what state_dict() returned"
            )
        if state["autoreset_mode"] != self.mode.value or len(state["envs"]) != self.num_envs:
            raise IncompatibleError(
                f"state is of {plural(len(state['envs']), 'environment')} with {state['autoreset_mode']}: these are "
                f"{self.num_envs} with {self.mode.value}; use the same number and mode"
            )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checked state of ``state_dict``, whose environments are restored already.

        The running episodes of environments without a saved state are lost, with a ``UserWarning``. All environments
        without a saved state are seeded like replacements.
        """
        self.has_ended[:], self.needs_reset[:] = state["has_ended"], state["needs_reset"]
        self._pending_seed = state["pending_seed"]
        self.lost.load_state_dict(state["lost"])
        whys = {env_id: entry["why"] for env_id, entry in enumerate(state["envs"]) if entry["state"] is None}
        if not whys or self.needs_reset.all():
            return
        self.lost.mark_replaced(whys)
        is_over = self.needs_reset.copy()
        if self.mode is not AutoresetMode.SAME_STEP:  # SAME_STEP has already begun the next episode
            is_over |= self.has_ended
        running = [env_id for env_id in whys if not is_over[env_id]]
        for env_id in running:
            self.lost.unreported.setdefault(env_id, f"resumed without a state: {whys[env_id]}")
        if running:
            warnings.warn(
                f"environments {running} restart, and their episodes count as truncated: they have no saved state, "
                f"{', '.join(sorted({whys[env_id] for env_id in running}))}",
                UserWarning,
                stacklevel=3,
            )
