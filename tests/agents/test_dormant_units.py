"""How many units of a layer are dormant, against numbers worked out by hand."""

import numpy as np
import pytest
import torch

from agents.agents_and_batches import ATARI, build_agent, random_batch
from framestow.agents.dormant_units import dormant_share


def test_a_unit_is_dormant_up_to_a_fortieth_of_the_mean_activity() -> None:
    # The mean is 1. Its fortieth is 0.025.
    assert dormant_share(torch.tensor([[0.025, 0.026, 2.949, 1.0]])) == 0.25


def test_a_kernel_counts_once_with_its_mean_over_all_pixels_and_frames() -> None:
    activations = torch.zeros(2, 3, 4, 4)
    activations[0, 0, 1, 1] = 32.0  # the mean of this kernel is 1
    activations[:, 1] = 1.0

    assert dormant_share(activations) == pytest.approx(1 / 3)


def test_all_units_of_a_layer_that_is_never_active_are_dormant() -> None:
    assert dormant_share(torch.zeros(5, 7)) == 1.0


@pytest.mark.parametrize(
    ("network", "num_layers"), [("nature", 4), ("layernorm", 4), ("layernorm-nature", 4), ("impala", 14)]
)
def test_every_layer_with_a_relu_is_measured(network: str, num_layers: int) -> None:
    agent = build_agent(network=network, shape=ATARI)

    shares = agent.dormant_units(random_batch(0, ATARI, size=4).observation)

    assert len(shares) == num_layers
    assert all(0.0 <= share < 1.0 for share in shares)


def test_a_layer_whose_biases_silence_half_of_its_kernels_is_half_dormant() -> None:
    agent = build_agent(network="nature", shape=ATARI)
    with torch.no_grad():
        agent.state_dict()["online"]["torso.2.bias"][:32] = -1e3

    shares = agent.dormant_units(random_batch(0, ATARI, size=4).observation)

    assert 0.5 <= shares[1] < 0.6
    assert shares[0] < 0.5


def test_measuring_changes_neither_the_agent_nor_its_next_actions() -> None:
    measured, other = build_agent(noisy=True), build_agent(noisy=True)
    observations = random_batch(0).observation

    measured.dormant_units(observations)

    measured.learn(random_batch(1))
    other.learn(random_batch(1))
    np.testing.assert_array_equal(measured.values(observations), other.values(observations))
    np.testing.assert_array_equal(measured.act(observations, 10**9), other.act(observations, 10**9))
