"""Streams, episodes and slots: where each transition lies, and which may be drawn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


class Windows(NamedTuple):
    """Where the frames of some transitions lie: what a storage needs to hand them out."""

    streams: npt.NDArray[np.int32]
    last_positions: Indices
    counts: npt.NDArray[np.int32]


class Timeline:
    """Places of the newest ``capacity`` transitions over all streams.

    Transitions are numbered in the order in which they were appended, for ever: that number is a transition's
    *index*, and ``index % capacity`` is its *slot*. Appending to a full memory overwrites the oldest transition, of
    whatever stream, so exactly ``capacity`` are kept. An index never comes back: one that is below ``oldest`` names a
    transition that has gone, whoever has its slot now.

    Frames are numbered within their stream (a *position*). A transition that starts at position p has, ``stack`` being
    the depth of an observation and e the first position of its episode::

        observation        max(e, p - stack + 1) .. p       padded at its beginning
        next observation   max(e, p - stack + 2) .. p + 1   where p + 1 may be the episode's last frame

    Its window is the union of both, so a window never crosses an episode: p + 1 was appended to the episode of p.
    Every transition is stored together with the frame that it led to, so each one that is held may be drawn.

    Per slot: stream (1 to 4 bytes), position (4) and the frames before it in its observation (1 or 2).
    """

    def __init__(self, capacity: int, num_streams: int, stack: int) -> None:
        self.capacity = capacity
        self.stack = stack
        self.oldest = 0
        self.next_index = 0
        self.newest_positions = np.full(num_streams, -1, np.int64)
        self.episode_starts = np.zeros(num_streams, np.int64)
        self.is_open = np.zeros(num_streams, np.bool_)
        self._stream = np.zeros(capacity, np.min_scalar_type(num_streams - 1))
        self._position = np.zeros(capacity, np.uint32)  # the low 32 bits
        self._history = np.zeros(capacity, np.min_scalar_type(stack - 1))

    def __len__(self) -> int:
        return self.next_index - self.oldest

    @property
    def num_streams(self) -> int:
        """How many streams feed the memory."""
        return len(self.is_open)

    @property
    def bytes_per_slot(self) -> int:
        """Bytes that a slot takes here."""
        return self._stream.itemsize + self._position.itemsize + self._history.itemsize

    def begin(self, streams: npt.NDArray[np.integer]) -> None:
        """Start an episode on each of ``streams``; one that was open ends here, and nothing crosses the seam."""
        self.newest_positions[streams] += 1
        self.episode_starts[streams] = self.newest_positions[streams]
        self.is_open[streams] = True

    def append(self, streams: npt.NDArray[np.integer], has_ended: npt.NDArray[np.bool_]) -> slice | Indices:
        """Add one transition to each of ``streams`` (distinct, open); gives their slots, in order.

        What they overwrite must have been let go by ``make_room`` before.
        """
        slots = self._slots(self.next_index, self.next_index + len(streams))
        starts = self.newest_positions[streams]
        self._stream[slots] = streams
        self._position[slots] = starts.astype(np.uint32)
        self._history[slots] = np.minimum(starts - self.episode_starts[streams], self.stack - 1)
        self.newest_positions[streams] += 1
        self.is_open[streams] = ~has_ended
        self.next_index += len(streams)
        return slots

    def make_room(self, num_transitions: int) -> list[tuple[int, int]]:
        """Let go of the oldest transitions so that ``num_transitions`` more fit.

        Gives pairs ``(stream, position)``: of that stream, no frame below that position is needed any more.
        """
        num_leaving = len(self) + num_transitions - self.capacity
        if num_leaving <= 0:
            return []
        leaving = np.arange(self.oldest, self.oldest + num_leaving)
        self.oldest += num_leaving
        streams = self._stream[leaving % self.capacity]
        # The next transition of the stream starts at least one position later, and looks back stack - 1 frames.
        unneeded_before = self._positions_of(leaving) + 2 - self.stack
        return list(zip(streams.tolist(), unneeded_before.tolist(), strict=True))

    def is_held(self, indices: Indices) -> npt.NDArray[np.bool_]:
        """Which of ``indices`` name a transition that is here and may be drawn."""
        return (indices >= self.oldest) & (indices < self.next_index)

    def windows(self, indices: Indices) -> Windows:
        """Where the frames of the held transitions ``indices`` lie: observation and next observation in one window.

        A window takes ``stack + 1`` places; ``counts`` of them are frames, the last being what the step led to.
        """
        slots = indices % self.capacity
        counts = self._history[slots].astype(np.int32) + 2
        return Windows(self._stream[slots].astype(np.int32), self._positions_of(indices) + 1, counts)

    def check(self) -> None:
        """Raise ``AssertionError`` with the broken rule if the timeline contradicts itself."""
        if not 0 <= self.oldest <= self.next_index or len(self) > self.capacity:
            raise AssertionError(f"{self.oldest=} {self.next_index=} do not span 0 to {self.capacity} transitions")
        held = np.arange(self.oldest, self.next_index)
        windows = self.windows(held)
        if (windows.last_positions > self.newest_positions[windows.streams]).any():
            raise AssertionError("a transition leads to a frame that was never stored")
        if (windows.counts < 2).any() or (windows.counts > self.stack + 1).any():
            raise AssertionError(f"a window holds {windows.counts.min()} to {windows.counts.max()} frames")
        places = set(zip(windows.streams.tolist(), windows.last_positions.tolist(), strict=True))
        if len(places) != len(held):
            raise AssertionError("two transitions lead to the same frame")

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Everything that a snapshot keeps, as arrays; the slots in the order of their indices."""
        slots = self._slots(self.oldest, self.next_index)
        return {
            "span": np.array([self.oldest, self.next_index]),
            "newest_positions": self.newest_positions,
            "episode_starts": self.episode_starts,
            "is_open": self.is_open,
            "stream": self._stream[slots],
            "position": self._position[slots],
            "history": self._history[slots],
        }

    def restore(self, state: dict[str, npt.NDArray[np.generic]]) -> None:
        """Take over what ``state`` gave; the timeline must have been built with the same arguments."""
        self.oldest, self.next_index = (int(index) for index in state["span"])
        self.newest_positions[:] = state["newest_positions"]
        self.episode_starts[:] = state["episode_starts"]
        self.is_open[:] = state["is_open"]
        slots = self._slots(self.oldest, self.next_index)
        self._stream[slots], self._position[slots] = state["stream"], state["position"]
        self._history[slots] = state["history"]

    def _slots(self, first: int, stop: int) -> slice | Indices:
        start = first % self.capacity
        if start + stop - first <= self.capacity:
            return slice(start, start + stop - first)
        return np.arange(first, stop) % self.capacity

    def _positions_of(self, indices: Indices) -> Indices:
        # Stored as their low 32 bits; a stream's held positions span less than 2**32, so the distance to its newest
        # position, taken modulo 2**32, is the true one.
        slots = indices % self.capacity
        newest = self.newest_positions[self._stream[slots]]
        return newest - (newest.astype(np.uint32) - self._position[slots]).astype(np.int64)
