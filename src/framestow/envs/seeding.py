"""Derive the seeds of many environments from one seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framestow.checks import check_seed
from framestow.errors import InvalidSettingsError
from framestow.interface import clause


def spawn_seeds(seed: int | None, num_envs: int) -> list[int]:
    """Return one seed for each environment, independent of one another and of the seeds that other runs derive.

    The seeds come from ``numpy.random.SeedSequence(seed).spawn(num_envs)``; ``None`` takes entropy from the operating
    system. The usual ``seed + i`` would make the runs 0 and 1 share all but one of their random streams. Seeds are
    below 2³², because older environments accept no larger ones.

    >>> spawn_seeds(0, 2) == spawn_seeds(0, 3)[:2]
    True
    >>> set(spawn_seeds(0, 8)) & set(spawn_seeds(1, 8))
    set()
    """
    children = np.random.SeedSequence(check_seed(seed)).spawn(num_envs)
    return [int(child.generate_state(1, np.uint32)[0]) for child in children]


def seed_of_each(seed: int | Sequence[int | None] | None, num_envs: int) -> list[int | None]:
    """Return the seed for the reset of each environment: a number is spread, a sequence is kept, ``None`` stays.

    Raises:
        InvalidSettingsError: a sequence of another length, or a seed that is no whole number.
    """
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, (str, bytes)) or not isinstance(seed, (Sequence, np.ndarray)):
        return list(spawn_seeds(check_seed(seed), num_envs))
    seeds = list(seed)
    if len(seeds) != num_envs:
        raise InvalidSettingsError(
            f"seed has {len(seeds)} entries: {clause(num_envs, 'environment', 'need')} one each; give that many, or "
            "one number"
        )
    return [check_seed(each) for each in seeds]


def replacement_seed(seed: int, environment: int, times: int) -> int:
    """Return the seed for the ``times``-th replacement of an environment, counted from 0.

    >>> replacement_seed(0, environment=1, times=0) in spawn_seeds(0, 100)
    False
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(environment, times))
    return int(sequence.generate_state(1, np.uint32)[0])


def emulator_seed(seed: int) -> int:
    """Derive a seed for the ALE emulator, which accepts 31 bits, from the seed of its environment."""
    child = np.random.SeedSequence(seed).spawn(1)[0]
    return int(child.generate_state(1, np.uint32)[0]) & 0x7FFFFFFF
