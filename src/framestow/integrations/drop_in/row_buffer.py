"""Buffers that other libraries feed with rows of steps, Stable-Baselines3's and what was made after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.paired_steps import PairedSteps
from framestow.replay.action_spec import ActionSpec
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory

Array = npt.NDArray[Any]


def as_rows_of(observations: Any, num_envs: int, frame: FrameSpec) -> Array:
    """Give ``observations`` as ``(num_envs, *frame)`` of its dtype, as NumPy would assign them to such an array.

    A number a stream may lack its axis. Raises ``InvalidStepError`` for a shape that does not fit, and for values that
    would be others in that dtype; floats may lose digits.
    """
    array, shape = np.asarray(observations), (num_envs, *frame.shape)
    if array.dtype != frame.dtype:
        array = _cast(array, frame.dtype)
    if array.shape == shape:
        return array
    if frame.shape == (1,) and array.shape == (num_envs,):
        return array[:, None]
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise InvalidStepError(
            f"observations have shape {array.shape}: those of {num_envs} environments are {shape}; give one for each"
        ) from None


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):  # what does not fit is found below
        cast = array.astype(dtype)
    if not np.can_cast(array.dtype, dtype, "same_kind") and not np.array_equal(cast, array):
        raise InvalidStepError(
            f"observations have dtype {array.dtype}: some are others as {dtype}, which the observation space says; "
            "give them in that dtype"
        )
    return cast


MOST_BYTES = 2**30  # are unpacked at once

Unpack = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[Any]]


class RingObservations:
    """Reads as an array ``(rows, streams, *observation)`` that cannot be written to.

    Its first two axes take any index that NumPy takes; what is looked at is unpacked into a new array. Rows that hold
    nothing yet are zeros. ``unpack`` gives the observations of some rows and streams.

    Raises ``InvalidSettingsError`` where more than a gibibyte would be unpacked at once.
    """

    def __init__(self, unpack: Unpack, num_stored: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._unpack, self._num_held, self.shape, self.dtype = unpack, num_stored, shape, dtype

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        rows, streams = np.indices(self.shape[:2], sparse=True)
        places = (rows * self.shape[1] + streams)[_of_rows_and_streams(key)]
        observation = self.shape[2:]
        num_bytes = places.size * int(np.prod(observation)) * self.dtype.itemsize
        if num_bytes > MOST_BYTES:
            raise InvalidSettingsError(
                f"{places.size} observations have {num_bytes / 2**30:.1f} GiB unpacked: {MOST_BYTES // 2**30} GiB are "
                "unpacked at once; look at fewer rows, or go through memory.episodes() of the buffer"
            )
        found = np.zeros((places.size, *observation), self.dtype)
        rows, streams = np.divmod(places.ravel(), self.shape[1])
        is_held = rows < self._num_held
        if is_held.any():
            found[is_held] = self._unpack(rows[is_held], streams[is_held])
        return found.reshape(*places.shape, *observation)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("observations are unpacked when they are looked at: there is no array to look at")
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


def _of_rows_and_streams(key: Any) -> Any:
    """Give ``key`` without what it says of whole observations."""
    keys = key if isinstance(key, tuple) else (key,)
    while len(keys) > 2 and (isinstance(keys[-1], EllipsisType) or _is_all(keys[-1])):
        keys = keys[:-1]
    if len(keys) > 2:
        raise InvalidSettingsError(
            f"observations are looked up by {len(keys)} indices: they are unpacked whole; give those of rows and "
            "environments, then index what comes back"
        )
    return keys


def _is_all(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)


class RingArrays:
    """What ``steps`` hold, as arrays ``(num_rows, num_envs, ...)`` of a ring: its row R % num_rows is row R of them.

    None can be written to. Where there is nothing yet they are zeros.
    """

    def __init__(self, steps: PairedSteps, num_rows: int) -> None:
        self.steps, self.num_rows = steps, num_rows

    @property
    def num_stored(self) -> int:
        """How many rows of the ring hold something."""
        return min(self.steps.num_rows, self.num_rows)

    def indices(self, rows: npt.ArrayLike, streams: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Give the memory's indices of steps in these rows of the ring and streams, which broadcast."""
        newest = self.steps.num_rows - 1
        return self.steps.indices(newest - (newest - np.asarray(rows)) % self.num_rows, streams)

    def observations(self, name: str, frames: Any) -> Any:
        """Give ``RingObservations`` of ``"observation"`` or ``"next_observation"``, or a dict of them.

        ``frames``: a ``FrameSpec`` of whole observations, or a dict of such.
        """

        def unpacked(rows: Array, streams: Array, key: str | None = None) -> Array:
            observations = getattr(self.steps.transitions(self.indices(rows, streams)), name)
            return np.asarray(observations if key is None else observations[key])

        axes = self.num_rows, self.steps.memory.num_envs
        if isinstance(frames, dict):
            return {
                key: RingObservations(partial(unpacked, key=key), self.num_stored, (*axes, *frame.shape), frame.dtype)
                for key, frame in frames.items()
            }
        return RingObservations(unpacked, self.num_stored, (*axes, *frames.shape), frames.dtype)

    def column(self, name: str, dtype: npt.DTypeLike = np.float32, shape: tuple[int, ...] = ()) -> Array:
        """Give a new array of what steps carry, by its name in ``HeldSteps``; ``shape``: of one step's."""
        num_envs, rows = self.steps.memory.num_envs, np.arange(self.num_stored)
        array = np.zeros((self.num_rows, num_envs, *shape), dtype)
        indices = self.indices(rows[:, None], np.arange(num_envs))
        if rows.size:
            column = getattr(self.steps.memory.steps_from(indices.ravel()), name)
            array[rows] = column.reshape(*indices.shape, *shape)
        array.flags.writeable = False
        return array

    def dones(self) -> Dones:
        """Give a new array of ``float32``, 1 where an episode ended, which can be told that the newest step was cut."""
        array = np.maximum(self.column("terminated"), self.column("truncated")).view(Dones)
        array.steps, array.newest_row = self.steps, (self.steps.num_rows - 1) % self.num_rows
        return array


class Dones(npt.NDArray[np.float32]):
    """Where episodes ended. ``dones[newest row] = True`` lets the next step of each stream begin an episode.

    So libraries say that they reset environments in the midst of episodes. No flag changes by it: the step's next
    observation is held, and it bootstraps from that. Raises ``InvalidSettingsError`` for anything else that is set.
    """

    steps: PairedSteps | None = None
    newest_row: int = -1

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.steps is None or np.ndim(key) or key != self.newest_row or not np.all(value):
            raise InvalidSettingsError(
                f"dones[{key!r}] is set to {value!r}: steps stay as they came; only of the newest row, "
                f"{self.newest_row}, can be said that its episodes were cut"
            )
        self.steps.start_new_episodes()


class RowBuffer:
    """What Stable-Baselines3's ``ReplayBuffer`` does, without its tensors: keeps rows in a ring, and draws of them.

    A class of a library's adds its constructor and its samples. It calls ``_lay_out`` once it knows these, which are
    called as Stable-Baselines3 calls them: ``buffer_size`` rows of ``n_envs`` steps each, ``action_dim`` elements of an
    action, and ``optimize_memory_usage`` and ``handle_timeout_termination``, which it sets.
    """

    buffer_size: int
    n_envs: int
    action_dim: int
    optimize_memory_usage: bool
    handle_timeout_termination: bool

    def _lay_out(
        self,
        observation_space: Any,
        observation_shape: Any,
        action_space: Any,
        frame_stack: int | None,
        threads: int,
        storage: str,
    ) -> None:
        """``observation_shape``: of one observation, of a Dict by key; a number has an axis of its own."""
        dtype = np.dtype(action_space.dtype)
        self._action_dtype = np.dtype(np.float32) if dtype == np.float64 else dtype
        self._frames, self._frame_stack = _frames_of(observation_space, observation_shape), frame_stack
        self._make_memory = RowMemoryFactory(
            self.buffer_size * self.n_envs,
            _action_spec(action_space, self.action_dim, self._action_dtype),
            self.n_envs,
            threads,
            storage,
        )
        self.reset()

    @property
    def memory(self) -> ReplayMemory:
        """What holds the steps; another one after ``reset``, or where observations turn out not to be stacks."""
        return self._steps.memory

    @property
    def pos(self) -> int:
        """The row that the next step goes into."""
        return self._num_rows % self.buffer_size

    @pos.setter
    def pos(self, row: int) -> None:
        if row != self.pos:
            raise InvalidSettingsError(
                f"pos is set to {row}: steps go into row {self.pos} next, and none can be taken back; reset() takes all"
            )

    @property
    def full(self) -> bool:
        """Whether each step takes the place of an older one."""
        return self._num_rows >= self.buffer_size

    @full.setter
    def full(self, is_full: bool) -> None:
        if is_full != self.full:
            raise InvalidSettingsError(f"full is set to {is_full}: it follows from the steps; add some, or reset()")

    def reset(self) -> None:
        """Forget every step."""
        self._steps = PairedSteps(self._make_memory, self._frames, self._frame_stack)
        self._arrays = RingArrays(self._steps, self.buffer_size)

    def add(
        self, obs: Any, next_obs: Any, action: Array, reward: Array, done: Array, infos: Sequence[dict[str, Any]]
    ) -> None:
        """Store one step of every environment; all is copied."""
        num_envs = self.n_envs
        dones, timeouts, rewards = np.zeros(num_envs, bool), np.zeros(num_envs, bool), np.zeros(num_envs, np.float32)
        dones[:], rewards[:] = done, reward
        if self.handle_timeout_termination:
            timeouts[:] = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        actions = np.asarray(action).reshape(num_envs, self.action_dim)
        self._steps.add(
            self._as_stored(obs),
            actions if self._make_memory.actions.shape else actions[:, 0],
            rewards,
            dones & ~timeouts,
            timeouts,
            self._as_stored(next_obs),
        )

    def _draw_rows(self, batch_size: int) -> Array:
        """Draw rows of the ring by ``np.random``, all equally likely.

        ``NothingToSampleError`` while there is none.
        """
        num_stored = min(self._num_rows, self.buffer_size)
        if not num_stored:
            raise NothingToSampleError("the buffer holds no step: there is nothing to sample; add steps first")
        if self.optimize_memory_usage and self.full and self.buffer_size > 1:
            return np.asarray((np.random.randint(1, self.buffer_size, size=batch_size) + self.pos) % self.buffer_size)
        return np.random.randint(0, num_stored, size=batch_size)

    def _draw_indices(self, rows: Array) -> npt.NDArray[np.int64]:
        """Draw one environment for each of ``rows`` by ``np.random``, and give the memory's indices of their steps."""
        environments = np.random.randint(0, high=self.n_envs, size=(len(rows),))
        return self._arrays.indices(rows, environments)

    def _draw_batch(self, rows: Array) -> Batch:
        """Draw one environment for each of ``rows`` by ``np.random``, and give their transitions."""
        return self._steps.transitions(self._draw_indices(rows))

    def _as_library_actions(self, action: Array) -> Array:
        """Give a batch's actions ``(batch, action_dim)``, of the dtype that the library keeps them in."""
        return action.reshape(len(action), self.action_dim).astype(self._action_dtype, copy=False)

    @property
    def observations(self) -> Any:
        """Read as an array ``(buffer_size, n_envs, *observation)``, or a dict of such, unpacked where one looks.

        Any index of rows and environments is taken; looking at more than a gibibyte raises ``InvalidSettingsError``.
        """
        return self._arrays.observations("observation", self._frames)

    @property
    def next_observations(self) -> Any:
        """Read as ``observations``: what the steps led to."""
        return self._arrays.observations("next_observation", self._frames)

    @property
    def actions(self) -> Array:
        """A new array ``(buffer_size, n_envs, action_dim)``; zeros where there is nothing yet."""
        return self._arrays.column("action", self._action_dtype, (self.action_dim,))

    @property
    def rewards(self) -> Array:
        """A new array ``(buffer_size, n_envs)`` of ``float32``."""
        return self._arrays.column("reward")

    @property
    def timeouts(self) -> Array:
        """A new array ``(buffer_size, n_envs)`` of ``float32``: 1 where ``TimeLimit.truncated`` told an end."""
        return self._arrays.column("truncated")

    @property
    def dones(self) -> Array:
        """A new array ``(buffer_size, n_envs)`` of ``float32``: 1 at the end of an episode, whatever ended it.

        Setting the newest row, as ``learn`` does where it resets environments in the midst of their episodes, lets the
        next steps begin episodes. No flag changes: the step's next observation is the true one, and bootstraps.
        """
        return self._arrays.dones()

    @property
    def _num_rows(self) -> int:
        """How many rows came; none while the parent's constructor sets ``pos`` and ``full``."""
        return self._steps.num_rows if hasattr(self, "_steps") else 0

    def _as_stored(self, observations: Any) -> Any:
        if isinstance(self._frames, dict):
            return {key: as_rows_of(observations[key], self.n_envs, frame) for key, frame in self._frames.items()}
        return as_rows_of(observations, self.n_envs, self._frames)


@dataclass(frozen=True)
class RowMemoryFactory:
    """Makes the memory of a buffer: what `PairedSteps` asks for, and can be pickled."""

    capacity: int
    actions: ActionSpec
    num_envs: int
    threads: int
    storage: str

    def __call__(self, frame_space: Any, stack: int, padding: StackPadding) -> ReplayMemory:
        """Make one for frames of ``frame_space``, ``stack`` an observation."""
        return ReplayMemory(
            self.capacity,
            frame_space,
            self.actions,
            stack=stack,
            stack_padding=padding,
            num_envs=self.num_envs,
            threads=self.threads,
            storage=self.storage,
            seed=0,  # never drawn from: np.random draws
        )


def _frames_of(space: Any, shape: Any) -> Any:
    """What an observation of ``space`` is as the library keeps it: a number has an axis of its own."""
    if hasattr(space, "spaces"):
        return {key: _frames_of(part, shape[key]) for key, part in space.spaces.items()}
    return FrameSpec(shape, np.dtype(space.dtype), _is_box(space) and FrameSpec.from_space(space).is_scaled)


def _action_spec(space: Any, num_elements: int, dtype: np.dtype[Any]) -> ActionSpec:
    """Actions as they come; those of a ``Box`` flat, and scaled to -1 to 1 whatever its bounds are."""
    return ActionSpec((num_elements,), dtype.name) if _is_box(space) else ActionSpec.from_space(space)


def _is_box(space: Any) -> bool:
    return hasattr(space, "low") and hasattr(space, "high")
