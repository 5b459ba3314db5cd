"""Between a vector environment and a memory: records every real step, and shows the policy its stacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import deepcopy
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from framestow.envs.recording.frame_rows import put_rows, stacked_space, take_row, take_rows
from framestow.envs.vector.autoreset import find_mode
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError

Streams = Sequence[int] | npt.NDArray[np.integer[Any]]
Flags = npt.NDArray[np.bool_]
VectorStep = tuple[Any, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]


class StepSink(Protocol):
    """What the `Recorder` needs of a memory; `framestow.ReplayMemory` is one."""

    @property
    def stack(self) -> int:
        """How many frames an observation has."""

    def begin(self, frames: Any, streams: Streams | None = None) -> None:
        """Start an episode with its first frame on each of ``streams`` (all where ``None``), ``(m, *frame)``."""

    def append(
        self,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        frames: Any,
        streams: Streams | None = None,
    ) -> None:
        """Add what a step of each of ``streams`` led to, true final frames included."""

    def observations(self) -> npt.NDArray[Any]:
        """Give what the policy sees now, a fresh array ``(n, stack, *frame)``."""


class Recorder(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Feeds a memory from a vector environment, and gives the policy the memory's stacks.

    Works over any Gymnasium vector environment, stream ``i`` being its environment ``i``. What is stored is the same
    in all three autoreset modes: real steps only, each with the frame that it truly led to::

        mode        the step that ends an episode             the step after it
        NEXT_STEP   append                                    begin; its action is ignored and not stored
        SAME_STEP   append with the frame of ``final_obs``,   append
                    then begin
        DISABLED    append; the caller resets with a mask     append
                    (begin)

    spaces: one frame ``Box(frame)`` in, ``Box(stack, *frame)`` out; a ``Dict`` of them key by key. In SAME_STEP,
    ``infos["final_obs"]`` holds stacks too. ``reset`` in mid-episode begins anew: the memory closes what was open.

    `step_async` runs the environments on one thread of the recorder's own, while the caller does something else;
    `step_wait` records and returns. `step` is both, in the caller's thread. Not safe to call from two threads.

    Args:
        env: the vector environment; it belongs to the recorder from now on, which closes it.
        memory: where the steps go; it must have as many streams as ``env`` has environments.
        autoreset_mode: what ``env`` does at an episode's end. ``None`` reads it from the environment: its own attribute
            ``autoreset_mode`` first, then ``metadata["autoreset_mode"]`` (some classes share one metadata dictionary
            among their instances, so that it tells about whichever was made last).

    Raises:
        InvalidSettingsError: the mode is told nowhere, the numbers of streams differ, or the frames are no ``Box``.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        memory: StepSink,
        *,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        self.env, self.memory = env, memory
        self.num_envs = env.num_envs
        num_streams = getattr(memory, "num_streams", self.num_envs)
        if num_streams != self.num_envs:
            raise InvalidSettingsError(
                f"memory has {num_streams} streams: the vector environment has {self.num_envs} environments; "
                "make both with the same number"
            )
        self.autoreset_mode = find_mode(_told_mode(env) if autoreset_mode is None else autoreset_mode)
        self._record = _RECORDINGS[self.autoreset_mode]
        self.single_observation_space = stacked_space(env.single_observation_space, memory.stack)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space, self.action_space = env.single_action_space, env.action_space
        self.metadata = {**env.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode, self.spec = env.render_mode, env.spec
        self._has_ended = np.zeros(self.num_envs, np.bool_)
        self._has_begun = np.zeros(self.num_envs, np.bool_)
        self._thread: ThreadPoolExecutor | None = None
        self._in_flight: tuple[Any, Future[VectorStep]] | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """Reset all environments, or those of ``options["reset_mask"]``, and begin their episodes in the memory.

        Returns the observations of all, ``(n, stack, *frame)``, and ``infos``.
        """
        self._require_idle()
        mask = self._checked_mask(options)
        # Gymnasium's environments take the mask out of the dictionary that they are given.
        own_options = None if options is None else dict(options)
        frames, infos = self.env.reset(seed=seed, options=own_options)  # type: ignore[arg-type]
        self._begin(mask, frames)
        self._has_ended[mask], self._has_begun[mask] = False, True
        return self.memory.observations(), infos

    def step(self, actions: Any) -> VectorStep:
        """Step all environments and record it.

        Returns the observations ``(n, stack, *frame)``, rewards, terminated, truncated and ``infos``. Where an
        episode ends, NEXT_STEP and DISABLED show the stack that ends in its true final frame, SAME_STEP the first
        stack of the next episode.

        Raises:
            InvalidStepError: before a reset, or while an ended episode waits for one (DISABLED).
        """
        self._require_idle()
        self._require_running()
        return self._recorded(np.array(actions), lambda: self.env.step(actions))

    def step_async(self, actions: Any) -> None:
        """Start to step all environments on the recorder's thread, with a copy of ``actions``; `step_wait` ends it."""
        self._require_idle()
        self._require_running()
        actions = deepcopy(actions)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "framestow-recorder")
        self._in_flight = (actions, self._thread.submit(self.env.step, actions))

    def step_wait(self) -> VectorStep:
        """Wait for the step that `step_async` began, record it and return what `step` returns.

        Whatever an environment raised is raised here; nothing of that step is recorded, and a reset goes on.
        """
        if self._in_flight is None:
            raise InvalidStepError("no step is in flight: step_wait ends one that step_async began; call that first")
        actions, future = self._in_flight
        wait({future})  # an interrupt leaves it here: the step is still in flight, and can be waited for again
        self._in_flight = None
        return self._recorded(np.array(actions), future.result)

    def render(self) -> tuple[Any, ...] | None:
        """Give what the vector environment renders."""
        return self.env.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Wait for a step in flight and drop it, end the thread and close the vector environment."""
        self._in_flight = None
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None
        self.env.close(**kwargs)

    @property
    def unwrapped(self) -> VectorEnv[Any, Any, Any]:  # type: ignore[override]
        """The innermost vector environment."""
        return self.env.unwrapped

    def state_dict(self) -> dict[str, Any]:
        """State of the environments and of the recorder; the memory saves its own.

        Raises:
            InvalidSettingsError: the vector environment has no ``state_dict``.
        """
        self._require_idle()
        return {
            "env": self._with_state("state_dict")(),
            "has_ended": self._has_ended.copy(),
            "has_begun": self._has_begun.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave, over a memory that was loaded from the same moment.

        Raises:
            IncompatibleError: the state is of other environments.
        """
        self._require_idle()
        has_ended, has_begun = np.array(state["has_ended"], np.bool_), np.array(state["has_begun"], np.bool_)
        if has_ended.shape != (self.num_envs,):
            raise IncompatibleError(
                f"state is of {has_ended.size} environments: these are {self.num_envs}; make the same number"
            )
        self._with_state("load_state_dict")(state["env"])
        self._has_ended, self._has_begun = has_ended, has_begun

    def _recorded(self, actions: Any, answer: Callable[[], VectorStep]) -> VectorStep:
        try:
            frames, rewards, terminated, truncated, infos = answer()
            infos = self._record(self, actions, frames, rewards, terminated, truncated, infos)
        except BaseException:
            self._has_begun[:] = False  # environments and memory may stand apart by a step: only a reset goes on
            raise
        return self.memory.observations(), rewards, terminated, truncated, infos

    def _record_next_step(
        self, actions: Any, frames: Any, rewards: Any, terminated: Flags, truncated: Flags, infos: dict[str, Any]
    ) -> dict[str, Any]:
        was_reset = self._has_ended
        self._append(~was_reset, actions, rewards, terminated, truncated, frames)
        self._begin(was_reset, frames)
        self._has_ended = np.logical_or(terminated, truncated)
        return infos

    def _record_same_step(
        self, actions: Any, frames: Any, rewards: Any, terminated: Flags, truncated: Flags, infos: dict[str, Any]
    ) -> dict[str, Any]:
        ended = np.logical_or(terminated, truncated)
        everyone = np.ones(self.num_envs, np.bool_)
        if not ended.any():
            self._append(everyone, actions, rewards, terminated, truncated, frames)
            return infos
        led_to = put_rows(frames, _final_frames(infos, np.flatnonzero(ended)))
        self._append(everyone, actions, rewards, terminated, truncated, led_to)
        final_observations = np.full(self.num_envs, None, object)
        stacks = self.memory.observations()
        for stream in np.flatnonzero(ended):
            final_observations[stream] = take_row(stacks, stream)
        self._begin(ended, frames)
        return {**infos, "final_obs": final_observations, "_final_obs": ended}

    def _record_disabled(
        self, actions: Any, frames: Any, rewards: Any, terminated: Flags, truncated: Flags, infos: dict[str, Any]
    ) -> dict[str, Any]:
        self._append(np.ones(self.num_envs, np.bool_), actions, rewards, terminated, truncated, frames)
        self._has_ended = np.logical_or(terminated, truncated)
        return infos

    def _begin(self, mask: Flags, frames: Any) -> None:
        if mask.all():
            self.memory.begin(frames)
        elif mask.any():
            streams = np.flatnonzero(mask)
            self.memory.begin(take_rows(frames, streams), streams)

    def _append(self, mask: Flags, actions: Any, rewards: Any, terminated: Any, truncated: Any, frames: Any) -> None:
        if mask.all():
            self.memory.append(actions, rewards, terminated, truncated, frames)
        elif mask.any():
            streams = np.flatnonzero(mask)
            self.memory.append(
                actions[streams],
                rewards[streams],
                terminated[streams],
                truncated[streams],
                take_rows(frames, streams),
                streams,
            )

    def _checked_mask(self, options: Mapping[str, Any] | None) -> Flags:
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, np.bool_)
        mask = np.array(options["reset_mask"])
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise InvalidStepError(
                f"reset_mask is {mask.tolist()}: it must hold {self.num_envs} booleans; leave it out to reset all"
            )
        return mask

    def _require_idle(self) -> None:
        if self.closed:
            raise InvalidStepError("recorder is closed: its environments play no more; make a new one")
        if self._in_flight is not None:
            raise InvalidStepError("a step is in flight: it must be taken back before the next call; call step_wait()")

    def _require_running(self) -> None:
        if not self._has_begun.all():
            streams = np.flatnonzero(~self._has_begun).tolist()
            raise InvalidStepError(f"streams {streams} have no episode: a step needs one running; call reset()")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._has_ended.any():
            raise InvalidStepError(
                f"streams {np.flatnonzero(self._has_ended).tolist()} have ended: with autoreset disabled they need a "
                "reset first; call reset(options={'reset_mask': terminated | truncated})"
            )

    def _with_state(self, name: str) -> Callable[..., Any]:
        method = getattr(self.env, name, None)
        if method is None:
            raise InvalidSettingsError(f"{self.env} has no {name}: its state cannot be kept; reset it after loading")
        return method  # type: ignore[no-any-return]


_RECORDINGS: dict[AutoresetMode, Callable[..., dict[str, Any]]] = {
    AutoresetMode.NEXT_STEP: Recorder._record_next_step,
    AutoresetMode.SAME_STEP: Recorder._record_same_step,
    AutoresetMode.DISABLED: Recorder._record_disabled,
}


def _told_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode | str:
    own = getattr(env.unwrapped, "autoreset_mode", None)
    told = env.metadata.get("autoreset_mode") if own is None else own
    if told is None:
        raise InvalidSettingsError(
            f"{env} does not tell its autoreset mode: without it nobody knows which steps are real; "
            "pass Recorder(env, memory, autoreset_mode=...)"
        )
    return told  # type: ignore[no-any-return]


def _final_frames(infos: Mapping[str, Any], streams: npt.NDArray[np.intp]) -> dict[int, Any]:
    """Take the true last frame of each of ``streams``; no other row of ``final_obs`` is looked at."""
    final, is_told = infos.get("final_obs"), infos.get("_final_obs")
    told = np.full(streams.shape, final is not None) if is_told is None else np.asarray(is_told, np.bool_)[streams]
    untold = streams[~told]
    if untold.size:
        raise InvalidStepError(
            f"streams {untold.tolist()} have ended without final_obs: SAME_STEP must hand the last frame over in "
            "infos; give the environment's real autoreset_mode"
        )
    return {int(stream): take_row(final, stream) for stream in streams}
