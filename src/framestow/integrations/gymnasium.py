"""Frame-stacking wrappers for Gymnasium whose observations share frames: ``FrameStack`` and ``VectorFrameStack``.

Needs the extra ``framestow[gymnasium]``. Tested with Gymnasium 1.1 to 1.4; other versions give a warning.

=====================================================  =================================================
before                                                 after
=====================================================  =================================================
Gymnasium >= 1.0: ``FrameStackObservation(env, 4)``    ``FrameStack(env, 4)``
the same with ``padding_type="zero"`` or an array      the same
Gymnasium < 1.0: ``FrameStack(env, num_stack=4)``      ``FrameStack(env, 4)``
the same with ``lz4_compress=True``                    none: store the frames in a ``ReplayMemory``
Baselines: ``FrameStack(env, k)``                      ``FrameStack(env, k, axis="channels")``
vector environments: none                              ``VectorFrameStack(env, 4)``
=====================================================  =================================================

Observations equal those of the old wrapper at every step. They share their frames, even after conversion to
arrays. In a ``ReplayMemory`` they take a hundredth of the bytes (docs/libraries/gymnasium.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framestow.extras import check_library, missing_extra

try:
    check_library(__name__, "gymnasium")
    import gymnasium
except ModuleNotFoundError as missing:
    raise missing_extra(__name__, missing.name, "gymnasium") from missing

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.utils import create_zero_array

from framestow.checks import as_array, one_of, whole_number
from framestow.envs.recording.recorder import choose_mode, disable_observation_copies
from framestow.envs.recording.step_recording import LastFrame, RecordedStep, StepRecording, frames_on_host, on_host
from framestow.envs.vector.foreign_envs import check_step, refuse_foreign
from framestow.envs.vector.one_env import AutoresetName
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.lazy_frames import STACK_AXES, LazyFrames, LazyFramesBatch, StackAxis
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.tested_versions import warn_of_untested_version
from framestow.interface import public_names
from framestow.keywords import suggests_keywords

__all__ = ["FrameStack", "LazyFrames", "LazyFramesBatch", "VectorFrameStack"]
__dir__ = public_names(__name__)

warn_of_untested_version("gymnasium", newest="1.4")

ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


@suggests_keywords
class FrameStack(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Observe the last ``stack_size`` frames of an environment as ``LazyFrames``.

    ``np.asarray(observation)`` equals the observation of Gymnasium's ``FrameStackObservation``. Different: each frame
    is copied once. If an environment reuses one array for all its frames, Gymnasium's wrapper returns the newest frame
    ``stack_size`` times, and this one the true frames.

    >>> import gymnasium
    >>> import numpy as np
    >>> from framestow.integrations.gymnasium import FrameStack
    >>> env = FrameStack(gymnasium.make("CartPole-v1"), 3)
    >>> env.observation_space.shape
    (3, 4)
    >>> observation, info = env.reset(seed=123)
    >>> observation
    LazyFrames(shape=(3, 4), dtype=float32)
    >>> np.asarray(observation)[:, 0].round(3)
    array([0.018, 0.018, 0.018], dtype=float32)

    Arguments:
        env: an environment with observations of a ``Box``, ``Discrete``, ``MultiBinary`` or ``MultiDiscrete`` space, or
            of a ``Dict`` or ``Tuple`` of these. Dict and Tuple observations become dicts and tuples of ``LazyFrames``.
        stack_size: frames per observation, at least 1.
        padding_type: padding before an episode's first frame: ``"reset"`` repeats that frame, ``"zero"`` uses the
            space's value nearest to zero, or an observation of the space.
        axis: ``"first"`` stacks along a new first axis, ``"last"`` along a new last axis, ``"channels"`` concatenates
            along the existing last axis, as Baselines does: (84, 84, 1) becomes (84, 84, 4).

    Raises:
        InvalidSettingsError: the space cannot be stacked like this.
        InvalidStepError: an observation has another shape or dtype than the space.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        stack_size: int,
        *,
        padding_type: Any = "reset",
        axis: StackAxis = "first",
    ) -> None:
        refuse_foreign("env is", env)
        if isinstance(env, VectorEnv):
            raise InvalidSettingsError(f"env is {env}: a vector environment; use VectorFrameStack(env, stack_size)")
        if not isinstance(env, gymnasium.Env):
            raise InvalidSettingsError(f"env is {env!r}: it must be an environment; give gymnasium.make(...)")
        gymnasium.utils.RecordConstructorArgs.__init__(
            self, stack_size=stack_size, padding_type=padding_type, axis=axis
        )
        gymnasium.Wrapper.__init__(self, env)
        self.observation_space = stack_space(env.observation_space, stack_size, axis)
        self.stack_size, self.padding_type, self.axis = stack_size, padding_type, axis
        # By key or part of an observation: its last frames.
        self._recent = recent_frames(env.observation_space, stack_size, padding_type, axis)
        self._is_reset = False  # a step needs it

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and return the padded first observation."""
        frame, info = self.env.reset(seed=seed, options=options)
        copied = map_arrays(RecentFrames.copy_frame, self._recent, frame)
        self._is_reset = True
        return map_arrays(RecentFrames.begin, self._recent, copied), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment; only the observation is replaced."""
        if not self._is_reset:
            raise InvalidStepError(f"{self} was not reset: step needs an open episode; call reset() first")
        frame, reward, terminated, truncated, info = self.env.step(action)
        copied = map_arrays(RecentFrames.copy_frame, self._recent, frame)
        return map_arrays(RecentFrames.append, self._recent, copied), reward, terminated, truncated, info


@suggests_keywords
class VectorFrameStack(VectorWrapper):  # VectorWrapper has no type parameters in Gymnasium 1.1
    """Observe the last ``stack_size`` frames of each environment of a vector environment, as ``LazyFramesBatch``.

    ``observations[i]`` is the ``LazyFrames`` of environment ``i``. ``np.asarray(observations)`` is the array
    ``(num_envs, stack_size, *frame)``. Each row equals the observation of a ``FrameStack`` around that environment, in
    all three autoreset modes:

    ===============  =======================================================  ============================
    mode             observation at the end of an episode                     start of the next episode
    ===============  =======================================================  ============================
    ``NEXT_STEP``    its newest frame is the true last frame                  at the next step
    ``SAME_STEP``    first observation of the next episode; the               at the same step
                     ``LazyFrames`` of the true last frame are in
                     ``infos["final_obs"]``
    ``DISABLED``     its newest frame is the true last frame                  at ``reset`` with a mask
    ===============  =======================================================  ============================

    >>> import gymnasium
    >>> import numpy as np
    >>> from framestow.integrations.gymnasium import VectorFrameStack
    >>> env = VectorFrameStack(gymnasium.make_vec("CartPole-v1", num_envs=2), 3)
    >>> observations, infos = env.reset(seed=0)
    >>> (
    ...     observations,
    ...     np.asarray(observations[1]).shape,
    ...     env.single_observation_space.shape,
    ... )
    (LazyFramesBatch(shape=(2, 3, 4), dtype=float32), (3, 4), (3, 4))

    ``autoreset_mode`` and ``last_frame`` are those of ``Recorder``: ``None`` reads the mode from the environment, and
    ``"missing"`` takes an environment of SAME_STEP that does not give the last frame of an episode; ``final_obs`` then
    lacks it. The other arguments and errors are those of ``FrameStack``.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        stack_size: int,
        *,
        padding_type: Any = "reset",
        axis: StackAxis = "first",
        autoreset_mode: AutoresetMode | AutoresetName | None = None,
        last_frame: LastFrame = "given",
    ) -> None:
        refuse_foreign("env is", env)
        if not isinstance(env, VectorEnv):
            raise InvalidSettingsError(f"env is {env}: not a vector environment; use FrameStack(env, stack_size)")
        super().__init__(env)
        frame_space = env.single_observation_space
        self.single_observation_space = stack_space(frame_space, stack_size, axis)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self.stack_size, self.padding_type, self.axis = stack_size, padding_type, axis
        self._tracks = TracksOfFrames(frame_space, env.num_envs, stack_size, padding_type, axis)
        self._recording = StepRecording(env, choose_mode(env, autoreset_mode), last_frame)
        self._is_reset = np.zeros(env.num_envs, np.bool_)  # by environment
        disable_observation_copies(env)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those of ``options["reset_mask"]``; return the observations of all."""
        copied_options = None if options is None else dict(options)  # Gymnasium's environments remove the mask
        everywhere = np.ones(self.num_envs, np.bool_)
        mask = np.array(options.get("reset_mask", everywhere)) if options else everywhere
        frames, infos = self.env.reset(seed=seed, options=copied_options)  # type: ignore[arg-type]
        self._tracks.begin(map_arrays(lambda rows: rows[mask], frames_on_host(frames)), np.flatnonzero(mask))
        self._recording.has_ended[mask], self._is_reset[mask] = False, True
        return self._tracks.observations(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments; only the observations and ``final_obs`` are replaced."""
        if not self._is_reset.all():
            idle = np.flatnonzero(~self._is_reset).tolist()
            raise InvalidStepError(f"environments {idle} were not reset: step needs open episodes; call reset() first")
        results = self.env.step(actions)
        check_step("the vector environment", results)
        frames, rewards, terminated, truncated, infos = results
        no_actions = np.empty(self.num_envs)  # actions are not stored
        others = on_host("rewards", rewards), on_host("terminated", terminated), on_host("truncated", truncated)
        infos = self._recording.record(self._tracks, RecordedStep(no_actions, frames_on_host(frames), *others, infos))
        return self._tracks.observations(), rewards, terminated, truncated, infos


def stack_space(space: gymnasium.Space[Any], stack_size: int, axis: StackAxis) -> gymnasium.Space[Any]:
    """Return the space of stacks of ``stack_size`` frames of ``space``."""
    stack_size = whole_number("stack_size", stack_size, 1, rule="it must be at least 1; give 4")
    one_of("axis", axis, STACK_AXES)
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: stack_space(part, stack_size, axis) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([stack_space(part, stack_size, axis) for part in space.spaces])
    if isinstance(space, ARRAY_SPACES) and axis == "first":
        return batch_space(space, int(stack_size))
    if isinstance(space, spaces.Box) and (axis == "last" or space.shape):
        low, high = (np.asarray(LazyFrames([bound] * stack_size, axis)) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype.type)
    raise InvalidSettingsError(
        f"observation space {space} with axis={axis!r}: only Box spaces can be stacked, and with axis='first' also "
        "Discrete, MultiBinary and MultiDiscrete, and Dicts and Tuples of these; convert it in a wrapper"
    )


class RecentFrames:
    """The last frames of one array of an environment's observations; each is copied once and then shared."""

    def __init__(self, space: Any, stack_size: int, padding: Any, axis: StackAxis) -> None:
        """``padding``: frame before an episode's first frame; ``None`` repeats the first frame."""
        self._shape, self._dtype, self._axis = tuple(space.shape), np.dtype(space.dtype), axis
        # The last ``stack_size`` frames, oldest first, each read-only; empty before the first episode.
        self._frames: tuple[npt.NDArray[Any], ...] = ()
        self._num_padded = stack_size - 1
        self._padding = None if padding is None else self.copy_frame(padding)

    def copy_frame(self, frame: Any) -> npt.NDArray[Any]:
        """Return a read-only copy of ``frame``; raise ``InvalidStepError`` if it does not match the space."""
        array = as_array("observation", frame, InvalidStepError)
        if array.shape != self._shape or not np.can_cast(array.dtype, self._dtype, "same_kind"):
            raise InvalidStepError(
                f"observation is {array.dtype} of shape {array.shape}: the observation space requires {self._dtype} of "
                f"shape {self._shape}; correct the environment or its space"
            )
        copied = np.array(array, self._dtype)
        copied.flags.writeable = False
        return copied

    def begin(self, frame: npt.NDArray[Any]) -> LazyFrames:
        """Start an episode with ``frame``, a result of ``copy_frame``; return the observation."""
        self._frames = ((frame if self._padding is None else self._padding),) * self._num_padded + (frame,)
        return self.observation

    def append(self, frame: npt.NDArray[Any]) -> LazyFrames:
        """Add ``frame``, a result of ``copy_frame``; return the observation."""
        self._frames = (*self._frames[1:], frame)
        return self.observation

    @property
    def newest(self) -> npt.NDArray[Any]:
        """The newest frame."""
        return self._frames[-1]

    @property
    def observation(self) -> LazyFrames:
        """The observation: the last frames."""
        return LazyFrames(self._frames, self._axis)


class TracksOfFrames:
    """A ``StepSink`` that has the last frames of each environment of a vector environment, instead of a memory."""

    def __init__(self, space: Any, num_envs: int, stack_size: int, padding_type: Any, axis: StackAxis) -> None:
        trees = [recent_frames(space, stack_size, padding_type, axis) for _ in range(num_envs)]
        # By key or part of an observation: the last frames of each environment.
        self._recent = map_arrays(lambda *parts: list(parts), *trees)
        self._num_envs, self.stack = num_envs, stack_size

    def begin(self, frames: Any, env_ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None) -> None:
        """Start an episode in each of ``env_ids``, by default all, with its row of ``frames``."""
        self._each(RecentFrames.begin, frames, env_ids)

    def append(
        self,
        actions: npt.ArrayLike,  # noqa: ARG002 -- a StepSink takes these
        rewards: npt.ArrayLike,  # noqa: ARG002
        terminated: npt.ArrayLike,  # noqa: ARG002
        truncated: npt.ArrayLike,  # noqa: ARG002
        frames: Any,
        env_ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Add to each of ``env_ids`` its row of ``frames``."""
        self._each(RecentFrames.append, frames, env_ids)

    def observations(self) -> Any:
        """Return the observations of all environments: a ``LazyFramesBatch``, or a dict or tuple of them."""
        return map_arrays(lambda recent: LazyFramesBatch(one.observation for one in recent), self._recent)

    def newest_frames(self) -> Any:
        """Return the newest frame of each environment."""
        return map_arrays(lambda recent: np.stack([one.newest for one in recent]), self._recent)

    def _each(self, change: Any, frames: Any, env_ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None) -> None:
        numbers = range(self._num_envs) if env_ids is None else env_ids

        def copy_rows(recent: list[RecentFrames], rows: Any) -> list[npt.NDArray[Any]]:
            return [recent[number].copy_frame(row) for number, row in zip(numbers, rows, strict=True)]

        def change_each(recent: list[RecentFrames], rows: list[npt.NDArray[Any]]) -> None:
            for number, row in zip(numbers, rows, strict=True):
                change(recent[number], row)

        map_arrays(change_each, self._recent, map_arrays(copy_rows, self._recent, frames))


def recent_frames(space: Any, stack_size: int, padding_type: Any, axis: StackAxis) -> Any:
    """Return one ``RecentFrames`` per key of an observation of ``space``, in the structure of the observation."""
    if isinstance(padding_type, str) and padding_type in ("reset", "zero"):
        padding = create_zero_array(space)
    elif isinstance(padding_type, str) or padding_type not in space:
        raise InvalidSettingsError(
            f"padding_type is {padding_type!r}: it must be 'reset', 'zero' or an observation of {space}"
        )
    else:
        padding = padding_type

    def recent(space: Any, padding: Any) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: recent(part, padding[key]) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(map(recent, space.spaces, padding))
        repeats_first = isinstance(padding_type, str) and padding_type == "reset"
        return RecentFrames(space, stack_size, None if repeats_first else padding, axis)

    return recent(space, padding)
