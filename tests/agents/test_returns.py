"""Targets and losses of each kind of prediction, against numbers worked out by hand."""

import math

import pytest
import torch

from framestow.agents.returns import (
    CategoricalReturn,
    HistogramReturn,
    MeanReturn,
    QuantileReturn,
)

CPU = torch.device("cpu")


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


def test_c51_loss_and_priority_are_the_cross_entropy() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    target = torch.tensor([[0.0, 0.5, 0.5]])

    loss = CategoricalReturn(num_atoms=3, support=1.0, device=CPU).loss(logits, target, None)

    torch.testing.assert_close(loss.each, -torch.log(torch.tensor([0.25])))
    assert torch.equal(loss.priority, loss.each)


def test_hl_gauss_values_are_means_of_the_bins_centers_and_its_priority_is_the_error() -> None:
    kind = HistogramReturn(4, 2.0, CPU)
    logits = torch.tensor([[[0.1, 0.2, 0.3, 0.4]]]).log()  # centers -1.5, -0.5, 0.5, 1.5
    value = -0.15 - 0.1 + 0.15 + 0.6

    assert kind.values(logits).item() == pytest.approx(value)
    assert kind.loss(logits[0], torch.tensor([[-3.5]]), None).priority.item() == pytest.approx(value + 3.5)


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
