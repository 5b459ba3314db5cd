"""The state of a vector environment: one form for all of ours, so that each goes on from another's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.envs.vector.env_state import take_state, why_no_state
from framestow.envs.vector.lost_episodes import LostEpisodes
from framestow.errors import IncompatibleError

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


def begin_anew_without_state(state: dict[str, Any], lost: LostEpisodes) -> None:
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
        lost.untold.setdefault(number, f"resumed without a state: {whys[number]}")
    if running:
        warnings.warn(
            f"environments {running} begin anew, and their episodes count as truncated: they have no state, "
            f"{', '.join(sorted({whys[number] for number in running}))}",
            UserWarning,
            stacklevel=3,
        )
