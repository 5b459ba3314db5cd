"""Base class of the drop-in buffers for Stable-Baselines3 and CleanRL: rows of steps in a ring.

``RowBuffer`` has the calls and attributes of Stable-Baselines3's ``ReplayBuffer``, without tensors. Its arrays are read
from a memory: observations as ``PackedArray``, other columns as new arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.checks import as_array, as_flags, truth_value, whole_number
from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import observation_spec
from framestow.integrations.drop_in.packed_array import PackedArray
from framestow.integrations.drop_in.paired_steps import PairedSteps, check_frame_stack
from framestow.integrations.drop_in.pickled_memory import close_and_remove
from framestow.interface import clause, one_line, plural
from framestow.replay.memory import ReplayMemory, check_batch_size, describe_memory
from framestow.replay.settings.action_spec import ActionSpec

Array = npt.NDArray[Any]


def _check_spaces(observation_space: Any, action_space: Any) -> None:
    """Raise ``InvalidSettingsError`` for spaces that cannot be stored."""
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
            f"observations have shape {array.shape}: those of {plural(num_envs, 'environment')} have {shape}; give one "
            "of each, or create the buffer for another number of environments"
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


class StoredColumn(npt.NDArray[Any]):
    """A copy of a column of stored steps. To assign to it raises ``InvalidSettingsError``; its own copies are free."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.flags.writeable:
            raise InvalidSettingsError(
                f"element {key!r} of a column is set to {value!r}: stored steps cannot be changed, and this is a copy; "
                "add steps with add(), or copy() the array first"
            )
        super().__setitem__(key, value)


class Dones(StoredColumn):
    """End flags of steps. ``dones[newest_row] = True`` starts a new episode with the next step of each environment.

    Libraries set it when they reset environments during an episode. It changes no stored flag: the last step bootstraps
    from its stored next observation. Raises ``InvalidSettingsError`` for any other assignment.
    """

    steps: PairedSteps | None = None
    newest_row: int = -1

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.flags.writeable:
            super().__setitem__(key, value)
            return
        if self.steps is None or np.ndim(key) or key != self.newest_row or not np.all(value):
            raise InvalidSettingsError(
                f"dones[{key!r}] is set to {value!r}: stored steps cannot be changed; only dones[{self.newest_row}], "
                "the newest row, can be set to True"
            )
        self.steps.start_new_episodes()


class RowBuffer:
    """Ring of rows like Stable-Baselines3's ``ReplayBuffer``, without tensors.

    Subclasses add the library's constructor and samples. A constructor sets the attributes below, which have
    Stable-Baselines3's names, and then calls ``_init_rows`` and ``_make_steps``. The ring has ``buffer_size`` rows of
    ``n_envs`` steps. With ``max_bytes`` a memory may store fewer: the newest ones, from any row of the ring on.
    """

    buffer_size: int
    n_envs: int
    action_dim: int
    optimize_memory_usage: bool
    handle_timeout_termination: bool
    _steps: PairedSteps

    def _init_rows(self, observation_space: Any, action_space: Any, frame_stack: int | None, **arguments: Any) -> None:
        """Check the arguments; ``arguments`` are those of the memory. ``_make_steps`` then creates it, the last step.

        ``buffer_size`` is the number of transitions until then.
        """
        whole_number("buffer_size", self.buffer_size, 1, rule="a buffer stores at least 1 transition")
        whole_number("n_envs", self.n_envs, 1, rule="a buffer has at least 1 environment")
        truth_value("optimize_memory_usage", self.optimize_memory_usage)
        truth_value("handle_timeout_termination", self.handle_timeout_termination)
        check_frame_stack(frame_stack)
        _check_spaces(observation_space, action_space)
        self.buffer_size = max(self.buffer_size // self.n_envs, 1)
        self.obs_shape, self.action_dim = _shape_of(observation_space), math.prod(_shape_of(action_space))
        dtype = np.dtype(action_space.dtype)
        self._action_dtype = np.dtype(np.float32) if dtype == np.float64 else dtype
        self._frames, self._frame_stack = _frames_of(observation_space, self.obs_shape), frame_stack
        self._arguments: dict[str, Any] = {
            "capacity": self.buffer_size * self.n_envs,
            "action_space": _action_spec(action_space, self.action_dim, self._action_dtype),
            "num_envs": self.n_envs,
            **arguments,
        }

    def _make_steps(self) -> None:
        """Create the memory, or resume the one in its directory."""
        self._no_flags = np.zeros(self.n_envs, bool)
        self._steps = PairedSteps(self._frames, self._frame_stack, **self._arguments)

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
        if "_steps" in self.__dict__ and row != self.pos:  # the library's constructor sets 0 before
            raise InvalidSettingsError(
                f"pos is set to {row}: it must stay {self.pos}, the row of the next step; reset() removes all steps"
            )

    @property
    def full(self) -> bool:
        """Whether ``buffer_size`` rows are stored: each new row replaces the oldest one."""
        return self._num_stored == self.buffer_size

    @full.setter
    def full(self, is_full: bool) -> None:
        if "_steps" in self.__dict__ and is_full != self.full:
            raise InvalidSettingsError(
                f"full is set to {is_full}: it depends on the stored steps; use add() or reset()"
            )

    def reset(self) -> None:
        """Remove all steps, in the directory too."""
        self._arguments["directory"] = self.memory.directory
        close_and_remove(self.memory)
        self._make_steps()

    def size(self) -> int:
        """Return the number of stored rows."""
        return self._num_stored

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
                f"actions have shape {actions.shape}: {clause(self.n_envs, 'environment', 'take')} "
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
                f"({self.n_envs},); give one for each environment, or create the buffer with n_envs={array.size}"
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
        if self.optimize_memory_usage and num_stored == self.buffer_size > 1:
            return np.asarray((np.random.randint(1, self.buffer_size, size=batch_size) + self.pos) % self.buffer_size)
        return self._stored_rows(np.random.randint(0, num_stored, size=batch_size), num_stored)

    def _stored_rows(self, ranks: Array, num_stored: int) -> Array:
        """Return the rows of the ring with these ranks: those of a full ring, otherwise counted from the oldest row."""
        return ranks if num_stored == self.buffer_size else (self._steps.oldest_row + ranks) % self.buffer_size

    def _draw_indices(self, rows: Array) -> npt.NDArray[np.int64]:
        """Draw one environment for each of ``rows`` with ``np.random``; return the memory's indices of these steps."""
        return self._indices(rows, np.random.randint(0, high=self.n_envs, size=(len(rows),)))

    def _indices(self, rows: npt.ArrayLike, env_ids: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the memory's indices of the steps in these rows and environments, which broadcast."""
        newest = self._steps.num_rows - 1
        return self._steps.indices(newest - (newest - np.asarray(rows)) % self.buffer_size, env_ids)

    def _as_library_actions(self, action: Array) -> Array:
        """Return a batch's actions as ``(batch, action_dim)``, in the library's dtype."""
        return action.reshape(len(action), self.action_dim).astype(self._action_dtype, copy=False)

    @property
    def observations(self) -> Any:
        """A ``PackedArray`` ``(buffer_size, n_envs, *observation)``, or a dict of them; empty rows are zeros."""
        return self._observation_arrays("observation")

    @property
    def next_observations(self) -> Any:
        """The next observations, like ``observations``."""
        return self._observation_arrays("next_observation")

    @property
    def actions(self) -> Array:
        """A new array ``(buffer_size, n_envs, action_dim)``; empty rows are zeros."""
        return self._column("action", self._action_dtype, (self.action_dim,))

    @property
    def rewards(self) -> Array:
        """A new array ``(buffer_size, n_envs)`` of ``float32``."""
        return self._column("reward")

    @property
    def timeouts(self) -> Array:
        """A new array ``(buffer_size, n_envs)`` of ``float32``: 1 where ``TimeLimit.truncated`` was true."""
        return self._column("truncated")

    @property
    def dones(self) -> Array:
        """A new array ``(buffer_size, n_envs)`` of ``float32``: 1 at the end of an episode, terminated or truncated.

        ``learn`` sets the newest row when it resets environments during an episode. The next steps then start new
        episodes. No stored flag changes: the last step bootstraps from its true next observation.
        """
        array = np.maximum(self._column("terminated"), self.timeouts).view(Dones)
        array.steps, array.newest_row = self._steps, (self._num_rows - 1) % self.buffer_size
        array.flags.writeable = False
        return array

    def _column(self, name: str, dtype: npt.DTypeLike = np.float32, shape: tuple[int, ...] = ()) -> Array:
        """Return a new read-only array of a column of ``StepSequences``; ``shape`` is the shape of one step's value."""
        num_stored = self._num_stored
        rows = self._stored_rows(np.arange(num_stored), num_stored)
        array = np.zeros((self.buffer_size, self.n_envs, *shape), dtype).view(StoredColumn)
        indices = self._indices(rows[:, None], np.arange(self.n_envs))
        if rows.size:
            column = getattr(self.memory.steps_from(indices.ravel()), name)
            array[rows] = column.reshape(*indices.shape, *shape)
        array.flags.writeable = False
        return array

    def _observation_arrays(self, name: str) -> Any:
        """Return a ``PackedArray`` of observations or next observations, or a dict of them."""
        cells = np.arange(self.buffer_size * self.n_envs).reshape(self.buffer_size, self.n_envs)

        def make(key: str | None, frame: FrameSpec) -> PackedArray:
            def read(cells: npt.NDArray[np.int64]) -> Array:
                found = np.zeros((len(cells), *frame.shape), frame.dtype)
                rows, env_ids = np.divmod(cells, self.n_envs)
                is_stored = (rows - self._steps.oldest_row) % self.buffer_size < self._num_stored
                if is_stored.any():
                    indices = self._indices(rows[is_stored], env_ids[is_stored])
                    observations = getattr(self._steps.transitions(indices), name)
                    found[is_stored] = observations if key is None else observations[key]
                return found

            return PackedArray(read, cells, frame.shape, frame.dtype)

        if isinstance(self._frames, dict):
            return {key: make(key, frame) for key, frame in self._frames.items()}
        return make(None, self._frames)

    @property
    def _num_rows(self) -> int:
        """Number of rows added so far."""
        return self._steps.num_rows

    @property
    def _num_stored(self) -> int:
        """Number of rows that the ring has."""
        steps = self._steps
        return steps.num_rows - steps.oldest_row

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


def _shape_of(space: Any) -> Any:
    """Return the stored shape of a space's elements, for a Dict space by key; a number is stored as shape (1,)."""
    if hasattr(space, "spaces"):
        return {key: _shape_of(part) for key, part in space.spaces.items()}
    return tuple(space.shape) or (1,)


def _frames_of(space: Any, shape: Any) -> Any:
    """Return the specs of the observations that the library stores for ``space``; a number has shape (1,)."""
    if hasattr(space, "spaces"):
        return {key: _frames_of(part, shape[key]) for key, part in space.spaces.items()}
    return FrameSpec(shape, np.dtype(space.dtype), _is_box(space) and FrameSpec.from_space(space).is_scaled)


def _action_spec(space: Any, num_elements: int, dtype: np.dtype[Any]) -> ActionSpec:
    """Return the spec of stored actions, which are flat. Those of a ``Box`` have no bounds: they come scaled."""
    if _is_box(space):
        return ActionSpec((num_elements,), dtype.name)
    spec = ActionSpec.from_space(space)
    return replace(spec, shape=(num_elements,)) if len(spec.shape) > 1 else spec


def _is_box(space: Any) -> bool:
    return hasattr(space, "low") and hasattr(space, "high")
