"""Buffers that other libraries feed with rows of steps, Stable-Baselines3's and what was made after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.assigned_arrays import as_assigned
from framestow.integrations.drop_in.paired_steps import PairedSteps
from framestow.integrations.drop_in.ring_arrays import RingArrays
from framestow.replay.action_spec import ActionSpec
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory

Array = npt.NDArray[Any]


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
        self._make_memory = MakeMemory(
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

    def _drawn_rows(self, batch_size: int) -> Array:
        """Draw rows of the ring by ``np.random``, all equally likely.

        ``NothingToSampleError`` while there is none.
        """
        num_held = min(self._num_rows, self.buffer_size)
        if not num_held:
            raise NothingToSampleError("the buffer holds no step: there is nothing to sample; add steps first")
        if self.optimize_memory_usage and self.full and self.buffer_size > 1:
            return np.asarray((np.random.randint(1, self.buffer_size, size=batch_size) + self.pos) % self.buffer_size)
        return np.random.randint(0, num_held, size=batch_size)

    def _drawn_indices(self, rows: Array) -> npt.NDArray[np.int64]:
        """Draw one environment for each of ``rows`` by ``np.random``, and give the memory's indices of their steps."""
        environments = np.random.randint(0, high=self.n_envs, size=(len(rows),))
        return self._arrays.indices(rows, environments)

    def _drawn_batch(self, rows: Array) -> Batch:
        """Draw one environment for each of ``rows`` by ``np.random``, and give their transitions."""
        return self._steps.transitions(self._drawn_indices(rows))

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
            return {key: as_assigned(observations[key], self.n_envs, frame) for key, frame in self._frames.items()}
        return as_assigned(observations, self.n_envs, self._frames)


@dataclass(frozen=True)
class MakeMemory:
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
