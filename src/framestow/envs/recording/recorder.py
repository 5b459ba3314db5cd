"""Between a vector environment and a memory: records every real step, and shows the policy its stacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from framestow.envs.recording.recordable import (
    NO_STATE,
    NOT_IN_MEMORY,
    BegunAnew,
    DeferredInterrupts,
    VectorStep,
    ask_to_lend,
    check_env,
    check_memory,
    newest_of,
    sends_some,
    stacked_space,
    state_method,
    steps_in_halves,
    take_rows,
    told_mode,
)
from framestow.envs.recording.step_recording import RECORDINGS, Flags, SteppedRows, StepSink, open_episodes
from framestow.envs.vector.autoreset import find_mode
from framestow.envs.vector.calls import ClosedError, NoStepPendingError, StepPendingError
from framestow.envs.vector.vector_state import ReadySteps
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError, StepTimeoutError

Extras = dict[str, npt.NDArray[Any]]


class PendingExtras:
    """What is to be stored with the next step, and with those that are in flight.

    Columns are checked before an environment is stepped: what the memory would refuse after it would be lost.
    """

    def __init__(self, memory: Any) -> None:
        self._checked = getattr(memory, "_checked_extras", None)
        self._attached: dict[str, Any] = {}
        self.of_whole: Extras | None = None
        """Of the step of all environments that is in flight."""
        self._of_sent: dict[int, Extras] = {}

    def add_extras(self, extras: Mapping[str, npt.ArrayLike]) -> None:
        """Keep a copy of ``extras`` for the next step, beside those that are there already."""
        self._attached |= {name: np.array(values) for name, values in extras.items()}

    def checked(self, num_rows: int) -> Extras | None:
        """Give what is attached as the memory stores it for ``num_rows`` rows; ``None`` where it keeps no extras.

        Raises ``InvalidStepError``, and forgets all of them, where one is missing, unknown or of another form.
        """
        attached, self._attached = self._attached, {}
        if self._checked is None and attached:
            raise InvalidStepError(
                f"extras have {', '.join(sorted(attached))}: the memory keeps none; declare them with it"
            )
        extras: Extras | None = None if self._checked is None else self._checked(attached, num_rows)
        self._attached = attached  # until their step has begun
        return extras

    def put_in_flight(self, extras: Extras | None, streams: npt.NDArray[Any] | None = None) -> None:
        """Keep ``extras`` until the step that they are of has arrived: of ``streams``, a row each, or of all."""
        if streams is None:
            self.of_whole = extras
        elif extras is not None:
            for row, stream in enumerate(streams.tolist()):
                self._of_sent[stream] = {name: values[row] for name, values in extras.items()}

    def detach(self) -> None:
        """Forget what is attached: its step has begun."""
        self._attached = {}

    def of_sent(self, streams: npt.NDArray[Any]) -> Extras | None:
        """Give what was taken for the steps of ``streams``, which have arrived, a row each; once."""
        rows = [self._of_sent.pop(stream) for stream in streams.tolist() if stream in self._of_sent]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]} if rows else None

    def drop(self) -> None:
        """Forget all of them."""
        self._attached, self.of_whole, self._of_sent = {}, None, {}


class WholeStep:
    """A step of all environments in the background: by the environment's own two calls, or on a thread.

    The thread is made when it is first needed.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env, self._has_halves = env, steps_in_halves(env)
        self._thread: ThreadPoolExecutor | None = None
        self._actions: Any = None
        self._answer: Callable[[], VectorStep] | None = None  # takes the step back; None where none is in flight
        self._future: Future[VectorStep] | None = None
        self._is_environments_own = False
        self._timeout: float | None = None

    def require_none(self) -> None:
        """Refuse a call while a step is in flight."""
        if self._answer is not None:
            raise StepPendingError(
                "a step is in flight: it must be taken back before the next call; call step_wait()", "step_async"
            )

    def start(self, actions: Any, instead: Callable[[], VectorStep] | None) -> None:
        """Begin to step with a copy of ``actions``; ``instead`` gives the answer where nothing is to be stepped."""
        self._actions, self._future = deepcopy(actions), None
        self._is_environments_own = self._has_halves and instead is None
        if instead is not None:
            self._answer = instead
        elif self._has_halves:
            self._env.step_async(self._actions)  # type: ignore[attr-defined]
            self._answer = lambda: self._env.step_wait(timeout=self._timeout)  # type: ignore[attr-defined]
        else:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "framestow-recorder")
            self._future = self._thread.submit(self._env.step, self._actions)
            self._answer = self._future.result

    def wait(self, timeout: float | None) -> Any:
        """Wait for the step, as far as that can be left off and taken up again; gives its actions."""
        if self._answer is None:
            raise NoStepPendingError(
                "no step is in flight: step_wait ends one that step_async began; call that first", "step_wait"
            )
        self._timeout = timeout
        if self._future is not None and wait({self._future}, timeout).not_done:
            raise StepTimeoutError(f"step is not done after {timeout} s: it goes on; call step_wait() again")
        return self._actions

    @property
    def leaves_it_in_flight(self) -> tuple[type[BaseException], ...]:
        """What `take` may raise with the step still in flight.

        The environment's own wait may be interrupted anywhere. What the thread has given is given again.
        """
        return (StepTimeoutError, KeyboardInterrupt) if self._is_environments_own else ()

    def take(self) -> VectorStep:
        """Take the answer; the step counts as in flight until `drop`."""
        assert self._answer is not None
        return self._answer()

    def drop(self) -> None:
        """Forget the step in flight."""
        self._answer = None

    def close(self) -> None:
        """Forget the step in flight, when it is done, and end the thread."""
        self.drop()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None


class SentSteps:
    """Steps of some environments at a time, with the actions that they were sent."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        self._actions: dict[int, Any] = {}

    def require_none(self) -> None:
        """Refuse a call while a step is in flight."""
        if self._actions:
            raise StepPendingError(
                f"steps of environments {sorted(self._actions)} are in flight: they must be taken back before the next "
                "call; call recv()",
                "send",
            )

    def require_none_of(self, streams: npt.NDArray[Any]) -> None:
        """Refuse a call for ``streams`` of which some are in flight."""
        pending = [stream for stream in streams.tolist() if stream in self._actions]
        if pending:
            raise StepPendingError(
                f"steps of environments {pending} are in flight: take them back first; call recv()", "send"
            )

    def require_some(self) -> None:
        """Refuse to wait where no step is in flight."""
        if not self._actions:
            raise NoStepPendingError("no step is in flight: recv takes what send began; call that first", "recv")

    def check(self, streams: npt.NDArray[Any]) -> None:
        """Refuse streams that are none, or in flight, and an environment that can only be stepped as a whole."""
        if not sends_some(self._env):
            raise InvalidSettingsError(
                f"{self._env} has no send and recv: it steps all of its environments at once; call step()"
            )
        count = self._env.num_envs
        is_number = streams.dtype.kind in "iu" and streams.ndim == 1 and len(np.unique(streams)) == len(streams) > 0
        if not is_number or streams.min() < 0 or streams.max() >= count:
            raise InvalidStepError(f"env_ids is {streams.tolist()}: it must name some of 0 to {count - 1}, each once")
        self.require_none_of(streams)

    def send(self, actions: Any, streams: npt.NDArray[Any]) -> None:
        """Begin a step of each of ``streams``, which `check` has let through."""
        rows = np.array(actions)
        if rows.shape[:1] != streams.shape:
            raise InvalidStepError(f"actions are {rows.shape[:1]}: {len(streams)} environments need one each")
        self._env.send(rows, streams)  # type: ignore[attr-defined]
        self._actions |= dict(zip(streams.tolist(), rows, strict=True))

    def take(self, min_envs: int, timeout: float | None) -> tuple[npt.NDArray[Any], ReadySteps]:
        """Wait for ``min_envs`` steps at least; gives those that are done and their actions."""
        ready: ReadySteps = self._env.recv(min_envs, timeout)  # type: ignore[attr-defined]
        return np.stack([self._actions.pop(int(stream)) for stream in ready.env_ids]), ready

    def drop(self) -> None:
        """Forget the steps in flight."""
        self._actions.clear()


class Recorder(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Feeds a memory from a vector environment, and gives the policy the memory's stacks.

    Works over any Gymnasium vector environment, stream ``i`` being its environment ``i``. What is stored is the same
    in all three autoreset modes: real steps only, each with the frame that it truly led to (`step_recording` has the
    table). Where ``infos["episode_lost"]`` tells that nobody saw how an episode ended, nothing is stored of that step,
    and the memory closes the episode as cut off.

    spaces: one frame ``Box(frame)`` in, ``Box(stack, *frame)`` out; a ``Dict`` or ``Tuple`` part by part. In SAME_STEP,
    ``infos["final_obs"]`` holds stacks too. ``reset`` in mid-episode begins anew: the memory closes what was open.

    An environment with the attribute ``copies_observations`` is told to lend its observations, and the memory packs
    from where they lie.

    `step_async` starts a step while the caller does something else, on a thread of the recorder's own where the
    environment has no such call; `step_wait` records and returns. `send` and `recv` are the same for some of the
    environments, where ``env`` has these calls. Not safe to call from two threads.

    Whatever goes wrong within a step, Ctrl-C included, leaves the memory whole: it can be sampled and saved, and a
    `reset` goes on.

    Args:
        env: the vector environment; it belongs to the recorder from now on, which closes it.
        memory: where the steps go; its ``num_envs`` must be that of ``env``.
        autoreset_mode: what ``env`` does at an episode's end. ``None`` reads it from the environment: its own attribute
            ``autoreset_mode`` first, then ``metadata["autoreset_mode"]`` (some classes share one metadata dictionary
            among their instances, so that it tells about whichever was made last).

    Raises:
        InvalidSettingsError: ``env`` is no vector environment, the mode is told nowhere, the numbers of environments
            differ, or the frames are no ``Box``.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        memory: StepSink,
        *,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        check_env(env)
        check_memory(memory)
        self.env, self.memory = env, memory
        self.num_envs = env.num_envs
        num_envs = getattr(memory, "num_envs", self.num_envs)
        if num_envs != self.num_envs:
            raise InvalidSettingsError(
                f"memory has num_envs {num_envs}: the vector environment has {self.num_envs} environments; "
                "make both with the same number"
            )
        self.autoreset_mode = find_mode(told_mode(env) if autoreset_mode is None else autoreset_mode)
        self.single_observation_space = stacked_space(env.single_observation_space, memory.stack)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space, self.action_space = env.single_action_space, env.action_space
        self.metadata = {**env.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode, self.spec = env.render_mode, env.spec
        self._record = RECORDINGS[self.autoreset_mode]
        self._interrupts = DeferredInterrupts()
        self._all_streams = np.arange(self.num_envs)
        self._has_ended = np.zeros(self.num_envs, np.bool_)
        self._has_begun = np.zeros(self.num_envs, np.bool_)
        self._whole, self._sent = WholeStep(env), SentSteps(env)
        self._extras = PendingExtras(memory)
        self._begun_anew: BegunAnew | None = None
        ask_to_lend(env)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """Reset all environments, or those of ``options["reset_mask"]``, and begin their episodes in the memory.

        Returns the observations of all, ``(n, stack, *frame)``, and ``infos``. In a resumed run whose environments
        keep no state, the first reset is of all. Environments outside the mask may be in flight by `send`. A reset of
        all gives up the steps in flight: they are not recorded.

        Raises:
            InvalidStepError: a masked environment is in flight, or a step that `step_async` began.
        """
        self._require_open()
        self._whole.require_none()
        mask = self._checked_mask(options)
        if not mask.all():
            self._sent.require_none_of(np.flatnonzero(mask))
        # Gymnasium's environments take the mask out of the dictionary that they are given.
        own_options = None if options is None else dict(options)
        if self._begun_anew is not None:
            mask = np.ones(self.num_envs, np.bool_)
        if mask.all() and own_options is not None:
            own_options.pop("reset_mask", None)
        self._has_begun[mask] = False  # until it is done: an interrupt may come anywhere
        frames, infos = self.env.reset(seed=seed, options=own_options or None)  # type: ignore[arg-type]
        with self._interrupts:
            if mask.all():
                self.memory.begin(frames)
            elif mask.any():
                streams = np.flatnonzero(mask)
                self.memory.begin(take_rows(frames, streams), streams)
            self._has_ended[mask], self._has_begun[mask] = False, True
            self._begun_anew = None
            if mask.all():
                self._sent.drop()
        return self.memory.observations(), infos

    def add_extras(self, **extras: npt.ArrayLike) -> None:
        """Give the extras of the next `step`, `step_async` or `send`: a row for each of its actions; copied.

        ``recorder.add_extras(log_prob=log_probs)`` for a memory with ``extras={"log_prob": np.float32}``. May be called
        more than once before a step. What the memory would refuse, a column that is missing among it, that step refuses
        before any environment is stepped; then attach all of them again.
        """
        self._extras.add_extras(extras)

    def step(self, actions: Any) -> VectorStep:
        """Step all environments and record it.

        Returns the observations ``(n, stack, *frame)``, rewards, terminated, truncated and ``infos``. Where an
        episode ends, NEXT_STEP and DISABLED show the stack that ends in its true final frame, SAME_STEP the first
        stack of the next episode.

        Raises:
            InvalidStepError: before a reset, or while an ended episode waits for one (DISABLED).
        """
        self._require_idle()
        self._require_running(self._all_streams)
        kept_actions = self._one_each(actions)
        extras = self._extras.checked(self.num_envs)
        with _MarkingDoubt(self):
            self._extras.detach()
            answer = self.env.step(actions) if self._begun_anew is None else self._begun_anew.step()
            return self._recorded(kept_actions, answer, extras)

    def step_async(self, actions: Any) -> None:
        """Start to step all environments with a copy of ``actions``; `step_wait` ends it."""
        self._require_idle()
        self._require_running(self._all_streams)
        self._one_each(actions)
        self._extras.put_in_flight(self._extras.checked(self.num_envs))
        self._whole.start(actions, None if self._begun_anew is None else self._begun_anew.step)
        self._extras.detach()

    def step_wait(self, timeout: float | None = None) -> VectorStep:
        """Wait for the step that `step_async` began, record it and return what `step` returns.

        Whatever an environment raised is raised here; nothing of that step is recorded, and a reset goes on. After
        an interrupt, and where the step is not done within ``timeout`` seconds (`StepTimeoutError`), it is still in
        flight and can be waited for again.
        """
        actions = self._whole.wait(timeout)
        with _MarkingDoubt(self, but_for=self._whole.leaves_it_in_flight):
            answer = self._whole.take()
        with _MarkingDoubt(self):
            outcome = self._recorded(np.array(actions), answer, self._extras.of_whole)
            self._whole.drop()  # only now: an interrupt before this line leaves something to wait for
        return outcome

    def send(self, actions: Any, env_ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None) -> None:
        """Start a step of the environments ``env_ids`` (all where ``None``) with an action each; `recv` takes it.

        Raises:
            InvalidSettingsError: the vector environment cannot step some of its environments.
            InvalidStepError: an environment is still in flight, or waits for a reset.
        """
        self._require_open()
        self._whole.require_none()
        streams = self._all_streams if env_ids is None else np.atleast_1d(np.asarray(env_ids))
        self._sent.check(streams)
        self._require_running(streams)
        if self._begun_anew is not None:
            raise InvalidStepError("environments keep no state: the resumed run begins anew; call reset() before send")
        extras = self._extras.checked(len(streams))
        with _MarkingDoubt(self, but_for=(InvalidStepError,)):
            self._extras.put_in_flight(extras, streams)
            self._sent.send(actions, streams)
            self._extras.detach()

    def recv(self, min_envs: int = 1, timeout: float | None = None) -> ReadySteps:
        """Wait until ``min_envs`` steps that `send` began are done, record all that are, and give one row each.

        Observations are stacks, ``(m, stack, *frame)``. A step that is not done within ``timeout`` seconds
        (`StepTimeoutError`), and one whose wait was interrupted, stays in flight. When an environment raises, it is
        raised here, nothing of the steps in flight is recorded, and a reset goes on.
        """
        self._require_open()
        self._sent.require_some()
        with _MarkingDoubt(self, but_for=(StepTimeoutError,)):
            actions, ready = self._sent.take(min_envs, timeout)
            streams = np.asarray(ready.env_ids)
            rows = SteppedRows(streams, False, actions, *ready[1:], self._extras.of_sent(streams))
            infos = self._into_memory(rows)
        return ready._replace(observations=take_rows(self.memory.observations(), streams), infos=infos)

    def render(self) -> tuple[Any, ...] | None:
        """Give what the vector environment renders."""
        return self.env.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Wait for a step in flight and drop it, end the thread and close the vector environment."""
        self._sent.drop()
        self._whole.close()
        self.env.close(**kwargs)

    @property
    def unwrapped(self) -> VectorEnv[Any, Any, Any]:  # type: ignore[override]
        """The innermost vector environment."""
        return self.env.unwrapped

    def state_dict(self) -> dict[str, Any]:
        """State of the environments and of the recorder; the memory saves its own.

        A vector environment without a ``state_dict`` of its own, such as Gymnasium's, has none in there.
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
        """Go on from what `state_dict` gave, over a memory that was loaded from the same moment.

        Where the vector environment keeps no state, or the memory was repaired and an episode of it cannot go on, all
        episodes are lost: the next step tells so in ``infos["episode_lost"]``, and new ones begin.

        Raises:
            IncompatibleError: the state is of other environments.
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
            goes_on = open_episodes(self.memory, self.num_envs)
            why = NOT_IN_MEMORY if (has_begun & ~has_ended & ~goes_on).any() else ""
        if why:
            has_begun[:] = has_begun.all()
            self._begun_anew = BegunAnew(
                self.autoreset_mode,
                has_ended.copy(),
                lambda: newest_of(self.memory.observations()),
                self.env.reset,
                why,
            )
        self._has_ended, self._has_begun = has_ended, has_begun

    def _recorded(self, actions: Any, answer: VectorStep, extras: Extras | None) -> VectorStep:
        frames, rewards, terminated, truncated, infos = answer
        rows = SteppedRows(self._all_streams, True, actions, frames, rewards, terminated, truncated, infos, extras)
        infos = self._into_memory(rows)
        if self._begun_anew is not None and self._begun_anew.is_over:
            self._begun_anew = None
        return self.memory.observations(), rewards, terminated, truncated, infos

    def _into_memory(self, rows: SteppedRows) -> dict[str, Any]:
        with self._interrupts:
            return self._record(self.memory, rows, self._has_ended)

    def _one_each(self, actions: Any) -> npt.NDArray[Any]:
        """Copy the actions; Gymnasium's processes would have the first of too few when they find out."""
        copied = np.array(actions)
        if copied.shape[:1] != (self.num_envs,):
            raise InvalidStepError(
                f"actions have shape {copied.shape}: {self.num_envs} environments need one each; give exactly so many"
            )
        return copied

    def _checked_mask(self, options: Mapping[str, Any] | None) -> Flags:
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, np.bool_)
        mask = np.array(options["reset_mask"])
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise InvalidStepError(
                f"reset_mask is {mask.tolist()}: it must hold {self.num_envs} booleans; leave it out to reset all"
            )
        return mask

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedError("recorder is closed: its environments play no more; make a new one")

    def _require_idle(self) -> None:
        self._require_open()
        self._whole.require_none()
        self._sent.require_none()

    def _require_running(self, streams: npt.NDArray[Any]) -> None:
        if not self._has_begun[streams].all():
            idle = streams[~self._has_begun[streams]].tolist()
            raise InvalidStepError(f"environments {idle} have no episode: a step needs one running; call reset()")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._has_ended[streams].any():
            raise InvalidStepError(
                f"environments {streams[self._has_ended[streams]].tolist()} have ended: with autoreset disabled they "
                "need a reset first; call reset(options={'reset_mask': terminated | truncated})"
            )


class _MarkingDoubt:
    """Where a step breaks off, environments and memory may stand apart by one: only a reset goes on from there."""

    def __init__(self, recorder: Recorder, but_for: tuple[type[BaseException], ...] = ()) -> None:
        self._recorder, self._but_for = recorder, but_for

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None and not isinstance(error, self._but_for):
            self._recorder._has_begun[:] = False
            self._recorder._whole.drop()
            self._recorder._sent.drop()
            self._recorder._extras.drop()
