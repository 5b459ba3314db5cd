"""Replay buffers for Stable-Baselines3, in about a hundredth of the memory; tested with its versions 2.7 to 2.9.

``DQN("CnnPolicy", env, replay_buffer_class=ReplayBuffer)`` is all that changes: with the same seed it learns the same
weights, bit for bit. docs/libraries.md has figures, and what behaves better.

=====================  ==========================================================================================
``ReplayBuffer``       for any off-policy algorithm, of arrays or Dict observations, any number of environments
``DictReplayBuffer``   the same, and an instance of Stable-Baselines3's class of that name
``NStepReplayBuffer``  returns of several steps; give it ``replay_buffer_kwargs={"n_steps": 3, "gamma": 0.99}``
``HerReplayBuffer``    hindsight goals, for environments with ``achieved_goal`` and ``desired_goal``
=====================  ==========================================================================================
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.drop_in.paired_steps import steps_following
from framestow.integrations.drop_in.row_buffer import RowBuffer
from framestow.integrations.tested_versions import warn_of_untested_version
from framestow.replay.batch import Batch

warn_of_untested_version("stable-baselines3", "2.7", "2.9")

import torch  # noqa: E402 -- behind the check that names the extra
from gymnasium import spaces  # noqa: E402
from stable_baselines3.common import buffers  # noqa: E402
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples  # noqa: E402
from stable_baselines3.her import her_replay_buffer  # noqa: E402
from stable_baselines3.her.goal_selection_strategy import KEY_TO_GOAL_STRATEGY, GoalSelectionStrategy  # noqa: E402

__all__ = ["DictReplayBuffer", "HerReplayBuffer", "NStepReplayBuffer", "ReplayBuffer"]

Array = npt.NDArray[Any]

_ARGUMENTS_OF = {
    "NStepReplayBuffer": ("n_steps", "gamma"),
    "HerReplayBuffer": ("env", "n_sampled_goal", "goal_selection_strategy", "copy_info_dict"),
}


class ReplayBuffer(RowBuffer, buffers.ReplayBuffer):  # type: ignore[misc]  # a library without types
    """What ``DQN``, ``SAC``, ``TD3`` and their like take as ``replay_buffer_class``.

    The arguments up to ``handle_timeout_termination`` are Stable-Baselines3's, and so are shapes, dtypes and devices of
    what is sampled, and the indices that ``np.random`` draws. ``optimize_memory_usage`` decides about these indices
    alone (where it is set, the oldest row of a full buffer is not drawn): every frame is kept once either way, and
    every next observation is the true one. So it goes together with ``handle_timeout_termination``.

    ``frame_stack``: frames of an observation; ``None`` finds out. ``threads``: how many unpack a batch.
    ``storage``: ``"packed"``, or ``"raw"`` for frames as they are, each once.

    Raises ``InvalidSettingsError`` for what cannot work and for arguments of other classes. Raises
    ``InvalidStepError``, before it is stored, for a step that breaks a rule of the memory's: a reward that is not
    finite, an action that is not of its space, an observation that would change when it is cast.
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
        **others: Any,
    ) -> None:
        _refuse(others, type(self).__name__)
        # Past the parent that makes arrays, to the one that reads the arguments.
        super(buffers.ReplayBuffer, self).__init__(buffer_size, observation_space, action_space, device, n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self._lay_out(observation_space, self.obs_shape, action_space, frame_stack, threads, storage)

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        """Draw ``batch_size`` transitions by ``np.random``: a row, all equally likely, then one of its environments.

        ``env``: a ``VecNormalize`` whose statistics normalize what was drawn. Raises ``NothingToSampleError`` while
        there is nothing.
        """
        return self._get_samples(self._draw_rows(batch_size), env=env)

    def _get_samples(self, batch_inds: Array, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        batch = self._draw_batch(batch_inds)
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
        return kind(
            observations=self._observation_tensors(observation, env),
            actions=self.to_torch(self._as_library_actions(action), copy=False),
            next_observations=self._observation_tensors(next_observation, env),
            dones=self.to_torch(dones, copy=False),
            rewards=self.to_torch(rewards, copy=False),
            discounts=None if discounts is None else self.to_torch(discounts, copy=False),
        )

    def _observation_tensors(self, observations: Any, env: Any) -> Any:
        normalized = self._normalize_obs(observations, env)
        return map_arrays(lambda part: self._own(self.to_torch(part, copy=False), env is not None), normalized)

    @staticmethod
    def _own(tensor: torch.Tensor, is_copy: bool) -> torch.Tensor:
        # Both observations are views of the same frames, but a learner may write to its tensors, and look at them with
        # ``.view``: so each is copied, once (70 of 185 µs for 32 stacks of four frames).
        if is_copy or tensor.device.type != "cpu":
            return tensor.contiguous()
        return tensor.clone(memory_format=torch.contiguous_format)


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
        steps = steps_following(self._steps, self._draw_indices(batch_inds), self.n_steps)
        # In float32 and in this order, as Stable-Baselines3 does: another order gives other last bits.
        discounts = self.gamma ** np.arange(self.n_steps, dtype=np.float32).reshape(1, -1)
        discounted = self._normalize_reward(steps.rewards, env) * discounts * steps.is_step
        return self._samples(
            steps.observation,
            steps.action,
            steps.next_observation,
            steps.terminated.astype(np.float32).reshape(-1, 1),
            discounted.sum(axis=1, keepdims=True),
            env,
            self.gamma ** steps.is_step.sum(axis=1, keepdims=True).astype(np.float32),
        )


class HerReplayBuffer(her_replay_buffer.HerReplayBuffer, DictReplayBuffer):  # type: ignore[misc]  # as above
    """Hindsight experience replay: some transitions get a goal that their episode reached later.

    An instance of Stable-Baselines3's class, with its arguments, and of our `DictReplayBuffer`. It draws, relabels and
    calls ``compute_reward`` as there: batches are equal to the last bit. `truncate_last_trajectory` changes no flag:
    the last step bootstraps from its own next observation, with ``handle_timeout_termination=False`` too.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Space[Any],
        env: Any,
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        n_sampled_goal: int = 4,
        goal_selection_strategy: Any = "future",
        copy_info_dict: bool = False,
        *,
        frame_stack: int | None = None,
        threads: int = 1,
        storage: str = "packed",
    ) -> None:
        # Past the library's constructor, which makes an empty dict a transition (some 150 bytes) whoever reads it.
        super(her_replay_buffer.HerReplayBuffer, self).__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            optimize_memory_usage,
            handle_timeout_termination,
            frame_stack=frame_stack,
            threads=threads,
            storage=storage,
        )
        self.env, self.n_sampled_goal, self.copy_info_dict = env, n_sampled_goal, copy_info_dict
        self.goal_selection_strategy = _goal_strategy(goal_selection_strategy)
        self.her_ratio = 1 - 1 / (n_sampled_goal + 1)
        self.infos = np.empty((self.buffer_size if copy_info_dict else 0, n_envs), object)

    def reset(self) -> None:
        """Forget every step and every episode."""
        super().reset()
        shape = self.buffer_size, self.n_envs
        self.ep_start, self.ep_length = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._current_ep_start = np.zeros(self.n_envs, np.int64)

    def _get_real_samples(self, batch_indices: Array, env_indices: Array, env: Any = None) -> DictReplayBufferSamples:
        batch = self._batch_of(batch_indices, env_indices)
        return self._hindsight_samples(batch, batch.observation, batch.next_observation, batch.reward, env)

    def _get_virtual_samples(
        self, batch_indices: Array, env_indices: Array, env: Any = None
    ) -> DictReplayBufferSamples:
        if self.env is None:
            raise InvalidSettingsError(
                "env is None: compute_reward of the environment gives rewards; call set_env(env)"
            )
        batch = self._batch_of(batch_indices, env_indices)
        goals = self._sample_goals(batch_indices, env_indices)
        was: Any = batch.observation
        led_to: Any = batch.next_observation
        infos: Any = [{} for _ in batch_indices]
        if self.copy_info_dict:
            infos = copy.deepcopy(self.infos[batch_indices, env_indices])
        (rewards,) = self.env.env_method("compute_reward", led_to["achieved_goal"], goals, infos, indices=[0])
        return self._hindsight_samples(
            batch,
            {**was, "desired_goal": goals},
            {**led_to, "desired_goal": goals},
            rewards.astype(np.float32),
            env,
        )

    def _batch_of(self, rows: Array, environments: Array) -> Batch:
        return self._steps.transitions(self._arrays.indices(rows, environments))

    def _hindsight_samples(
        self, batch: Batch, observation: Any, next_observation: Any, rewards: Array, env: Any
    ) -> DictReplayBufferSamples:
        dones = batch.terminated.astype(np.float32).reshape(-1, 1)
        rewards = self._normalize_reward(rewards.reshape(-1, 1), env)
        return self._samples(observation, batch.action, next_observation, dones, rewards, env)

    def truncate_last_trajectory(self) -> None:
        """Let episodes end that have not ended: they can be drawn, and the next step of each begins another one."""
        going_on = np.flatnonzero(self._current_ep_start != self.pos)
        if not going_on.size:
            return
        warnings.warn(
            "The last trajectory in the replay buffer will be truncated. If its episode goes on, load the buffer with "
            "truncate_last_traj=False",
            stacklevel=2,
        )
        for number in going_on.tolist():
            self._compute_episode_length(number)
        self._steps.start_new_episodes()


def _goal_strategy(strategy: Any) -> GoalSelectionStrategy:
    if isinstance(strategy, GoalSelectionStrategy):
        return strategy
    if not isinstance(strategy, str) or strategy.lower() not in KEY_TO_GOAL_STRATEGY:
        names = ", ".join(map(repr, KEY_TO_GOAL_STRATEGY))
        raise InvalidSettingsError(f"goal_selection_strategy is {strategy!r}: it must be one of {names}")
    return KEY_TO_GOAL_STRATEGY[strategy.lower()]


def _refuse(arguments: dict[str, Any], class_name: str) -> None:
    """Refuse arguments that a class does not take, by the name of the class that does."""
    for name in arguments:
        for taker, names in _ARGUMENTS_OF.items():
            if name in names:
                raise InvalidSettingsError(f"{name} is an argument of {taker}, not of {class_name}: take {taker}")
        raise InvalidSettingsError(f"{name} is no argument of {class_name}: leave it out")
