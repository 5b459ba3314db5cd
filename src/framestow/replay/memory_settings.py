"""What a memory is built with, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import AnySpec, spec_from_state
from framestow.frames.stacking import STACK_PADDINGS, StackPadding
from framestow.replay.action_spec import ActionSpec
from framestow.replay.columns import NO_COLUMNS, ColumnsSpec
from framestow.replay.keeping.budget import SegmentNeeds
from framestow.replay.keeping.byte_amounts import parse_bytes
from framestow.replay.keeping.retention import (
    MIN_SEALED_SEGMENTS,
    Retention,
    check_retention,
    min_segment_frames,
    segment_frames,
)
from framestow.storage.storages import STORAGES, usual_frames_per_segment

MAX_STACK = 256  # frames; the history column keeps a byte a slot
MAX_THREADS = 64
MAX_N_STEP = 255  # steps


@dataclass(frozen=True)
class MemorySettings:
    """Settings of a ``ReplayMemory``, as its docstring names them; ``InvalidSettingsError`` where one is wrong."""

    capacity: int
    frame: AnySpec
    action: ActionSpec
    stack: int
    num_streams: int
    discount: float
    storage: str
    threads: int = 1
    stack_padding: StackPadding = "first_frame"  # what a memory saved before it could be chosen was padded by
    sources: tuple[str, ...] = ()  # one a stream; none where nobody said
    retention: Retention = "fifo"
    max_bytes: int | None = None
    frames_per_segment: int | None = None  # chosen here where nobody said
    columns: ColumnsSpec = NO_COLUMNS
    n_step: int = 1  # what a memory saved before it could be chosen had

    def __post_init__(self) -> None:
        if self.num_streams < 1:
            raise InvalidSettingsError(f"num_streams is {self.num_streams}: a memory is fed by at least 1 stream")
        if self.capacity < self.num_streams:
            raise InvalidSettingsError(
                f"capacity is {self.capacity}: it must hold one transition of each of the {self.num_streams} streams; "
                "raise it"
            )
        if not 1 <= self.stack <= MAX_STACK:
            raise InvalidSettingsError(f"stack is {self.stack}: an observation has 1 to {MAX_STACK} frames")
        if self.stack_padding not in STACK_PADDINGS:
            raise InvalidSettingsError(
                f"stack_padding is {self.stack_padding!r}: it must be one of {', '.join(map(repr, STACK_PADDINGS))}; "
                "take 'first_frame'"
            )
        if not 0.0 <= self.discount <= 1.0:
            raise InvalidSettingsError(f"discount is {self.discount}: γ lies in 0 to 1")
        if not 1 <= self.n_step <= MAX_N_STEP:
            raise InvalidSettingsError(f"n_step is {self.n_step}: a return has 1 to {MAX_N_STEP} rewards")
        if self.capacity < self.n_step * self.num_streams:
            raise InvalidSettingsError(
                f"capacity is {self.capacity}: {self.n_step} steps of each of the {self.num_streams} streams must fit, "
                f"or no return of {self.n_step} rewards is ever whole; raise it to {self.n_step * self.num_streams}"
            )
        if self.storage not in STORAGES:
            raise InvalidSettingsError(
                f"storage is {self.storage!r}: it must be one of {', '.join(map(repr, STORAGES))}; take 'packed'"
            )
        if not 1 <= self.threads <= MAX_THREADS:
            raise InvalidSettingsError(f"threads is {self.threads}: 1 to {MAX_THREADS} threads unpack a batch")
        check_retention(self.retention, self.capacity, self.num_streams, self.stack)
        if self.sources and len(self.sources) != self.num_streams:
            raise InvalidSettingsError(
                f"source has {len(self.sources)} names: the memory has {self.num_streams} streams; give one name for "
                "all or one for each"
            )

        object.__setattr__(self, "frames_per_segment", self._frames_per_segment())

    def _frames_per_segment(self) -> int:
        """As many as pack best, or as retention and budget allow; raise where the budget cannot hold such segments."""
        frames, is_random = self.frames_per_segment, self.retention == "random"
        if frames is not None and frames < 1:
            raise InvalidSettingsError(f"frames_per_segment is {frames}: a segment has at least 1 frame")
        usual = usual_frames_per_segment(self.frame)
        usual = segment_frames(self.retention, self.capacity, self.num_streams, self.stack, usual)
        if self.max_bytes is None:
            return usual if frames is None else frames
        num_sealed = MIN_SEALED_SEGMENTS if is_random else 1
        fewest, column_bytes = min_segment_frames(self.stack), self.columns.dtype.itemsize
        needs = SegmentNeeds(self.frame, self.num_streams, self.stack, num_sealed, fewest, column_bytes)
        if frames is None:
            return needs.frames_within(self.max_bytes, usual)
        needs.check(self.max_bytes, frames)
        return frames

    @property
    def num_frame_streams(self) -> int:
        """How many streams of segments there are: one for each leaf of each stream, as ``KeyedStorage`` counts them."""
        return self.num_streams * len(self.frame.leaf_frames)

    def held_to(self, max_bytes: int | str | None) -> MemorySettings:
        """The same with another budget, with this one where it is ``None``."""
        return self if max_bytes is None else replace(self, max_bytes=parse_bytes(max_bytes))

    def state(self) -> dict[str, Any]:
        """What a snapshot keeps: JSON-able values. How many threads unpack is the affair of whoever loads it."""
        state = asdict(self) | {"frame": self.frame.state(), "columns": self.columns.state()}
        del state["threads"]
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> MemorySettings:
        """Read back what ``state`` gave."""
        frame = spec_from_state(state["frame"])
        columns = ColumnsSpec.from_state(state.get("columns", {}))
        given = {"frame": frame, "action": ActionSpec(**state["action"]), "columns": columns}
        return cls(**state | given | {"sources": tuple(state.get("sources", ()))})

    def arguments(self) -> dict[str, Any]:
        """The arguments of a ``ReplayMemory`` with these settings; how many threads unpack is not among them."""
        given = {"observation_space": self.frame, "action_space": self.action, "source": self.sources}
        names = (
            "capacity",
            "stack",
            "stack_padding",
            "num_streams",
            "discount",
            "storage",
            "retention",
            "max_bytes",
            "frames_per_segment",
            "columns",
            "n_step",
        )
        return given | {name: getattr(self, name) for name in names}


def sources_of(source: str | Sequence[str], num_streams: int) -> tuple[str, ...]:
    """One name a stream, from one for all of them or one for each; none from an empty one.

    >>> sources_of("Breakout", 2), sources_of(["Pong", "Qbert"], 2), sources_of("", 2)
    (('Breakout', 'Breakout'), ('Pong', 'Qbert'), ())
    """
    if isinstance(source, str):
        return (source,) * num_streams if source else ()
    return tuple(source)
