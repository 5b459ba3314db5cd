"""The DQN agent: it acts, learns from batches, and saves its state."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from framestow.agents.networks import build_network, scale_pixels
from framestow.agents.settings import DQNSettings, EpsilonGreedy
from framestow.errors import IncompatibleError
from framestow.replay.batch import Batch
from framestow.torch.tensor_batch import TensorBatch, pixels_to_device, to_tensors


def dqn_target(reward: Tensor, discount: Tensor, next_target_values: Tensor) -> Tensor:
    """Return ``reward + discount · max_a q_target(s', a)`` (Mnih et al. 2015).

    ``reward`` and ``discount`` are ``(batch,)``, ``next_target_values`` is ``(batch, num_actions)``. The discount of a
    terminated transition is 0, so its target is the reward. A truncated transition bootstraps.
    """
    return reward + discount * next_target_values.amax(dim=1)


def double_dqn_target(
    reward: Tensor, discount: Tensor, next_online_values: Tensor, next_target_values: Tensor
) -> Tensor:
    """Return ``reward + discount · q_target(s', argmax_a q_online(s', a))`` (van Hasselt, Guez and Silver 2016).

    The online network chooses the action and the target network evaluates it. This removes the upward bias of a
    maximum over noisy values. Shapes as in :func:`dqn_target`.
    """
    best_actions = next_online_values.argmax(dim=1, keepdim=True)
    return reward + discount * next_target_values.gather(1, best_actions).squeeze(1)


def chosen_values(values: Tensor, actions: Tensor) -> Tensor:
    """Return the values of the int64 ``actions`` ``(batch,)`` from ``values`` ``(batch, num_actions)``."""
    return values.gather(1, actions.unsqueeze(1)).squeeze(1)


def weighted_huber(td_error: Tensor, weight: Tensor, threshold: float = 1.0) -> Tensor:
    """Return the batch mean of ``weight · huber(td_error)``, a scalar.

    The Huber loss is quadratic within ``threshold`` of 0 and linear outside. With a threshold of 1 its gradient is the
    clipped TD error of Mnih et al. 2015. ``weight`` is the importance weight of each sample, 1 for uniform sampling.
    """
    size = td_error.abs()
    quadratic = size.clamp(max=threshold)
    return torch.mean(weight * (0.5 * quadratic.square() + threshold * (size - quadratic)))


@dataclasses.dataclass(frozen=True)
class Update:
    """The numbers of one update, as tensors on the agent's device that may still be computing."""

    loss: Tensor  # scalar
    mean_value: Tensor  # scalar: mean q of the batch's actions
    td_error: Tensor  # (batch,): target - q, for priorities


class DQN:
    """Deep Q-learning (Mnih et al. 2015) with Double DQN targets, the Huber loss and Adam.

    Observations are uint8 arrays ``(n, stack, H, W)``. The same seed gives the same network. The agent does not use
    PyTorch's global random generator.
    """

    def __init__(
        self, observation_shape: Sequence[int], num_actions: int, settings: DQNSettings, device: str, seed: int
    ) -> None:
        network_seed, exploration_seed = np.random.SeedSequence(seed).spawn(2)
        self.settings = settings
        self.device = torch.device(device)
        self.num_updates = 0
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(network_seed.generate_state(1)[0]))
            network = build_network(observation_shape, num_actions)
        self._online = network.to(self.device)
        self._target = copy.deepcopy(self._online).requires_grad_(False)
        # The fused kernel updates all parameters in one pass: 2.5 of an update's 19 ms on two CPU threads.
        self._optimizer = torch.optim.Adam(
            self._online.parameters(),
            lr=settings.learning_rate,
            eps=settings.adam_epsilon,
            fused=self.device.type in ("cpu", "cuda"),
        )
        self._exploration = EpsilonGreedy(settings.exploration, num_actions, exploration_seed)

    def epsilon(self, agent_steps: int) -> float:
        """Return the probability of a random action after ``agent_steps`` steps."""
        return self._exploration.epsilon(agent_steps)

    def act(self, observations: NDArray[np.uint8], agent_steps: int) -> NDArray[np.int64]:
        """Return one epsilon-greedy action per row, as int64 ``(n,)``."""
        return self._exploration.act(observations, agent_steps, self.choose_greedily)

    @torch.inference_mode()
    def choose_greedily(self, observations: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the action with the highest value per row, as int64 ``(n,)``."""
        values = self._online(pixels_to_device(observations, self.device))
        actions: NDArray[np.int64] = values.argmax(dim=1).cpu().numpy()
        return actions

    @torch.inference_mode()
    def values(self, observations: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the expected value of every action per row, as float32 ``(n, num_actions)``."""
        values: NDArray[np.float32] = self._online(pixels_to_device(observations, self.device)).cpu().numpy()
        return values

    def learn(self, batch: Batch) -> Update:
        """Make one update from ``batch``; every ``target_every`` updates copy the online to the target network."""
        tensors = to_tensors(batch, self.device)
        target = self._targets(tensors)
        values = chosen_values(self._online(tensors.observation), tensors.action)
        td_error = target - values
        loss = weighted_huber(td_error, tensors.weight)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self.num_updates += 1
        if self.num_updates % self.settings.target_every == 0:
            self._target.load_state_dict(self._online.state_dict())
        return Update(loss=loss.detach(), mean_value=values.detach().mean(), td_error=td_error.detach())

    @torch.no_grad()
    def _targets(self, tensors: TensorBatch) -> Tensor:
        reward = tensors.reward.clamp(-1.0, 1.0) if self.settings.clip_rewards else tensors.reward
        next_pixels = scale_pixels(tensors.next_observation)  # both networks use it
        next_target_values = self._target(next_pixels)
        if not self.settings.double:
            return dqn_target(reward, tensors.discount, next_target_values)
        return double_dqn_target(reward, tensors.discount, self._online(next_pixels), next_target_values)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the agent: tensors, numbers and strings in nested dicts.

        The tensors are not copied: save them before the next update.
        """
        return {
            "online": self._online.state_dict(),
            "target": self._target.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "num_updates": self.num_updates,
            "exploration": self._exploration.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned on any device.

        Raises:
            IncompatibleError: the state has a network of another shape; the agent is unchanged.
        """
        _check_same_shapes(self._online.state_dict(), state["online"])
        self._online.load_state_dict(state["online"])
        self._target.load_state_dict(state["target"])
        self._optimizer.load_state_dict(state["optimizer"])
        for group in self._optimizer.param_groups:
            group["lr"] = self.settings.learning_rate  # a resumed run may change it
        self.num_updates = int(state["num_updates"])
        self._exploration.load_state_dict(state["exploration"])


def trained_state_bytes(observation_shape: Sequence[int], num_actions: int) -> int:
    """Return the bytes of the tensors in a trained DQN's ``state_dict``: two networks and the two moments of Adam.

    >>> trained_state_bytes((4, 84, 84), num_actions=18)  # the Nature network
    27093792
    """
    with torch.device("meta"):  # shapes without storage
        network = build_network(observation_shape, num_actions)
    return 4 * sum(parameter.nbytes for parameter in network.parameters())


def _check_same_shapes(agent: dict[str, Tensor], saved: dict[str, Tensor]) -> None:
    agent_shapes = {name: tuple(tensor.shape) for name, tensor in agent.items()}
    saved_shapes = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    for name in sorted(agent_shapes.keys() | saved_shapes.keys()):
        if agent_shapes.get(name) != saved_shapes.get(name):
            raise IncompatibleError(
                f"saved network has {name} of shape {saved_shapes.get(name)}: this agent has {agent_shapes.get(name)}; "
                "build the agent with the game, stack and frame size of the saved one"
            )
