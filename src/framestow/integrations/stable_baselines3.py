"""Replay buffers for Stable-Baselines3, in about a hundredth of the memory; tested with its versions 2.7 to 2.9.

``DQN("CnnPolicy", env, replay_buffer_class=ReplayBuffer)`` is all that changes: with the same seed it learns the same
weights, bit for bit. docs/libraries.md has figures, and what behaves better.

=====================  ==========================================================================================
``ReplayBuffer``       for any off-policy algorithm, of arrays or Dict observations, any number of environments
``DictReplayBuffer``   the same, and an instance of Stable-Baselines3's class of that name
``NStepReplayBuffer``  returns of several steps; give it ``replay_buffer_kwargs={"n_steps": 3, "gamma": 0.99}``
=====================  ==========================================================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.frames.array_trees import map_arrays
from framestow.integrations.drop_in.row_buffer import RowBuffer
from framestow.integrations.drop_in.several_steps import several_steps
from framestow.integrations.drop_in.tested_versions import warn_of_untested_version

warn_of_untested_version("stable-baselines3", "2.7", "2.9")

import torch  # noqa: E402 -- behind the check that names the extra
from gymnasium import spaces  # noqa: E402
from stable_baselines3.common import buffers  # noqa: E402
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples  # noqa: E402

__all__ = ["DictReplayBuffer", "NStepReplayBuffer", "ReplayBuffer"]

Array = npt.NDArray[Any]


class ReplayBuffer(RowBuffer, buffers.ReplayBuffer):  # type: ignore[misc]  # a library without types
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
        self._lay_out(observation_space, self.obs_shape, action_space, frame_stack, threads, storage)

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        """Draw ``batch_size`` transitions by ``np.random``: a row, all equally likely, then one of its environments.

        ``env``: a ``VecNormalize`` whose statistics normalize what was drawn. Raises ``NothingToSampleError`` while
        there is nothing.
        """
        return self._get_samples(self._drawn_rows(batch_size), env=env)

    def _get_samples(self, batch_inds: Array, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        batch = self._drawn_batch(batch_inds)
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
        steps = several_steps(self._steps, self._drawn_indices(batch_inds), self.n_steps)
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
