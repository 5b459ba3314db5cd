"""What the step stores share in Python: their settings, their saved arrays, and invariant checks for tests.

A step store knows actions, rewards, flags and the positions of frames; the storage has the frames themselves. Native
code does the work (``_core/step_store.hpp`` defines the terms); ``RingSteps`` and ``BlockSteps`` save and restore it. A
step store saves all steps but the newest in *sealed blocks*. A save writes each once, by its key, and again as the next
version if rewards or extras of its steps were set. ``state`` returns the rest, which is small, for every commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, StepStore
from framestow.errors import DamagedDataError, NothingToSampleError
from framestow.interface import plural
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.step_fields import NO_EXTRAS, ExtrasSpec, slot_record


def unreadable(steps: StepStore, index: int, kind: str = "step") -> Exception:
    """Return the error of a call that cannot read a step or transition."""
    if index in steps.pending:
        why = "pending: its return lacks later steps; append them, or end the episode with begin"
    elif index in steps.lost:
        why = "lost: it was forgotten, or what it needs was forgotten, evicted or damaged; omit it"
    else:
        why = "not stored: it was evicted or never appended; take indices from sampleable_indices()"
    return NothingToSampleError(f"{kind} {index} is {why}")


@dataclass(frozen=True)
class StepSettings:
    """Settings of a step store; the native classes read these attributes by name."""

    capacity: int
    num_envs: int
    stack: int
    action: ActionSpec
    discount: float = 0.99
    segment_frames: int = 1
    """Frames that the storage evicts at a time."""
    extras: ExtrasSpec = NO_EXTRAS
    n_step: int = 1
    """Number of rewards in a transition's return, unless its episode ends before."""
    releases_pages: bool = False
    """Whether a ring returns the memory of evicted steps to the system, for a memory with a budget."""

    @property
    def actions_like(self) -> npt.NDArray[Any]:
        """An empty array with the shape and dtype of stored actions."""
        return np.empty((0, *self.action.shape), self.action.stored_dtype)

    @property
    def action_ranges(self) -> list[tuple[int, int]]:
        """Inclusive bounds of each element of an integer action."""
        return self.action.ranges

    @property
    def extras_like(self) -> dict[str, npt.NDArray[Any]]:
        """An empty array for each extra, by name, in the order of their bytes in a slot."""
        return self.extras.empty()

    @property
    def record(self) -> np.dtype[Any]:
        """Structured dtype of one slot."""
        return slot_record(self.num_envs, self.action, self.extras)


Indices = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]

Slots = npt.NDArray[Any]  # of dtype slot_record

StepKey = tuple[int, int]  # identifies a block of steps in a store: environment and number
ReadSteps = Callable[[StepKey], "bytes | None"]  # returns a block's bytes, or None if it is missing or damaged
FrameRange = tuple[int, int, int]  # environment, first position, position after the last

MOST_SLOTS_CHECKED = 2**20  # larger step stores are not checked slot by slot

ENV_FIELDS = {
    "steps.newest_positions": "newest_positions",
    "steps.episode_starts": "episode_starts",
    "steps.run_starts": "stretch_starts",
    "steps.is_open": "is_open",
    "steps.unreadable_before": "unreadable_before",
}
"""Arrays with one entry per environment, by name in a store, in the order of ``StepStore.restore_envs``."""


POSITION_RANGE = 2**32  # slots store the low 32 bits of a position


def spans_of(indices: Indices) -> Indices:
    """Return the spans of consecutive numbers in ascending ``indices``: first number and length, ``(spans, 2)``.

    >>> spans_of(np.array([3, 4, 5, 9])).tolist()
    [[3, 3], [9, 1]]
    """
    starts = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
    return np.stack([indices[starts], np.diff(starts, append=len(indices))], axis=1)


def steps_in_pieces(steps: StepStore, most: int) -> Iterator[Indices]:
    """Yield the indices of all stored steps, ``most`` at a time: sampleable ones first, then pending ones."""
    for start in range(0, len(steps), most):
        yield steps.sampleable_at(np.arange(start, min(start + most, len(steps))))
    pending = steps.pending
    for start in range(0, len(pending), most):
        yield pending[start : start + most]


def check_windows(steps: StepStore, sampleable_spans: Indices, stack: int) -> None:
    """Raise ``AssertionError`` if indices, slots or windows of the sampleable transitions contradict each other."""
    sampleable = steps.sampleable_indices()
    if len(sampleable) != len(steps) or (np.diff(sampleable) <= 0).any():
        raise AssertionError(f"{len(steps)} transitions are sampleable, but there are {len(sampleable)} indices")
    slots = steps.slots_of(sampleable)
    if len(np.unique(slots)) != len(sampleable) or (steps.indices_in(slots) != sampleable).any():
        raise AssertionError("two transitions share a slot, or slots and indices do not agree")
    everywhere = steps.indices_in(np.arange(min(steps.num_slots, MOST_SLOTS_CHECKED)))
    if steps.num_slots <= MOST_SLOTS_CHECKED and (np.sort(everywhere[everywhere >= 0]) != sampleable).any():
        raise AssertionError("a slot has a transition that is not sampleable")
    if not np.array_equal(sampleable_spans, spans_of(sampleable)):
        raise AssertionError("spans and indices of the sampleable transitions do not agree")
    if (
        not steps.is_sampleable(sampleable).all()
        or (steps.sampleable_at(np.arange(len(sampleable))) != sampleable).any()
    ):
        raise AssertionError("ranks and indices of the sampleable transitions do not agree")
    _check_pending(steps)
    windows, _ = steps.resolve_steps(sampleable, with_extras=False)
    if (windows.last_positions > steps.newest_positions[windows.env_ids]).any():
        raise AssertionError("a transition references a frame that was never stored")
    if (windows.counts < 2).any() or (windows.counts > stack + 1).any():
        raise AssertionError(f"a window holds {windows.counts.min()} to {windows.counts.max()} frames")
    frames = set(zip(windows.env_ids.tolist(), windows.last_positions.tolist(), strict=True))
    if len(frames) != len(sampleable):
        raise AssertionError("two transitions have the same next frame")


def _check_pending(steps: StepStore) -> None:
    pending = steps.pending
    if steps.is_sampleable(pending).any():
        raise AssertionError("a sampleable transition is pending")
    windows, _ = steps.resolve_steps(pending, with_extras=False)
    if not steps.is_open[windows.env_ids].all():
        raise AssertionError("a transition of an ended episode is pending")
    if (steps.newest_positions[windows.env_ids] - windows.last_positions + 1 >= steps.n_step).any():
        raise AssertionError("a transition with all its steps is pending")


def check_starts(steps: StepStore) -> None:
    """Raise ``AssertionError`` if the known episode starts contradict the steps."""
    counts, starts = steps.starts()
    env_ids = np.repeat(np.arange(steps.num_envs), counts)
    if (np.diff(starts)[env_ids[1:] == env_ids[:-1]] <= 0).any() or (starts < 0).any():
        raise AssertionError("the episode starts of an environment are not ascending")
    has_any = steps.newest_positions >= 0
    lasts = np.cumsum(counts)[has_any] - 1
    if (counts[has_any] < 1).any() or (starts[lasts] != steps.episode_starts[has_any]).any():
        raise AssertionError("the newest episode of an environment is unknown")
    sampleable = steps.sampleable_indices()
    begins = steps.follow(sampleable, 1)[1][:, 0]
    if (begins != (steps.flags_of(sampleable) & BEGINS_EPISODE > 0)).any():
        raise AssertionError("the known episode starts and the flags of the steps do not agree")
    stretch_starts, newest = steps.stretch_starts, steps.newest_positions
    if ((stretch_starts < steps.episode_starts) | (stretch_starts > newest.clip(min=0))).any():
        raise AssertionError("the newest stretch of an environment is not in its newest episode")


STEP_KEYS, COLUMN_KEYS = ("env_id", "position", "history"), ("action", "reward", "flags")  # by prefix in a store
EPISODE_KEYS = "steps.num_episodes", "steps.oldest_episodes", "steps.episode_frames"


def slots_to_arrays(slots: Slots) -> Arrays:
    """Return views of the fields of ``slots``, by the names that a store saves them under."""
    extras = slots["extras"] if "extras" in (slots.dtype.names or ()) else np.zeros(0, [])
    return (
        {f"steps.{name}": slots[name] for name in STEP_KEYS}
        | {f"columns.{name}": slots[name] for name in COLUMN_KEYS}
        | {f"extra.{name}": extras[name] for name in extras.dtype.names or ()}
    )


def slots_from_arrays(arrays: Arrays, record: np.dtype[Any], num_envs: int) -> Slots:
    """Return the slots that ``slots_to_arrays`` was called with; ``DamagedDataError`` for arrays that do not fit."""
    slots = np.zeros(len(arrays["steps.env_id"]), record)
    for name, field in slots_to_arrays(slots).items():
        if arrays[name].shape != field.shape:
            raise DamagedDataError(
                f"{name} has shape {arrays[name].shape}: these slots need {field.shape}; load an older save"
            )
        field[...] = arrays[name]
    if (arrays["steps.env_id"] >= num_envs).any():
        raise DamagedDataError(
            f"a slot has environment {arrays['steps.env_id'].max()}: the memory has {plural(num_envs, 'environment')}; "
            "load an older save"
        )
    return slots


def slots_from_block(block: bytes | None, record: np.dtype[Any], num_slots: int, num_envs: int) -> Slots | None:
    """Return the slots of a sealed block; ``None`` for a missing or impossible block."""
    if block is None or len(block) != num_slots * record.itemsize:
        return None
    slots = np.frombuffer(block, record)
    return None if (slots["env_id"] >= num_envs).any() else slots


def env_arrays(steps: StepStore) -> Arrays:
    """Return copies of the arrays in ``ENV_FIELDS``."""
    return {name: getattr(steps, field) for name, field in ENV_FIELDS.items()}


def restore_env_arrays(steps: StepStore, arrays: Arrays) -> None:
    """Set what ``env_arrays`` returned; ``DamagedDataError`` for another number of environments."""
    saved = env_arrays(steps)
    saved |= {name: arrays[name] for name in saved if name in arrays}
    for name, values in saved.items():
        if values.shape != (steps.num_envs,):
            raise DamagedDataError(
                f"{name} has shape {values.shape}: this memory has {plural(steps.num_envs, 'environment')}; "
                "load an older save"
            )
    dtypes = (np.bool_ if name == "steps.is_open" else np.int64 for name in saved)
    steps.restore_envs(*map(np.ascontiguousarray, saved.values(), dtypes))


def starts_state(steps: StepStore) -> Arrays:
    """Return the starts of all known episodes, as three arrays.

    =====================  ===================================================================
    steps.num_episodes     number of episodes per environment
    steps.oldest_episodes  start of the oldest episode, for each environment with episodes
    steps.episode_frames   distance of each start from the previous one; 0 for the oldest
    =====================  ===================================================================
    """
    counts, starts = steps.starts()
    oldest = (np.cumsum(counts) - counts)[counts > 0]
    num_frames = np.diff(starts, prepend=0)
    num_frames[oldest] = 0
    narrowest = np.min_scalar_type(num_frames.max(initial=0))  # a byte or two for most episodes
    return dict(zip(EPISODE_KEYS, (counts, starts[oldest], num_frames.astype(narrowest)), strict=True))


def restore_starts(steps: StepStore, arrays: Arrays) -> None:
    """Set what ``starts_state`` returned, after everything else is restored; without it, derive it from the steps.

    Raises:
        DamagedDataError: arrays that ``starts_state`` cannot have returned.
    """
    if EPISODE_KEYS[0] not in arrays:  # an old or a repaired store
        steps.rebuild_starts()
        return
    counts, oldest, num_frames = (arrays[name].astype(np.int64) for name in EPISODE_KEYS)
    fits = counts.shape == (steps.num_envs,) and (counts >= 0).all() and len(num_frames) == counts.sum()
    if not fits or len(oldest) != (counts > 0).sum():
        raise DamagedDataError(
            f"{EPISODE_KEYS[2]} has {len(num_frames)} entries and {EPISODE_KEYS[1]} {len(oldest)}: {counts.tolist()} "
            f"episodes of {plural(steps.num_envs, 'environment')} must have other numbers; load an older save"
        )
    firsts = (np.cumsum(counts) - counts)[counts > 0]
    behind = np.cumsum(num_frames)
    starts = behind + np.repeat(oldest - behind[firsts], counts[counts > 0])
    newest = np.repeat(steps.episode_starts, counts)
    if len(starts) and (starts.min() < 0 or (starts > newest).any() or (np.delete(num_frames, firsts) < 1).any()):
        raise DamagedDataError(
            f"episodes begin at {starts.min()} to {starts.max()}: each must begin after the previous one of its "
            "environment, and not after the newest; load an older save"
        )
    steps.restore_starts(counts, starts)
