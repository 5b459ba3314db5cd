"""Record the steps of a vector environment in a memory, and return the memory's stacks to the policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv, VectorWrapper

from framestow.checks import as_array, as_flags, real_number
from framestow.envs.interrupts import DeferredInterrupts
from framestow.envs.recording.step_recording import (
    NO_STATE,
    NOT_IN_MEMORY,
    Extras,
    LastFrame,
    RecordedStep,
    RestartedEpisodes,
    StepRecording,
    StepSink,
    frames_on_host,
    on_host,
    open_episodes,
    take_rows,
)
from framestow.envs.vector.arguments import (
    ClosedError,
    NoStepPendingError,
    StepPendingError,
    VectorStep,
    check_keys,
    check_timeout,
    split_options,
)
from framestow.envs.vector.foreign_envs import check_step, require_vector_env
from framestow.envs.vector.one_env import AutoresetName, check_autoreset, find_mode
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError, StepTimeoutError
from framestow.interface import clause, one_line, plural, warn_caller
from framestow.keywords import suggests_keywords


class PendingExtras:
    """Extra fields of the next step.

    They are checked before an environment steps, because a step that the memory refuses afterwards would be lost.
    """

    def __init__(self, memory: Any) -> None:
        # Checks extras and converts their dtypes; None for a memory that stores none.
        self._check = getattr(memory, "check_extras", None)
        # By name, as the caller gave them.
        self._pending: dict[str, Any] = {}

    def add(self, extras: Mapping[str, npt.ArrayLike]) -> None:
        """Add a copy of ``extras`` to those of the next step."""
        self._pending |= {
            name: as_array(f"extra {name!r}", values, InvalidStepError).copy() for name, values in extras.items()
        }

    def take(self, num_rows: int) -> Extras | None:
        """Return the extras in the memory's dtypes, ``num_rows`` rows each; ``None`` if it stores none. Clear them.

        Raises:
            InvalidStepError: one is missing, unknown or of another shape.
        """
        pending, self._pending = self._pending, {}
        if self._check is not None:
            return self._check(pending or None, num_rows)  # type: ignore[no-any-return]
        if pending:
            raise InvalidStepError(
                f"extras have {', '.join(sorted(pending))}: the memory stores none; "
                "declare them by ReplayMemory(..., extras=...)"
            )
        return None

    def clear(self) -> None:
        """Discard all extras."""
        self._pending = {}


class AsyncStep:
    """The step of all environments in the background: by the environment's ``step_async``, else in a thread."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        # Whether the environment has ``step_async`` and ``step_wait``.
        self._has_async_step = _has_async_step(env)
        # Steps environments without ``step_async``, and the process that has it; None until it is needed.
        self._thread: ThreadPoolExecutor | None = None
        self._process = os.getpid()
        # Returns the result of the step in flight; None if no step is in flight.
        self._answer: Callable[[], VectorStep] | None = None
        # The step in flight, if the thread makes it.
        self._future: Future[VectorStep] | None = None
        # Seconds that the environment's own step_wait waits, from the last call of ``wait``.
        self._timeout: float | None = None
        self.in_flight_after: tuple[type[BaseException], ...] = ()
        """Errors of ``take`` after which the step is still in flight: those of an interrupted ``env.step_wait``."""
        self.actions: Any = None
        """Copy of the actions of the step in flight: the caller may overwrite its own."""
        self.extras: Extras | None = None
        """Extra fields of the step in flight."""

    def require_none(self) -> None:
        """Raise ``StepPendingError`` while a step is in flight."""
        self._enter_process()
        if self._answer is not None:
            raise StepPendingError(
                "a step is in flight: it must end before the next call; call step_wait()", "step_async"
            )

    def start(self, actions: Any, extras: Extras | None, instead: Callable[[], VectorStep] | None) -> None:
        """Begin a step with a copy of ``actions``; ``instead``, if given, replaces the environment's step."""
        self.actions, self.extras, self._future = deepcopy(actions), extras, None
        self.in_flight_after = ()
        if instead is not None:
            self._answer = instead
        elif self._has_async_step:
            self._env.step_async(self.actions)  # type: ignore[attr-defined]
            self.in_flight_after = (StepTimeoutError, KeyboardInterrupt)
            self._answer = lambda: self._env.step_wait(timeout=self._timeout)  # type: ignore[attr-defined]
        else:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "framestow-recorder")
            self._future = self._thread.submit(self._env.step, self.actions)
            self._answer = self._future.result

    def wait(self, timeout: float | None) -> None:
        """Wait for the step of the thread; of other steps ``take`` waits.

        Raises:
            StepTimeoutError: the step is not done after ``timeout`` seconds; it is still in flight.
            NoStepPendingError: no step is in flight.
        """
        self._enter_process()
        if self._answer is None:
            raise NoStepPendingError(
                "no step is in flight: step_wait() ends a step that step_async() began; call it first", "step_wait"
            )
        self._timeout = timeout
        if self._future is not None and wait({self._future}, timeout).not_done:
            raise StepTimeoutError(f"step is not done after {timeout} s: it continues; call step_wait() again")

    def take(self) -> VectorStep:
        """Return the result of the step, which counts as in flight until ``discard``."""
        assert self._answer is not None
        return self._answer()

    def discard(self) -> None:
        """Discard the step in flight."""
        self._answer = None

    def _enter_process(self) -> None:
        """In a forked child, leave the thread, which is not there, and its step to the parent."""
        if self._process != os.getpid():
            self._process, self._thread = os.getpid(), None
            if self._future is not None:
                self._future = self._answer = None

    def close(self) -> None:
        """Wait for the step in flight, discard it and end the thread."""
        self._enter_process()
        self.discard()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None


@suggests_keywords
class Recorder(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Vector environment that records every step of another one in a memory, and returns stacked observations.

    Works with any Gymnasium vector environment. The stored transitions are the same in all three autoreset modes:
    steps without resets, each with its true next frame (``step_recording`` has the table). If ``infos["episode_lost"]``
    reports that an episode was lost, that step is not stored, and the memory closes the episode as truncated.

    Spaces: with a memory built with ``stack``, ``Box(frame)`` becomes ``Box(stack, *frame)``, as does each part of a
    ``Dict`` or ``Tuple``; with one of whole observations the spaces stay. With SAME_STEP, ``infos["final_obs"]`` has
    such observations too. A ``reset`` in mid-episode closes the open episodes in the memory.

    If the environment has the attribute ``copies_observations``, the recorder sets it to False. The memory then packs
    the frames from the environment's buffers, without a copy in between.

    ``step_async`` starts a step in the background, in a thread if the environment has no such method; ``step_wait``
    records and returns it. Not thread-safe.

    After an error or Ctrl-C in a step the memory is consistent: it can be sampled and saved, and ``reset`` continues.

    Arguments:
        env: the vector environment. The recorder owns it and closes it.
        memory: a ``ReplayMemory`` (or ``StepSink``) with the same ``num_envs``.
        reward_limit: clip the stored rewards to minus and plus this number (Mnih et al. 2015: 1); ``None`` for no
            clipping. ``step`` returns the rewards unclipped.
        autoreset_mode: what ``env`` does when an episode ends. ``None`` reads the attribute ``env.autoreset_mode``, or
            ``env.metadata["autoreset_mode"]`` if there is no such attribute. A mode that contradicts them warns.
        last_frame: with SAME_STEP, ``"given"`` requires the last frame of each episode in ``infos["final_obs"]``, or
            ``final_observation``. ``"missing"`` takes environments that do not give it, such as Isaac Lab's: a
            terminated step is stored with a frame that no target uses, a truncated one is left out and counted in
            ``num_left_out``. docs/environments.md says what that changes.

    Raises:
        InvalidSettingsError: ``env`` is no vector environment of Gymnasium or has no autoreset mode, the numbers of
            environments differ, or the observation space cannot be stacked.

    Example::

        # memory with num_envs=8
        recorder = Recorder(make_atari("Pong", num_envs=8), memory)
        observations, infos = recorder.reset(seed=0)
        observations, rewards, terminated, truncated, infos = recorder.step(actions)
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        memory: StepSink,
        *,
        reward_limit: float | None = None,
        autoreset_mode: AutoresetMode | AutoresetName | None = None,
        last_frame: LastFrame = "given",
    ) -> None:
        require_vector_env(env)
        check_memory(memory)
        self.env, self.memory = env, memory
        if reward_limit is not None:
            rule = "the limit of stored rewards must be above 0; give None to store them unclipped"
            reward_limit = real_number("reward_limit", reward_limit, 0, rule=rule, is_least_excluded=True)
        self.reward_limit = reward_limit
        self.num_envs = env.num_envs
        num_envs = getattr(memory, "num_envs", self.num_envs)
        if num_envs != self.num_envs:
            raise InvalidSettingsError(
                f"memory has num_envs {num_envs}: the vector environment has {plural(self.num_envs, 'environment')}; "
                "make both with the same number"
            )
        self.autoreset_mode = choose_mode(env, autoreset_mode)
        space, is_stacked = env.single_observation_space, getattr(memory, "takes_frames", True)
        self.single_observation_space = stack_space(space, memory.stack) if is_stacked else space
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space, self.action_space = env.single_action_space, env.action_space
        self.metadata = {**env.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode, self.spec = env.render_mode, env.spec
        # Stores one step, as the autoreset mode says.
        self._recording = StepRecording(env, self.autoreset_mode, last_frame)
        # Holds signals back while a step is stored, so that environments and memory stay at the same step.
        self._interrupts = DeferredInterrupts()
        # By environment: it was reset, and no error came since. Otherwise ``step`` asks for a reset.
        self._has_begun = np.zeros(self.num_envs, np.bool_)
        self._async_step = AsyncStep(env)
        self._extras = PendingExtras(memory)
        # Makes the first steps of a resumed run whose environments have no saved state; None otherwise.
        self._restarted: RestartedEpisodes | None = None
        disable_observation_copies(env)

    def __repr__(self) -> str:
        limit = [] if self.reward_limit is None else [f"reward_limit={self.reward_limit}"]
        return one_line(self, lambda: [repr(self.env), repr(self.memory), *limit])

    @property
    def num_left_out(self) -> int:
        """Number of truncated steps that were not stored, for want of a last frame (``last_frame="missing"``)."""
        return self._recording.num_left_out

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """Reset all environments, or those of ``options["reset_mask"]``, and begin their episodes in the memory.

        The first reset of a run resumed without saved states resets all environments.

        Arguments:
            seed: Passed to the vector environment: one number for all, or one for each environment.
            options: Passed on too. ``options["reset_mask"]``, ``(n,)`` booleans, names the environments to reset.

        Returns:
            The observations of all environments, in ``observation_space``, and ``infos``.

        Raises:
            InvalidStepError: a step of ``step_async`` is in flight.
        """
        self._require_idle()
        mask, env_options = split_options(options, self.num_envs)
        if self._restarted is not None:
            mask[:] = True
        if not mask.all():
            env_options = {**(env_options or {}), "reset_mask": mask.copy()}
        self._has_begun[mask] = False  # until the reset is done: an interrupt may occur anywhere
        frames, infos = self.env.reset(seed=seed, options=env_options)  # type: ignore[arg-type]
        frames = frames_on_host(frames)
        with self._interrupts:
            if mask.all():
                self.memory.begin(frames)
            else:
                envs = np.flatnonzero(mask)
                self.memory.begin(take_rows(frames, envs), envs)
            self._recording.has_ended[mask], self._has_begun[mask] = False, True
            self._restarted = None
        return self.memory.observations(), infos

    def add_extras(self, **extras: npt.ArrayLike) -> None:
        """Add extra fields to the next ``step`` or ``step_async``, with a row for each action; they are copied.

        May be called more than once before a step. If a field is missing or invalid, the step raises before any
        environment steps. A step that raises discards all added fields; add them again.

        Example::

            # memory made with extras={"log_prob": np.float32}
            recorder.add_extras(log_prob=log_probs)
        """
        self._extras.add(extras)

    def step(self, actions: Any) -> VectorStep:
        """Step all environments and record the step.

        Returns:
            The observations, in ``observation_space``, rewards, terminated, truncated and ``infos``. When an episode
            ends, NEXT_STEP and DISABLED return the stack with its true final frame, SAME_STEP the first stack of the
            next episode.

        Raises:
            InvalidStepError: before a reset, or while an ended episode needs one (DISABLED).
        """
        self._require_idle()
        self._require_running()
        copied_actions = self._one_each(actions)
        extras = self._extras.take(self.num_envs)
        try:
            answer = self.env.step(actions) if self._restarted is None else self._restarted.step()
            return self._record_step(copied_actions, answer, extras)
        except BaseException:
            self._require_reset()
            raise

    def step_async(self, actions: Any) -> None:
        """Start a step of all environments with a copy of ``actions``; ``step_wait`` returns it."""
        self._require_idle()
        self._require_running()
        self._one_each(actions)
        extras = self._extras.take(self.num_envs)
        self._async_step.start(actions, extras, None if self._restarted is None else self._restarted.step)

    def step_wait(self, timeout: float | None = None) -> VectorStep:
        """Wait for the step that ``step_async`` began, record it and return what ``step`` returns.

        After an interrupt the step is still in flight; call again. An error of an environment is raised here: the step
        is not recorded, and the next call must be ``reset``.

        Raises:
            StepTimeoutError: the step is not done after ``timeout`` seconds; it is still in flight.
            NoStepPendingError: no step is in flight.
        """
        step = self._async_step
        step.wait(check_timeout(timeout))
        try:
            answer = step.take()
        except step.in_flight_after:
            raise
        except BaseException:
            self._require_reset()
            raise
        try:
            outcome = self._record_step(on_host("actions", step.actions), answer, step.extras)
            step.discard()
        except BaseException:
            self._require_reset()
            raise
        return outcome

    def render(self) -> tuple[Any, ...] | None:
        """Return what the vector environment renders."""
        return self.env.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Wait for a step in flight, discard it, end the thread and close the vector environment."""
        self._async_step.close()
        self.env.close(**kwargs)

    @property
    def unwrapped(self) -> VectorEnv[Any, Any, Any]:  # type: ignore[override]
        """The innermost vector environment."""
        return self.env.unwrapped

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the environments and of the recorder; the memory is saved separately.

        The entry ``env`` is ``None`` if the vector environment has no ``state_dict``, such as Gymnasium's.
        """
        self._require_idle()
        state_dict = state_method(self.env, "state_dict")
        return {
            "autoreset_mode": self.autoreset_mode.value,
            "env": None if state_dict is None else state_dict(),
            "has_ended": self._recording.has_ended.copy(),
            "has_begun": self._has_begun.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state that ``state_dict`` returned, with a memory that was saved at the same time.

        All episodes restart if the vector environment has no saved state, or if the repaired memory lost the newest
        frames of a running episode. The next step then reports the reason in ``infos["episode_lost"]``.

        Raises:
            IncompatibleError: the state is of something else, another number of environments or another autoreset mode.
        """
        self._require_idle()
        check_keys(state, ("env", "has_ended", "has_begun"), "recorder")
        has_ended, has_begun = (
            as_flags(key, state[key], IncompatibleError).copy() for key in ("has_ended", "has_begun")
        )
        mode = state.get("autoreset_mode", self.autoreset_mode.value)
        for flags in (has_ended, has_begun):
            if flags.shape != (self.num_envs,) or mode != self.autoreset_mode.value:
                raise IncompatibleError(
                    f"state is of {plural(flags.size, 'environment')} with {mode}: these are {self.num_envs} with "
                    f"{self.autoreset_mode.value}; make the same ones"
                )
        load_state_dict = state_method(self.env, "load_state_dict")
        why = NO_STATE
        if load_state_dict is not None and state["env"] is not None:
            load_state_dict(state["env"])
            is_open = open_episodes(self.memory, self.num_envs)
            why = NOT_IN_MEMORY if (has_begun & ~has_ended & ~is_open).any() else ""
        if why:
            has_begun[:] = has_begun.all()
            self._restarted = RestartedEpisodes(
                self.autoreset_mode, has_ended, self.memory.observations, self.env.reset, why
            )
        self._recording.has_ended, self._has_begun = has_ended, has_begun

    def _record_step(self, actions: Any, answer: VectorStep, extras: Extras | None) -> VectorStep:
        check_step("the vector environment", answer)
        frames, rewards, terminated, truncated, infos = answer
        stored, limit = on_host("rewards", rewards), self.reward_limit
        if limit is not None:
            stored = np.minimum(np.maximum(stored, -limit), limit)  # np.clip is four calls of Python
        flags = on_host("terminated", terminated), on_host("truncated", truncated)
        with self._interrupts:
            step = RecordedStep(actions, frames_on_host(frames), stored, *flags, infos, extras)
            infos = self._recording.record(self.memory, step)
        if self._restarted is not None and self._restarted.is_over:
            self._restarted = None
        return self.memory.observations(), rewards, terminated, truncated, infos

    def _one_each(self, actions: Any) -> npt.NDArray[Any]:
        """Return a copy of ``actions``, one for each environment; Gymnasium checks only after it has sent some."""
        copied = on_host("actions", actions).copy()
        if copied.shape[:1] != (self.num_envs,):
            raise InvalidStepError(
                f"actions have shape {copied.shape}: {clause(self.num_envs, 'environment', 'need')} one each; give "
                "exactly so many"
            )
        return copied

    def _require_idle(self) -> None:
        if self.closed:
            raise ClosedError("recorder is closed: its environments cannot be stepped; make a new one")
        self._async_step.require_none()

    def _require_running(self) -> None:
        if not all(self._has_begun.tolist()):  # a quarter of the time of ``ndarray.all``, for a few environments
            idle = np.flatnonzero(~self._has_begun).tolist()
            raise InvalidStepError(f"environments {idle} have no running episode: a step needs one; call reset()")
        check_autoreset(self.autoreset_mode, self._recording.has_ended)

    def _require_reset(self) -> None:
        """Take no step before a reset: after an error in a step, environments and memory may differ by one step."""
        self._has_begun[:] = False
        self._async_step.discard()
        self._extras.clear()


def _has_async_step(env: VectorEnv[Any, Any, Any]) -> bool:
    """Return whether ``env`` itself has a usable ``step_async`` and ``step_wait``.

    Not used: Gymnasium's ``AsyncVectorEnv``, whose pipes are out of sync after an interrupted or timed-out wait, and
    Gymnasium's wrappers, which pass both calls to the wrapped environment without their own ``step``.
    """
    return (
        hasattr(env, "step_async")
        and hasattr(env, "step_wait")
        and not isinstance(env, (AsyncVectorEnv, VectorWrapper))
    )


def stack_space(space: gymnasium.Space[Any], stack: int) -> gymnasium.Space[Any]:
    """Return the space of ``stack`` observations of ``space``, along a new first axis."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: stack_space(part, stack) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([stack_space(part, stack) for part in space.spaces])
    if isinstance(space, spaces.Box):
        low, high = (np.repeat(bound[None], stack, axis=0) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype.type)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary((stack, *space.shape))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (np.repeat(array[None], stack, axis=0) for array in (space.nvec, space.start))
        return spaces.MultiDiscrete(counts, dtype=space.dtype.type, start=starts)
    if isinstance(space, spaces.Discrete):
        return spaces.MultiDiscrete([space.n] * stack, dtype=space.dtype.type, start=[space.start] * stack)
    raise InvalidSettingsError(
        f"observation space is {space}: a recorder stacks Box, MultiBinary, MultiDiscrete and Discrete, and Dicts and "
        "Tuples of them; convert it in a wrapper"
    )


def check_memory(memory: Any) -> None:
    """Raise ``InvalidSettingsError`` unless ``memory`` is a ``StepSink``."""
    if not (hasattr(memory, "stack") and callable(getattr(memory, "append", None))):
        raise InvalidSettingsError(
            f"memory is {memory!r}: a recorder needs a ReplayMemory; make one with num_envs=env.num_envs"
        )


def choose_mode(env: VectorEnv[Any, Any, Any], given: AutoresetMode | str | None) -> AutoresetMode:
    """Return the autoreset mode ``given``, else the one that a vector environment declares.

    It declares it by its attribute ``autoreset_mode``, else in its metadata. The attribute takes precedence, because
    some classes share one metadata dictionary among all instances.

    Raises:
        InvalidSettingsError: none is given and none is declared, or it is no mode.
    """
    declared = getattr(env.unwrapped, "autoreset_mode", None)
    if declared is None:
        declared = env.metadata.get("autoreset_mode")
    if given is None:
        if declared is None:
            raise InvalidSettingsError(
                f"{env} has no autoreset mode: the recorder needs it to know which steps are resets; pass "
                "autoreset_mode"
            )
        return find_mode(declared)
    mode = find_mode(given)
    if isinstance(declared, (AutoresetMode, str)) and declared not in (mode, mode.value):
        declared = declared.value if isinstance(declared, AutoresetMode) else declared
        warn_caller(
            f"autoreset_mode is {mode.value!r}, and the environment declares {declared!r}: the argument counts",
            UserWarning,
        )
    return mode


def disable_observation_copies(env: VectorEnv[Any, Any, Any]) -> None:
    """Set ``env.copies_observations = False`` if ``env`` itself, not one that it wraps, has that attribute."""
    if hasattr(type(env), "copies_observations") or "copies_observations" in vars(env):
        env.copies_observations = False  # type: ignore[attr-defined]


def state_method(env: VectorEnv[Any, Any, Any], name: str) -> Callable[..., Any] | None:
    """Return ``state_dict`` or ``load_state_dict`` of ``env`` itself, not of an environment that it wraps."""
    return getattr(env, name) if hasattr(type(env), name) else None
