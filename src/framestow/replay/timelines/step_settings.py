"""What a timeline keeps steps by: the part of a memory's settings that has to do with steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.action_spec import ActionSpec
from framestow.replay.columns import NO_EXTRAS, ExtrasSpec, slot_record


@dataclass(frozen=True)
class StepSettings:
    """Settings of a timeline, as ``ReplayMemory`` names them; its native half reads them by these names."""

    capacity: int
    num_streams: int
    stack: int
    frame: FrameSpec
    action: ActionSpec
    discount: float = 0.99
    segment_frames: int = 1
    """Frames that a storage lets go of at once."""
    columns: ExtrasSpec = NO_EXTRAS
    n_step: int = 1
    """Rewards that a transition's return has, unless its episode ends before."""

    @property
    def actions_like(self) -> npt.NDArray[Any]:
        """No actions, in the shape and dtype of those that are kept."""
        return np.empty((0, *self.action.shape), self.action.stored_dtype)

    @property
    def frames_like(self) -> npt.NDArray[Any]:
        """No frames, in the shape and dtype of those that come with a step."""
        return np.empty((0, *self.frame.shape), self.frame.dtype)

    @property
    def action_ranges(self) -> list[tuple[int, int]]:
        """Inclusive bounds of each element of an action, where actions are counted."""
        return self.action.ranges

    @property
    def columns_like(self) -> dict[str, npt.NDArray[Any]]:
        """No values of each extra column, by name, in the order in which they lie in a slot."""
        return self.columns.empty()

    @property
    def record(self) -> np.dtype[Any]:
        """What a slot keeps of a step."""
        return slot_record(self.num_streams, self.action, self.columns)


class StreamArrays:
    """How far each stream has come: arrays with an entry a stream, which Python and the native half both work on."""

    def __init__(self, num_streams: int) -> None:
        self.all_streams = np.arange(num_streams, dtype=np.int32)
        self.newest_positions = np.full(num_streams, -1, np.int64)
        self.episode_starts = np.zeros(num_streams, np.int64)
        self.unreadable_before = np.zeros(num_streams, np.int64)
        self.is_open = np.zeros(num_streams, np.bool_)

    @property
    def num_streams(self) -> int:
        """How many streams feed the memory."""
        return len(self.is_open)
