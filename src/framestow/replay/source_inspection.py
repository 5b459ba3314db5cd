"""What a memory holds, told for people: by game its transitions, episodes, returns, lengths and ages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framestow.replay.episodes.episode_runs import EpisodeRuns
from framestow.replay.memory_parts import MemoryParts

UNNAMED = "(not named)"  # what feeds a memory that was not told


@dataclass(frozen=True)
class Spread:
    """Mean, least and greatest of some numbers."""

    mean: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: npt.NDArray[np.generic]) -> Spread | None:
        """The spread of ``values``; None where there are none."""
        return cls(float(values.mean()), float(values.min()), float(values.max())) if values.size else None


@dataclass(frozen=True)
class Ages:
    """How long ago transitions were appended: frames that have come to their stream since."""

    oldest: int
    median: int


@dataclass(frozen=True)
class LabelInspection:
    """What is held of one game, or whatever else fed the memory under one name.

    ``frames`` counts those that the transitions show. An episode is *whole* if its first step and one that terminated
    or truncated it are held, *open* if it goes on, and otherwise *cut*: its beginning has left, or a reset came in
    between. ``returns`` (sums of the rewards as they were recorded) and ``lengths`` (steps) are those of whole
    episodes, None without any; ``ages`` is None without transitions.
    """

    label: str
    num_envs: int
    transitions: int
    frames: int
    whole_episodes: int
    cut_episodes: int
    open_episodes: int
    returns: Spread | None
    lengths: Spread | None
    ages: Ages | None


def inspect_labels(parts: MemoryParts) -> list[LabelInspection]:
    """Look at everything that is held, by the labels that the memory's settings name, in the order of their streams.

    Reads no frame. Takes a pass over all steps in pieces of bounded size, and 40 bytes for each episode.
    """
    settings = parts.settings
    labels = settings.labels or (UNNAMED,) * settings.num_envs
    with parts.lock:
        episodes = EpisodeRuns.of(parts.timeline, settings.stack)
        newest_positions = parts.timeline.newest_positions.copy()
    streams_by_label: dict[str, list[int]] = {}
    for stream, label in enumerate(labels):
        streams_by_label.setdefault(label, []).append(stream)
    return [
        _inspected(label, len(streams), episodes.of_streams(streams), newest_positions)
        for label, streams in streams_by_label.items()
    ]


def _inspected(
    label: str, num_envs: int, episodes: EpisodeRuns, newest_positions: npt.NDArray[np.int64]
) -> LabelInspection:
    runs, is_whole = episodes.runs, episodes.is_whole
    num_whole, num_open = int(is_whole.sum()), int(runs["is_open"].sum())
    return LabelInspection(
        label=label,
        num_envs=num_envs,
        transitions=int(runs["length"].sum()),
        frames=int(episodes.num_frames.sum()),
        whole_episodes=num_whole,
        cut_episodes=len(runs) - num_whole - num_open,
        open_episodes=num_open,
        returns=Spread.of(runs["total_reward"][is_whole]),
        lengths=Spread.of(runs["length"][is_whole]),
        ages=_ages(episodes, newest_positions),
    )


def _ages(episodes: EpisodeRuns, newest_positions: npt.NDArray[np.int64]) -> Ages | None:
    runs = episodes.runs
    if not len(runs):
        return None
    # A run's ages are consecutive numbers, so the median is found among intervals: no array of all transitions.
    oldest = newest_positions[runs["stream"]] - runs["first"] - 1  # 0 for the step that led to the newest frame
    youngest = oldest - runs["length"] + 1
    wanted = (int(runs["length"].sum()) + 1) // 2
    low, high = int(youngest.min()), int(oldest.max())
    while low < high:
        middle = (low + high) // 2
        not_older = int(np.clip(middle - youngest + 1, 0, runs["length"]).sum())
        low, high = (low, middle) if not_older >= wanted else (middle + 1, high)
    return Ages(int(oldest.max()), low)
