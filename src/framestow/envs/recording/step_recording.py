"""From the answers of a vector environment to a memory: one recording a mode of autoreset.

What is stored is the same in all of them: real steps only, each with the frame that it truly led to.

| mode | the step that ends an episode | the step after it |
|---|---|---|
| NEXT_STEP | append | begin; its action is ignored and not stored |
| SAME_STEP | append with the frame of ``final_obs``, then begin | append |
| DISABLED | append; the caller resets with a mask (begin) | append |

A step may be of some environments only, in any order: its rows say of which streams. Where ``infos["episode_lost"]``
says that nobody saw how an episode ended, nothing is appended; the next begin closes what was open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.envs.recording.recordable import put_rows, take_row, take_rows
from framestow.errors import InvalidStepError

Streams = Sequence[int] | npt.NDArray[np.integer[Any]]


class StepSink(Protocol):
    """What the `Recorder` needs of a memory; `framestow.ReplayMemory` is one."""

    @property
    def stack(self) -> int:
        """How many frames an observation has."""

    def begin(self, frames: Any, env_ids: Streams | None = None) -> None:
        """Start an episode with its first frame on each of ``env_ids`` (all where ``None``), ``(m, *frame)``.

        An episode that is still open there is closed as cut off. The frames are copied.
        """

    def append(
        self,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        frames: Any,
        env_ids: Streams | None = None,
    ) -> None:
        """Add what a step of each of ``env_ids`` led to, true final frames included. The frames are copied.

        A memory with extras has a method ``_checked_extras(extras, num_steps)``, as `framestow.ReplayMemory`
        has, and takes what that gives as ``extras=``.
        """

    def observations(self) -> npt.NDArray[Any]:
        """Give what the policy sees now, a fresh array ``(n, stack, *frame)``."""


def open_episodes(memory: StepSink, num_envs: int) -> npt.NDArray[np.bool_]:
    """Which streams have an episode that goes on in ``memory``, ``(num_envs,)``; all where it does not tell."""
    told = getattr(memory, "open_episodes", None)
    return np.ones(num_envs, np.bool_) if told is None else np.asarray(told, np.bool_)


def final_frames(infos: Mapping[str, Any], rows: npt.NDArray[np.intp]) -> dict[int, Any]:
    """Take the true last frame of each of ``rows``; no other row of ``final_obs`` is looked at.

    Gymnasium's array of objects with its mask will do, and so will ALE's dense array without one.

    Raises:
        InvalidStepError: one of them is not there.
    """
    final, is_told = infos.get("final_obs"), infos.get("_final_obs")
    told = np.full(rows.shape, final is not None) if is_told is None else np.asarray(is_told, np.bool_)[rows]
    untold = rows[~told]
    if untold.size:
        raise InvalidStepError(
            f"environments {untold.tolist()} have ended without final_obs: SAME_STEP must hand the last frame over in "
            "infos; give the environment's real autoreset_mode"
        )
    return {int(row): take_row(final, row) for row in rows}


Flags = npt.NDArray[np.bool_]


class SteppedRows(NamedTuple):
    """What ``m`` environments answered to a step, one row each."""

    streams: npt.NDArray[np.intp]
    """Which stream each row is of, ``(m,)``."""
    are_all: bool
    """Whether these are all streams in their order, so that nothing needs to be picked out."""
    actions: npt.NDArray[Any]
    frames: Any
    rewards: npt.NDArray[Any]
    terminated: npt.NDArray[Any]
    truncated: npt.NDArray[Any]
    infos: dict[str, Any]
    extras: dict[str, npt.NDArray[Any]] | None = None
    """Extras of the step, a row each; ``None`` where the memory keeps none."""

    @property
    def ended(self) -> Flags:
        """Rows whose episode is over, seen or lost."""
        return np.asarray(np.logical_or(self.terminated, self.truncated), np.bool_)

    @property
    def lost(self) -> Flags:
        """Rows whose episode is over without anybody having seen how; no step of theirs is in here."""
        if "episode_lost" not in self.infos:
            return np.zeros(len(self.streams), np.bool_)
        return np.asarray(self.infos["_episode_lost"], np.bool_)


# Records a step; ``has_ended``, an entry a stream, tells which wait for their reset and is brought up to date. Gives
# the infos for the caller.
Recording = Callable[[StepSink, SteppedRows, Flags], dict[str, Any]]


def record_next_step(memory: StepSink, step: SteppedRows, has_ended: Flags) -> dict[str, Any]:
    """Append what was stepped, and begin what was only reset."""
    lost, was_reset = step.lost, has_ended[step.streams]
    append(memory, step, ~(was_reset | lost), step.frames)
    begin(memory, step, was_reset & ~step.ended)  # what has ended still waits: nothing was reset there
    has_ended[step.streams] = step.ended
    return step.infos


def record_same_step(memory: StepSink, step: SteppedRows, has_ended: Flags) -> dict[str, Any]:  # noqa: ARG001
    """Append everything, with the true last frames, and begin where an episode has ended."""
    ended, lost = step.ended, step.lost
    if not ended.any():
        append(memory, step, ~lost, step.frames)
        return step.infos
    seen = ended & ~lost
    led_to = put_rows(step.frames, final_frames(step.infos, np.flatnonzero(seen)))
    append(memory, step, ~lost, led_to)
    final_observations = np.full(len(step.streams), None, object)
    stacks = memory.observations()
    for row in np.flatnonzero(ended):
        final_observations[row] = take_row(stacks, step.streams[row])
    begin(memory, step, ended)
    return {**step.infos, "final_obs": final_observations, "_final_obs": ended}


def record_disabled(memory: StepSink, step: SteppedRows, has_ended: Flags) -> dict[str, Any]:
    """Append everything: whoever steps also resets."""
    append(memory, step, ~step.lost, step.frames)
    has_ended[step.streams] = step.ended
    return step.infos


RECORDINGS: Mapping[AutoresetMode, Recording] = {
    AutoresetMode.NEXT_STEP: record_next_step,
    AutoresetMode.SAME_STEP: record_same_step,
    AutoresetMode.DISABLED: record_disabled,
}


def begin(memory: StepSink, step: SteppedRows, mask: Flags) -> None:
    """Begin an episode with the frame of each row of ``mask``."""
    if step.are_all and mask.all():
        memory.begin(step.frames)
    elif mask.any():
        memory.begin(take_rows(step.frames, np.flatnonzero(mask)), step.streams[mask])


def append(memory: StepSink, step: SteppedRows, mask: Flags, led_to: Any) -> None:
    """Append the rows of ``mask``; those of all streams go as they are, without a copy in between."""
    is_whole = step.are_all and mask.all()
    rows = None if is_whole else np.flatnonzero(mask)
    extra: dict[str, Any] = {}
    if step.extras is not None:
        extra["extras"] = step.extras if rows is None else take_rows(step.extras, rows)
    if rows is None:
        memory.append(step.actions, step.rewards, step.terminated, step.truncated, led_to, **extra)
    elif rows.size:
        memory.append(
            step.actions[rows],
            step.rewards[rows],
            step.terminated[rows],
            step.truncated[rows],
            led_to if mask.all() else take_rows(led_to, rows),
            step.streams[rows],
            **extra,
        )
