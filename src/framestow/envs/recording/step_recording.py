"""Store the steps of a vector environment in a memory, with one function for each autoreset mode.

The stored transitions are the same in all modes: steps without resets, each with its true next frame.

| mode | the step that ends an episode | the next step |
|---|---|---|
| NEXT_STEP | append | begin; its action is ignored and not stored |
| SAME_STEP | append with the frame of ``final_obs``, then begin | append |
| DISABLED | append; the caller resets with a mask (begin) | append |

A step may have rows of some environments only, in any order. If ``infos["episode_lost"]`` reports a lost episode, that
step is not appended, and the next begin closes the episode as truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.envs.recording.recordable import replace_rows, take_row, take_rows
from framestow.errors import InvalidStepError

Streams = Sequence[int] | npt.NDArray[np.integer[Any]]


class StepSink(Protocol):
    """Methods of a memory that the `Recorder` calls; `framestow.ReplayMemory` has them."""

    @property
    def stack(self) -> int:
        """Number of frames of an observation."""

    def begin(self, frames: Any, env_ids: Streams | None = None) -> None:
        """Begin an episode of each of ``env_ids`` (``None`` for all) with its first frame, ``(m, *frame)``.

        An episode that is still open is closed as truncated. The frames are copied.
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
        """Add a step of each of ``env_ids`` with its next frame, also of steps that end an episode; frames are copied.

        A memory with extras also has a method ``_checked_extras(extras, num_steps)``, and takes its result as
        ``extras=``.
        """

    def observations(self) -> npt.NDArray[Any]:
        """Return the current observations, a new array ``(n, stack, *frame)``."""


def open_episodes(memory: StepSink, num_envs: int) -> npt.NDArray[np.bool_]:
    """Return which environments have an open episode, ``(num_envs,)``; all if ``memory`` has no ``open_episodes``."""
    is_open = getattr(memory, "open_episodes", None)
    return np.ones(num_envs, np.bool_) if is_open is None else np.asarray(is_open, np.bool_)


def final_frames(infos: Mapping[str, Any], rows: npt.NDArray[np.intp]) -> dict[int, Any]:
    """Return the true last frame of each of ``rows`` from ``infos["final_obs"]``.

    Accepts Gymnasium's array of objects with a mask, and ALE's array without one.

    Raises:
        InvalidStepError: ``final_obs`` has no frame of one of the rows.
    """
    final, mask = infos.get("final_obs"), infos.get("_final_obs")
    has_frame = np.full(rows.shape, final is not None) if mask is None else np.asarray(mask, np.bool_)[rows]
    missing = rows[~has_frame]
    if missing.size:
        raise InvalidStepError(
            f"environments {missing.tolist()} have ended without final_obs: SAME_STEP must return the last frame in "
            "infos; pass the environment's real autoreset_mode"
        )
    return {int(row): take_row(final, row) for row in rows}


Flags = npt.NDArray[np.bool_]


class SteppedRows(NamedTuple):
    """Results of a step of ``m`` environments, one row each."""

    streams: npt.NDArray[np.intp]
    """Environment number of each row, ``(m,)``."""
    are_all: bool
    """Whether the rows are all environments in order."""
    actions: npt.NDArray[Any]
    frames: Any
    rewards: npt.NDArray[Any]
    terminated: npt.NDArray[Any]
    truncated: npt.NDArray[Any]
    infos: dict[str, Any]
    extras: dict[str, npt.NDArray[Any]] | None = None
    """Extra fields of the step, with ``m`` rows; ``None`` if the memory stores none."""

    @property
    def ended(self) -> Flags:
        """Rows whose episode has ended, lost episodes included."""
        return np.asarray(np.logical_or(self.terminated, self.truncated), np.bool_)

    @property
    def lost(self) -> Flags:
        """Rows whose episode was lost; they hold no step to store."""
        if "episode_lost" not in self.infos:
            return np.zeros(len(self.streams), np.bool_)
        return np.asarray(self.infos["_episode_lost"], np.bool_)


# Stores a step and returns the infos for the caller. ``has_ended``, ``(num_envs,)``, marks the environments that need
# a reset; the function updates it.
Recording = Callable[[StepSink, SteppedRows, Flags], dict[str, Any]]


def record_next_step(memory: StepSink, step: SteppedRows, has_ended: Flags) -> dict[str, Any]:
    """Append the rows that stepped, and begin an episode for the rows that were reset."""
    lost, was_reset = step.lost, has_ended[step.streams]
    append(memory, step, ~(was_reset | lost), step.frames)
    begin(memory, step, was_reset & ~step.ended)  # an episode lost in its reset step still needs one
    has_ended[step.streams] = step.ended
    return step.infos


def record_same_step(memory: StepSink, step: SteppedRows, has_ended: Flags) -> dict[str, Any]:  # noqa: ARG001
    """Append all rows with their true last frames, and begin the next episodes."""
    ended, lost = step.ended, step.lost
    if not ended.any():
        append(memory, step, ~lost, step.frames)
        return step.infos
    seen = ended & ~lost
    next_frames = replace_rows(step.frames, final_frames(step.infos, np.flatnonzero(seen)))
    append(memory, step, ~lost, next_frames)
    final_observations = np.full(len(step.streams), None, object)
    stacks = memory.observations()
    for row in np.flatnonzero(ended):
        final_observations[row] = take_row(stacks, step.streams[row])
    begin(memory, step, ended)
    return {**step.infos, "final_obs": final_observations, "_final_obs": ended}


def record_disabled(memory: StepSink, step: SteppedRows, has_ended: Flags) -> dict[str, Any]:
    """Append all rows; the caller resets."""
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


def append(memory: StepSink, step: SteppedRows, mask: Flags, next_frames: Any) -> None:
    """Append the rows of ``mask``; all rows of all environments are passed without a copy."""
    is_whole = step.are_all and mask.all()
    rows = None if is_whole else np.flatnonzero(mask)
    extra: dict[str, Any] = {}
    if step.extras is not None:
        extra["extras"] = step.extras if rows is None else take_rows(step.extras, rows)
    if rows is None:
        memory.append(step.actions, step.rewards, step.terminated, step.truncated, next_frames, **extra)
    elif rows.size:
        memory.append(
            step.actions[rows],
            step.rewards[rows],
            step.terminated[rows],
            step.truncated[rows],
            next_frames if mask.all() else take_rows(next_frames, rows),
            step.streams[rows],
            **extra,
        )
