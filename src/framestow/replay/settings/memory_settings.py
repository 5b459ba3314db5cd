"""Settings of a ``ReplayMemory``: checked once, saved with the memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, InitVar, asdict, dataclass, fields
from typing import Any

import numpy.typing as npt

from framestow.checks import one_of, real_number, whole_number
from framestow.errors import InvalidSettingsError, ObservationWarning
from framestow.frames.observation_spec import ObservationSpec, space_of, spec_from_state
from framestow.frames.stacking import STACK_PADDINGS, StackPadding
from framestow.interface import cached_property, plural, warn_caller
from framestow.replay.eviction.budget import SegmentNeeds
from framestow.replay.eviction.byte_amounts import format_bytes, parse_bytes
from framestow.replay.eviction.retention import (
    MIN_SEALED_SEGMENTS,
    Retention,
    check_retention,
    check_segment_frames,
    min_segment_frames,
    segment_frames,
)
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.observation_layout import (
    MAX_STACK,
    ONE_ENVIRONMENT_S,
    AxisChoice,
    ObservationLayout,
    StackLayout,
)
from framestow.replay.settings.step_fields import NO_EXTRAS, ExtrasSpec, Summed, slot_record
from framestow.storage.frame_storage import STORAGES, Storage, check_frames_per_segment, usual_frames_per_segment
from framestow.storage.tracks import Tracks

MAX_THREADS = 64
MAX_CAPACITY = 2**62  # transitions; indices are int64
MAX_N_STEP = 255  # steps
LARGE_FRAME_BYTES = 64  # from this size on, the charge of a frame covers the start of its episode (step_bytes)
START_BYTES = 8  # a frame: an episode of one step has two frames, and its start takes 8 bytes in a list that doubles
LONG_VECTOR = 4096  # numbers, from which on a vector of floats is warned of


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """Settings of a ``ReplayMemory``, named as its arguments; raises ``InvalidSettingsError`` if one is wrong.

    ``of_arguments`` takes them as a caller gives them, and ``arguments`` returns them so. A new setting is a field
    here, and an argument of ``ReplayMemory`` and ``ShardedReplay``.
    """

    capacity: int
    frame: ObservationSpec
    action: ActionSpec
    stack: int
    num_envs: int
    discount: float
    storage: Storage
    threads: int = 1
    stack_padding: StackPadding = "first_frame"  # of saves without this setting, too
    labels: tuple[str, ...] = ()  # one an environment, or none
    retention: Retention = "fifo"
    max_bytes: int | None = None
    frames_per_segment: int | None = None  # replaced by a number in __post_init__
    extras: ExtrasSpec = NO_EXTRAS
    n_step: int = 1  # of saves without this setting, too
    stacks: tuple[StackLayout | None, ...] | None = None
    """Stacks by array, of a memory built with the space of whole observations; ``None`` of one built with ``stack``."""
    is_on_disk: InitVar[bool] = False
    """Whether the memory will live in a directory: its segments are shorter under a budget."""

    @classmethod
    def of_arguments(
        cls,
        observation_space: Any,
        action_space: Any,
        *,
        stack: int | None,
        stack_axis: AxisChoice | Mapping[str, AxisChoice] | None,
        num_envs: int,
        label: str | Sequence[str],
        max_bytes: int | str | None,
        extras: Mapping[str, npt.DTypeLike | Summed] | ExtrasSpec | None,
        **same: Any,
    ) -> MemorySettings:
        """Return the settings that arguments of ``ReplayMemory`` mean; those in ``same`` are fields of this class."""
        layout = ObservationLayout.of_arguments(observation_space, stack, stack_axis)
        settings = cls(
            frame=layout.frame_space,
            action=ActionSpec.from_space(action_space),
            stack=layout.depth,
            stacks=None if layout.takes_frames else layout.stacks,
            num_envs=num_envs,
            labels=labels_of(label, num_envs),
            max_bytes=None if max_bytes is None else parse_bytes(max_bytes),
            extras=ExtrasSpec.from_declared(extras),
            **same,
        )
        if not isinstance(action_space, ActionSpec):  # that of a saved memory
            if stack_axis is None:
                settings._refuse_vector_spaces(observation_space, action_space)
            settings._warn_of_long_vectors()
        return settings

    def __post_init__(self, is_on_disk: bool) -> None:
        self._check_numbers()
        if self.capacity < self.num_envs:
            raise InvalidSettingsError(
                f"capacity is {self.capacity}: one transition of each of {plural(self.num_envs, 'environment')} must "
                "fit; "
                f"raise it to {self.num_envs}"
            )
        one_of("stack_padding", self.stack_padding, STACK_PADDINGS, "take 'first_frame'")
        if self.capacity < self.n_step * self.num_envs:
            raise InvalidSettingsError(
                f"capacity is {self.capacity}: {plural(self.n_step, 'step')} of each of "
                f"{plural(self.num_envs, 'environment')} must "
                f"fit to complete a return of {self.n_step} rewards; raise it to {self.n_step * self.num_envs}"
            )
        if self.frames_per_segment is not None:
            check_segment_frames(self.retention, self.frames_per_segment, self.stack)
        check_retention(self.retention, self.capacity, self.num_envs, self.stack, self.frames_per_segment)
        if self.labels and len(self.labels) != self.num_envs:
            raise InvalidSettingsError(
                f"label has {plural(len(self.labels), 'name')}: the memory has "
                f"{plural(self.num_envs, 'environment')}; give one name for "
                "all, or one for each"
            )

        object.__setattr__(self, "frames_per_segment", self._frames_per_segment(is_on_disk))

    def _refuse_vector_spaces(self, observation_space: Any, action_space: Any) -> None:
        """Raise ``InvalidSettingsError`` if both spaces are those of a vector environment of ``num_envs``."""
        arrays, action = (self.frame if self.layout.takes_frames else self.layout.spec).arrays, self.action
        is_vector = action.shape == (self.num_envs,) and isinstance(action.high, tuple) and len(set(action.ranges)) == 1
        if is_vector and self.num_envs > 1 and all(one.observed_shape[:1] == (self.num_envs,) for one in arrays):
            raise InvalidSettingsError(
                f"observation_space is {observation_space!r} and action_space {action_space!r}: they are those of all "
                f"{plural(self.num_envs, 'environment')} together; {ONE_ENVIRONMENT_S} (or give stack_axis= too, if "
                "one "
                "environment has these spaces)"
            )

    def _warn_of_long_vectors(self) -> None:
        """Warn of each long vector of floats: most are pictures, which could be packed."""
        for array in self.frame.arrays:
            frame, (size, *more) = array.frame, array.frame.shape
            if self.storage == "packed" and not more and frame.dtype.kind == "f" and size >= LONG_VECTOR:
                full_bytes = min(self.capacity * frame.nbytes, self.max_bytes or math.inf)
                side = math.isqrt(size)
                shape = (side, side) if side * side == size else "(height, width)"
                warn_caller(
                    f"observation_space{array.subscript} is a vector of {size:,} {frame.dtype}: vectors are stored "
                    f"uncompressed, {format_bytes(frame.nbytes)} a step, and {format_bytes(full_bytes)} in a full "
                    "memory. A picture of the same numbers takes about a twentieth. If it is one, give its space and "
                    f'observations the shape {shape}; otherwise storage="raw" says that you mean it',
                    ObservationWarning,
                )

    def _check_numbers(self) -> None:
        """Convert each number to ``int`` or ``float``; raise ``InvalidSettingsError`` if one is out of range."""
        whole = (
            ("num_envs", self.num_envs, 1, math.inf, "a memory has at least 1 environment"),
            ("capacity", self.capacity, 1, MAX_CAPACITY, "a memory stores 1 to 2**62 transitions"),
            ("stack", self.stack, 1, MAX_STACK, f"an observation has 1 to {MAX_STACK} frames"),
            ("n_step", self.n_step, 1, MAX_N_STEP, f"a return has 1 to {MAX_N_STEP} rewards"),
        )
        for name, value, least, most, rule in whole:
            object.__setattr__(self, name, whole_number(name, value, least, most, rule=rule))
        object.__setattr__(self, "threads", check_unpacking(self.storage, self.threads))
        discount = real_number("discount", self.discount, 0, 1, rule="it must be from 0 to 1")
        object.__setattr__(self, "discount", discount)
        if self.frames_per_segment is not None:
            frames = check_frames_per_segment(self.frame, self.frames_per_segment, self.layout.depths)
            object.__setattr__(self, "frames_per_segment", frames)

    @property
    def file_copies(self) -> int:
        """Most copies of the frames in RAM and files, if the memory lives in a directory.

        Raw frames stay in RAM too. With random retention, a store rewrites a file only when half of it is evicted.
        """
        return 1 + (self.storage == "raw") + (self.retention == "random")

    @property
    def step_bytes(self) -> int:
        """Bytes in RAM that a frame takes besides its pixels: a slot, and the start of its episode if not covered.

        In blocks every frame has a slot. In a ring the last frame of an episode has none, so its charge covers the
        start. Frames of at least 64 bytes (measured) cover the start too: their estimate is above the real size.
        """
        slot_bytes = slot_record(self.num_envs, self.action, self.extras).itemsize
        is_covered = self.retention == "fifo" or self.frame.nbytes >= LARGE_FRAME_BYTES
        return slot_bytes if is_covered else slot_bytes + START_BYTES

    def _frames_per_segment(self, is_on_disk: bool) -> int:
        """Return the given number, or the one that compresses best; raise if the budget is too small for it."""
        frames, max_bytes = self.frames_per_segment, self.max_bytes
        needs = SegmentNeeds(
            self.frame,
            self.num_envs,
            # Each observation may be stored whole, unless the memory takes single frames.
            (1,) * len(self.layout.depths) if self.layout.takes_frames else self.layout.depths,
            self.stack,
            num_sealed=MIN_SEALED_SEGMENTS if self.retention == "random" else 1,
            fewest_frames=min_segment_frames(self.stack),
            step_bytes=self.step_bytes,
            file_copies=self.file_copies if is_on_disk else 0,
        )
        if frames is None:
            usual = usual_frames_per_segment(self.frame, self.layout.depths)
            usual = segment_frames(self.retention, self.capacity, self.num_envs, self.stack, usual)
            return usual if max_bytes is None else needs.frames_within(max_bytes, usual)
        if max_bytes is not None:
            needs.check(max_bytes, frames)
        return frames

    @cached_property
    def layout(self) -> ObservationLayout:
        """How observations consist of frames."""
        if self.stacks is None:
            return ObservationLayout.of_frames(self.frame, self.stack)
        return ObservationLayout.of_stacks(self.frame, self.stacks)

    @cached_property
    def tracks(self) -> Tracks:
        """The tracks of frames: one for each array of each environment."""
        return Tracks(len(self.frame.frame_specs), self.num_envs)

    def state(self) -> dict[str, Any]:
        """Return the settings as values for JSON, without ``threads``, which each load chooses."""
        state = asdict(self) | {"frame": self.frame.state()} | self.extras.state()
        del state["threads"]
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> MemorySettings:
        """Return the settings that ``state`` was called on."""
        return cls(**_values_of(state))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a ``ReplayMemory`` with these settings, without ``threads``."""
        return self.arguments_of(self.state())

    def described(self) -> dict[str, Any]:
        """Return the arguments of a ``ReplayMemory`` by name, as a caller may give them, without ``threads``."""
        layout, values = self.layout, self.arguments()
        values |= {"action_space": self.action.space, "extras": self.extras.description}
        if layout.takes_frames:
            return values | {"observation_space": space_of(self.frame), "stack": self.stack}
        return values | {"observation_space": space_of(layout.spec), "stack_axis": layout.stack_axis}

    @staticmethod
    def arguments_of(state: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a ``ReplayMemory`` with the settings that ``state`` returned."""
        values = _values_of(state)
        frame, stack, stacks = values.pop("frame"), values.pop("stack"), values.pop("stacks", None)
        if stacks is None:
            values |= {"observation_space": frame, "stack": stack}
        else:
            values |= {"observation_space": ObservationLayout.of_stacks(frame, stacks).spec, "stack_axis": stacks}
        return values | {"action_space": values.pop("action"), "label": values.pop("labels", "")}


def _values_of(state: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that ``state`` returned; raise ``ValueError`` for unknown and for missing ones.

    Fields with a default may be missing: they came later than the oldest saves.
    """
    known = fields(MemorySettings)
    values = {name: value for name, value in state.items() if name != "summed"}  # which is part of the extras
    required = {each.name for each in known if each.default is MISSING}
    wrong = (values.keys() - {each.name for each in known}) | (required - values.keys())
    if wrong:
        raise ValueError(f"{', '.join(sorted(wrong))} is unknown or missing")
    values |= {"frame": spec_from_state(state["frame"]), "action": ActionSpec.from_state(state["action"])}
    values["extras"] = ExtrasSpec.from_state(state)
    if state.get("stacks") is not None:
        values["stacks"] = tuple(each and StackLayout(*each) for each in state["stacks"])
    if "labels" in state:
        values["labels"] = tuple(state["labels"])
    return values


def check_unpacking(storage: Any, threads: Any) -> int:
    """Return ``threads`` as an ``int``; raise ``InvalidSettingsError`` unless it and ``storage`` can work."""
    one_of("storage", storage, STORAGES, "take 'packed'")
    return whole_number("threads", threads, 1, MAX_THREADS, rule=f"1 to {MAX_THREADS} threads unpack a batch")


def labels_of(label: str | Sequence[str], num_envs: int) -> tuple[str, ...]:
    """Return one name for each environment, from one for all or one for each; none from an empty name.

    >>> labels_of("Breakout", 2), labels_of(["Pong", "Qbert"], 2), labels_of("", 2)
    (('Breakout', 'Breakout'), ('Pong', 'Qbert'), ())
    """
    num_envs = whole_number("num_envs", num_envs, 1, rule="a memory has at least 1 environment")
    if isinstance(label, str):
        return (label,) * num_envs if label else ()
    if not isinstance(label, Sequence) or not all(isinstance(name, str) for name in label):
        raise InvalidSettingsError(
            f"label is {label!r}: it must be a string or a list of strings; give one name, or one for each environment"
        )
    return tuple(label)
