"""Store the steps of a vector environment in a memory, with one function for each autoreset mode.

The stored transitions are the same in all modes: steps without resets, each with its true next frame.

| mode | the step that ends an episode | the next step |
|---|---|---|
| NEXT_STEP | append | begin; its action is ignored and not stored |
| SAME_STEP | append with the frame of ``final_obs``, then begin | append |
| DISABLED | append; the caller resets with a mask (begin) | append |

If ``infos["episode_lost"]`` reports a lost episode, that step is not appended, and the next begin closes the episode as
truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.envs.vector.calls import VectorStep
from framestow.errors import InvalidStepError
from framestow.frames.observation_spec import map_arrays

EnvIds = Sequence[int] | npt.NDArray[np.integer[Any]]


class StepSink(Protocol):
    """Methods of a memory that the ``Recorder`` calls; ``framestow.ReplayMemory`` has them."""

    @property
    def stack(self) -> int:
        """Number of frames of an observation."""

    def begin(self, frames: Any, env_ids: EnvIds | None = None) -> None:
        """Begin an episode of each of ``env_ids`` with its first frame.

        An episode that is still open is closed as truncated.

        Arguments:
            frames: The first frames, ``(m, *frame)``. Copied.
            env_ids: Numbers of the ``m`` environments; ``None`` means all.
        """

    def append(
        self,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        frames: Any,
        env_ids: EnvIds | None = None,
    ) -> object:
        """Add a step of each of ``env_ids`` with its next frame, also of steps that end an episode.

        Arguments:
            actions: One action for each environment.
            rewards: One number for each environment.
            terminated: One boolean for each environment: the episode ended by its own rules.
            truncated: One boolean for each environment: the episode was cut off.
            frames: The next frames, ``(m, *frame)``. Copied.
            env_ids: Numbers of the ``m`` environments; ``None`` means all.

        A memory with extras also has a method ``check_extras(extras, num_steps)``, and takes its result as
        ``extras=``.
        """

    def observations(self) -> npt.NDArray[Any]:
        """Return the current observations, a new array: ``(n, stack, *frame)``, or as given if not ``takes_frames``.

        A memory without the attribute ``takes_frames`` takes single frames.
        """


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
Extras = dict[str, npt.NDArray[Any]]


class RecordedStep(NamedTuple):
    """The results of a step of all ``n`` environments."""

    actions: npt.NDArray[Any]
    frames: Any
    rewards: npt.NDArray[Any]
    terminated: npt.NDArray[Any]
    truncated: npt.NDArray[Any]
    infos: dict[str, Any]
    extras: Extras | None = None
    """Extra fields of the step; ``None`` if the memory stores none."""

    @property
    def ended(self) -> Flags:
        """Environments whose episode has ended, lost episodes included."""
        return np.asarray(np.logical_or(self.terminated, self.truncated), np.bool_)

    @property
    def lost(self) -> Flags:
        """Environments whose episode was lost; they have no step to store."""
        if "episode_lost" not in self.infos:
            return np.zeros(len(self.rewards), np.bool_)
        return np.asarray(self.infos["_episode_lost"], np.bool_)


# Stores a step and returns the infos for the caller. ``has_ended``, ``(num_envs,)``, marks the environments that need
# a reset; the function updates it.
Recording = Callable[[StepSink, RecordedStep, Flags], dict[str, Any]]


def record_next_step(memory: StepSink, step: RecordedStep, has_ended: Flags) -> dict[str, Any]:
    """Append the steps, and begin an episode of each environment that was reset."""
    was_reset, ended = has_ended, step.ended
    append(memory, step, ~(was_reset | step.lost), step.frames)
    begin(memory, step, was_reset & ~ended)  # an episode lost in its reset step still needs one
    has_ended[:] = ended
    return step.infos


def record_same_step(memory: StepSink, step: RecordedStep, has_ended: Flags) -> dict[str, Any]:  # noqa: ARG001
    """Append all steps with their true last frames, and begin the next episodes."""
    ended, lost = step.ended, step.lost
    if not ended.any():
        append(memory, step, ~lost, step.frames)
        return step.infos
    seen = ended & ~lost
    next_frames = replace_rows(step.frames, final_frames(step.infos, np.flatnonzero(seen)))
    append(memory, step, ~lost, next_frames)
    final_observations = np.full(len(ended), None, object)
    stacks = memory.observations()
    for row in np.flatnonzero(ended):
        final_observations[row] = take_row(stacks, row)
    begin(memory, step, ended)
    return {**step.infos, "final_obs": final_observations, "_final_obs": ended}


def record_disabled(memory: StepSink, step: RecordedStep, has_ended: Flags) -> dict[str, Any]:
    """Append all steps; the caller resets."""
    append(memory, step, ~step.lost, step.frames)
    has_ended[:] = step.ended
    return step.infos


RECORDINGS: Mapping[AutoresetMode, Recording] = {
    AutoresetMode.NEXT_STEP: record_next_step,
    AutoresetMode.SAME_STEP: record_same_step,
    AutoresetMode.DISABLED: record_disabled,
}


def begin(memory: StepSink, step: RecordedStep, mask: Flags) -> None:
    """Begin an episode of each environment in ``mask`` with its frame."""
    (env_ids,) = mask.nonzero()
    if env_ids.size == mask.size:
        memory.begin(step.frames)
    elif env_ids.size:
        memory.begin(take_rows(step.frames, env_ids), env_ids)


def append(memory: StepSink, step: RecordedStep, mask: Flags, next_frames: Any) -> None:
    """Append the steps of the environments in ``mask``; the arrays of all environments are passed without a copy."""
    (env_ids,) = mask.nonzero()
    fields: tuple[Any, ...] = (step.actions, step.rewards, step.terminated, step.truncated, next_frames)
    extras: dict[str, Any] = {} if step.extras is None else {"extras": step.extras}
    if env_ids.size == mask.size:
        memory.append(*fields, **extras)
    elif env_ids.size:
        actions, rewards, terminated, truncated, frames = take_rows(fields, env_ids)
        memory.append(actions, rewards, terminated, truncated, frames, env_ids, **take_rows(extras, env_ids))


def take_rows(frames: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Return a copy of some rows of ``frames``, ``(n, *frame)`` or dicts and tuples of such arrays."""
    return map_arrays(lambda array: array[rows], frames)


def take_row(frames: Any, row: Any) -> Any:
    """Return one row of ``frames``, a view."""
    return map_arrays(lambda array: array[row], frames)


def replace_rows(frames: Any, rows: Mapping[int, Any]) -> Any:
    """Return a copy of ``frames`` with the ``rows`` replaced."""

    def replace_in_array(array: Any, *of_rows: Any) -> Any:
        copy = np.array(array)
        for row, frame in zip(rows, of_rows, strict=True):
            copy[row] = frame
        return copy

    return map_arrays(replace_in_array, frames, *rows.values())


# Reasons in ``infos["episode_lost"]``.
NO_STATE = "the run was resumed, and the environment has no saved state"
NOT_IN_MEMORY = "the run was resumed, and its memory has lost the newest frames"


class RestartedEpisodes:
    """Replace the first steps of a resumed run whose environments have no saved state: all episodes restart.

    The first step truncates every episode at its last frame, and ``infos["episode_lost"]`` gives the reason for those
    that were running. The reset follows in the same step (SAME_STEP), in the next one (NEXT_STEP) or by the caller
    (DISABLED). The environments step only together, so an episode that had already ended is truncated once more.

    Arguments:
        mode: autoreset mode of the vector environment.
        had_ended: episodes that had already ended, ``(n,)``.
        observations: returns the current observation of each environment, from the memory.
        reset: resets the vector environment and returns the first frames and infos.
        why: reason in ``infos["episode_lost"]``.
    """

    def __init__(
        self,
        mode: AutoresetMode,
        had_ended: Flags,
        observations: Callable[[], Any],
        reset: Callable[[], tuple[Any, dict[str, Any]]],
        why: str,
    ) -> None:
        self._mode, self._observations, self._reset = mode, observations, reset
        # Episodes that were running, and are reported as lost; and the reason.
        self._lost, self._why = ~had_ended, why
        self._has_truncated = False  # whether the first step was made
        self.is_over = False
        """True once all environments are reset; from then on the vector environment itself steps."""

    def step(self) -> VectorStep:
        """Return the five values of a vector environment's ``step``."""
        count = len(self._lost)
        none, everyone = np.zeros(count, np.bool_), np.ones(count, np.bool_)
        if self._has_truncated:
            frames, infos = self._reset()
            self.is_over = True
            return frames, np.zeros(count), none, none.copy(), infos
        frames, infos = self._observations(), {}  # of lost episodes, so none is stored
        if self._mode is AutoresetMode.SAME_STEP:
            frames, infos = self._reset()
            infos |= {"final_info": {}, "_final_info": everyone}
        self._has_truncated, self.is_over = True, self._mode is not AutoresetMode.NEXT_STEP
        reasons = np.full(count, None, object)
        reasons[self._lost] = self._why
        infos |= {"episode_lost": reasons, "_episode_lost": self._lost}
        return frames, np.zeros(count), none, everyone.copy(), infos
