"""Streams, episodes and slots: where each transition lies, and which may be drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow._core import StepRing
from framestow.errors import DamagedDataError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.action_spec import ActionSpec
from framestow.replay.columns import slot_record

Indices = npt.NDArray[np.int64]

OF_TIMELINE, OF_COLUMNS = ("stream", "position", "history"), ("action", "reward", "flags")  # names in a snapshot


class Windows(NamedTuple):
    """Where the frames of some transitions lie: what a storage needs to hand them out."""

    streams: npt.NDArray[np.int32]
    last_positions: Indices
    counts: npt.NDArray[np.int32]


class Timeline(StepRing):
    """Places of the newest ``capacity`` transitions over all streams, and what each carries besides frames.

    Transitions are numbered in the order in which they were appended, for ever: that number is a transition's
    *index*, and ``index % capacity`` is its *slot*. Appending to a full memory overwrites the oldest transition, of
    whatever stream, so exactly ``capacity`` are kept. An index never comes back: one that is below ``oldest`` names a
    transition that has gone, whoever has its slot now.

    Frames are numbered within their stream (a *position*). A transition that starts at position p has, ``stack`` being
    the depth of an observation and e the first position of its episode::

        observation        max(e, p - stack + 1) .. p       padded at its beginning
        next observation   max(e, p - stack + 2) .. p + 1   where p + 1 may be the episode's last frame

    Its window is the union of both, so a window never crosses an episode: p + 1 was appended to the episode of p.
    Every transition is stored together with the frame that it led to, so each one that is held, ``oldest`` up to but
    not including ``next_index``, may be drawn.

    A step is taken in three calls, so that nothing has changed when it is refused: ``stage`` checks it whole,
    ``make_room`` says which frames are needed no more, ``append_staged`` gives it its slots. The arrays are NumPy's
    and are made here; the native ``StepRing`` does the work on them (docs/decisions.md has what that saves).
    """

    def __init__(
        self,
        capacity: int,
        num_streams: int,
        stack: int,
        frame: FrameSpec,
        action: ActionSpec,
        discount: float = 0.99,
        segment_frames: int = 1,
    ) -> None:
        self.capacity = capacity
        self.stack = stack
        self.all_streams = np.arange(num_streams, dtype=np.int32)
        self.newest_positions = np.full(num_streams, -1, np.int64)
        self.episode_starts = np.zeros(num_streams, np.int64)
        self.is_open = np.zeros(num_streams, np.bool_)
        self._slots = np.zeros(capacity, slot_record(num_streams, action))
        super().__init__(
            slots=self._slots.view(np.uint8).reshape(capacity, -1),
            newest_positions=self.newest_positions,
            episode_starts=self.episode_starts,
            is_open=self.is_open,
            actions_like=np.empty((0, *action.shape), action.stored_dtype),
            frames_like=np.empty((0, *frame.shape), frame.dtype),
            action_range=None if action.low is None or action.high is None else (action.low, action.high),
            stack=stack,
            segment_frames=segment_frames,
            discount=discount,
        )

    def __len__(self) -> int:
        return self.next_index - self.oldest

    @property
    def num_streams(self) -> int:
        """How many streams feed the memory."""
        return len(self.is_open)

    @property
    def bytes_per_slot(self) -> int:
        """Bytes that a slot takes."""
        return self._slots.itemsize

    def is_held(self, indices: Indices) -> npt.NDArray[np.bool_]:
        """Which of ``indices`` name a transition that is here and may be drawn."""
        return (indices >= self.oldest) & (indices < self.next_index)

    def windows(self, indices: Indices) -> Windows:
        """Where the frames of the held transitions ``indices`` lie: observation and next observation in one window.

        A window takes ``stack + 1`` places; ``counts`` of them are frames, the last being what the step led to.
        """
        windows, _ = self.resolve(indices)
        return Windows(*windows)

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

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that a snapshot keeps, as arrays; the slots in the order of their indices."""
        slots = self._slots[np.arange(self.oldest, self.next_index) % self.capacity]
        arrays: dict[str, npt.NDArray[Any]] = {
            "timeline.span": np.array([self.oldest, self.next_index]),
            "timeline.newest_positions": self.newest_positions,
            "timeline.episode_starts": self.episode_starts,
            "timeline.is_open": self.is_open,
        }
        arrays |= {f"timeline.{name}": slots[name] for name in OF_TIMELINE}
        return arrays | {f"columns.{name}": slots[name] for name in OF_COLUMNS}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take over what ``state`` gave; the timeline must have been built with the same arguments.

        Raises ``DamagedDataError`` for what cannot have come from ``state``.
        """
        oldest, next_index = (int(index) for index in arrays["timeline.span"])
        streams = arrays["timeline.stream"]
        fits = oldest >= 0 and next_index - oldest == len(streams) <= self.capacity
        if not fits or (streams >= self.num_streams).any():
            raise DamagedDataError(
                f"transitions {oldest} to {next_index} of {len(streams)} slots do not fit a memory of {self.capacity} "
                f"transitions and {self.num_streams} streams; take an older save"
            )
        self.newest_positions[:] = arrays["timeline.newest_positions"]
        self.episode_starts[:] = arrays["timeline.episode_starts"]
        self.is_open[:] = arrays["timeline.is_open"]
        slots = np.arange(oldest, next_index) % self.capacity
        for group, names in (("timeline", OF_TIMELINE), ("columns", OF_COLUMNS)):
            for name in names:
                self._slots[name][slots] = arrays[f"{group}.{name}"]
        self.restore_span(oldest, next_index)
