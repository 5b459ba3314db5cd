"""Base class of the drop-in buffers for Stable-Baselines3 and CleanRL: rows of steps in a ring.

``RowBuffer`` has the calls and attributes of Stable-Baselines3's ``ReplayBuffer``, without tensors. Its arrays are read
from a memory: observations as ``RingObservations``, other columns as new arrays (``RingArrays``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import as_array, as_flags, truth_value, whole_number
from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import observation_spec
from framestow.integrations.drop_in.paired_steps import PairedSteps, check_frame_stack
from framestow.one_line import one_line
from framestow.replay.action_spec import ActionSpec
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory, check_batch_size, describe_memory
from framestow.storage.frame_storage import Storage

Array = npt.NDArray[Any]


def check_row_arguments(
    buffer_size: Any,
    observation_space: Any,
    action_space: Any,
    n_envs: Any,
    optimize_memory_usage: Any,
    handle_timeout_termination: Any,
    frame_stack: Any,
) -> None:
    """Raise ``InvalidSettingsError`` for arguments of a ``RowBuffer``'s constructor that cannot work."""
    whole_number("buffer_size", buffer_size, 1, rule="a buffer stores at least 1 transition")
    whole_number("n_envs", n_envs, 1, rule="a buffer has at least 1 environment")
    truth_value("optimize_memory_usage", optimize_memory_usage)
    truth_value("handle_timeout_termination", handle_timeout_termination)
    check_frame_stack(frame_stack)
    parts = getattr(observation_space, "spaces", None)
    is_of_arrays = isinstance(parts, Mapping) and not any(hasattr(part, "spaces") for part in parts.values())
    is_text = isinstance(observation_space, str)
    if isinstance(observation_space, (Mapping, Sequence)) and not is_text and not is_of_arrays:
        raise InvalidSettingsError(
            f"observation_space is {observation_space!r}: it must be a Box, a Discrete or another space of one array, "
            "or a Dict of these; give the observation_space of the environment"
        )
    if getattr(observation_space, "shape", None) != ():  # of a Discrete, whose numbers are stored as vectors
        observation_spec(observation_space)
    if not hasattr(action_space, "shape") or not hasattr(action_space, "dtype"):
        raise InvalidSettingsError(
            f"action_space is {action_space!r}: it must be a space with a shape and a dtype; give the action_space of "
            "the environment"
        )
    ActionSpec.from_space(action_space)


def as_rows_of(observations: Any, num_envs: int, frame: FrameSpec) -> Array:
    """Return ``observations`` as ``(num_envs, *frame)`` of the frame's dtype; axes of length 1 may be missing.

    Raises:
        InvalidStepError: the shape does not fit or the dtype would change a value. Floats may lose precision.
    """
    array, shape = as_array("observations", observations, InvalidStepError), (num_envs, *frame.shape)
    if array.dtype != frame.dtype:
        array = _cast(array, frame.dtype)
    if array.shape == shape:
        return array
    if _longer_axes(array.shape) != _longer_axes(shape):
        raise InvalidStepError(
            f"observations have shape {array.shape}: {num_envs} environments have {shape}; give one observation each"
        )
    return array.reshape(shape)


def _longer_axes(shape: tuple[int, ...]) -> list[int]:
    return [side for side in shape if side != 1]


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype.kind not in "biuf":
        raise InvalidStepError(
            f"observations have dtype {array.dtype}: the observation space has {dtype}; convert them"
        )
    with np.errstate(all="ignore"):  # checked below
        cast = array.astype(dtype)
    if not np.can_cast(array.dtype, dtype, "same_kind") and not np.array_equal(cast, array):
        raise InvalidStepError(
            f"observations have dtype {array.dtype}: some values would change in {dtype}, the dtype of the observation "
            "space; convert them first"
        )
    return cast


MAX_BYTES = 2**30  # unpacked at once

Unpack = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[Any]]


class RingObservations:
    """Read-only array-like ``(rows, env_ids, *observation)`` that unpacks observations when indexed.

    The first two axes take any NumPy index. Each index returns a new array. Empty rows are zeros. ``unpack`` returns
    the observations of some rows and environments.

    Raises:
        InvalidSettingsError: more than 1 GiB would be unpacked at once.
    """

    def __init__(self, unpack: Unpack, num_stored: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._unpack, self._num_stored, self.shape, self.dtype = unpack, num_stored, shape, dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        rows, env_ids = np.indices(self.shape[:2], sparse=True)
        cells = (rows * self.shape[1] + env_ids)[_of_rows_and_envs(key)]
        observation = self.shape[2:]
        num_bytes = cells.size * int(np.prod(observation)) * self.dtype.itemsize
        if num_bytes > MAX_BYTES:
            raise InvalidSettingsError(
                f"{cells.size} observations have {num_bytes / 2**30:.1f} GiB unpacked: the limit is "
                f"{MAX_BYTES // 2**30} GiB; index fewer rows, or iterate over memory.episodes() of the buffer"
            )
        found = np.zeros((cells.size, *observation), self.dtype)
        rows, env_ids = np.divmod(cells.ravel(), self.shape[1])
        is_stored = rows < self._num_stored
        if is_stored.any():
            found[is_stored] = self._unpack(rows[is_stored], env_ids[is_stored])
        return found.reshape(*cells.shape, *observation)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("observations are unpacked into a new array: copy=False is not possible; leave it out")
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


def _of_rows_and_envs(key: Any) -> Any:
    """Return ``key`` without trailing full slices of the observation axes."""
    keys = key if isinstance(key, tuple) else (key,)
    while len(keys) > 2 and (isinstance(keys[-1], EllipsisType) or _is_all(keys[-1])):
        keys = keys[:-1]
    if len(keys) > 2:
        raise InvalidSettingsError(
            f"observations are indexed with {len(keys)} indices: the limit is 2, of rows and environments; index the "
            "returned array further"
        )
    return keys


def _is_all(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)


class RingArrays:
    """The stored steps as read-only arrays ``(num_rows, num_envs, ...)`` of a ring.

    Row R of ``steps`` is row R % num_rows of the ring. Empty rows are zeros.
    """

    def __init__(self, steps: PairedSteps, num_rows: int) -> None:
        self.steps, self.num_rows = steps, num_rows

    @property
    def num_stored(self) -> int:
        """Number of rows of the ring that are not empty."""
        return min(self.steps.num_rows, self.num_rows)

    def indices(self, rows: npt.ArrayLike, env_ids: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the memory's indices of the steps in these ring rows and environments, which broadcast."""
        newest = self.steps.num_rows - 1
        return self.steps.indices(newest - (newest - np.asarray(rows)) % self.num_rows, env_ids)

    def observations(self, name: str, frames: Any) -> Any:
        """Return the ``RingObservations`` of ``"observation"`` or ``"next_observation"``, or a dict of them.

        ``frames``: the ``FrameSpec`` of whole observations, or a dict of them.
        """

        def read_observations(rows: Array, env_ids: Array, key: str | None = None) -> Array:
            observations = getattr(self.steps.transitions(self.indices(rows, env_ids)), name)
            return np.asarray(observations if key is None else observations[key])

        axes = self.num_rows, self.steps.memory.num_envs
        if isinstance(frames, dict):
            return {
                key: RingObservations(
                    partial(read_observations, key=key), self.num_stored, (*axes, *frame.shape), frame.dtype
                )
                for key, frame in frames.items()
            }
        return RingObservations(read_observations, self.num_stored, (*axes, *frames.shape), frames.dtype)

    def column(self, name: str, dtype: npt.DTypeLike = np.float32, shape: tuple[int, ...] = ()) -> Array:
        """Return a new array of a column of ``StepSequences``; ``shape`` is the shape of one step's value."""
        num_envs, rows = self.steps.memory.num_envs, np.arange(self.num_stored)
        array = np.zeros((self.num_rows, num_envs, *shape), dtype)
        indices = self.indices(rows[:, None], np.arange(num_envs))
        if rows.size:
            column = getattr(self.steps.memory.steps_from(indices.ravel()), name)
            array[rows] = column.reshape(*indices.shape, *shape)
        array.flags.writeable = False
        return array

    def dones(self) -> Dones:
        """Return a new ``float32`` array, 1 where an episode ended; setting its newest row ends episodes."""
        array = np.maximum(self.column("terminated"), self.column("truncated")).view(Dones)
        array.steps, array.newest_row = self.steps, (self.steps.num_rows - 1) % self.num_rows
        return array


class Dones(npt.NDArray[np.float32]):
    """End flags of steps. ``dones[newest_row] = True`` starts a new episode with the next step of each environment.

    Libraries set it when they reset environments during an episode. It changes no stored flag: the last step bootstraps
    from its stored next observation. Raises ``InvalidSettingsError`` for any other assignment.
    """

    steps: PairedSteps | None = None
    newest_row: int = -1

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.steps is None or np.ndim(key) or key != self.newest_row or not np.all(value):
            raise InvalidSettingsError(
                f"dones[{key!r}] is set to {value!r}: stored steps cannot be changed; only dones[{self.newest_row}], "
                "the newest row, can be set to True"
            )
        self.steps.start_new_episodes()


class RowBuffer:
    """Ring of rows like Stable-Baselines3's ``ReplayBuffer``, without tensors.

    Subclasses add the library's constructor and samples. A constructor sets the attributes below, which have
    Stable-Baselines3's names, and then calls ``_init_rows``. The ring has ``buffer_size`` rows of ``n_envs`` steps.
    """

    buffer_size: int
    n_envs: int
    action_dim: int
    optimize_memory_usage: bool
    handle_timeout_termination: bool

    def _init_rows(
        self,
        observation_space: Any,
        observation_shape: Any,
        action_space: Any,
        frame_stack: int | None,
        threads: int,
        storage: Storage,
    ) -> None:
        """Create the memory. ``observation_shape``: of one observation, for a Dict by key; (1,) for a number."""
        dtype = np.dtype(action_space.dtype)
        self._action_dtype = np.dtype(np.float32) if dtype == np.float64 else dtype
        self._frames, self._frame_stack = _frames_of(observation_space, observation_shape), frame_stack
        self._arguments: dict[str, Any] = {
            "capacity": self.buffer_size * self.n_envs,
            "action_space": _action_spec(action_space, self.action_dim, self._action_dtype),
            "num_envs": self.n_envs,
            "threads": threads,
            "storage": storage,
        }
        self.reset()

    def __repr__(self) -> str:
        num_envs, size = self.n_envs, self.buffer_size
        return one_line(self, lambda: describe_memory(self.memory, self._num_stored * num_envs, size * num_envs))

    @property
    def memory(self) -> ReplayMemory:
        """The memory with the steps. ``reset`` replaces it."""
        return self._steps.memory

    @property
    def pos(self) -> int:
        """Row of the next step."""
        return self._num_rows % self.buffer_size

    @pos.setter
    def pos(self, row: int) -> None:
        if row != self.pos:
            raise InvalidSettingsError(
                f"pos is set to {row}: it must stay {self.pos}, the row of the next step; reset() removes all steps"
            )

    @property
    def full(self) -> bool:
        """Whether the buffer is full: each new row replaces the oldest one."""
        return self._num_rows >= self.buffer_size

    @full.setter
    def full(self, is_full: bool) -> None:
        if is_full != self.full:
            raise InvalidSettingsError(
                f"full is set to {is_full}: it depends on the stored steps; use add() or reset()"
            )

    def reset(self) -> None:
        """Remove all steps."""
        self._no_flags = np.zeros(self.n_envs, bool)
        self._steps = PairedSteps(self._frames, self._frame_stack, **self._arguments)
        self._arrays = RingArrays(self._steps, self.buffer_size)

    def add(
        self, obs: Any, next_obs: Any, action: Array, reward: Array, done: Array, infos: Sequence[dict[str, Any]]
    ) -> None:
        """Store one step of every environment; all arrays are copied."""
        terminated, truncated = self._row("done", as_flags("done", done), np.bool_), self._no_flags
        timeouts = self._timeouts(infos) if self.handle_timeout_termination else []
        if any(timeout is not False for timeout in timeouts):  # arrays, too
            name = "TimeLimit.truncated"
            truncated = self._row(name, as_flags(name, timeouts), np.bool_)
            terminated = terminated & ~truncated
        actions = as_array("actions", action, InvalidStepError)
        if actions.size != self.n_envs * self.action_dim:
            raise InvalidStepError(
                f"actions have shape {actions.shape}: {self.n_envs} environments have "
                f"{(self.n_envs, self.action_dim)}; give one action for each environment"
            )
        actions = actions.reshape(self.n_envs, self.action_dim)
        self.memory.add(
            self._as_stored(obs),
            actions if self._arguments["action_space"].shape else actions[:, 0],
            self._row("reward", reward, np.float32),
            self._as_stored(next_obs),
            terminated,
            truncated,
        )

    def _row(self, name: str, values: Any, dtype: Any) -> Array:
        """Return one number of each environment, assigned as to a row of an array."""
        if type(values) is np.ndarray and values.dtype == dtype and values.shape == (self.n_envs,):
            return values
        array, row = as_array(name, values, InvalidStepError), np.zeros(self.n_envs, dtype)
        if array.dtype.kind not in "biuf" or _longer_axes(array.shape) not in ([], _longer_axes(row.shape)):
            raise InvalidStepError(
                f"{name} has shape {array.shape} and dtype {array.dtype}: it must be numbers of shape "
                f"({self.n_envs},); give one for each environment"
            )
        row[:] = array.reshape(-1)
        return row

    def _timeouts(self, infos: Any) -> list[Any]:
        """Return ``TimeLimit.truncated`` of each environment's info, False where it is missing."""
        try:
            timeouts = [info.get("TimeLimit.truncated", False) for info in infos]
        except (AttributeError, TypeError):
            timeouts = []
        if len(timeouts) not in (1, self.n_envs):  # extend() of Stable-Baselines3 gives one dict with arrays
            raise InvalidStepError(
                f"infos is {infos!r}: handle_timeout_termination needs a list of {self.n_envs} dicts, one for each "
                "environment; give such a list, or create the buffer with handle_timeout_termination=False"
            )
        return timeouts

    def _draw_rows(self, batch_size: int) -> Array:
        """Draw uniform rows of the ring with ``np.random``; raise ``NothingToSampleError`` if it is empty."""
        batch_size = check_batch_size(batch_size)
        num_stored = self._num_stored
        if not num_stored:
            raise NothingToSampleError("the buffer is empty: there is nothing to sample; add steps first")
        if self.optimize_memory_usage and self.full and self.buffer_size > 1:
            return np.asarray((np.random.randint(1, self.buffer_size, size=batch_size) + self.pos) % self.buffer_size)
        return np.random.randint(0, num_stored, size=batch_size)

    def _draw_indices(self, rows: Array) -> npt.NDArray[np.int64]:
        """Draw one environment for each of ``rows`` with ``np.random``; return the memory's indices of these steps."""
        environments = np.random.randint(0, high=self.n_envs, size=(len(rows),))
        return self._arrays.indices(rows, environments)

    def _draw_batch(self, rows: Array) -> Batch:
        """Draw one environment for each of ``rows`` with ``np.random``; return these transitions, unshared."""
        return self._steps.transitions(self._draw_indices(rows), shares_frames=False)

    def _as_library_actions(self, action: Array) -> Array:
        """Return a batch's actions as ``(batch, action_dim)``, in the library's dtype."""
        return action.reshape(len(action), self.action_dim).astype(self._action_dtype, copy=False)

    @property
    def observations(self) -> Any:
        """Array-like ``(buffer_size, n_envs, *observation)``, or a dict of them, unpacked when indexed.

        Takes any index of rows and environments. Raises ``InvalidSettingsError`` for more than 1 GiB at once.
        """
        return self._arrays.observations("observation", self._frames)

    @property
    def next_observations(self) -> Any:
        """The next observations, like ``observations``."""
        return self._arrays.observations("next_observation", self._frames)

    @property
    def actions(self) -> Array:
        """A new array ``(buffer_size, n_envs, action_dim)``; empty rows are zeros."""
        return self._arrays.column("action", self._action_dtype, (self.action_dim,))

    @property
    def rewards(self) -> Array:
        """A new array ``(buffer_size, n_envs)`` of ``float32``."""
        return self._arrays.column("reward")

    @property
    def timeouts(self) -> Array:
        """A new array ``(buffer_size, n_envs)`` of ``float32``: 1 where ``TimeLimit.truncated`` was true."""
        return self._arrays.column("truncated")

    @property
    def dones(self) -> Array:
        """A new array ``(buffer_size, n_envs)`` of ``float32``: 1 at the end of an episode, terminated or truncated.

        ``learn`` sets the newest row when it resets environments during an episode. The next steps then start new
        episodes. No stored flag changes: the last step bootstraps from its true next observation.
        """
        return self._arrays.dones()

    @property
    def _num_rows(self) -> int:
        """Number of rows added so far; 0 while the parent's constructor sets ``pos`` and ``full``."""
        return self._steps.num_rows if hasattr(self, "_steps") else 0

    @property
    def _num_stored(self) -> int:
        """Number of rows that the ring has."""
        return min(self._num_rows, self.buffer_size)

    def _as_stored(self, observations: Any) -> Any:
        if isinstance(self._frames, dict):
            if not isinstance(observations, Mapping) or not self._frames.keys() <= observations.keys():
                keys = ", ".join(observations) if isinstance(observations, Mapping) and observations else "none"
                raise InvalidStepError(
                    f"observations have the keys {keys}: the observation space has {', '.join(self._frames)}; give a "
                    "dict with one array for each key"
                )
            return {key: as_rows_of(observations[key], self.n_envs, frame) for key, frame in self._frames.items()}
        return as_rows_of(observations, self.n_envs, self._frames)


def _frames_of(space: Any, shape: Any) -> Any:
    """Return the specs of the observations that the library stores for ``space``; a number has shape (1,)."""
    if hasattr(space, "spaces"):
        return {key: _frames_of(part, shape[key]) for key, part in space.spaces.items()}
    return FrameSpec(shape, np.dtype(space.dtype), _is_box(space) and FrameSpec.from_space(space).is_scaled)


def _action_spec(space: Any, num_elements: int, dtype: np.dtype[Any]) -> ActionSpec:
    """Return the spec of stored actions; those of a ``Box`` are flat, without bounds, because they come scaled."""
    return ActionSpec((num_elements,), dtype.name) if _is_box(space) else ActionSpec.from_space(space)


def _is_box(space: Any) -> bool:
    return hasattr(space, "low") and hasattr(space, "high")
