"""What became of episodes, read from the information that a vector environment hands out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class FinishedGame(NamedTuple):
    """A game that a step ended or truncated."""

    env_id: int
    """Which environment played it."""
    score: float
    """Sum of its unclipped rewards, over all lives."""
    agent_steps: int
    """Steps that the agent took in it, over all lives."""


def finished_games(infos: Mapping[str, Any]) -> list[FinishedGame]:
    """Games that ended in the step whose ``infos`` these are, in any autoreset mode.

    A lost life is no finished game. With SAME_STEP, Gymnasium keeps what the last step told in ``final_info``.

    >>> finished_games({"episode": {"r": np.array([0.0, 7.0]), "l": np.array([0, 90])}, "_episode": np.array([0, 1])})
    [FinishedGame(env_id=1, score=7.0, agent_steps=90)]
    """
    games = []
    for told in (infos, infos.get("final_info", {})):
        if "episode" in told:
            episode, is_told = told["episode"], np.asarray(told["_episode"], np.bool_)
            games += [
                FinishedGame(int(stream), float(episode["r"][stream]), int(episode["l"][stream]))
                for stream in np.flatnonzero(is_told)
            ]
    return games


def lost_episodes(infos: Mapping[str, Any]) -> dict[int, str]:
    """Streams whose episode was cut off in the step whose ``infos`` these are, and why; nobody saw its end.

    >>> lost_episodes({"episode_lost": np.array([None, "worker 1 died"]), "_episode_lost": np.array([False, True])})
    {1: 'worker 1 died'}
    """
    if "episode_lost" not in infos:
        return {}
    return {int(stream): str(infos["episode_lost"][stream]) for stream in np.flatnonzero(infos["_episode_lost"])}
