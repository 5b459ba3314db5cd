"""The targets and the loss against numbers worked out by hand."""

import numpy as np
import torch

from framestow.agents.dqn import chosen_values, double_dqn_target, dqn_target, weighted_huber

# Two transitions, three actions. In the first the online network prefers action 2 and the target network action 0;
# the second terminated.
REWARD = torch.tensor([1.0, -2.0])
DISCOUNT = torch.tensor([0.5, 0.0])
NEXT_ONLINE = torch.tensor([[1.0, 2.0, 3.0], [9.0, 0.0, 0.0]])
NEXT_TARGET = torch.tensor([[8.0, 6.0, 4.0], [7.0, 7.0, 7.0]])


def test_double_dqn_values_the_online_choice_by_the_target_network() -> None:
    target = double_dqn_target(REWARD, DISCOUNT, NEXT_ONLINE, NEXT_TARGET)

    assert target.tolist() == [1.0 + 0.5 * 4.0, -2.0]


def test_plain_dqn_takes_the_target_networks_own_maximum() -> None:
    target = dqn_target(REWARD, DISCOUNT, NEXT_TARGET)

    assert target.tolist() == [1.0 + 0.5 * 8.0, -2.0]


def test_a_terminated_transition_bootstraps_from_nothing_however_large_the_next_values() -> None:
    huge = torch.full((2, 3), 1e6)

    assert double_dqn_target(REWARD, DISCOUNT, NEXT_ONLINE, huge)[1].item() == -2.0
    assert dqn_target(REWARD, DISCOUNT, huge)[1].item() == -2.0


def test_targets_equal_a_loop_over_random_batches() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        reward, discount = generator.normal(size=(2, 7))
        online, target = generator.normal(size=(2, 7, 5))
        expected = [reward[i] + discount[i] * target[i, int(np.argmax(online[i]))] for i in range(7)]

        actual = double_dqn_target(*(torch.from_numpy(part) for part in (reward, discount, online, target)))

        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-12)


def test_chosen_values_picks_one_value_a_row() -> None:
    assert chosen_values(NEXT_ONLINE, torch.tensor([1, 0])).tolist() == [2.0, 9.0]


def test_the_huber_loss_is_quadratic_within_one_and_linear_outside() -> None:
    ones = torch.ones(1)

    assert weighted_huber(torch.tensor([0.5]), ones).item() == 0.125
    assert weighted_huber(torch.tensor([-1.0]), ones).item() == 0.5
    assert weighted_huber(torch.tensor([-3.0]), ones).item() == 2.5


def test_the_huber_gradient_is_the_clipped_error() -> None:
    error = torch.tensor([-5.0, -0.25, 0.75, 2.0], requires_grad=True)

    (weighted_huber(error, torch.ones(4)) * 4).backward()

    assert error.grad is not None
    assert error.grad.tolist() == [-1.0, -0.25, 0.75, 1.0]


def test_the_huber_loss_weighs_each_sample_and_takes_the_mean() -> None:
    loss = weighted_huber(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 3.0]))

    assert loss.item() == (0.5 * 1.0 + 0.5 * 3.0) / 2
