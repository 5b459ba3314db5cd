"""The networks' shapes, and that pixels are scaled once and exactly."""

import pytest
import torch

from framestow.agents.networks import build_network, scale_pixels
from framestow.errors import InvalidSettingsError


def test_the_nature_network_has_the_published_number_of_parameters() -> None:
    network = build_network((4, 84, 84), num_actions=18)

    # Mnih et al. 2015: kernels and biases of three convolutions, then 3,136 -> 512 -> actions.
    expected = (4 * 64 * 32 + 32) + (32 * 16 * 64 + 64) + (64 * 9 * 64 + 64) + (3_136 * 512 + 512) + (512 * 18 + 18)
    assert expected == sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("shape", [(4, 84, 84), (1, 36, 36), (4, 35, 84), (2, 24, 24), (3, 10, 10), (1, 1, 1)])
def test_any_frame_size_gives_a_value_an_action(shape: tuple[int, int, int]) -> None:
    network = build_network(shape, num_actions=5)

    values = network(torch.zeros((2, *shape), dtype=torch.uint8))

    assert tuple(values.shape) == (2, 5)
    assert torch.float32 == values.dtype


def test_pixels_scale_to_the_unit_interval() -> None:
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 1, 3)

    torch.testing.assert_close(scale_pixels(pixels).flatten(), torch.tensor([0.0, 0.2, 1.0]))


def test_observations_that_are_floats_are_not_scaled_again() -> None:
    floats = torch.rand((2, 4, 24, 24), generator=torch.Generator().manual_seed(0))
    before = floats.clone()

    assert torch.equal(before, scale_pixels(floats))
    assert torch.equal(before, floats)


def test_raw_pixels_and_pixels_scaled_before_give_the_same_values() -> None:
    network = build_network((4, 24, 24), num_actions=3)
    pixels = torch.randint(0, 256, (5, 4, 24, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))

    assert torch.equal(network(pixels), network(scale_pixels(pixels)))


def test_frames_that_are_not_grey_are_refused() -> None:
    with pytest.raises(InvalidSettingsError, match=r"observation shape is \(4, 84, 84, 3\)"):
        build_network((4, 84, 84, 3), num_actions=4)
