"""What an import or an export tells of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Is told how many bytes of how many are done, some times a second."""


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


@dataclass
class Transferred:
    """What went over, and what did not: filled while it goes.

    ``left_out`` gives numbers of steps by the reason why they did not go over, ``notes`` what else the other side
    cannot hold or did not tell, a sentence each.
    """

    transitions: int = 0
    episodes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, reason: str, steps: int = 1) -> None:
        """Count ``steps`` that did not go over for ``reason``."""
        if steps:
            self.left_out[reason] = self.left_out.get(reason, 0) + steps
