"""Store the steps of a vector environment in a memory, with one method for each autoreset mode.

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
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.checks import as_array, one_of
from framestow.envs.vector.arguments import VectorStep
from framestow.errors import InvalidStepError
from framestow.frames.observation_spec import map_arrays
from framestow.interface import warn_caller

LastFrame: TypeAlias = Literal["given", "missing"]
"""Whether an environment of SAME_STEP gives the last frame of each episode."""

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
        return np.logical_or(np.asarray(self.terminated, np.bool_), np.asarray(self.truncated, np.bool_))

    @property
    def lost(self) -> Flags:
        """Environments whose episode was lost; they have no step to store."""
        if "episode_lost" not in self.infos:
            return np.zeros(len(self.rewards), np.bool_)
        return np.asarray(self.infos["_episode_lost"], np.bool_)


class StepRecording:
    """Stores the steps of one vector environment in a memory, as its autoreset mode says.

    With ``last_frame="missing"`` an environment may keep the last frame of an episode to itself (SAME_STEP without
    ``final_obs``). For the rows without one:

    ==========================  ==================================================================================
    the step                    is
    ==========================  ==================================================================================
    terminated                  stored, with the newest frame of its observation once more as the next frame, which
                                no target uses
    truncated                   not stored, as of a lost episode; ``num_left_out`` counts it
    ==========================  ==================================================================================

    Arguments:
        env: the vector environment, for messages.
        mode: its autoreset mode.
        last_frame: ``"given"`` requires the last frame of each episode.
    """

    def __init__(self, env: Any, mode: AutoresetMode, last_frame: LastFrame = "given") -> None:
        one_of("last_frame", last_frame, get_args(LastFrame))
        self._env, self.mode, self.last_frame = env, mode, last_frame
        self.has_ended = np.zeros(env.num_envs, np.bool_)
        """By environment: its episode has ended, and no other one has begun. All False with SAME_STEP."""
        self.num_left_out = 0
        """Number of truncated steps that were not stored, because the environment gave no last frame."""
        self._has_warned = False  # of a reward in a reset step
        self._record = {
            AutoresetMode.NEXT_STEP: self._next_step,
            AutoresetMode.SAME_STEP: self._same_step,
            AutoresetMode.DISABLED: self._disabled,
        }[mode]

    def record(self, memory: StepSink, step: RecordedStep) -> dict[str, Any]:
        """Store a step; return the infos for the caller.

        Raises:
            InvalidStepError: before anything is stored, if a last frame is missing, or if an episode ends in the step
                after an end with NEXT_STEP.
        """
        return self._record(memory, step)

    def _next_step(self, memory: StepSink, step: RecordedStep) -> dict[str, Any]:
        """Append the steps, and begin an episode of each environment that was reset."""
        was_reset, self.has_ended = self.has_ended, step.ended
        if not was_reset.any():
            append(memory, step, ~step.lost, step.frames)
            return step.infos
        if "episode_lost" not in step.infos:
            self._check_resets(step, was_reset, self.has_ended)
        append(memory, step, ~(was_reset | step.lost), step.frames)
        begin(memory, step, was_reset & ~self.has_ended)  # an episode lost in its reset step still needs one
        return step.infos

    def _same_step(self, memory: StepSink, step: RecordedStep) -> dict[str, Any]:
        """Append all steps with their true last frames, and begin the next episodes."""
        ended, lost = step.ended, step.lost
        if not ended.any():
            append(memory, step, ~lost, step.frames)
            return step.infos
        final, has_final = final_frames(step.infos, ended.size)
        missing = ended & ~lost & ~has_final
        if missing.any() and self.last_frame == "given":
            raise InvalidStepError(
                f"environments {np.flatnonzero(missing).tolist()} have ended without final_obs: SAME_STEP must return "
                f"the last frame in infos; {how_to_get_last_frames(self._env)}, else pass last_frame='missing', which "
                "leaves out truncated steps"
            )
        left_out = missing & ~np.asarray(step.terminated, np.bool_)
        last_frames = {row: take_row(final, row) for row in np.flatnonzero(ended & ~lost & has_final).tolist()}
        if missing.any():
            newest = newest_frames(memory)
            last_frames |= {row: take_row(newest, row) for row in np.flatnonzero(missing & ~left_out).tolist()}
        append(memory, step, ~(lost | left_out), replace_rows(step.frames, last_frames))
        self.num_left_out += int(left_out.sum())
        final_observations, has_final_observation = np.full(ended.size, None, object), ended & ~missing
        if has_final_observation.any():
            stacks = memory.observations()
            for row in np.flatnonzero(has_final_observation):
                final_observations[row] = take_row(stacks, row)
        begin(memory, step, ended)
        return {**step.infos, "final_obs": final_observations, "_final_obs": has_final_observation}

    def _disabled(self, memory: StepSink, step: RecordedStep) -> dict[str, Any]:
        """Append all steps; the caller resets."""
        append(memory, step, ~step.lost, step.frames)
        self.has_ended = step.ended
        return step.infos

    def _check_resets(self, step: RecordedStep, was_reset: Flags, ended: Flags) -> None:
        """Raise ``InvalidStepError`` for an end in a step that only resets, and warn once of a reward in it."""
        again = was_reset & ended
        if again.any():
            raise InvalidStepError(
                f"environments {np.flatnonzero(again).tolist()} have ended in the step after an end: with NEXT_STEP "
                "that step only resets; an environment that resets by itself needs autoreset_mode='SameStep'"
            )
        rewarded = was_reset & (np.asarray(step.rewards) != 0)
        if rewarded.any() and not self._has_warned:
            self._has_warned = True
            warn_caller(
                f"environments {np.flatnonzero(rewarded).tolist()} have a reward in the step after an end: with "
                "NEXT_STEP that step only resets, and is not stored. If they reset by themselves, pass "
                "autoreset_mode='SameStep'; a wrapper that changes rewards may be the reason too",
                UserWarning,
            )


def final_frames(infos: Mapping[str, Any], num_envs: int) -> tuple[Any, Flags]:
    """Return the last frames in ``infos``, and which environments have one.

    Accepts ``final_obs``, and ``final_observation`` as ManiSkill and older Gymnasiums call it; Gymnasium's array of
    objects with a mask, and an array of all environments with or without one.
    """
    name = "final_obs" if "final_obs" in infos else "final_observation"
    final, mask = infos.get(name), infos.get(f"_{name}")
    if final is None:
        return None, np.zeros(num_envs, np.bool_)
    final = map_arrays(lambda part: on_host(name, part), final)
    has_final = np.ones(num_envs, np.bool_) if mask is None else np.asarray(on_host(f"_{name}", mask), np.bool_)
    if isinstance(final, np.ndarray) and final.dtype == object:
        has_final = has_final & np.array([each is not None for each in final], np.bool_)
    return final, has_final


def newest_frames(memory: StepSink) -> Any:
    """Return the newest frame of each environment's observation; whole observations if the memory takes these."""
    of_memory = getattr(memory, "newest_frames", None)
    if of_memory is not None:
        return of_memory()
    observations = memory.observations()
    if not getattr(memory, "takes_frames", True):
        return observations
    return map_arrays(lambda stacks: stacks[:, -1], observations)


def how_to_get_last_frames(env: Any) -> str:
    """Return what makes ``env`` return the last frame of an episode, for a message."""
    settings = getattr(getattr(env, "unwrapped", env), "cfg", None)
    isaac_lab = "set compute_final_obs=True in the configuration of the environment"
    mjlab = "set auto_reset=False in the configuration of the environment, and pass autoreset_mode='Disabled'"
    if hasattr(settings, "compute_final_obs"):
        return isaac_lab
    if hasattr(settings, "auto_reset"):
        return mjlab
    return f"let the environment return it (Isaac Lab: {isaac_lab}; mjlab: {mjlab})"


def on_host(name: str, given: Any) -> npt.NDArray[Any]:
    """Return an array or tensor, of any device, as a NumPy array; raise ``InvalidStepError`` if it is none."""
    if type(given) is np.ndarray:
        return given
    return as_array(name, given.detach().cpu() if hasattr(given, "detach") else given, InvalidStepError)


def frames_on_host(frames: Any) -> Any:
    """Return observations whose arrays or tensors, of any device, are NumPy arrays."""
    return frames if type(frames) is np.ndarray else map_arrays(lambda part: on_host("observation", part), frames)


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
