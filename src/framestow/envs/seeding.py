"""Seeds of many environments out of one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framestow.argument_checks import checked_seed
from framestow.errors import InvalidSettingsError


def spawn_seeds(seed: int | None, num_envs: int) -> list[int]:
    """One seed an environment, independent of one another and of those that any other ``seed`` gives.

    They come from ``numpy.random.SeedSequence(seed).spawn(num_envs)``; ``seed=None`` takes fresh entropy from the
    operating system. Counting up from the seed instead, as is usual, makes the runs 0 and 1 share all but one of their
    environments' streams. Seeds stay below 2³², because older environments take no others.

    >>> spawn_seeds(0, 2) == spawn_seeds(0, 3)[:2]
    True
    >>> set(spawn_seeds(0, 8)) & set(spawn_seeds(1, 8))
    set()
    """
    children = np.random.SeedSequence(checked_seed(seed)).spawn(num_envs)
    return [int(child.generate_state(1, np.uint32)[0]) for child in children]


def seed_of_each(seed: int | Sequence[int | None] | None, num_envs: int) -> list[int | None]:
    """List what each environment is reset with: a number is spread, a sequence stays, ``None`` seeds nothing."""
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, (str, bytes)) or not isinstance(seed, (Sequence, np.ndarray)):
        return list(spawn_seeds(checked_seed(seed), num_envs))
    seeds = list(seed)
    if len(seeds) != num_envs:
        raise InvalidSettingsError(
            f"seed has {len(seeds)} entries: {num_envs} environments need one each; give a single number to spread it"
        )
    return [checked_seed(each) for each in seeds]


def replacement_seed(seed: int, environment: int, times: int) -> int:
    """Seed of an environment that takes another's place for the ``times``-th time, counted from 0.

    >>> replacement_seed(0, environment=1, times=0) in spawn_seeds(0, 100)
    False
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(environment, times))
    return int(sequence.generate_state(1, np.uint32)[0])


def emulator_seed(seed: int) -> int:
    """Seed of 31 bits for an emulator, out of the one of its environment; the emulator takes no more."""
    child = np.random.SeedSequence(seed).spawn(1)[0]
    return int(child.generate_state(1, np.uint32)[0]) & 0x7FFFFFFF
