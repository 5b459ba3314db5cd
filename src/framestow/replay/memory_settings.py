"""What a memory is built with, checked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from framestow.argument_checks import one_of, real_number, whole_number
from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import AnySpec, spec_from_state
from framestow.frames.stacking import STACK_PADDINGS, StackPadding
from framestow.replay.action_spec import ActionSpec
from framestow.replay.byte_amounts import parse_bytes
from framestow.replay.eviction import (
    MIN_SEALED_SEGMENTS,
    Retention,
    SegmentNeeds,
    check_retention,
    check_segment_frames,
    min_segment_frames,
    segment_frames,
)
from framestow.replay.step_fields import NO_EXTRAS, ExtrasSpec
from framestow.storage.storages import SEGMENT_RULE, STORAGES, usual_frames_per_segment

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
    num_envs: int
    discount: float
    storage: str
    threads: int = 1
    stack_padding: StackPadding = "first_frame"  # what a memory saved before it could be chosen was padded by
    labels: tuple[str, ...] = ()  # one a stream; none where nobody said
    retention: Retention = "fifo"
    max_bytes: int | None = None
    frames_per_segment: int | None = None  # chosen here where nobody said
    extras: ExtrasSpec = NO_EXTRAS
    n_step: int = 1  # what a memory saved before it could be chosen had

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.capacity < self.num_envs:
            raise InvalidSettingsError(
                f"capacity is {self.capacity}: it must hold one transition of each of the {self.num_envs} "
                "environments; raise it"
            )
        one_of("stack_padding", self.stack_padding, STACK_PADDINGS, "take 'first_frame'")
        if self.capacity < self.n_step * self.num_envs:
            raise InvalidSettingsError(
                f"capacity is {self.capacity}: {self.n_step} steps of each of the {self.num_envs} environments must "
                f"fit, or no return of {self.n_step} rewards is ever whole; raise it to {self.n_step * self.num_envs}"
            )
        one_of("storage", self.storage, tuple(STORAGES), "take 'packed'")
        check_retention(self.retention, self.capacity, self.num_envs, self.stack)
        if self.labels and len(self.labels) != self.num_envs:
            raise InvalidSettingsError(
                f"label has {len(self.labels)} names: the memory has {self.num_envs} environments; give one name for "
                "all or one for each"
            )

        object.__setattr__(self, "frames_per_segment", self._frames_per_segment())

    def _check_numbers(self) -> None:
        """Let each number be an ``int`` or ``float`` in its range; ``InvalidSettingsError`` where one is not."""
        whole = (
            ("num_envs", self.num_envs, 1, math.inf, "a memory has at least 1 environment"),
            ("capacity", self.capacity, 1, math.inf, "a memory holds at least 1 transition"),
            ("stack", self.stack, 1, MAX_STACK, f"an observation has 1 to {MAX_STACK} frames"),
            ("n_step", self.n_step, 1, MAX_N_STEP, f"a return has 1 to {MAX_N_STEP} rewards"),
            ("threads", self.threads, 1, MAX_THREADS, f"1 to {MAX_THREADS} threads unpack a batch"),
        )
        for name, value, least, most, rule in whole:
            object.__setattr__(self, name, whole_number(name, value, least, most, rule=rule))
        object.__setattr__(self, "discount", real_number("discount", self.discount, 0, 1, rule="γ lies in 0 to 1"))
        if self.frames_per_segment is not None:
            frames = whole_number("frames_per_segment", self.frames_per_segment, 1, rule=SEGMENT_RULE)
            object.__setattr__(self, "frames_per_segment", frames)

    def _frames_per_segment(self) -> int:
        """As many as pack best, or as retention and budget allow; raise where the budget cannot hold such segments."""
        frames, is_random = self.frames_per_segment, self.retention == "random"
        if frames is not None:
            check_segment_frames(self.retention, frames, self.stack)
        usual = usual_frames_per_segment(self.frame)
        usual = segment_frames(self.retention, self.capacity, self.num_envs, self.stack, usual)
        if self.max_bytes is None:
            return usual if frames is None else frames
        num_sealed = MIN_SEALED_SEGMENTS if is_random else 1
        fewest, extra_bytes = min_segment_frames(self.stack), self.extras.dtype.itemsize
        needs = SegmentNeeds(self.frame, self.num_envs, self.stack, num_sealed, fewest, extra_bytes)
        if frames is None:
            return needs.frames_within(self.max_bytes, usual)
        needs.check(self.max_bytes, frames)
        return frames

    @property
    def num_frame_streams(self) -> int:
        """How many streams of segments there are: one for each leaf of each stream, as ``KeyedStorage`` counts them."""
        return self.num_envs * len(self.frame.leaf_frames)

    def held_to(self, max_bytes: int | str | None) -> MemorySettings:
        """The same with another budget, with this one where it is ``None``."""
        return self if max_bytes is None else replace(self, max_bytes=parse_bytes(max_bytes))

    def state(self) -> dict[str, Any]:
        """What a snapshot keeps: JSON-able values. How many threads unpack is the affair of whoever loads it."""
        state = asdict(self) | {"frame": self.frame.state(), "extras": self.extras.state()}
        del state["threads"]
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> MemorySettings:
        """Read back what ``state`` gave."""
        frame = spec_from_state(state["frame"])
        extras = ExtrasSpec.from_state(state.get("extras", {}))
        given = {"frame": frame, "action": ActionSpec(**state["action"]), "extras": extras}
        return cls(**state | given | {"labels": tuple(state.get("labels", ()))})

    def arguments(self) -> dict[str, Any]:
        """The arguments of a ``ReplayMemory`` with these settings; how many threads unpack is not among them."""
        given = {"observation_space": self.frame, "action_space": self.action, "label": self.labels}
        names = (
            "capacity",
            "stack",
            "stack_padding",
            "num_envs",
            "discount",
            "storage",
            "retention",
            "max_bytes",
            "frames_per_segment",
            "extras",
            "n_step",
        )
        return given | {name: getattr(self, name) for name in names}


def labels_of(label: str | Sequence[str], num_envs: int) -> tuple[str, ...]:
    """One name a stream, from one for all of them or one for each; none from an empty one.

    >>> labels_of("Breakout", 2), labels_of(["Pong", "Qbert"], 2), labels_of("", 2)
    (('Breakout', 'Breakout'), ('Pong', 'Qbert'), ())
    """
    num_envs = whole_number("num_envs", num_envs, 1, rule="a memory has at least 1 environment")
    if isinstance(label, str):
        return (label,) * num_envs if label else ()
    if not isinstance(label, Sequence) or not all(isinstance(name, str) for name in label):
        raise InvalidSettingsError(f"label is {label!r}: it must be a name, or a list of names, one for each stream")
    return tuple(label)
