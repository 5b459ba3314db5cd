"""What a caller may ask of workers, checked before any process starts."""

from __future__ import annotations

import multiprocessing
import os
from typing import Literal

from framestow.argument_checks import real_number, whole_number
from framestow.errors import InvalidSettingsError

OnWorkerLost = Literal["raise", "restart"]


def check_on_worker_lost(on_worker_lost: str) -> None:
    """Refuse anything but ``"raise"`` and ``"restart"``."""
    if on_worker_lost not in ("raise", "restart"):
        raise InvalidSettingsError(
            f"on_worker_lost is {on_worker_lost!r}: a lost worker is an error or replaced; choose 'raise' or 'restart'"
        )


def check_step_timeout(step_timeout: object) -> None:
    """Refuse anything but a number of seconds."""
    rule = "it must be a number of seconds above 0; math.inf waits for ever"
    real_number("step_timeout", step_timeout, 0, rule=rule, is_least_excluded=True, may_be_infinite=True)


def checked_start_method(start_method: str | None) -> str:
    """Give the start method of that name, or the default: ``forkserver`` where there is one, else ``spawn``."""
    methods = multiprocessing.get_all_start_methods()
    if start_method is None:
        return "forkserver" if "forkserver" in methods else "spawn"
    if start_method not in methods:
        raise InvalidSettingsError(
            f"start_method is {start_method!r}: this system starts processes by {', '.join(methods)}; choose one"
        )
    return start_method


def checked_num_workers(num_workers: int | None, num_envs: int) -> int:
    """Give the number of workers, by default one a core that this process may use, and no more than environments."""
    if num_workers is None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(usable, num_envs)
    rule = f"{num_envs} environments take 1 to {num_envs}; None takes as many as this process may use cores"
    return whole_number("num_workers", num_workers, 1, num_envs, rule=rule)
