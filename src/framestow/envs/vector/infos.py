"""Read finished games and lost episodes from the infos of a vector environment, and batch infos as Gymnasium does."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from framestow.errors import InvalidStepError

_PLAIN_NUMBERS = frozenset((int, float, bool))  # of infos that become one array at once if every environment has one


def batch_infos(infos: Sequence[dict[str, Any]], numbers: Sequence[int], num_envs: int) -> dict[str, Any]:
    """Combine the infos of the environments ``numbers``: an array for each ``key``, and its mask under ``_key``.

    The result is that of Gymnasium's ``VectorEnv._add_info``, called for one environment after the other. Working key
    by key takes 6 µs instead of 10 µs for the lives and frame numbers of eight games. The first value of a key decides
    the dtype of its array. Other values than numbers, such as strings, go into an object array. Dictionaries are
    combined recursively.

    >>> batch_infos([{"lives": 3}, {"lives": 5}], [0, 2], 3)
    {'lives': array([3, 0, 5]), '_lives': array([ True, False,  True])}

    Raises:
        InvalidStepError: Gymnasium cannot combine them, for example a number and ``None``.
    """
    try:
        return _batch(infos, numbers, num_envs)
    except Exception as error:
        raise InvalidStepError(
            f"infos {reprlib.repr(list(infos))} of environments {list(numbers)}: Gymnasium cannot batch them, {error}; "
            "return the same type of value for a key in every environment"
        ) from error


def _batch(infos: Sequence[dict[str, Any]], numbers: Sequence[int], num_envs: int) -> dict[str, Any]:
    batched: dict[str, Any] = {}
    columns = _by_key(infos, numbers, num_envs)
    for key, (env_ids, values) in columns.items():
        mask_name, kinds = f"_{key}", set(map(type, values))
        if mask_name in columns or mask_name in batched or _has_dictionaries_among_others(kinds):
            return _InfoBatcher(num_envs).batch(infos, numbers)
        if isinstance(env_ids, range) and kinds <= _PLAIN_NUMBERS and key != "final_obs":
            batched[key] = np.array(values, type(values[0]))
        elif isinstance(values[0], dict) and key != "final_obs":
            batched[key] = _batch(values, env_ids, num_envs)
        else:
            batched[key] = _fill(_empty_array(key, values[0], num_envs), env_ids, values)
        batched[mask_name] = _mask_of(env_ids, num_envs)
    return batched


def _by_key(
    infos: Sequence[dict[str, Any]], numbers: Sequence[int], num_envs: int
) -> Mapping[str, tuple[Sequence[int], list[Any]]]:
    """Return for each key the environments that have it (a ``range`` if all do, in order) and their values."""
    if infos and list(numbers) == list(range(num_envs)):
        keys = infos[0].keys()
        if all(info.keys() == keys for info in infos):
            return {key: (range(num_envs), [info[key] for info in infos]) for key in keys}
    columns: dict[str, tuple[list[int], list[Any]]] = {}
    for number, info in zip(numbers, infos, strict=True):
        for key, value in info.items():
            env_ids, values = columns.setdefault(key, ([], []))
            env_ids.append(number)
            values.append(value)
    return columns


def _has_dictionaries_among_others(kinds: set[type]) -> bool:
    return len(kinds) > 1 and len({issubclass(kind, dict) for kind in kinds}) > 1


def _empty_array(key: str, first: Any, num_envs: int) -> npt.NDArray[Any]:
    kind = type(first)
    if key == "final_obs":
        return np.full(num_envs, None, object)
    if kind in _PLAIN_NUMBERS or issubclass(kind, np.number):
        return np.zeros(num_envs, kind)
    if isinstance(first, np.ndarray):
        return np.zeros((num_envs, *first.shape), first.dtype)
    return np.full(num_envs, None, object)


def _fill(array: npt.NDArray[Any], env_ids: Sequence[int], values: list[Any]) -> npt.NDArray[Any]:
    for number, value in zip(env_ids, values, strict=True):
        array[number] = value
    return array


def _mask_of(env_ids: Sequence[int], num_envs: int) -> npt.NDArray[np.bool_]:
    if isinstance(env_ids, range):
        mask = np.empty(num_envs, np.bool_)
        mask.fill(True)  # takes a quarter of the time of np.ones
        return mask
    mask = np.zeros(num_envs, np.bool_)
    for number in env_ids:
        mask[number] = True
    return mask


class _InfoBatcher(VectorEnv[Any, Any, Any]):
    """Gymnasium's ``_add_info`` without environments, for keys that conflict: ``x`` and ``_x``, a dict and a number."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def batch(self, infos: Sequence[dict[str, Any]], env_ids: Sequence[int]) -> dict[str, Any]:
        batched: dict[str, Any] = {}
        for env_id, info in zip(env_ids, infos, strict=True):
            batched = self._add_info(batched, info, env_id)
        return batched


class FinishedGame(NamedTuple):
    """A game that ended or was truncated in a step."""

    env_id: int
    """Number of the environment."""
    score: float
    """Sum of the unclipped rewards, over all lives."""
    agent_steps: int
    """Number of agent steps, over all lives."""


def finished_games(infos: Mapping[str, Any]) -> list[FinishedGame]:
    """Return the games that ended in a step, given its ``infos``; works in every autoreset mode.

    A lost life does not finish a game.

    >>> import numpy as np
    >>> from framestow.envs import finished_games
    >>> finished_games({"episode": {"r": np.array([0.0, 7.0]), "l": np.array([0, 90])}, "_episode": np.array([0, 1])})
    [FinishedGame(env_id=1, score=7.0, agent_steps=90)]
    """
    games = []
    for each in (infos, infos.get("final_info", {})):  # SAME_STEP has the infos of the last step in final_info
        if "episode" in each:
            episode, has_ended = each["episode"], np.asarray(each["_episode"], np.bool_)
            games += [
                FinishedGame(int(number), float(episode["r"][number]), int(episode["l"][number]))
                for number in np.flatnonzero(has_ended)
            ]
    return games


def lost_episodes(infos: Mapping[str, Any]) -> dict[int, str]:
    """Return the environments whose episode was lost in a step, each with the reason, given the step's ``infos``.

    The end of a lost episode is unknown; the step truncates it at its last received observation.

    >>> import numpy as np
    >>> from framestow.envs import lost_episodes
    >>> lost_episodes({"episode_lost": np.array([None, "worker 1 died"]), "_episode_lost": np.array([False, True])})
    {1: 'worker 1 died'}
    """
    if "episode_lost" not in infos:
        return {}
    return {int(number): str(infos["episode_lost"][number]) for number in np.flatnonzero(infos["_episode_lost"])}
