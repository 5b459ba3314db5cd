"""The state of a vector environment: one form for all of ours, so that each goes on from another's."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.argument_checks import checked_seed
from framestow.envs.vector.env_state import take_state, why_no_state
from framestow.errors import IncompatibleError, InvalidStepError


class ReadySteps(NamedTuple):
    """What ``recv`` gives: ``m`` environments whose steps are done, one row each, in all fields."""

    env_ids: npt.NDArray[np.intp]
    """Which environments these are, ``(m,)``."""
    observations: Any
    """What they show, ``(m, *observation)``."""
    rewards: npt.NDArray[np.float64]
    """Their rewards, ``(m,)``."""
    terminated: npt.NDArray[np.bool_]
    """Whether the episode terminated, ``(m,)``."""
    truncated: npt.NDArray[np.bool_]
    """Whether the episode was truncated, ``(m,)``."""
    infos: dict[str, Any]
    """Gymnasium's dictionary of arrays with masks, over these rows and not over all environments."""


def checked_env_ids(env_ids: Sequence[int] | npt.NDArray[np.integer[Any]], num_envs: int) -> list[int]:
    """Give the environments that a caller of ``send`` names, or refuse them."""
    numbers = np.asarray(env_ids)
    is_right = numbers.ndim == 1 and numbers.size and np.issubdtype(numbers.dtype, np.integer)
    if not is_right or numbers.min() < 0 or numbers.max() >= num_envs or len(np.unique(numbers)) != len(numbers):
        raise InvalidStepError(
            f"env_ids are {env_ids!r}: they must be different whole numbers from 0 to {num_envs - 1}, one at least"
        )
    return [int(number) for number in numbers]


class LostEpisodes:
    """Remembers what a loss leaves to be done, environment by environment.

    An environment that was made anew is seeded at its first reset: the ``k``-th of environment ``i`` from
    ``SeedSequence(seed, spawn_key=(i, k))``, so that the same losses give the same run, and no stream is played twice.
    """

    def __init__(self, seed: int | None, num_envs: int) -> None:
        self.unreported: dict[int, str] = {}
        """Environments whose next step has to tell of a loss, and why."""
        self.first_seeds: dict[int, int] = {}
        """Environments that were made anew and not reset since, and what to reset them with."""
        self._num_replacements = [0] * num_envs
        self.seed_from(seed)

    def seed_from(self, seed: int | None) -> None:
        """Derive the seeds of replacements from this one; ``None`` takes fresh entropy."""
        self._entropy = np.random.SeedSequence(checked_seed(seed)).entropy

    def note_replacement(self, numbers: Iterable[int]) -> None:
        """Take note that these environments were made anew."""
        for number in numbers:
            key = (number, self._num_replacements[number])
            self._num_replacements[number] += 1
            state = np.random.SeedSequence(self._entropy, spawn_key=key).generate_state(1, np.uint32)
            self.first_seeds[number] = int(state[0])

    def note_reset(self, numbers: Iterable[int]) -> None:
        """Take note that these environments were reset: what was lost before is closed by that."""
        for number in numbers:
            self.unreported.pop(number, None)
            self.first_seeds.pop(number, None)

    def state_dict(self) -> dict[str, Any]:
        """What is still to be told and seeded, in plain values."""
        return {
            "unreported": {str(number): why for number, why in self.unreported.items()},
            "first_seeds": {str(number): seed for number, seed in self.first_seeds.items()},
            "num_replacements": list(self._num_replacements),
            "entropy": self._entropy,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.unreported = {int(number): str(why) for number, why in state["unreported"].items()}
        self.first_seeds = {int(number): int(seed) for number, seed in state["first_seeds"].items()}
        self._num_replacements = [int(count) for count in state["num_replacements"]]
        self._entropy = state["entropy"]


_KEYS = ("autoreset_mode", "envs", "has_ended", "needs_reset", "observations", "pending_seed", "lost")


def env_entry(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """What the state of a vector environment says of one environment: its ``state``, or ``None`` and ``why``."""
    state = take_state(env)
    return {"state": state, "why": why_no_state(env) if state is None else ""}


def vector_state(
    mode: AutoresetMode,
    envs: list[dict[str, Any]],
    *,
    has_ended: npt.NDArray[np.bool_],
    needs_reset: npt.NDArray[np.bool_],
    observations: Sequence[Any],
    pending_seed: int | None,
    lost: LostEpisodes,
) -> dict[str, Any]:
    """Put together the state of a vector environment, all copies.

    Args:
        mode: its autoreset mode.
        envs: what `env_entry` gives, for each environment.
        has_ended: whose episode is over and not yet followed by a reset, ``(n,)``.
        needs_reset: who was never reset, or is in doubt after a failure, ``(n,)``.
        observations: the last one of each environment.
        pending_seed: what the first reset takes when it is given none.
        lost: episodes to be told of.
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
    """Refuse a state that is of another vector environment, before anything is changed.

    Raises:
        IncompatibleError: another number of environments, another mode, or no such state at all.
    """
    missing = [key for key in _KEYS if key not in state]
    if missing:
        raise IncompatibleError(f"state lacks {missing}: it is no vector environment's; hand in what state_dict() gave")
    if state["autoreset_mode"] != mode.value or len(state["envs"]) != num_envs:
        raise IncompatibleError(
            f"state is of {len(state['envs'])} environments with {state['autoreset_mode']}: these are "
            f"{num_envs} with {mode.value}; make the same ones"
        )


def restart_stateless_envs(state: dict[str, Any], lost: LostEpisodes) -> None:
    """Take note of the environments that ``state`` has no state of: their episodes are lost, and to be told of.

    One whose episode was over, or that was never begun, has nothing to lose. All of them are seeded like replacements
    of a worker's environments. A ``UserWarning`` names those that lose an episode.
    """
    whys = {number: entry["why"] for number, entry in enumerate(state["envs"]) if entry["state"] is None}
    if not whys or np.all(state["needs_reset"]):
        return
    lost.note_replacement(whys)
    is_over = np.asarray(state["needs_reset"])
    if state["autoreset_mode"] != AutoresetMode.SAME_STEP.value:  # which has begun the next episode already
        is_over = is_over | state["has_ended"]
    running = [number for number in whys if not is_over[number]]
    for number in running:
        lost.unreported.setdefault(number, f"resumed without a state: {whys[number]}")
    if running:
        warnings.warn(
            f"environments {running} begin anew, and their episodes count as truncated: they have no state, "
            f"{', '.join(sorted({whys[number] for number in running}))}",
            UserWarning,
            stacklevel=3,
        )
