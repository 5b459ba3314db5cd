"""Replay buffers with the calls of Stable-Baselines3, whose algorithms take them."""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import replace
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common import buffers
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.her import her_replay_buffer
from stable_baselines3.her.goal_selection_strategy import KEY_TO_GOAL_STRATEGY, GoalSelectionStrategy

from framestow.checks import real_number, truth_value, whole_number
from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.drop_in.memory_options import BudgetOptions, MemoryOptions, take_options
from framestow.integrations.drop_in.paired_steps import steps_following
from framestow.integrations.drop_in.row_buffer import RowBuffer
from framestow.replay.reading.batch import Batch
from framestow.replay.samplers.prioritized import Prioritized
from framestow.torch.tensor_batch import parse_device

Array = npt.NDArray[Any]

# Arguments that a class takes besides those of ``ReplayBuffer``: a call that gives them to another class is told so.
_ARGUMENTS_OF = {
    "NStepReplayBuffer": ("n_steps", "gamma"),
    "PrioritizedReplayBuffer": ("alpha", "beta", "final_beta", "annealed_over"),
    "HerReplayBuffer": ("env", "n_sampled_goal", "goal_selection_strategy", "copy_info_dict"),
}


class ReplayBuffer(RowBuffer, buffers.ReplayBuffer):  # type: ignore[misc]  # a library without types
    """Replay buffer for ``DQN``, ``SAC``, ``TD3`` and the other off-policy algorithms, with packed observations.

    Same as Stable-Baselines3's ``ReplayBuffer``: the arguments up to ``handle_timeout_termination``, the indices drawn
    by ``np.random``, and the shapes, dtypes and devices of samples.

    Different: each frame is stored once, and every next observation is the true one. ``optimize_memory_usage`` only
    affects the drawn indices (the oldest row of a full buffer is not drawn). You may combine it with
    ``handle_timeout_termination``.

    Arguments:
        frame_stack: frames per observation; ``None`` decides by shape.
        memory: options of the memory, by keyword: ``threads``, ``storage``, ``frames_per_segment``, ``directory``,
            ``flush_every``, ``max_bytes`` (``BudgetOptions``). A buffer that is built with a used ``directory`` resumes
            what is there, with a warning. Its pickle names the folder.

    Raises:
        InvalidSettingsError: invalid settings, or arguments of another buffer class.
        IncompatibleError: ``directory`` has a memory with other settings, or another process writes to it.
        InvalidStepError: ``add`` was given a reward that is not finite, an action outside its space, or an observation
            that would change when cast. Nothing is stored.
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
        **memory: Unpack[BudgetOptions],
    ) -> None:
        options = take_options(type(self), BudgetOptions, memory, _reasons(type(self)))
        self.buffer_size, self.n_envs = buffer_size, n_envs
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self._init_rows(
            observation_space,
            action_space,
            frame_stack,
            **options,
        )
        if not isinstance(device, str) or device != "auto":
            parse_device(device)
        for name, space in (("observation_space", observation_space), ("action_space", action_space)):
            if not isinstance(space, spaces.Space):
                raise InvalidSettingsError(f"{name} is {space!r}: it must be a space of Gymnasium; give env.{name}")
        shape = action_space.shape or ()
        is_longer = math.prod(shape) > shape[0] if isinstance(action_space, spaces.MultiDiscrete) else len(shape) > 1
        if is_longer and not isinstance(action_space, spaces.Box):
            raise InvalidSettingsError(
                f"action_space is {action_space}: Stable-Baselines3's own buffer cannot store integer actions of shape "
                f"{shape}; flatten them in a wrapper"
            )
        # Skip the parent that allocates arrays.
        super(buffers.ReplayBuffer, self).__init__(self.buffer_size, observation_space, action_space, device, n_envs)
        self._make_steps()

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        """Sample ``batch_size`` transitions with ``np.random``: uniform rows, then uniform environments.

        Arguments:
            batch_size: Number of transitions.
            env: A ``VecNormalize`` that normalizes the samples.

        Raises:
            NothingToSampleError: the buffer is empty.
        """
        return self._get_samples(self._draw_rows(batch_size), env=env)

    def _get_samples(self, batch_inds: Array, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        return self._samples_of(self._steps.transitions(self._draw_indices(batch_inds)), env)

    def _samples_of(self, batch: Batch, env: Any) -> ReplayBufferSamples | DictReplayBufferSamples:
        dones = batch.terminated.astype(np.float32).reshape(-1, 1)
        rewards = self._normalize_reward(batch.reward.reshape(-1, 1), env)
        return self._samples(batch.observation, batch.action, batch.next_observation, dones, rewards, env)

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
        """Return arrays as Stable-Baselines3's samples; observations and next observations share no memory."""
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
        arrays = self._normalize_obs(observations, env)
        return map_arrays(lambda part: self.to_torch(self._steps.copies.of(part), copy=False), arrays)


class DictReplayBuffer(ReplayBuffer, buffers.DictReplayBuffer):  # type: ignore[misc]  # a library without types
    """A ``ReplayBuffer`` for Dict observations that is also a subclass of Stable-Baselines3's ``DictReplayBuffer``.

    Raises:
        InvalidSettingsError: the observation space is not a ``Dict``.
    """

    def __init__(self, buffer_size: int, observation_space: spaces.Space[Any], *args: Any, **kwargs: Any) -> None:
        if not isinstance(observation_space, spaces.Dict):
            raise InvalidSettingsError(
                f"observation_space is {observation_space}: DictReplayBuffer needs a Dict space; use ReplayBuffer"
            )
        super().__init__(buffer_size, observation_space, *args, **kwargs)


class NStepReplayBuffer(ReplayBuffer, buffers.NStepReplayBuffer):  # type: ignore[misc]  # a library without types
    """A ``ReplayBuffer`` whose rewards are n-step returns, with their ``discounts``.

    Same as Stable-Baselines3's class: the samples, bit for bit (returns are summed in ``float32``).

    Different: Dict observations and ``optimize_memory_usage`` are supported. A return never crosses a reset without a
    flag, for example the reset of a second ``learn``.
    """

    def __init__(self, *args: Any, n_steps: int = 3, gamma: float = 0.99, **kwargs: Any) -> None:
        self.n_steps = whole_number("n_steps", n_steps, 1, rule="a return has at least 1 reward; the default is 3")
        self.gamma = real_number("gamma", gamma, 0, 1, rule="it must be from 0 to 1")
        super().__init__(*args, **kwargs)

    def _get_samples(self, batch_inds: Array, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        steps = steps_following(self._steps, self._draw_indices(batch_inds), self.n_steps)
        # Same dtype and order as Stable-Baselines3, for equal last bits.
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


class PrioritizedReplayBufferSamples(NamedTuple):
    """``ReplayBufferSamples`` with importance weights, and the indices that ``update_priorities`` takes."""

    observations: Any
    actions: Any
    next_observations: Any
    dones: Any
    rewards: Any
    discounts: Any
    weights: Any
    """Weights of the rows in the loss, ``(batch_size, 1)``."""
    indices: npt.NDArray[np.int64]


class PrioritizedReplayBuffer(ReplayBuffer):
    """A ``ReplayBuffer`` that draws by priority (Schaul et al. 2015), seeded by ``np.random`` when it is made.

    The algorithm multiplies the loss of each row by its weight, and calls ``update_priorities``; otherwise draws stay
    uniform, of which the thousandth warns. examples/stable_baselines3_prioritized.py does it for ``DQN``, in 20 lines.

    Arguments:
        alpha: As of ``Prioritized``.
        beta: As of ``Prioritized``.
        final_beta: As of ``Prioritized``.
        annealed_over: As of ``Prioritized``.
    """

    def __init__(
        self,
        *args: Any,
        alpha: float = 0.6,
        beta: float = 0.4,
        final_beta: float | None = None,
        annealed_over: int | None = None,
        **kwargs: Any,
    ) -> None:
        self._priorities: dict[str, Any] = {
            "alpha": alpha,
            "beta": beta,
            "final_beta": final_beta,
            "annealed_over": annealed_over,
        }
        super().__init__(*args, **kwargs)

    def _make_steps(self) -> None:
        self._arguments |= {"sampler": Prioritized(**self._priorities), "seed": int(np.random.randint(2**31))}
        try:
            super()._make_steps()
        finally:
            del self._arguments["sampler"]

    def sample(self, batch_size: int, env: Any = None) -> PrioritizedReplayBufferSamples:
        """Sample by priority; raise ``NothingToSampleError`` if the buffer is empty."""
        batch = self.memory.sample(batch_size).copy()
        weights = self.to_torch(batch.weight.reshape(-1, 1), copy=False)
        fields = self._samples_of(batch, env)._asdict()
        return PrioritizedReplayBufferSamples(**fields, weights=weights, indices=batch.index)

    def update_priorities(self, indices: npt.ArrayLike, td_errors: Any) -> None:
        """Give the TD errors of sampled transitions, as an array or a tensor on any device, of any shape."""
        errors = td_errors.detach().cpu() if hasattr(td_errors, "detach") else np.asarray(td_errors)
        self.memory.update_priorities(indices, errors.reshape(-1))


class HerReplayBuffer(her_replay_buffer.HerReplayBuffer, DictReplayBuffer):  # type: ignore[misc]  # as above
    """Hindsight experience replay: replaces the goal of some transitions by one that their episode reached later.

    Same as Stable-Baselines3's class: arguments, draws, calls of ``compute_reward`` and batches, bit for bit.

    Different: ``truncate_last_trajectory`` changes no flag. The last step bootstraps from its true next observation,
    also with ``handle_timeout_termination=False``.
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
        **memory: Unpack[MemoryOptions],
    ) -> None:
        if env is not None and not hasattr(env, "env_method"):
            raise InvalidSettingsError(
                f"env is {env!r}: it must be a VecEnv, whose compute_reward computes rewards; give model.get_env()"
            )
        rule = "each real transition has 0 or more virtual ones; the default is 4"
        n_sampled_goal = whole_number("n_sampled_goal", n_sampled_goal, 0, rule=rule)
        copy_info_dict = truth_value("copy_info_dict", copy_info_dict)
        self.env, self.n_sampled_goal, self.copy_info_dict = env, n_sampled_goal, copy_info_dict
        self.goal_selection_strategy = _goal_strategy(goal_selection_strategy)
        # Share of a batch whose goals are replaced.
        self.her_ratio = 1 - 1 / (n_sampled_goal + 1)
        # Skip the library's constructor, which allocates an empty dict of about 150 bytes per transition.
        super(her_replay_buffer.HerReplayBuffer, self).__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            optimize_memory_usage,
            handle_timeout_termination,
            frame_stack=frame_stack,
            **memory,
        )

    def _make_steps(self) -> None:
        if self._arguments.get("max_bytes") is not None:
            raise InvalidSettingsError(
                f"max_bytes is {self._arguments['max_bytes']!r}: hindsight keeps the episode of each row of a full "
                "buffer; leave it out, and give a smaller buffer_size or a directory"
            )
        if self.copy_info_dict and self._arguments.get("directory") is not None:
            raise InvalidSettingsError("copy_info_dict is True: infos are not in the directory; leave one of them out")
        super()._make_steps()
        shape = self.buffer_size, self.n_envs
        # By row and environment; no rows unless ``copy_info_dict``.
        self.infos = np.empty((self.buffer_size if self.copy_info_dict else 0, self.n_envs), object)
        self.ep_start, self.ep_length = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        # By environment: the row at which its current episode began.
        self._current_ep_start = np.full(self.n_envs, self.pos)
        for env_id, first, stop in self._steps.episodes():  # of a resumed memory
            rows = np.arange(first, stop) % self.buffer_size
            self.ep_start[rows, env_id], self.ep_length[rows, env_id] = first % self.buffer_size, stop - first

    def _get_real_samples(self, batch_indices: Array, env_indices: Array, env: Any = None) -> DictReplayBufferSamples:
        return self._samples_of(self._steps.transitions(self._indices(batch_indices, env_indices)), env)

    def _get_virtual_samples(
        self, batch_indices: Array, env_indices: Array, env: Any = None
    ) -> DictReplayBufferSamples:
        if self.env is None:
            raise InvalidSettingsError(
                "env is None: the environment's compute_reward computes the rewards; call set_env(env)"
            )
        batch = self._steps.transitions(self._indices(batch_indices, env_indices))
        goals = self._sample_goals(batch_indices, env_indices)
        observation: Any = batch.observation
        next_observation: Any = batch.next_observation
        infos: Any = [{} for _ in batch_indices]
        if self.copy_info_dict:
            infos = copy.deepcopy(self.infos[batch_indices, env_indices])
        (rewards,) = self.env.env_method("compute_reward", next_observation["achieved_goal"], goals, infos, indices=[0])
        virtual: Batch = replace(
            batch,
            observation={**observation, "desired_goal": goals},
            next_observation={**next_observation, "desired_goal": goals.copy()},
            reward=rewards.astype(np.float32),
        )
        return self._samples_of(virtual, env)

    def truncate_last_trajectory(self) -> None:
        """End all open episodes: they become sampleable, and the next step of each environment starts a new one."""
        open_envs = np.flatnonzero(self._current_ep_start != self.pos)
        if not open_envs.size:
            return
        warnings.warn(
            "The last trajectory in the replay buffer will be truncated. To continue its episode, load the buffer with "
            "truncate_last_traj=False",
            stacklevel=2,
        )
        for env_id in open_envs.tolist():
            self._compute_episode_length(env_id)
        self._steps.start_new_episodes()


def _goal_strategy(strategy: Any) -> GoalSelectionStrategy:
    if isinstance(strategy, GoalSelectionStrategy):
        return strategy
    if not isinstance(strategy, str) or strategy.lower() not in KEY_TO_GOAL_STRATEGY:
        names = ", ".join(map(repr, KEY_TO_GOAL_STRATEGY))
        raise InvalidSettingsError(f"goal_selection_strategy is {strategy!r}: it must be one of {names}")
    return KEY_TO_GOAL_STRATEGY[strategy.lower()]


def _reasons(kind: type) -> dict[str, str]:
    """Return by name what an argument is that another class of this module takes, and ``kind`` does not."""
    return {
        name: f"an argument of {owner}, not of {kind.__name__}; use {owner}"
        for owner, names in _ARGUMENTS_OF.items()
        for name in names
    }
