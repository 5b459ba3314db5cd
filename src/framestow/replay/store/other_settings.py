"""Which settings a stored memory may be given when it is loaded or resumed, and how the others are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from framestow.errors import IncompatibleError
from framestow.replay.settings.memory_settings import MemorySettings

NOT_COMPARED = {"label", "max_bytes"}  # labels are informative; a smaller budget evicts transitions
OBSERVED = {"observation_space", "action_space", "stack", "stack_axis"}  # of stored steps; no import changes these
LARGER = "a stored memory takes the same or a larger one"
SMALLER = "with retention='random', a stored memory takes the same or a smaller one"


def check_settings(asked: MemorySettings, stored: MemorySettings, folder: Path) -> None:
    """Raise ``IncompatibleError`` about the first argument that the steps in ``folder`` do not allow.

    ============  =====================================================================
    argument      may be
    ============  =====================================================================
    ``capacity``  the same or larger
    ``n_step``    any; with random retention the same or smaller
    ``discount``  any
    all others    the same
    ============  =====================================================================

    With a larger ``n_step`` and random retention, returns would reach steps that were evicted.
    """
    for name, wanted, there in _differences(asked, stored):
        rule = ""
        if name == "capacity":
            if wanted > there:
                continue
            rule = f", and {LARGER}"
        elif name == "n_step":
            if wanted < there or asked.retention == "fifo":
                continue
            rule = f", and {SMALLER}"
        elif name == "discount":
            continue
        raise IncompatibleError(describe_difference(name, wanted, there, folder, rule))


def check_same_settings(asked: MemorySettings, stored: MemorySettings, folder: Path) -> None:
    """Raise ``IncompatibleError`` about the first argument that differs from that of the memory in ``folder``."""
    for name, wanted, there in _differences(asked, stored):
        raise IncompatibleError(describe_difference(name, wanted, there, folder))


def describe_difference(name: str, asked: Any, there: Any, folder: Path, rule: str = "") -> str:
    """Return the message about an argument that the memory in ``folder`` does not take."""
    ways = "give the same value or another directory"
    if name not in OBSERVED:
        ways = f"give the same value, another directory, or a new memory: framestow import memory {folder} --to NEW"
    return f"{name} is {asked!r}: the memory in {folder} has {there!r}{rule}; {ways}"


def _differences(asked: MemorySettings, stored: MemorySettings) -> list[tuple[str, Any, Any]]:
    """Return name and both values of each argument that differs; the spaces come first."""
    if asked == stored:  # as usual, and sooner known than described
        return []
    wanted, there = asked.described(), stored.described()
    names = {"observation_space": None, "action_space": None} | wanted | there
    values = [(name, wanted.get(name), there.get(name)) for name in names if name not in NOT_COMPARED]
    return [(name, one, other) for name, one, other in values if one != other]
