"""Steps and streams as they are saved: arrays by name, or slots one behind the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.replay.timelines.timeline import OF_STREAMS, Arrays, Timeline

OF_TIMELINE, OF_COLUMNS = ("stream", "position", "history"), ("action", "reward", "flags")

Slots = npt.NDArray[Any]  # of slot_record


def _fields(slots: Slots) -> Arrays:
    """Views of the fields of ``slots``, by the names that they are saved under."""
    extra = slots["columns"] if "columns" in (slots.dtype.names or ()) else np.zeros(0, [])
    return (
        {f"timeline.{name}": slots[name] for name in OF_TIMELINE}
        | {f"columns.{name}": slots[name] for name in OF_COLUMNS}
        | {f"extra.{name}": extra[name] for name in extra.dtype.names or ()}
    )


def arrays_of(slots: Slots) -> Arrays:
    """Give the fields of ``slots``, an array each."""
    return _fields(slots)


def slots_of(arrays: Arrays, record: np.dtype[Any], num_streams: int) -> Slots:
    """Give back what ``arrays_of`` was given; ``DamagedDataError`` for fields that do not fit."""
    slots = np.zeros(len(arrays["timeline.stream"]), record)
    for name, kept in _fields(slots).items():
        if arrays[name].shape != kept.shape:
            raise DamagedDataError(
                f"{name} has shape {arrays[name].shape}: {kept.shape} is what these slots take; take an older save"
            )
        kept[...] = arrays[name]
    if (arrays["timeline.stream"] >= num_streams).any():
        raise DamagedDataError(
            f"a slot is of stream {arrays['timeline.stream'].max()}: there are {num_streams} streams; "
            "take an older save"
        )
    return slots


def slots_in(block: bytes | None, record: np.dtype[Any], num_slots: int, num_streams: int) -> Slots | None:
    """Give the slots of a sealed block; ``None`` for one that is missing, or that no timeline wrote."""
    if block is None or len(block) != num_slots * record.itemsize:
        return None
    slots = np.frombuffer(block, record)
    return None if (slots["stream"] >= num_streams).any() else slots


def streams_state(timeline: Timeline) -> Arrays:
    """Give a copy of the arrays that have one entry a stream."""
    return {f"timeline.{name}": getattr(timeline, name).copy() for name in OF_STREAMS}


def restore_streams(timeline: Timeline, arrays: Arrays) -> None:
    """Take over what ``streams_state`` gave; ``DamagedDataError`` for other streams."""
    saved = {name: arrays[f"timeline.{name}"] for name in OF_STREAMS if f"timeline.{name}" in arrays}
    for name, values in saved.items():
        if values.shape != (timeline.num_streams,):
            raise DamagedDataError(
                f"timeline.{name} has shape {values.shape}: this memory has {timeline.num_streams} streams; "
                "take an older save"
            )
    for name, values in saved.items():
        getattr(timeline, name)[:] = values
