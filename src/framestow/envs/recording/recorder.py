"""Record the steps of a vector environment in a memory, and return the memory's stacks to the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from framestow.argument_checks import as_array, real_number
from framestow.envs.recording.recordable import (
    NO_STATE,
    NOT_IN_MEMORY,
    DeferredInterrupts,
    RestartedEpisodes,
    VectorStep,
    check_env,
    check_memory,
    disable_observation_copies,
    find_autoreset_mode,
    has_async_step,
    newest_frames,
    stack_space,
    state_method,
    take_rows,
)
from framestow.envs.recording.step_recording import RECORDINGS, Flags, RecordedStep, StepSink, open_episodes
from framestow.envs.vector.autoreset import AutoresetName, find_mode
from framestow.envs.vector.calls import (
    ClosedError,
    NoStepPendingError,
    StepPendingError,
    check_options,
    check_timeout,
)
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError, StepTimeoutError
from framestow.one_line import one_line

Extras = dict[str, npt.NDArray[Any]]


class PendingExtras:
    """Extra fields of the next step and of the step in flight.

    They are checked before an environment steps, because a step that the memory refuses afterwards would be lost.
    """

    def __init__(self, memory: Any) -> None:
        # Checks extras and converts their dtypes; None for a memory that stores none.
        self._checked = getattr(memory, "_check_extras", None)
        # Extras of the next step by name, as the caller gave them.
        self._pending: dict[str, Any] = {}
        self.of_async_step: Extras | None = None
        """Extras of the step that ``step_async`` began."""

    def add_extras(self, extras: Mapping[str, npt.ArrayLike]) -> None:
        """Add a copy of ``extras`` to those of the next step."""
        self._pending |= {
            name: as_array(f"extra {name!r}", values, InvalidStepError).copy() for name, values in extras.items()
        }

    def check_pending(self, num_rows: int) -> Extras | None:
        """Return the pending extras in the memory's dtypes, ``num_rows`` rows each; ``None`` if it stores no extras.

        Raises:
            InvalidStepError: one is missing, unknown or of another shape; all of them are discarded.
        """
        pending, self._pending = self._pending, {}
        if self._checked is None and pending:
            raise InvalidStepError(
                f"extras have {', '.join(sorted(pending))}: the memory stores none; declare them with ReplayMemory"
            )
        extras: Extras | None = None if self._checked is None else self._checked(pending, num_rows)
        self._pending = pending  # kept until their step has begun
        return extras

    def clear(self) -> None:
        """Discard the extras of the next step, which has begun."""
        self._pending = {}

    def drop(self) -> None:
        """Discard all extras, those of the step in flight too."""
        self._pending, self.of_async_step = {}, None


class AsyncStep:
    """A step of all environments in the background: by the environment's ``step_async``, else in a thread."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        # Whether the environment has ``step_async`` and ``step_wait``.
        self._env, self._has_async_step = env, has_async_step(env)
        # Steps environments without ``step_async``; None until it is needed.
        self._thread: ThreadPoolExecutor | None = None
        # Copy of the actions of the step in flight: the caller may overwrite its own.
        self._actions: Any = None
        self._answer: Callable[[], VectorStep] | None = None  # returns the step's result; None if no step is in flight
        self._future: Future[VectorStep] | None = None  # of the step in flight, if the thread makes it
        self._uses_env_step_wait = False  # whether the environment's own step_wait ends the step in flight
        self._timeout: float | None = None  # seconds; of the last call of wait, for the environment's step_wait

    def require_none(self) -> None:
        """Raise ``StepPendingError`` while a step is in flight."""
        if self._answer is not None:
            raise StepPendingError(
                "a step is in flight: it must end before the next call; call step_wait()", "step_async"
            )

    def start(self, actions: Any, instead: Callable[[], VectorStep] | None) -> None:
        """Begin a step with a copy of ``actions``; ``instead``, if given, replaces the environment's step."""
        self._actions, self._future = deepcopy(actions), None
        self._uses_env_step_wait = self._has_async_step and instead is None
        if instead is not None:
            self._answer = instead
        elif self._has_async_step:
            self._env.step_async(self._actions)  # type: ignore[attr-defined]
            self._answer = lambda: self._env.step_wait(timeout=self._timeout)  # type: ignore[attr-defined]
        else:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "framestow-recorder")
            self._future = self._thread.submit(self._env.step, self._actions)
            self._answer = self._future.result

    def wait(self, timeout: float | None) -> Any:
        """Wait for the step of the thread, and return the actions of the step in flight.

        Raises:
            StepTimeoutError: the step is not done after ``timeout`` seconds; it is still in flight.
        """
        if self._answer is None:
            raise NoStepPendingError(
                "no step is in flight: step_wait() ends a step that step_async() began; call it first", "step_wait"
            )
        self._timeout = timeout
        if self._future is not None and wait({self._future}, timeout).not_done:
            raise StepTimeoutError(f"step is not done after {timeout} s: it continues; call step_wait() again")
        return self._actions

    @property
    def in_flight_after(self) -> tuple[type[BaseException], ...]:
        """Errors of ``take`` after which the step is still in flight: those of an interrupted ``env.step_wait``."""
        return (StepTimeoutError, KeyboardInterrupt) if self._uses_env_step_wait else ()

    def take(self) -> VectorStep:
        """Return the result of the step, which counts as in flight until ``drop``."""
        assert self._answer is not None
        return self._answer()

    def drop(self) -> None:
        """Discard the step in flight."""
        self._answer = None

    def close(self) -> None:
        """Wait for the step in flight, discard it and end the thread."""
        self.drop()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None


class Recorder(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Vector environment that records every step of another one in a memory, and returns stacked observations.

    Works with any Gymnasium vector environment. The stored transitions are the same in all three autoreset modes:
    steps without resets, each with its true next frame (``step_recording`` has the table). If ``infos["episode_lost"]``
    reports that an episode was lost, that step is not stored, and the memory closes the episode as truncated.

    Spaces: ``Box(frame)`` becomes ``Box(stack, *frame)``, as does each part of a ``Dict`` or ``Tuple``. With SAME_STEP,
    ``infos["final_obs"]`` has stacks too. A ``reset`` in mid-episode closes the open episodes in the memory.

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
            ``env.metadata["autoreset_mode"]`` if there is no such attribute.

    Raises:
        InvalidSettingsError: ``env`` is no vector environment or has no autoreset mode, the numbers of environments
            differ, or the observation space cannot be stacked.

    Example::

        recorder = Recorder(make_atari("Pong", num_envs=8), memory)  # memory with num_envs=8
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
    ) -> None:
        check_env(env)
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
                f"memory has num_envs {num_envs}: the vector environment has {self.num_envs} environments; "
                "make both with the same number"
            )
        self.autoreset_mode = find_mode(find_autoreset_mode(env) if autoreset_mode is None else autoreset_mode)
        self.single_observation_space = stack_space(env.single_observation_space, memory.stack)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space, self.action_space = env.single_action_space, env.action_space
        self.metadata = {**env.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode, self.spec = env.render_mode, env.spec
        # Stores one step, as the autoreset mode says.
        self._record = RECORDINGS[self.autoreset_mode]
        # Holds signals back while a step is stored, so that environments and memory stay at the same step.
        self._interrupts = DeferredInterrupts()
        # By environment: its episode has ended, and no other one has begun. All False with SAME_STEP.
        self._has_ended = np.zeros(self.num_envs, np.bool_)
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

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """Reset all environments, or those of ``options["reset_mask"]``, and begin their episodes in the memory.

        The first reset of a run resumed without saved states resets all environments.

        Arguments:
            seed: Passed to the vector environment: one number for all, or one for each environment.
            options: Passed on too. ``options["reset_mask"]``, ``(n,)`` booleans, names the environments to reset.

        Returns:
            The observations of all environments, ``(n, stack, *frame)``, and ``infos``.

        Raises:
            InvalidStepError: a step of ``step_async`` is in flight.
        """
        self._require_idle()
        mask = self._check_mask(options)
        # Copied, because Gymnasium's vector environments remove the mask from the dictionary.
        env_options = None if options is None else dict(options)
        if self._restarted is not None:
            mask = np.ones(self.num_envs, np.bool_)
        if mask.all() and env_options is not None:
            env_options.pop("reset_mask", None)
        self._has_begun[mask] = False  # until the reset is done: an interrupt may occur anywhere
        frames, infos = self.env.reset(seed=seed, options=env_options or None)  # type: ignore[arg-type]
        with self._interrupts:
            if mask.all():
                self.memory.begin(frames)
            elif mask.any():
                envs = np.flatnonzero(mask)
                self.memory.begin(take_rows(frames, envs), envs)
            self._has_ended[mask], self._has_begun[mask] = False, True
            self._restarted = None
        return self.memory.observations(), infos

    def add_extras(self, **extras: npt.ArrayLike) -> None:
        """Add extra fields to the next ``step`` or ``step_async``, with a row for each action; they are copied.

        May be called more than once before a step. If a field is missing or invalid, the step raises before any
        environment steps and discards all added fields; add them again.

        Example::

            recorder.add_extras(log_prob=log_probs)  # memory made with extras={"log_prob": np.float32}
        """
        self._extras.add_extras(extras)

    def step(self, actions: Any) -> VectorStep:
        """Step all environments and record the step.

        Returns:
            The observations ``(n, stack, *frame)``, rewards, terminated, truncated and ``infos``. When an episode ends,
            NEXT_STEP and DISABLED return the stack with its true final frame, SAME_STEP the first stack of the next
            episode.

        Raises:
            InvalidStepError: before a reset, or while an ended episode needs one (DISABLED).
        """
        self._require_idle()
        self._require_running()
        copied_actions = self._one_each(actions)
        extras = self._extras.check_pending(self.num_envs)
        with _RequireResetOnError(self):
            self._extras.clear()
            answer = self.env.step(actions) if self._restarted is None else self._restarted.step()
            return self._record_step(copied_actions, answer, extras)

    def step_async(self, actions: Any) -> None:
        """Start a step of all environments with a copy of ``actions``; ``step_wait`` returns it."""
        self._require_idle()
        self._require_running()
        self._one_each(actions)
        self._extras.of_async_step = self._extras.check_pending(self.num_envs)
        self._async_step.start(actions, None if self._restarted is None else self._restarted.step)
        self._extras.clear()

    def step_wait(self, timeout: float | None = None) -> VectorStep:
        """Wait for the step that ``step_async`` began, record it and return what ``step`` returns.

        After an interrupt the step is still in flight; call again. An error of an environment is raised here: the step
        is not recorded, and the next call must be ``reset``.

        Raises:
            StepTimeoutError: the step is not done after ``timeout`` seconds; it is still in flight.
            NoStepPendingError: no step is in flight.
        """
        actions = self._async_step.wait(check_timeout(timeout))
        with _RequireResetOnError(self, unless=self._async_step.in_flight_after):
            answer = self._async_step.take()
        with _RequireResetOnError(self):
            outcome = self._record_step(np.array(actions), answer, self._extras.of_async_step)
            self._async_step.drop()  # last, so that an interrupted call can be repeated
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
            "has_ended": self._has_ended.copy(),
            "has_begun": self._has_begun.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state that ``state_dict`` returned, with a memory that was saved at the same time.

        All episodes restart if the vector environment has no saved state, or if the repaired memory lost the newest
        frames of a running episode. The next step then reports the reason in ``infos["episode_lost"]``.

        Raises:
            IncompatibleError: the state is of another number of environments or another autoreset mode.
        """
        self._require_idle()
        has_ended, has_begun = np.array(state["has_ended"], np.bool_), np.array(state["has_begun"], np.bool_)
        mode = state.get("autoreset_mode", self.autoreset_mode.value)
        if has_ended.shape != (self.num_envs,) or mode != self.autoreset_mode.value:
            raise IncompatibleError(
                f"state is of {has_ended.size} environments with {mode}: these are {self.num_envs} with "
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
                self.autoreset_mode,
                has_ended.copy(),
                lambda: newest_frames(self.memory.observations()),
                self.env.reset,
                why,
            )
        self._has_ended, self._has_begun = has_ended, has_begun

    def _record_step(self, actions: Any, answer: VectorStep, extras: Extras | None) -> VectorStep:
        frames, rewards, terminated, truncated, infos = answer
        stored = rewards if self.reward_limit is None else np.clip(rewards, -self.reward_limit, self.reward_limit)
        with self._interrupts:
            step = RecordedStep(actions, frames, stored, terminated, truncated, infos, extras)
            infos = self._record(self.memory, step, self._has_ended)
        if self._restarted is not None and self._restarted.is_over:
            self._restarted = None
        return self.memory.observations(), rewards, terminated, truncated, infos

    def _one_each(self, actions: Any) -> npt.NDArray[Any]:
        """Return a copy of ``actions``, one for each environment; Gymnasium checks only after it has sent some."""
        copied = as_array("actions", actions, InvalidStepError).copy()
        if copied.shape[:1] != (self.num_envs,):
            raise InvalidStepError(
                f"actions have shape {copied.shape}: {self.num_envs} environments need one each; give exactly so many"
            )
        return copied

    def _check_mask(self, options: Mapping[str, Any] | None) -> Flags:
        check_options(options)
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, np.bool_)
        mask = as_array("reset_mask", options["reset_mask"], InvalidStepError).copy()
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise InvalidStepError(
                f"reset_mask is {mask.tolist()}: it must hold {self.num_envs} booleans; leave it out to reset all"
            )
        return mask

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedError("recorder is closed: its environments cannot be stepped; make a new one")

    def _require_idle(self) -> None:
        self._require_open()
        self._async_step.require_none()

    def _require_running(self) -> None:
        if not self._has_begun.all():
            idle = np.flatnonzero(~self._has_begun).tolist()
            raise InvalidStepError(f"environments {idle} have no running episode: a step needs one; call reset()")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._has_ended.any():
            raise InvalidStepError(
                f"environments {np.flatnonzero(self._has_ended).tolist()} have ended: with autoreset disabled they "
                "need a reset first; call reset(options={'reset_mask': terminated | truncated})"
            )


class _RequireResetOnError:
    """Require a reset after an error in a step, because environments and memory may then differ by one step."""

    def __init__(self, recorder: Recorder, unless: tuple[type[BaseException], ...] = ()) -> None:
        self._recorder, self._but_for = recorder, unless

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None and not isinstance(error, self._but_for):
            self._recorder._has_begun[:] = False
            self._recorder._async_step.drop()
            self._recorder._extras.drop()
