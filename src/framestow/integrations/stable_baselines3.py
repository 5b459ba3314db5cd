"""Replay buffers for Stable-Baselines3, in about a hundredth of the memory; tested with its versions 2.7 to 2.9.

``DQN("CnnPolicy", env, replay_buffer_class=ReplayBuffer)`` is all that changes: with the same seed it learns the same
weights, bit for bit. docs/migration.md has figures, and what behaves better.

=====================  ==========================================================================================
``ReplayBuffer``       for any off-policy algorithm, of arrays or Dict observations, any number of environments
``DictReplayBuffer``   the same, and an instance of Stable-Baselines3's class of that name
``NStepReplayBuffer``  returns of several steps; give it ``replay_buffer_kwargs={"n_steps": 3, "gamma": 0.99}``
=====================  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common import buffers
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples

from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.frames.array_trees import map_arrays
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.assigned_arrays import as_assigned
from framestow.integrations.drop_in.paired_steps import PairedSteps
from framestow.integrations.drop_in.ring_arrays import RingArrays
from framestow.integrations.drop_in.tested_versions import warn_of_untested_version
from framestow.replay.action_spec import ActionSpec
from framestow.replay.memory import ReplayMemory

__all__ = ["DictReplayBuffer", "NStepReplayBuffer", "ReplayBuffer"]

warn_of_untested_version("stable-baselines3", "2.7", "2.9")

Array = npt.NDArray[Any]


class ReplayBuffer(buffers.ReplayBuffer):  # type: ignore[misc]  # a library without types
    """What ``DQN``, ``SAC``, ``TD3`` and their like take as ``replay_buffer_class``.

    The arguments up to ``handle_timeout_termination`` are Stable-Baselines3's, and so are shapes, dtypes and devices of
    what is sampled, and the indices that ``np.random`` draws. ``optimize_memory_usage`` decides about these indices
    alone (where it is set, the oldest row of a full buffer is not drawn): every frame is kept once either way, and
    every next observation is the true one. So it goes together with ``handle_timeout_termination``.

    ``frame_stack``: frames of an observation; ``None`` finds out. ``threads``: how many unpack a batch.
    ``storage``: ``"packed"``, or ``"raw"`` for frames as they are, each once.

    Raises ``InvalidSettingsError`` for what cannot work, ``InvalidStepError``, before it is stored, for a step that
    breaks a rule of the memory's: a reward that is not finite, an action that is not of its space, an observation that
    would change when it is cast.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        frame_stack: int | None = None,
        threads: int = 1,
        storage: str = "packed",
    ) -> None:
        # Past the parent that makes arrays, to the one that reads the arguments.
        super(buffers.ReplayBuffer, self).__init__(buffer_size, observation_space, action_space, device, n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self._action_dtype = np.dtype(self._maybe_cast_dtype(action_space.dtype))
        self._frames = _frames_of(observation_space, self.obs_shape)
        self._frame_stack = frame_stack
        self._make_memory = _MakeMemory(
            self.buffer_size * n_envs,
            _action_spec(action_space, self.action_dim, self._action_dtype),
            n_envs,
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
            timeouts[:] = [info.get("TimeLimit.truncated", False) for info in infos]
        actions = np.asarray(action).reshape(num_envs, self.action_dim)
        self._steps.add(
            self._as_stored(obs),
            actions if self._make_memory.actions.shape else actions[:, 0],
            rewards,
            dones & ~timeouts,
            timeouts,
            self._as_stored(next_obs),
        )

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        """Draw ``batch_size`` transitions by ``np.random``: a row, all equally likely, then one of its environments.

        ``env``: a ``VecNormalize`` whose statistics normalize what was drawn. Raises ``NothingToSampleError`` while
        there is nothing.
        """
        if not self.size():
            raise NothingToSampleError("the buffer holds no step: there is nothing to sample; add steps first")
        if self.optimize_memory_usage and self.full and self.buffer_size > 1:
            rows = (np.random.randint(1, self.buffer_size, size=batch_size) + self.pos) % self.buffer_size
        else:
            rows = np.random.randint(0, self.size(), size=batch_size)
        return self._get_samples(rows, env=env)

    def _get_samples(self, batch_inds: Array, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        environments = np.random.randint(0, high=self.n_envs, size=(len(batch_inds),))
        batch = self._steps.transitions(self._arrays.indices(batch_inds, environments))
        return self._samples(
            batch.observation,
            batch.action,
            batch.next_observation,
            batch.terminated.astype(np.float32).reshape(-1, 1),
            self._normalize_reward(batch.reward.reshape(-1, 1), env),
            env,
        )

    def _samples(
        self,
        observation: Any,
        action: Array,
        next_observation: Any,
        dones: Array,
        rewards: Array,
        env: Any,
        discounts: Array | None = None,
    ) -> ReplayBufferSamples | DictReplayBufferSamples:
        """Give tensors, as Stable-Baselines3 makes them, of arrays that are nobody else's."""
        kind = DictReplayBufferSamples if isinstance(observation, dict) else ReplayBufferSamples
        actions = action.reshape(len(action), self.action_dim).astype(self._action_dtype, copy=False)
        return kind(
            observations=self._observation_tensors(observation, env),
            actions=self.to_torch(actions, copy=False),
            next_observations=self._observation_tensors(next_observation, env),
            dones=self.to_torch(dones, copy=False),
            rewards=self.to_torch(rewards, copy=False),
            discounts=None if discounts is None else self.to_torch(discounts, copy=False),
        )

    def _observation_tensors(self, observations: Any, env: Any) -> Any:
        # Both observations are views of the same frames, but a learner may write to its tensors, and look at them with
        # ``.view``: so each is copied, once (65 of 185 µs for 32 stacks of four frames). Normalizing copies already.
        own = partial(np.array, order="C") if env is None else np.ascontiguousarray
        normalized = self._normalize_obs(observations, env)
        return map_arrays(lambda part: self.to_torch(own(part), copy=False), normalized)

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


class DictReplayBuffer(ReplayBuffer, buffers.DictReplayBuffer):  # type: ignore[misc]  # a library without types
    """A `ReplayBuffer` of Dict observations that is an instance of Stable-Baselines3's ``DictReplayBuffer`` too.

    Raises ``InvalidSettingsError`` for any other observation space.
    """

    def __init__(self, buffer_size: int, observation_space: spaces.Space[Any], *args: Any, **kwargs: Any) -> None:
        if not isinstance(observation_space, spaces.Dict):
            raise InvalidSettingsError(
                f"observation_space is {observation_space}: DictReplayBuffer takes a Dict; take ReplayBuffer"
            )
        super().__init__(buffer_size, observation_space, *args, **kwargs)


class NStepReplayBuffer(ReplayBuffer, buffers.NStepReplayBuffer):  # type: ignore[misc]  # a library without types
    """A `ReplayBuffer` whose rewards are returns of ``n_steps`` steps, with their ``discounts``.

    What is sampled is bit for bit that of Stable-Baselines3's class, which it is an instance of: returns are summed in
    ``float32`` as there. It takes Dict observations and ``optimize_memory_usage`` too. No return goes on behind a reset
    that no flag told, such as that of a second ``learn``.
    """

    def __init__(self, *args: Any, n_steps: int = 3, gamma: float = 0.99, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if n_steps < 1:
            raise InvalidSettingsError(f"n_steps is {n_steps}: a return has at least the step's own reward; give 1")
        self.n_steps, self.gamma = n_steps, gamma

    def _get_samples(self, batch_inds: Array, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        environments = np.random.randint(0, self.n_envs, size=batch_inds.shape)
        first = self._arrays.indices(batch_inds, environments)
        steps = self.memory.steps_from(first, self.n_steps)
        mask = steps.index >= 0
        num_steps = mask.sum(axis=1, keepdims=True)
        last = np.take_along_axis(steps.index, num_steps - 1, axis=1)[:, 0]
        # In float32 and in this order, as Stable-Baselines3 does: another order gives other last bits.
        discounts = self.gamma ** np.arange(self.n_steps, dtype=np.float32).reshape(1, -1)
        discounted = self._normalize_reward(steps.reward, env) * discounts * mask
        both = self._steps.transitions(np.concatenate([first, last]))
        observation, next_observation = (
            map_arrays(lambda part: part[: len(first)], both.observation),
            map_arrays(lambda part: part[len(first) :], both.next_observation),
        )
        return self._samples(
            observation,
            both.action[: len(first)],
            next_observation,
            both.terminated[len(first) :].astype(np.float32).reshape(-1, 1),
            discounted.sum(axis=1, keepdims=True),
            env,
            self.gamma ** num_steps.astype(np.float32),
        )


@dataclass(frozen=True)
class _MakeMemory:
    """Makes the memory of a buffer: what `PairedSteps` asks for, and can be pickled."""

    capacity: int
    actions: ActionSpec
    num_streams: int
    threads: int
    storage: str

    def __call__(self, frame_space: Any, stack: int, padding: StackPadding) -> ReplayMemory:
        return ReplayMemory(
            self.capacity,
            frame_space,
            self.actions,
            stack=stack,
            stack_padding=padding,
            num_streams=self.num_streams,
            threads=self.threads,
            storage=self.storage,
            seed=0,  # never drawn from: np.random draws
        )


def _frames_of(space: spaces.Space[Any], shape: Any) -> Any:
    """What an observation of ``space`` is as Stable-Baselines3 keeps it: a number has an axis of its own."""
    if isinstance(space, spaces.Dict):
        return {key: _frames_of(part, shape[key]) for key, part in space.spaces.items()}
    return FrameSpec(
        shape, np.dtype(space.dtype), isinstance(space, spaces.Box) and FrameSpec.from_space(space).is_scaled
    )


def _action_spec(space: spaces.Space[Any], num_elements: int, dtype: np.dtype[Any]) -> ActionSpec:
    """Actions as they come; those of a ``Box`` flat, and scaled to -1 to 1 whatever its bounds are."""
    return ActionSpec((num_elements,), dtype.name) if isinstance(space, spaces.Box) else ActionSpec.from_space(space)
