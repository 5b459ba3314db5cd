"""Targets and losses of each kind of prediction, against numbers worked out by hand."""

import math
import statistics

import numpy as np
import pytest
import torch

from framestow.agents.returns import (
    CategoricalReturn,
    HistogramReturn,
    MeanReturn,
    NextStep,
    QuantileReturn,
    huber,
    project,
)

CPU = torch.device("cpu")
REWARD = torch.tensor([1.0, -2.0])
DISCOUNT = torch.tensor([0.5, 0.0])  # the second transition terminated
NEXT_TARGET = torch.tensor([[8.0, 6.0, 4.0], [7.0, 7.0, 7.0]])


def test_a_soft_policy_averages_the_next_returns_and_adds_its_entropy() -> None:
    policy = torch.tensor([[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]])
    entropy = torch.tensor([[2.0, 4.0, 100.0], [0.0, 0.0, 0.0]])
    step = NextStep(REWARD, DISCOUNT, policy, entropy)

    target = MeanReturn().target(step, NEXT_TARGET.unsqueeze(2))

    assert target.tolist() == [[1.0 + 0.5 * (0.25 * (8.0 + 2.0) + 0.75 * (6.0 + 4.0))], [-2.0]]


def test_the_huber_loss_is_quadratic_within_one_and_linear_outside() -> None:
    assert huber(torch.tensor([0.5, -1.0, -3.0])).tolist() == [0.125, 0.5, 2.5]


def test_the_mean_returns_priority_is_the_unclipped_error() -> None:
    loss = MeanReturn().loss(torch.tensor([[1.0], [1.0]]), torch.tensor([[-4.0], [1.5]]), None)

    assert loss.priority.tolist() == [5.0, 0.5]


@pytest.mark.parametrize(
    ("returns", "outputs", "num_targets"),
    [
        (MeanReturn(), torch.zeros(1, 1), 1),
        (HistogramReturn(10, 10.0, CPU), torch.zeros(1, 10), 1),  # the mean is 0
        (QuantileReturn(5, are_drawn=False, device=CPU), torch.zeros(1, 5), 5),
    ],
)
@pytest.mark.parametrize("error", [-3.0, 0.5])
def test_the_priority_of_an_error_is_that_of_a_prediction_without_spread(returns, outputs, num_targets, error) -> None:
    learnt = returns.loss(outputs, torch.full((1, num_targets), error), None).priority

    torch.testing.assert_close(returns.priority(torch.tensor([error])), learnt)
    assert returns.priority(torch.tensor([math.nan])).isnan().all()


def test_an_error_gives_c51_no_priority() -> None:
    assert CategoricalReturn(51, 10.0, CPU).priority(torch.tensor([1.0, math.nan])).isnan().tolist() == [True, True]


def test_a_return_between_two_atoms_is_split_by_nearness() -> None:
    # Atoms -2, -1, 0, 1, 2. A return of 0.25 is three quarters at 0; 9 lies outside and goes to the end.
    projected = project(torch.tensor([[0.6, 0.4]]), torch.tensor([[0.25, 9.0]]), support=2.0, num_atoms=5)

    torch.testing.assert_close(projected, torch.tensor([[0.0, 0.0, 0.45, 0.15, 0.4]]))


def test_projection_keeps_all_probability_and_the_mean_within_the_support() -> None:
    generator = np.random.default_rng(0)
    probabilities = torch.from_numpy(generator.dirichlet(np.ones(11), 50))
    returns = torch.from_numpy(generator.uniform(-10, 10, (50, 11)))
    atoms = torch.linspace(-10, 10, 51, dtype=torch.float64)

    projected = project(probabilities, returns, support=10.0, num_atoms=51)

    torch.testing.assert_close(projected.sum(1), torch.ones(50, dtype=torch.float64))
    torch.testing.assert_close(projected @ atoms, (probabilities * returns).sum(1))


def test_c51_loss_and_priority_are_the_cross_entropy() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    target = torch.tensor([[0.0, 0.5, 0.5]])

    loss = CategoricalReturn(num_atoms=3, support=1.0, device=CPU).loss(logits, target, None)

    torch.testing.assert_close(loss.each, -torch.log(torch.tensor([0.25])))
    assert torch.equal(loss.priority, loss.each)


def test_hl_gauss_aims_at_the_share_of_a_normal_distribution_in_each_bin() -> None:
    # Bins -2 … -1, -1 … 0, 0 … 1, 1 … 2. The distribution has mean 0.25 and standard deviation 0.75; the part outside
    # the support is left out.
    normal = statistics.NormalDist(0.25, 0.75)
    share = [normal.cdf(edge + 1) - normal.cdf(edge) for edge in (-2, -1, 0, 1)]
    predicted = torch.tensor([[0.1, 0.2, 0.3, 0.4]])

    loss = HistogramReturn(4, 2.0, CPU).loss(predicted.log(), torch.tensor([[0.25]]), None)

    expected = -sum(each / sum(share) * math.log(p) for each, p in zip(share, predicted[0].tolist(), strict=True))
    assert loss.each.item() == pytest.approx(expected, rel=1e-5)


def test_hl_gauss_values_are_means_of_the_bins_centers_and_its_priority_is_the_error() -> None:
    kind = HistogramReturn(4, 2.0, CPU)
    logits = torch.tensor([[[0.1, 0.2, 0.3, 0.4]]]).log()  # centers -1.5, -0.5, 0.5, 1.5
    value = -0.15 - 0.1 + 0.15 + 0.6

    assert kind.values(logits).item() == pytest.approx(value)
    assert kind.loss(logits[0], torch.tensor([[-3.5]]), None).priority.item() == pytest.approx(value + 3.5)


def test_hl_gauss_bootstraps_from_the_mean_of_the_next_bins() -> None:
    step = NextStep(torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([[0.0, 1.0]]), torch.tensor([[9.0, 0.2]]))
    outputs = torch.tensor([[[0.25, 0.25, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4]]]).log()

    target = HistogramReturn(4, 2.0, CPU).target(step, outputs)

    torch.testing.assert_close(target, torch.tensor([[1.0 + 0.5 * (0.5 + 0.2)]]))


@pytest.mark.parametrize(("mean", "end"), [(99.0, 3), (-99.0, 0)])
def test_hl_gauss_sets_a_mean_outside_the_support_to_its_end(mean: float, end: int) -> None:
    outputs = torch.zeros(1, 4, requires_grad=True)

    HistogramReturn(4, 2.0, CPU).loss(outputs, torch.tensor([[mean]]), None).each.sum().backward()

    assert outputs.grad is not None
    assert torch.isfinite(outputs.grad).all()
    assert outputs.grad.argmin().item() == end


def test_the_quantile_loss_weighs_errors_by_their_fractions() -> None:
    # Two quantiles at fractions 0.25 and 0.75, one target return 1. The prediction 0 is under it by 1: 0.25 · 0.5.
    # The prediction 3 is over it by 2: (1 - 0.75) · (2 - 0.5).
    loss = QuantileReturn(2, are_drawn=False, device=CPU).loss(torch.tensor([[0.0, 3.0]]), torch.tensor([[1.0]]), None)

    torch.testing.assert_close(loss.each, torch.tensor([0.25 * 0.5 + 0.25 * 1.5]))
    assert torch.equal(loss.priority, loss.each)
