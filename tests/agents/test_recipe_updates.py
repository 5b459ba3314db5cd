"""One update of each recipe, recomputed in plain PyTorch from the same batch, weights and random numbers."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agents.agents_and_batches import ATARI, build_agent, random_batch
from framestow.agents.dqn import DQN
from framestow.replay.batch import Batch
from framestow.training.recipes import RECIPES
from framestow.training.settings import Settings

SIZE = 4


def _plain_update(agent: DQN, settings: Settings, batch: Batch) -> tuple[Tensor, nn.Module]:
    """Return the loss and the updated network, with one transition at a time wherever the agent works in parallel."""
    online, target = copy.deepcopy(agent._online), copy.deepcopy(agent._target)
    generator = torch.Generator()
    generator.set_state(agent._generator.get_state())

    def outputs(network: nn.Module, frames: np.ndarray) -> tuple[Tensor, Tensor | None]:
        fractions = None
        if settings.distribution == "iqn":
            fractions = torch.rand((SIZE, settings.atoms), generator=generator)
        return network(torch.from_numpy(frames.copy()), fractions), fractions

    def values(of_actions: Tensor) -> Tensor:
        if settings.distribution == "c51":
            atoms = torch.linspace(-settings.support, settings.support, settings.atoms)
            return (of_actions.softmax(2) * atoms).sum(2)
        return of_actions.mean(2)

    with torch.no_grad():
        target.sample_noise(generator)
        next_outputs, _ = outputs(target, batch.next_observation)
        rewards = torch.from_numpy(batch.reward.copy())
        if settings.munchausen:
            now, _ = outputs(target, batch.observation)
            for row in range(SIZE):
                log_policy = 0.03 * torch.log_softmax(values(now)[row] / 0.03, 0)[batch.action[row]]
                rewards[row] += 0.9 * max(min(float(log_policy), 0.0), -1.0)
        choosing = next_outputs
        if settings.double:
            online.sample_noise(generator)
            choosing, _ = outputs(online, batch.next_observation)
        targets = []
        for row in range(SIZE):
            discount = float(batch.discount[row])
            if settings.munchausen:
                policy = torch.softmax(values(next_outputs)[row] / 0.03, 0)
                soft = next_outputs[row] - 0.03 * torch.log(policy.clamp_min(1e-38)).unsqueeze(1)
                targets.append(rewards[row] + discount * sum(p * each for p, each in zip(policy, soft, strict=True)))
                continue
            best = next_outputs[row, int(values(choosing)[row].argmax())]
            if settings.distribution != "c51":
                targets.append(rewards[row] + discount * best)
                continue
            spacing = 2 * settings.support / (settings.atoms - 1)
            projected = torch.zeros(settings.atoms)
            for atom, probability in enumerate(best.softmax(0)):
                value = float(rewards[row]) + discount * (atom * spacing - settings.support)
                place = (min(max(value, -settings.support), settings.support) + settings.support) / spacing
                lower = min(int(place), settings.atoms - 2)
                projected[lower] += probability * (lower + 1 - place)
                projected[lower + 1] += probability * (place - lower)
            targets.append(projected)

    online.sample_noise(generator)
    predicted, fractions = outputs(online, batch.observation)
    losses = []
    for row in range(SIZE):
        prediction, aim = predicted[row, int(batch.action[row])], targets[row]
        if settings.distribution == "c51":
            losses.append(-(aim * prediction.log_softmax(0)).sum())
        elif settings.distribution == "none":
            losses.append(nn.functional.smooth_l1_loss(prediction[0], aim[0]))
        else:
            midpoints = (torch.arange(settings.atoms) + 0.5) / settings.atoms
            of_row = midpoints if fractions is None else fractions[row]
            total = torch.zeros(())
            for fraction, quantile in zip(of_row, prediction, strict=True):
                errors = aim - quantile
                weights = torch.where(errors < 0, 1 - fraction, fraction)
                total = (
                    total
                    + (weights * nn.functional.smooth_l1_loss(quantile.expand_as(aim), aim, reduction="none")).mean()
                )
            losses.append(total)
    loss = (torch.stack(losses) * torch.from_numpy(batch.weight)).mean()
    loss.backward()
    if settings.max_grad_norm is not None:
        norm = torch.sqrt(sum(p.grad.square().sum() for p in online.parameters() if p.grad is not None))
        for parameter in online.parameters():
            parameter.grad *= min(1.0, settings.max_grad_norm / float(norm))
    for parameter in online.parameters():
        _optimize(parameter, settings)
    return loss.detach(), online


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


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_update_equals_one_written_out_plainly(recipe: str) -> None:
    settings = Settings("Pong", recipe=recipe)
    agent = build_agent(recipe, shape=ATARI)
    batch = random_batch(0, ATARI, SIZE)
    before = [parameter.detach().clone() for parameter in agent._online.parameters()]
    plain_loss, plain_network = _plain_update(agent, settings, batch)

    update = agent.learn(batch)

    torch.testing.assert_close(update.loss, plain_loss, rtol=1e-4, atol=1e-6)
    moved = [(new - old).flatten() for new, old in zip(agent._online.parameters(), before, strict=True)]
    plain = [(new - old).flatten() for new, old in zip(plain_network.parameters(), before, strict=True)]
    # Steps of Adam have the size of the learning rate; where a gradient is nearly 0, rounding decides its sign.
    difference = torch.cat([one - other for one, other in zip(moved, plain, strict=True)]).abs()
    assert (difference > 0.02 * settings.learning_rate).float().mean().item() < 0.002
    assert torch.cat(moved).abs().max() > 0.1 * settings.learning_rate
