"""The settings of a saved memory, checked before anything is built by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from framestow.errors import DamagedDataError, FramestowError
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.saving.checked_fields import WAY_OUT, CheckedFields

MAX_STREAMS = 2**22  # as many as a log numbers
LARGEST_ACTION = 2**63 - 1


def checked_settings(memory: dict[str, Any], file: str) -> MemorySettings:
    """Give the settings out of ``memory``, what ``MemoryParts.state`` gave, as it was read from ``file``.

    Raises ``DamagedDataError`` naming file and field for what cannot have been written there, and what
    ``MemorySettings`` raises for values that this version does not know.
    """
    settings = CheckedFields(memory, file).inner("settings")
    settings.integer("capacity", 1)
    settings.integer("stack", 1)
    settings.integer("num_envs", 1, MAX_STREAMS)
    settings.number("discount")
    for name in ("max_bytes", "frames_per_segment"):
        if settings.values.get(name) is not None:
            settings.integer(name, 1)
    action = settings.inner("action")
    _check_frame(settings.inner("frame"))
    action.integers("shape")
    if "extras" in settings.values:
        settings.inner("extras")
    try:
        if np.dtype(action.text("dtype")).kind not in "biuf":
            raise ValueError("actions are numbers")
        for name in ("low", "high"):
            _check_bounds(action, name)
        return MemorySettings.from_state(settings.values)
    except FramestowError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DamagedDataError(f"{file}: settings cannot be what was written ({error}); {WAY_OUT}") from error


def _check_bounds(action: CheckedFields, name: str) -> None:
    """Let a bound be absent, or an integer, or one for each element of an action."""
    bounds = action.values.get(name)
    if isinstance(bounds, list):
        if len(bounds) != math.prod(action.integers("shape")):
            raise ValueError(f"{len(bounds)} bounds for actions of shape {action.integers('shape')}")
        for bound in bounds:
            CheckedFields({name: bound}, "settings").integer(name, -LARGEST_ACTION - 1, LARGEST_ACTION)
    elif bounds is not None:
        action.integer(name, -LARGEST_ACTION - 1, LARGEST_ACTION)


def _check_frame(frame: CheckedFields) -> None:
    """Check shapes, those of each leaf of a dict or tuple too; the rest is up to whoever reads them back."""
    if "dict" in frame.values:
        parts = frame.inner("dict")
        for key in parts.values:
            _check_frame(parts.inner(key))
    elif "tuple" in frame.values:
        for part in frame.each("tuple"):
            _check_frame(part)
    else:
        frame.integers("shape")
