"""What a network predicts of an action's return, and the loss of that prediction.

============  ============================================================  =========================
distribution  outputs of an action                                          source
============  ============================================================  =========================
none          the mean return                                               Mnih et al. 2015
hl-gauss      the mean return, as probabilities of bins                     Farebrother et al. 2024
c51           probabilities of fixed returns                                Bellemare et al. 2017
qr            quantiles of the return at fixed fractions                    Dabney et al. 2018a
iqn           quantiles at fractions that each forward pass draws           Dabney et al. 2018b
============  ============================================================  =========================

Shapes: ``outputs`` is ``(batch, num_actions, n)``, ``policy`` is ``(batch, num_actions)``, rewards and discounts are
``(batch,)``. The discount of a terminated transition is 0, so its target is the reward; a truncated one bootstraps.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from framestow.agents.settings import AgentSettings

_GAUSS_WIDTH = 0.75  # bins: standard deviation of hl-gauss's targets


class NextStep(NamedTuple):
    """What follows a transition: its reward and discount, and the policy in its next observation."""

    reward: Tensor
    discount: Tensor
    policy: Tensor  # probability of each next action
    entropy: Tensor | None = None  # added to the next return of each action, for Munchausen; None adds nothing


class Loss(NamedTuple):
    """The loss of each transition ``(batch,)``, and the priority it gets."""

    each: Tensor  # loss of each transition
    priority: Tensor  # of each transition, for update_priorities


class Returns(ABC):
    """A kind of prediction. It has no parameters."""

    num_outputs: int  # of the network, for each action

    @abstractmethod
    def values(self, outputs: Tensor) -> Tensor:
        """Return the mean return of every action ``(batch, num_actions)``."""

    def target(self, step: NextStep, next_outputs: Tensor) -> Tensor:
        """Return the prediction ``(batch, n)`` for a transition, from the target network's next outputs.

        It is ``reward + discount · Σ_a policy(a) · (outputs(a) + entropy(a))``.
        """
        if step.entropy is not None:
            next_outputs = next_outputs + step.entropy.unsqueeze(2)
        expected = (step.policy.unsqueeze(2) * next_outputs).sum(dim=1)
        return step.reward.unsqueeze(1) + step.discount.unsqueeze(1) * expected

    def priority(self, errors: Tensor) -> Tensor:
        """Return the priority of transitions that have these TD errors, before the first update from them.

        ============  ======================================================================================
        distribution  priority
        ============  ======================================================================================
        none          the absolute TD error, as in ``loss``
        hl-gauss      the same
        qr, iqn       the loss of a prediction without spread: half the Huber loss for each quantile
        c51           NaN, for unknown: a new transition gets the largest priority so far
        ============  ======================================================================================
        """
        return errors.abs()

    @abstractmethod
    def loss(self, outputs: Tensor, target: Tensor, fractions: Tensor | None) -> Loss:
        """Return the loss of the outputs ``(batch, n)`` of the actions taken.

        ``fractions`` are those of the outputs, for IQN.
        """


class MeanReturn(Returns):
    """The mean return, with the Huber loss: the clipped TD error of Mnih et al. 2015."""

    num_outputs = 1

    def values(self, outputs: Tensor) -> Tensor:
        """Return the mean return of every action ``(batch, num_actions)``."""
        return outputs.squeeze(2)

    def loss(self, outputs: Tensor, target: Tensor, fractions: Tensor | None) -> Loss:  # noqa: ARG002
        """Return the loss of the outputs ``(batch, n)`` of the actions taken."""
        each = huber(target - outputs).squeeze(1)
        return Loss(each, self.priority((target - outputs).detach().squeeze(1)))


class HistogramReturn(Returns):
    """The mean return as probabilities of ``num_bins`` equal bins of ``[-support, support]``, with the cross-entropy.

    The target is a normal distribution around the mean return, 0.75 bins wide (Farebrother et al. 2024, HL-Gauss). A
    mean outside the support is set to its end. The outputs are logits. The priority is the absolute TD error.
    """

    def __init__(self, num_bins: int, support: float, device: torch.device) -> None:
        self.num_outputs = num_bins
        width = 2 * support / num_bins
        # The ends and the middles of the bins, ascending.
        self._edges = torch.linspace(-support, support, num_bins + 1, device=device)
        self._centers = (self._edges[1:] + self._edges[:-1]) / 2
        # Factor that turns a distance from the mean into the argument of erf.
        self._scale = 1 / (_GAUSS_WIDTH * width * math.sqrt(2))

    def values(self, outputs: Tensor) -> Tensor:
        """Return the mean return of every action ``(batch, num_actions)``."""
        return outputs.softmax(dim=2) @ self._centers

    def target(self, step: NextStep, next_outputs: Tensor) -> Tensor:
        """Return the mean return ``(batch, 1)`` that follows from the target network's next outputs."""
        return super().target(step, self.values(next_outputs).unsqueeze(2))

    def loss(self, outputs: Tensor, target: Tensor, fractions: Tensor | None) -> Loss:  # noqa: ARG002
        """Return the loss of the outputs ``(batch, n)`` of the actions taken."""
        mean = target.clamp(self._edges[0], self._edges[-1])
        below = torch.erf((self._edges - mean) * self._scale)
        within = below[:, 1:] - below[:, :-1]
        aim = within / (below[:, -1:] - below[:, :1])
        each = -(aim * outputs.log_softmax(dim=1)).sum(dim=1)
        value = outputs.detach().softmax(dim=1) @ self._centers
        return Loss(each, self.priority(target.squeeze(1) - value))


class CategoricalReturn(Returns):
    """Probabilities of ``num_atoms`` returns, evenly spaced over ``[-support, support]``, with the cross-entropy.

    The outputs are logits. The priority is the cross-entropy (Hessel et al. 2018).
    """

    def __init__(self, num_atoms: int, support: float, device: torch.device) -> None:
        self.num_outputs = num_atoms
        self._support = support
        # The returns that have a probability, ascending.
        self._atoms = torch.linspace(-support, support, num_atoms, device=device)

    def values(self, outputs: Tensor) -> Tensor:
        """Return the mean return of every action ``(batch, num_actions)``."""
        return outputs.softmax(dim=2) @ self._atoms

    def target(self, step: NextStep, next_outputs: Tensor) -> Tensor:
        """Return the prediction ``(batch, n)`` that follows from the target network's next outputs."""
        probabilities = (step.policy.unsqueeze(2) * next_outputs.softmax(dim=2)).sum(dim=1)
        returns = step.reward.unsqueeze(1) + step.discount.unsqueeze(1) * self._atoms
        return project(probabilities, returns, self._support, self.num_outputs)

    def priority(self, errors: Tensor) -> Tensor:
        """Return NaN: a TD error says nothing of the cross-entropy."""
        return torch.full_like(errors, math.nan)

    def loss(self, outputs: Tensor, target: Tensor, fractions: Tensor | None) -> Loss:  # noqa: ARG002
        """Return the loss of the outputs ``(batch, n)`` of the actions taken."""
        each = -(target * outputs.log_softmax(dim=1)).sum(dim=1)
        return Loss(each, each.detach())


def project(probabilities: Tensor, returns: Tensor, support: float, num_atoms: int) -> Tensor:
    """Return the probabilities ``(batch, num_atoms)`` of the atoms nearest to ``returns``, both ``(batch, n)``.

    A return between two atoms is split in proportion to its nearness to each; returns outside the support go to its
    ends (Bellemare et al. 2017, algorithm 1).
    """
    position = (returns.clamp(-support, support) + support) * ((num_atoms - 1) / (2 * support))
    lower = position.floor().clamp(max=num_atoms - 2)
    upper_share = position - lower
    projected = torch.zeros(len(probabilities), num_atoms, device=probabilities.device, dtype=probabilities.dtype)
    projected.scatter_add_(1, lower.long(), probabilities * (1 - upper_share))
    projected.scatter_add_(1, lower.long() + 1, probabilities * upper_share)
    return projected


class QuantileReturn(Returns):
    """Quantiles of the return, with the quantile Huber loss; at fixed fractions, or with ``are_drawn`` at any.

    The loss is summed over the predicted quantiles and averaged over those of the target. The priority is the loss.
    """

    def __init__(self, num_quantiles: int, are_drawn: bool, device: torch.device) -> None:
        self.num_outputs = 1 if are_drawn else num_quantiles
        # Fractions of the quantiles, ``(num_quantiles,)``.
        self._midpoints = midpoints(num_quantiles, device)

    def values(self, outputs: Tensor) -> Tensor:
        """Return the mean return of every action ``(batch, num_actions)``."""
        return outputs.mean(dim=2)

    def priority(self, errors: Tensor) -> Tensor:
        """Return the loss of a prediction without spread; NaN stays NaN."""
        return 0.5 * len(self._midpoints) * huber(errors)

    def loss(self, outputs: Tensor, target: Tensor, fractions: Tensor | None) -> Loss:
        """Return the loss of the outputs ``(batch, n)`` of the actions taken."""
        if fractions is None:
            fractions = self._midpoints.expand_as(outputs)
        errors = target.unsqueeze(1) - outputs.unsqueeze(2)  # (batch, predicted, target)
        is_over = (errors.detach() < 0).to(errors.dtype)
        weighted = (fractions.unsqueeze(2) - is_over).abs() * huber(errors)
        each = weighted.mean(dim=2).sum(dim=1)
        return Loss(each, each.detach())


def midpoints(num_quantiles: int, device: torch.device) -> Tensor:
    """Return the fractions in the middle of ``num_quantiles`` equal parts of 0 … 1."""
    return (torch.arange(num_quantiles, device=device) + 0.5) / num_quantiles


def returns_of(settings: AgentSettings, device: torch.device) -> Returns:
    """Return the prediction that ``settings.distribution`` names. Its constants are on ``device``."""
    match settings.distribution:
        case "hl-gauss":
            return HistogramReturn(settings.atoms, settings.support, device)
        case "c51":
            return CategoricalReturn(settings.atoms, settings.support, device)
        case "qr" | "iqn":
            return QuantileReturn(settings.atoms, settings.distribution == "iqn", device)
        case _:
            return MeanReturn()


def huber(error: Tensor) -> Tensor:
    """Return the Huber loss of each error: quadratic within 1 of 0, linear outside."""
    return functional.huber_loss(error, torch.zeros_like(error), reduction="none")


def greedy_policy(values: Tensor) -> Tensor:
    """Return probability 1 for the action with the highest value of each row, 0 for the others."""
    return torch.zeros_like(values).scatter_(1, values.argmax(dim=1, keepdim=True), 1.0)
