"""Frame stacks for Gymnasium that share their frames: ``FrameStack``, ``VectorFrameStack``, and what they give.

Needs the extra ``framestow[gymnasium]``. Tested with Gymnasium 1.1 to 1.4; a version outside warns once.

=====================================================  =================================================
before                                                 here
=====================================================  =================================================
Gymnasium >= 1.0: ``FrameStackObservation(env, 4)``    ``FrameStack(env, 4)``
the same with ``padding_type="zero"``, or an array     the same
Gymnasium < 1.0: ``FrameStack(env, num_stack=4)``      ``FrameStack(env, 4)``
the same with ``lz4_compress=True``                    none: put the frames into a ``ReplayMemory``
Baselines: ``FrameStack(env, k)``                      ``FrameStack(env, k, axis="channels")``
a vector environment, for which there was none         ``VectorFrameStack(env, 4)``
=====================================================  =================================================

Observations equal those of the wrapper before, at every step. A million of them take 7.4 GB, however many were looked
at; where the frames go into a ``ReplayMemory`` instead they take 50 to 400 MB (docs/libraries.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

try:
    import gymnasium
except ModuleNotFoundError as missing:
    from framestow.errors import MissingExtraError

    raise MissingExtraError(
        f"framestow.integrations.gymnasium needs {missing.name}: it is part of the extra 'gymnasium', which is not "
        'installed; run: pip install "framestow[gymnasium]"'
    ) from missing

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.utils import create_zero_array

from framestow.argument_checks import one_of, whole_number
from framestow.envs.recording.recordable import declared_mode, disable_observation_copies
from framestow.envs.recording.step_recording import RECORDINGS, SteppedRows
from framestow.envs.vector.autoreset import find_mode
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.lazy_frames import STACK_AXES, LazyFrames, LazyFramesBatch, StackAxis
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.tested_versions import warn_of_untested_version

__all__ = ["FrameStack", "LazyFrames", "LazyFramesBatch", "VectorFrameStack"]

warn_of_untested_version("gymnasium", "1.1", "1.4")

ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


class FrameStack(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Shows the last ``stack_size`` frames of an environment as ``LazyFrames``.

    What ``np.asarray(observation)`` gives is what Gymnasium's ``FrameStackObservation`` gives, at every step. Each
    frame is copied once and never changes, also where the environment writes all its frames into one array: Gymnasium's
    wrapper shows that array ``stack_size`` times over.

    >>> import gymnasium
    >>> env = FrameStack(gymnasium.make("CartPole-v1"), 3)
    >>> env.observation_space.shape
    (3, 4)
    >>> observation, info = env.reset(seed=123)
    >>> observation
    LazyFrames(shape=(3, 4), dtype=float32)
    >>> np.asarray(observation)[:, 0].round(3)
    array([0.018, 0.018, 0.018], dtype=float32)

    Arguments:
        env: an environment whose observations are a ``Box``, ``Discrete``, ``MultiBinary`` or ``MultiDiscrete``, or a
            ``Dict`` or ``Tuple`` of those: then observations are a dict or tuple of ``LazyFrames``.
        stack_size: frames an observation, at least 1.
        padding_type: what stands before an episode's first frame: ``"reset"`` that frame again, ``"zero"`` the value of
            the space that is nearest to zero, or an observation of your own.
        axis: ``"first"`` stacks along a new first axis, ``"last"`` along a new last one, ``"channels"`` joins along the
            frames' own last one, as Baselines does: of (84, 84, 1) come (84, 84, 4).

    Raises ``InvalidSettingsError`` for what cannot be stacked so, and ``InvalidStepError`` where the environment shows
    something of another shape or dtype than its space says.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        stack_size: int,
        *,
        padding_type: Any = "reset",
        axis: StackAxis = "first",
    ) -> None:
        if isinstance(env, VectorEnv):
            raise InvalidSettingsError(f"env is {env}: it is many environments; take VectorFrameStack(env, stack_size)")
        gymnasium.utils.RecordConstructorArgs.__init__(
            self, stack_size=stack_size, padding_type=padding_type, axis=axis
        )
        gymnasium.Wrapper.__init__(self, env)
        self.observation_space = stacked_space(env.observation_space, stack_size, axis)
        self.stack_size, self.padding_type, self.axis = stack_size, padding_type, axis
        self._recent = recent_frames(env.observation_space, stack_size, padding_type, axis)
        self._has_begun = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; gives the padded first observation."""
        frame, info = self.env.reset(seed=seed, options=options)
        kept = map_arrays(RecentFrames.kept, self._recent, frame)
        self._has_begun = True
        return map_arrays(RecentFrames.begin, self._recent, kept), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment; all but the observation is as the environment gives it."""
        if not self._has_begun:
            raise InvalidStepError(f"{self} has no episode: a step needs one running; call reset()")
        frame, reward, terminated, truncated, info = self.env.step(action)
        kept = map_arrays(RecentFrames.kept, self._recent, frame)
        return map_arrays(RecentFrames.append, self._recent, kept), reward, terminated, truncated, info


class VectorFrameStack(VectorWrapper):  # which has no type parameters in Gymnasium 1.1
    """Shows the last ``stack_size`` frames of each environment of a vector environment, as ``LazyFramesBatch``.

    ``observations[i]`` is the ``LazyFrames`` of environment ``i``, to be kept; ``np.asarray(observations)`` the array
    ``(num_envs, stack_size, *frame)``. Row by row they are what a ``FrameStack`` around each environment shows, in all
    three modes of autoreset:

    ===============  =======================================================  ==============================
    mode             where an episode ends, the observation                   the next episode begins
    ===============  =======================================================  ==============================
    ``NEXT_STEP``    ends in the true last frame                              with the step after that
    ``SAME_STEP``    is the next episode's first one; ``infos["final_obs"]``  at once
                     has the ``LazyFrames`` that end in the true last frame
    ``DISABLED``     ends in the true last frame                              with ``reset`` and its mask;
                                                                              the others' stacks stay
    ===============  =======================================================  ==============================

    >>> import gymnasium
    >>> env = VectorFrameStack(gymnasium.make_vec("CartPole-v1", num_envs=2), 3)
    >>> observations, infos = env.reset(seed=0)
    >>> observations, np.asarray(observations[1]).shape, env.single_observation_space.shape
    (LazyFramesBatch(shape=(2, 3, 4), dtype=float32), (3, 4), (3, 4))

    ``autoreset_mode``: ``None`` reads it off the environment. The other arguments and what is raised are as for
    ``FrameStack``; framestow's own vector environments lend it their frames, which it copies, once each.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        stack_size: int,
        *,
        padding_type: Any = "reset",
        axis: StackAxis = "first",
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        if not isinstance(env, VectorEnv):
            raise InvalidSettingsError(f"env is {env}: it is no vector environment; take FrameStack(env, stack_size)")
        super().__init__(env)
        frame_space = env.single_observation_space
        self.single_observation_space = stacked_space(frame_space, stack_size, axis)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self.stack_size, self.padding_type, self.axis = stack_size, padding_type, axis
        self._streams = StreamsOfFrames(frame_space, env.num_envs, stack_size, padding_type, axis)
        self._record = RECORDINGS[find_mode(declared_mode(env) if autoreset_mode is None else autoreset_mode)]
        self._has_ended, self._has_begun = np.zeros(env.num_envs, np.bool_), np.zeros(env.num_envs, np.bool_)
        disable_observation_copies(env)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those of ``options["reset_mask"]``; gives the observations of all."""
        own_options = None if options is None else dict(options)  # Gymnasium's environments take the mask out of it
        mask = np.ones(self.num_envs, np.bool_) if not options else np.array(options.get("reset_mask", self._all()))
        frames, infos = self.env.reset(seed=seed, options=own_options)  # type: ignore[arg-type]
        self._streams.begin(map_arrays(lambda rows: rows[mask], frames), np.flatnonzero(mask))
        self._has_ended[mask], self._has_begun[mask] = False, True
        return self._streams.observations(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments; all but the observations and ``final_obs`` is as they give it."""
        if not self._has_begun.all():
            idle = np.flatnonzero(~self._has_begun).tolist()
            raise InvalidStepError(f"environments {idle} have no episode: a step needs one running; call reset()")
        frames, rewards, terminated, truncated, infos = self.env.step(actions)
        nothing = np.empty(self.num_envs)  # of actions, which nobody keeps here
        rows = SteppedRows(np.arange(self.num_envs), True, nothing, frames, rewards, terminated, truncated, infos)
        infos = self._record(self._streams, rows, self._has_ended)
        return self._streams.observations(), rewards, terminated, truncated, infos

    def _all(self) -> npt.NDArray[np.bool_]:
        return np.ones(self.num_envs, np.bool_)


class RecentFrames:
    """The last frames of one array of an environment's observations, each copied once and shared from then on."""

    def __init__(self, space: Any, stack_size: int, padding: Any, axis: StackAxis) -> None:
        """``padding``: what stands before an episode's first frame; ``None`` repeats that frame."""
        self._shape, self._dtype, self._axis = tuple(space.shape), np.dtype(space.dtype), axis
        self._frames: tuple[npt.NDArray[Any], ...] = ()
        self._num_padded = stack_size - 1
        self._padding = None if padding is None else self.kept(padding)

    def kept(self, frame: Any) -> npt.NDArray[Any]:
        """Copy ``frame`` and make the copy read-only; ``InvalidStepError`` if it is not as the space says."""
        array = np.asarray(frame)
        if array.shape != self._shape or not np.can_cast(array.dtype, self._dtype, "same_kind"):
            raise InvalidStepError(
                f"observation is {array.dtype} of shape {array.shape}: the observation space says {self._dtype} of "
                f"shape {self._shape}; correct the environment, or its space"
            )
        own = np.array(array, self._dtype)
        own.flags.writeable = False
        return own

    def begin(self, frame: npt.NDArray[Any]) -> LazyFrames:
        """Begin an episode with ``frame``, which `kept` has given; gives the observation."""
        self._frames = ((frame if self._padding is None else self._padding),) * self._num_padded + (frame,)
        return self.observation

    def append(self, frame: npt.NDArray[Any]) -> LazyFrames:
        """Go on with ``frame``, which `kept` has given; gives the observation."""
        self._frames = (*self._frames[1:], frame)
        return self.observation

    @property
    def observation(self) -> LazyFrames:
        """The last frames."""
        return LazyFrames(self._frames, self._axis)


class StreamsOfFrames:
    """The last frames of each environment of a vector environment: `step_recording` feeds it in place of a memory."""

    def __init__(self, space: Any, num_envs: int, stack_size: int, padding_type: Any, axis: StackAxis) -> None:
        trees = [recent_frames(space, stack_size, padding_type, axis) for _ in range(num_envs)]
        self._streams = map_arrays(lambda *parts: list(parts), trees[0], *trees[1:])
        self._num_streams, self.stack = num_envs, stack_size

    def begin(self, frames: Any, env_ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None) -> None:
        """Begin an episode on each of ``env_ids``, all where ``None``, with its row of ``frames``."""
        self._each(RecentFrames.begin, frames, env_ids)

    def append(
        self,
        actions: npt.ArrayLike,  # noqa: ARG002 -- the protocol of memories has these
        rewards: npt.ArrayLike,  # noqa: ARG002
        terminated: npt.ArrayLike,  # noqa: ARG002
        truncated: npt.ArrayLike,  # noqa: ARG002
        frames: Any,
        env_ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Add to each of ``env_ids`` its row of ``frames``."""
        self._each(RecentFrames.append, frames, env_ids)

    def observations(self) -> Any:
        """What each environment shows: a ``LazyFramesBatch``, or a dict or tuple of them."""
        return map_arrays(lambda recent: LazyFramesBatch(one.observation for one in recent), self._streams)

    def _each(self, change: Any, frames: Any, streams: Sequence[int] | npt.NDArray[np.integer[Any]] | None) -> None:
        numbers = range(self._num_streams) if streams is None else streams

        def kept_rows(recent: list[RecentFrames], rows: Any) -> list[npt.NDArray[Any]]:
            return [recent[number].kept(row) for number, row in zip(numbers, rows, strict=True)]

        def change_each(recent: list[RecentFrames], rows: list[npt.NDArray[Any]]) -> None:
            for number, row in zip(numbers, rows, strict=True):
                change(recent[number], row)

        map_arrays(change_each, self._streams, map_arrays(kept_rows, self._streams, frames))


def recent_frames(space: Any, stack_size: int, padding_type: Any, axis: StackAxis) -> Any:
    """Make a ``RecentFrames`` for each array of observations of ``space``, in the form of the observation."""
    if isinstance(padding_type, str) and padding_type in ("reset", "zero"):
        padding = create_zero_array(space)
    elif isinstance(padding_type, str) or padding_type not in space:
        raise InvalidSettingsError(
            f"padding_type is {padding_type!r}: it must be 'reset', 'zero' or an observation of {space}"
        )
    else:
        padding = padding_type

    def made(space: Any, padding: Any) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: made(part, padding[key]) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(map(made, space.spaces, padding))
        repeats_first = isinstance(padding_type, str) and padding_type == "reset"
        return RecentFrames(space, stack_size, None if repeats_first else padding, axis)

    return made(space, padding)


def stacked_space(space: gymnasium.Space[Any], stack_size: int, axis: StackAxis) -> gymnasium.Space[Any]:
    """Make the space of ``stack_size`` frames of ``space``; along the first axis it is Gymnasium's."""
    stack_size = whole_number("stack_size", stack_size, 1, rule="it must be at least 1; take 4")
    one_of("axis", axis, STACK_AXES)
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: stacked_space(part, stack_size, axis) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([stacked_space(part, stack_size, axis) for part in space.spaces])
    if isinstance(space, ARRAY_SPACES) and axis == "first":
        return batch_space(space, int(stack_size))
    if isinstance(space, spaces.Box) and (axis == "last" or space.shape):
        low, high = (np.asarray(LazyFrames([bound] * stack_size, axis)) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype.type)
    raise InvalidSettingsError(
        f"observation space {space} with axis={axis!r}: frames of a Box are stacked, with axis='first' those of a "
        "Discrete, MultiBinary or MultiDiscrete too, and Dicts and Tuples of them; convert it in a wrapper"
    )
