"""``EpisodeTable``: every stored episode of a memory, with its return and how it began and ended, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.replay.memory_parts import MemoryParts
from framestow.replay.reading.episodes import EpisodeSpans, StoredEpisode, read_episode

SPARK_BINS = 24  # of a sparkline
ENDINGS = (
    "terminated",
    "truncated",
    "terminated and truncated",
    "still running",
    "cut by a reset",
    "cut: later steps are lost",
    "cut: later steps were evicted",
    "cut: no end was stored",
)
TERMINATED, TRUNCATED, BOTH, RUNNING, RESET, LOST, EVICTED, UNKNOWN = range(len(ENDINGS))
BEGINNINGS = ("from its reset", "its first steps were evicted", "its first steps are lost")
WHOLE, FIRST_EVICTED, FIRST_LOST = range(len(BEGINNINGS))

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EpisodeTable:
    """The stored episodes, by environment and then by time; the number of an episode is its row in ``spans``.

    An episode with missing steps in its middle is several rows. ``ages`` count the frames that its environment appended
    after the episode.
    """

    episodes: EpisodeSpans
    endings: npt.NDArray[np.uint8]
    """Numbers of ``ENDINGS``."""
    beginnings: npt.NDArray[np.uint8]
    """Numbers of ``BEGINNINGS``."""
    ages: Numbers

    @classmethod
    def of(cls, parts: MemoryParts) -> EpisodeTable:
        """Return the table of all stored steps; reads no frames."""
        with parts.lock:
            episodes = EpisodeSpans.of(parts.steps)
            newest = parts.steps.newest_positions.copy()
            begins_newest = parts.steps.episode_starts.copy()
        spans, is_random = episodes.spans, parts.settings.retention == "random"
        ends = spans["first"] + spans["length"]  # position of the last frame
        env_ids = spans["env_id"]
        has_next = np.append(env_ids[1:] == env_ids[:-1], False)[: len(spans)]
        begins_next = np.append(spans["first"][1:] * spans["has_beginning"][1:], 0)[: len(spans)]
        is_reset = (has_next & (begins_next == ends + 1)) | (begins_newest[env_ids] == ends + 1)
        is_cut = has_next | (ends < newest[env_ids])
        endings = np.select(
            [
                spans["terminated"] & spans["truncated"],
                spans["terminated"],
                spans["truncated"],
                spans["is_open"],
                is_reset,
                is_cut,
            ],
            [BOTH, TERMINATED, TRUNCATED, RUNNING, RESET, EVICTED if is_random else LOST],
            UNKNOWN,
        )
        is_first_of_env = np.append(True, ~has_next)[: len(spans)]
        is_evicted = is_first_of_env | is_random
        beginnings = np.select([spans["has_beginning"], is_evicted], [WHOLE, FIRST_EVICTED], FIRST_LOST)
        ages = newest[env_ids] - ends
        return cls(episodes, endings.astype(np.uint8), beginnings.astype(np.uint8), ages)

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def spans(self) -> npt.NDArray[Any]:
        """Array of ``framestow.replay.reading.episodes.EPISODE_SPAN``, a row for each episode."""
        return self.episodes.spans

    def read(self, parts: MemoryParts, number: int) -> StoredEpisode:
        """Return an episode with its steps; its frames are read when asked for."""
        span = self.spans[number]
        has_beginning = bool(span["has_beginning"])
        return read_episode(
            parts, int(span["env_id"]), int(span["first"]), int(span["length"]), has_beginning=has_beginning
        )

    def find(self, parts: MemoryParts, indices: Numbers) -> tuple[Numbers, Numbers]:
        """Return the episode of each transition, and the number of its step in it."""
        env_ids, positions = parts.steps.places(indices)
        width = int(parts.steps.newest_positions.max()) + 1  # every position is below it
        keys = self.spans["env_id"].astype(np.int64) * width + self.spans["first"]
        numbers = np.searchsorted(keys, env_ids.astype(np.int64) * width + positions, side="right") - 1
        return numbers, positions - self.spans["first"][numbers]


def draw_sparkline(rewards: npt.NDArray[np.float32], num_bins: int = SPARK_BINS) -> npt.NDArray[np.float32]:
    """Return the sum of the rewards in each of ``num_bins`` equal parts of an episode.

    >>> draw_sparkline(np.array([1, 0, 0, 2, 5], np.float32), 2)
    array([1., 7.], dtype=float32)
    """
    bins = np.arange(len(rewards)) * num_bins // max(len(rewards), 1)
    sums: npt.NDArray[np.float32] = np.bincount(bins, rewards, num_bins).astype(np.float32)
    return sums
