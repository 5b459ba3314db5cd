"""Random generators that draw differently in every forked process.

The k-th process that a process forks draws from k and the state of the generator at the fork. So children differ from
each other and from their parent, each of them draws the same whenever the program runs, and the parent draws as if it
had not forked. Processes that are not forked (Windows, ``spawn``) inherit no generator.

The hooks take no lock, because another thread may have held it at the fork.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import weakref
from typing import Any, TypeAlias

import numpy as np

Seed: TypeAlias = "int | list[int] | np.random.SeedSequence | None"


class ForkedGenerator(np.random.Generator):
    """``numpy.random.default_rng(seed)`` that draws differently in every forked process."""

    def __init__(self, seed: Seed = None) -> None:
        super().__init__(np.random.PCG64(seed))
        _generators.add(self)

    def __reduce__(self) -> Any:
        return type(self), (), self.bit_generator.state

    def __setstate__(self, state: Any) -> None:
        self.bit_generator.state = state

    def restart(self, seed: Seed) -> None:
        """Draw as a new generator with this seed from now on; ``None`` takes fresh entropy."""
        self.bit_generator.state = np.random.PCG64(seed).state

    def enter_child(self, number: int) -> None:
        """Draw as the child with this number from now on."""
        state: Any = self.bit_generator.state["state"]
        self.restart(np.random.SeedSequence([state["state"], state["inc"]], spawn_key=(number,)))


class ForkedRandom(random.Random):
    """``random.Random(seed)`` that draws differently in every forked process."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        _generators.add(self)

    def enter_child(self, number: int) -> None:
        """Draw as the child with this number from now on."""
        self.seed(repr((number, self.getstate())))  # of text, Python takes all bits


def lineage() -> tuple[int, ...]:
    """Return the number of this process among its parent's forks, after its parent's own; empty if not forked."""
    return _lineage


_generators: weakref.WeakSet[ForkedGenerator | ForkedRandom] = weakref.WeakSet()
_lineage: tuple[int, ...] = ()
_numbers = itertools.count(1)
_fork = threading.local()  # of each thread: two may fork at the same time


def _before_fork() -> None:
    _fork.number = next(_numbers)


def _after_fork_in_child() -> None:
    global _lineage, _numbers
    _lineage, _numbers = (*_lineage, _fork.number), itertools.count(1)
    for generator in list(_generators):
        generator.enter_child(_fork.number)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
