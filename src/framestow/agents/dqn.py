"""The DQN agent: acts, learns from batches and saves its state."""

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

    ``reward`` and ``discount`` are ``(batch,)``, ``next_target_values`` is ``(batch, num_actions)``. A discount of 0
    marks a terminated episode; there is no other flag, so a truncated episode bootstraps as it must.
    """
    return reward + discount * next_target_values.amax(dim=1)


def double_dqn_target(
    reward: Tensor, discount: Tensor, next_online_values: Tensor, next_target_values: Tensor
) -> Tensor:
    """Return ``reward + discount · q_target(s', argmax_a q_online(s', a))`` (van Hasselt, Guez and Silver 2016).

    The online network chooses the action and the target network values it, which takes away the upward bias of a
    maximum over noisy values. Shapes as in :func:`dqn_target`.
    """
    best_actions = next_online_values.argmax(dim=1, keepdim=True)
    return reward + discount * next_target_values.gather(1, best_actions).squeeze(1)


def chosen_values(values: Tensor, actions: Tensor) -> Tensor:
    """Pick from ``values`` ``(batch, num_actions)`` those of int64 ``actions`` ``(batch,)``."""
    return values.gather(1, actions.unsqueeze(1)).squeeze(1)


def weighted_huber(td_error: Tensor, weight: Tensor, threshold: float = 1.0) -> Tensor:
    """Return the batch mean of ``weight · huber(td_error)``, a scalar.

    Quadratic within ``threshold`` of 0 and linear outside: with a threshold of 1 its gradient is the clipped TD error
    of Mnih et al. 2015. ``weight`` is the importance weight of each sample, 1 under uniform sampling.
    """
    size = td_error.abs()
    quadratic = size.clamp(max=threshold)
    return torch.mean(weight * (0.5 * quadratic.square() + threshold * (size - quadratic)))


@dataclasses.dataclass(frozen=True)
class Update:
    """What one update did: tensors on the agent's device, not yet waited for."""

    loss: Tensor  # scalar
    mean_value: Tensor  # scalar: q of the actions taken, over the batch
    td_error: Tensor  # (batch,): target - q, what priorities are made of


class DQN:
    """Deep Q-learning (Mnih et al. 2015) with Double DQN targets, the Huber loss and Adam.

    Sees arrays only: observations are uint8 ``(n, stack, H, W)``. The same seed gives the same network, and the global
    generator of PyTorch is neither read nor moved.
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
        # The fused kernel updates all parameters in one pass: 2.5 ms of an update's 19 on two CPU threads.
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
        """Choose an action a row, exploring as the schedule says; int64 ``(n,)``."""
        return self._exploration.act(observations, agent_steps, self.choose_greedily)

    @torch.inference_mode()
    def choose_greedily(self, observations: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the action of the highest value a row; int64 ``(n,)``."""
        values = self._online(pixels_to_device(observations, self.device))
        actions: NDArray[np.int64] = values.argmax(dim=1).cpu().numpy()
        return actions

    def learn(self, batch: Batch) -> Update:
        """Make one update from ``batch``, and every ``target_every`` updates renew the target network."""
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
        next_pixels = scale_pixels(tensors.next_observation)  # once for both networks
        next_target_values = self._target(next_pixels)
        if not self.settings.double:
            return dqn_target(reward, tensors.discount, next_target_values)
        return double_dqn_target(reward, tensors.discount, self._online(next_pixels), next_target_values)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next act or update depends on: tensors, numbers and strings in nested dicts.

        The tensors are the agent's own, not copies: save them before the next update.
        """
        return {
            "online": self._online.state_dict(),
            "target": self._target.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "num_updates": self.num_updates,
            "exploration": self._exploration.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that :meth:`state_dict` returned, from any device.

        Raises :class:`~framestow.errors.IncompatibleError`, and leaves the agent as it was, when the state belongs to
        a network of another shape.
        """
        _check_same_shapes(self._online.state_dict(), state["online"])
        self._online.load_state_dict(state["online"])
        self._target.load_state_dict(state["target"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.num_updates = int(state["num_updates"])
        self._exploration.load_state_dict(state["exploration"])


def trained_state_bytes(observation_shape: Sequence[int], num_actions: int) -> int:
    """Return the bytes of the tensors in a trained DQN's ``state_dict``: two networks, and Adam's two moments.

    >>> trained_state_bytes((4, 84, 84), num_actions=18)  # the Nature network
    27093792
    """
    with torch.device("meta"):  # shapes without storage
        network = build_network(observation_shape, num_actions)
    return 4 * sum(parameter.nbytes for parameter in network.parameters())


def _check_same_shapes(own: dict[str, Tensor], saved: dict[str, Tensor]) -> None:
    own_shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
    saved_shapes = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    for name in sorted(own_shapes.keys() | saved_shapes.keys()):
        if own_shapes.get(name) != saved_shapes.get(name):
            raise IncompatibleError(
                f"saved network has {name} {saved_shapes.get(name)}: this agent's is {own_shapes.get(name)}; "
                "build the agent with the game, stack and frame size it was saved with"
            )
