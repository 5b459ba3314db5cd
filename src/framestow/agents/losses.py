"""The DQN family's targets and losses, as functions of tensors alone."""

from __future__ import annotations

import torch
from torch import Tensor


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
