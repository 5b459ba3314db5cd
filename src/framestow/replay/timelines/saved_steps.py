"""Steps and streams as they are saved: arrays by name, or slots one behind the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.replay.timelines.timeline import OF_STREAMS, Arrays, Timeline

OF_TIMELINE, OF_COLUMNS = ("stream", "position", "history"), ("action", "reward", "flags")

OF_EPISODES = "timeline.num_episodes", "timeline.oldest_episodes", "timeline.episode_frames"

Slots = npt.NDArray[Any]  # of slot_record


def _fields(slots: Slots) -> Arrays:
    """Views of the fields of ``slots``, by the names that they are saved under."""
    extra = slots["extras"] if "extras" in (slots.dtype.names or ()) else np.zeros(0, [])
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


def starts_state(timeline: Timeline) -> Arrays:
    """Give where the episodes begin that steps are held of, as three arrays.

    ===========================  =======================================================================
    timeline.num_episodes        of each stream
    timeline.oldest_episodes     where the first of each stream that has any begins
    timeline.episode_frames      how much further each begins than the one before it, 0 for those first ones
    ===========================  =======================================================================
    """
    counts, starts = timeline.starts()
    oldest = (np.cumsum(counts) - counts)[counts > 0]
    num_frames = np.diff(starts, prepend=0)
    num_frames[oldest] = 0
    narrowest = np.min_scalar_type(num_frames.max(initial=0))  # most episodes are short: a byte or two each
    return dict(zip(OF_EPISODES, (counts, starts[oldest], num_frames.astype(narrowest)), strict=True))


def restore_starts(timeline: Timeline, arrays: Arrays) -> None:
    """Take over what ``starts_state`` gave, after all else; where nobody did, the steps tell what they can.

    Raises ``DamagedDataError`` for what cannot have come from there.
    """
    if OF_EPISODES[0] not in arrays:  # a store that was written before there were sequences, or rebuilt
        timeline.rebuild_starts()
        return
    counts, oldest, num_frames = (arrays[name].astype(np.int64) for name in OF_EPISODES)
    fits = counts.shape == (timeline.num_streams,) and (counts >= 0).all() and len(num_frames) == counts.sum()
    if not fits or len(oldest) != (counts > 0).sum():
        raise DamagedDataError(
            f"{OF_EPISODES[2]} has {len(num_frames)} entries and {OF_EPISODES[1]} {len(oldest)}: {counts.tolist()} "
            f"episodes of {timeline.num_streams} streams take others; take an older save"
        )
    firsts = (np.cumsum(counts) - counts)[counts > 0]
    behind = np.cumsum(num_frames)
    starts = behind + np.repeat(oldest - behind[firsts], counts[counts > 0])
    newest = np.repeat(timeline.episode_starts, counts)
    if len(starts) and (starts.min() < 0 or (starts > newest).any() or (np.delete(num_frames, firsts) < 1).any()):
        raise DamagedDataError(
            f"episodes begin at {starts.min()} to {starts.max()}: none begins twice, or behind the newest of its "
            "stream; take an older save"
        )
    timeline.restore_starts(counts, starts)
