"""One update of each recipe, recomputed in plain PyTorch from the same batch, weights and random numbers."""

import copy
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from agents.agents_and_batches import ATARI, build_agent, random_batch
from framestow.agents.dqn import DQN
from framestow.replay.reading.batch import Batch
from framestow.training.recipes import RECIPES
from framestow.training.settings import Settings

SIZE = 4


class _Plain:
    """An agent's update with one transition at a time, and the random numbers in the order in which the agent draws."""

    def __init__(self, agent: DQN, settings: Settings, batch: Batch) -> None:
        self.settings, self.batch = settings, batch
        self.online, self.target = copy.deepcopy(agent._online), copy.deepcopy(agent._target)
        self._generator = torch.Generator()
        self._generator.set_state(agent._generator.get_state())
        with torch.no_grad():
            self.targets = self._targets()

    def update(self) -> Tensor:
        """Update ``online`` and return the loss."""
        self.online.sample_noise(self._generator)
        predicted, fractions = self._outputs(self.online, self.batch.observation)
        losses = [
            self._loss(predicted[row, int(self.batch.action[row])], self.targets[row], fractions, row)
            for row in range(SIZE)
        ]
        loss = (torch.stack(losses) * torch.from_numpy(self.batch.weight)).mean()
        loss.backward()
        limit = self.settings.max_grad_norm
        norm = torch.sqrt(sum(p.grad.square().sum() for p in self.online.parameters() if p.grad is not None))
        for parameter in self.online.parameters():
            if limit is not None:
                parameter.grad *= min(1.0, limit / float(norm))
            _optimize(parameter, self.settings)
        return loss.detach()

    def _outputs(self, network: nn.Module, frames: NDArray[np.uint8]) -> tuple[Tensor, Tensor | None]:
        fractions = None
        if self.settings.distribution == "iqn":
            fractions = torch.rand((SIZE, self.settings.atoms), generator=self._generator)
        return network(torch.from_numpy(frames.copy()), fractions), fractions

    def _values(self, outputs: Tensor) -> Tensor:
        if self.settings.distribution == "c51":
            atoms = torch.linspace(-self.settings.support, self.settings.support, self.settings.atoms)
            return (outputs.softmax(2) * atoms).sum(2)
        if self.settings.distribution == "hl-gauss":
            return (outputs.softmax(2) * self._bins()[:, 1]).sum(2)
        return outputs.mean(2)

    def _bins(self) -> Tensor:
        """Return the lower end, the middle and the upper end of each bin of hl-gauss."""
        width = 2 * self.settings.support / self.settings.atoms
        return torch.tensor(
            [
                [(number + part) * width - self.settings.support for part in (0, 0.5, 1)]
                for number in range(self.settings.atoms)
            ]
        )

    def _targets(self) -> list[Tensor]:
        self.target.sample_noise(self._generator)
        next_outputs, _ = self._outputs(self.target, self.batch.next_observation)
        if self.settings.munchausen_after == 0:
            now, _ = self._outputs(self.target, self.batch.observation)
            return [self._munchausen_target(self._values(now)[row], next_outputs[row], row) for row in range(SIZE)]
        choosing = next_outputs
        if self.settings.double:
            self.online.sample_noise(self._generator)
            choosing, _ = self._outputs(self.online, self.batch.next_observation)
        best = [next_outputs[row, int(self._values(choosing)[row].argmax())] for row in range(SIZE)]
        if self.settings.distribution == "c51":
            return [self._projected(best[row].softmax(0), row) for row in range(SIZE)]
        if self.settings.distribution == "hl-gauss":
            best = [self._values(outputs.view(1, 1, -1))[0, 0] for outputs in best]
        return [float(self.batch.reward[row]) + float(self.batch.discount[row]) * best[row] for row in range(SIZE)]

    def _munchausen_target(self, values: Tensor, next_outputs: Tensor, row: int) -> Tensor:
        log_policy = 0.03 * torch.log_softmax(values / 0.03, 0)[self.batch.action[row]]
        reward = float(self.batch.reward[row]) + 0.9 * max(min(float(log_policy), 0.0), -1.0)
        log_next = torch.log_softmax(next_outputs.mean(1) / 0.03, 0)
        soft = torch.zeros(self.settings.atoms)
        for action, outputs in enumerate(next_outputs):
            soft += log_next[action].exp() * (outputs - 0.03 * log_next[action])
        return reward + float(self.batch.discount[row]) * soft

    def _projected(self, probabilities: Tensor, row: int) -> Tensor:
        support, atoms = self.settings.support, self.settings.atoms
        spacing = 2 * support / (atoms - 1)
        projected = torch.zeros(atoms)
        for atom, probability in enumerate(probabilities):
            value = float(self.batch.reward[row]) + float(self.batch.discount[row]) * (atom * spacing - support)
            position = (min(max(value, -support), support) + support) / spacing
            lower = min(int(position), atoms - 2)
            projected[lower] += probability * (lower + 1 - position)
            projected[lower + 1] += probability * (position - lower)
        return projected

    def _gaussian(self, mean: float) -> Tensor:
        """Return the share of each bin of a normal distribution, of which nothing is outside the bins."""
        mean = min(max(mean, -self.settings.support), self.settings.support)
        normal = NormalDist(mean, 0.75 * 2 * self.settings.support / self.settings.atoms)
        shares = torch.tensor([normal.cdf(upper) - normal.cdf(lower) for lower, _, upper in self._bins().tolist()])
        return shares / shares.sum()

    def _loss(self, prediction: Tensor, aim: Tensor, fractions: Tensor | None, row: int) -> Tensor:
        if self.settings.distribution == "c51":
            return -(aim * prediction.log_softmax(0)).sum()
        if self.settings.distribution == "hl-gauss":
            return -(self._gaussian(float(aim)) * prediction.log_softmax(0)).sum()
        if self.settings.distribution == "none":
            return functional.smooth_l1_loss(prediction[0], aim[0])
        midpoints = (torch.arange(self.settings.atoms) + 0.5) / self.settings.atoms
        total = torch.zeros(())
        for fraction, quantile in zip(midpoints if fractions is None else fractions[row], prediction, strict=True):
            weights = torch.where(aim < quantile, 1 - fraction, fraction)
            each = functional.smooth_l1_loss(quantile.expand_as(aim), aim, reduction="none")
            total = total + (weights * each).mean()
        return total


@torch.no_grad()
def _optimize(parameter: nn.Parameter, settings: Settings) -> None:
    """Make the first step of Adam, or of centred RMSProp, as its paper writes it."""
    gradient = parameter.grad
    assert gradient is not None
    if settings.optimizer == "adam":  # the bias correction makes the first moments the gradient and its square
        parameter -= settings.learning_rate * gradient / (gradient.abs() + settings.optimizer_epsilon)
    else:
        variance = 0.05 * gradient.square() - (0.05 * gradient).square()
        parameter -= settings.learning_rate * gradient / (variance.sqrt() + settings.optimizer_epsilon)


@pytest.mark.parametrize(
    ("recipe", "others"),
    [*((recipe, {}) for recipe in RECIPES), ("laptop", {"network": "layernorm-nature", "distribution": "qr"})],
)
def test_an_update_equals_one_written_out_plainly(recipe: str, others: dict[str, Any]) -> None:
    changes = {"precision": "float32"} | others
    settings = Settings("Pong", recipe=recipe, **changes)
    agent = build_agent(recipe, shape=ATARI, **changes)
    batch = random_batch(0, ATARI, SIZE)
    before = [parameter.detach().clone() for parameter in agent._online.parameters()]
    plain = _Plain(agent, settings, batch)

    update = agent.learn(batch)

    torch.testing.assert_close(update.loss, plain.update(), rtol=1e-4, atol=1e-6)
    moved = [(new - old).flatten() for new, old in zip(agent._online.parameters(), before, strict=True)]
    expected = [(new - old).flatten() for new, old in zip(plain.online.parameters(), before, strict=True)]
    # Steps of Adam have the size of the learning rate; where a gradient is nearly 0, rounding decides its sign.
    difference = torch.cat([one - other for one, other in zip(moved, expected, strict=True)]).abs()
    assert (difference > 0.02 * settings.learning_rate).float().mean().item() < 0.002
    assert torch.cat(moved).abs().max() > 0.1 * settings.learning_rate
