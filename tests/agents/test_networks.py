"""The networks' shapes, and that pixels are scaled once and exactly."""

from typing import get_args

import pytest
import torch
from torch import nn

from agents.agents_and_batches import agent_settings
from framestow.agents.networks import Head, NoisyLinear, QNetwork, build_network, network_input
from framestow.agents.settings import Network
from framestow.errors import InvalidSettingsError


def _network(
    shape: tuple[int, ...], num_actions: int, num_outputs: int = 1, recipe: str = "dqn", **changes: object
) -> QNetwork:
    return build_network(shape, num_actions, num_outputs, agent_settings(recipe, **changes))


def test_the_nature_network_has_the_published_number_of_parameters() -> None:
    network = _network((4, 84, 84), num_actions=18)

    # Mnih et al. 2015: kernels and biases of three convolutions, then 3,136 -> 512 -> actions.
    expected = (4 * 64 * 32 + 32) + (32 * 16 * 64 + 64) + (64 * 9 * 64 + 64) + (3_136 * 512 + 512) + (512 * 18 + 18)
    assert expected == sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("shape", [(4, 84, 84), (1, 36, 36), (4, 35, 84), (2, 24, 24), (3, 10, 10), (1, 1, 1)])
def test_any_frame_size_gives_a_value_an_action(shape: tuple[int, int, int]) -> None:
    network = _network(shape, num_actions=5)

    values = network(torch.zeros((2, *shape), dtype=torch.uint8))

    assert tuple(values.shape) == (2, 5, 1)
    assert torch.float32 == values.dtype


@pytest.mark.parametrize("stack", [1, 3, 4])
def test_scaled_pixels_lie_channels_last_also_of_windows_that_overlap(stack: int) -> None:
    shape = (3, stack + 1, 9, 15)  # two blocks of pixels, and a rest
    windows = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))

    for pixels in (windows[:, :-1], windows[:, 1:], windows[:, 1:, :, 2:], windows[:, 1:].flip(0)):
        scaled = network_input(pixels)

        assert torch.equal(scaled, pixels.float() * (1 / 255))
        assert scaled.is_contiguous(memory_format=torch.channels_last)


def test_observations_that_are_floats_are_not_scaled_again() -> None:
    floats = torch.rand((2, 4, 24, 24), generator=torch.Generator().manual_seed(0))
    before = floats.clone()

    assert torch.equal(before, network_input(floats))
    assert torch.equal(before, floats)


def test_frames_that_are_not_grey_are_refused() -> None:
    with pytest.raises(InvalidSettingsError, match=r"observation shape is \(4, 84, 84, 3\)"):
        _network((4, 84, 84, 3), num_actions=4)


def test_the_network_with_layer_normalisation_has_half_of_natures_kernels_and_a_scale_and_shift_for_each() -> None:
    network = _network((4, 84, 84), num_actions=6, network="layernorm")

    layers = (4 * 64 * 16 + 16) + (16 * 16 * 32 + 32) + (32 * 9 * 32 + 32) + (1_568 * 256 + 256) + (256 * 6 + 6)
    assert layers + 2 * (16 + 32 + 32 + 256) == sum(parameter.numel() for parameter in network.parameters())


def test_layer_normalisation_takes_mean_and_variance_of_a_row_over_all_kernels_and_pixels() -> None:
    network = _network((4, 84, 84), num_actions=6, network="layernorm")
    pixels = torch.rand((2, 4, 84, 84), generator=torch.Generator().manual_seed(0))

    convolved = network.torso[0](pixels)
    each = [(row - row.mean()) / torch.sqrt(row.var(unbiased=False) + 1e-5) for row in convolved]

    torch.testing.assert_close(network.torso[:3](pixels), torch.relu(torch.stack(each)))


def test_the_streams_of_a_dueling_head_are_normalised_each_by_itself() -> None:
    head = Head(num_features=3, hidden=4, num_actions=2, num_outputs=1, dueling=True, noisy=False, layer_norm=True)
    features = torch.rand((5, 3), generator=torch.Generator().manual_seed(0))
    before = head(features)

    with torch.no_grad():  # the first stream is that of the value
        head.hidden.weight[:4] *= 1_000.0
        head.hidden.bias[:4] *= 1_000.0

    difference = head(features) - before
    torch.testing.assert_close(difference[:, 0], difference[:, 1])


def test_a_network_has_the_first_weights_of_its_own_layers_whatever_other_networks_there_are() -> None:
    torch.manual_seed(3)
    network = _network((4, 84, 84), num_actions=6, network="layernorm")
    torch.manual_seed(3)
    shapes = [(4, 16, 8, 4), (16, 32, 4, 2), (32, 32, 3, 1)]
    convolutions = [nn.Conv2d(inputs, kernels, side, stride) for inputs, kernels, side, stride in shapes]
    layers = [*convolutions, nn.Linear(1_568, 256), nn.Linear(256, 6)]

    built = [module for module in network.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]

    for layer, expected in zip(built, layers, strict=True):
        assert torch.equal(layer.weight, expected.weight)


@pytest.mark.parametrize("name", get_args(Network))
def test_every_network_sees_every_pixel_of_an_atari_frame(name: str) -> None:
    network = _network((1, 84, 84), num_actions=2, network=name)
    pixels = torch.rand((4, 1, 84, 84), generator=torch.Generator().manual_seed(0), requires_grad=True)

    network(pixels).sum().backward()

    assert pixels.grad is not None
    seen = (pixels.grad != 0).any(dim=0)[0]
    assert seen.any(dim=0).nonzero().flatten().tolist() == list(range(84))
    assert seen.any(dim=1).nonzero().flatten().tolist() == list(range(84))


def test_a_dueling_head_adds_the_value_to_the_advantage_over_its_mean() -> None:
    head = Head(num_features=2, hidden=2, num_actions=2, num_outputs=1, dueling=True, noisy=False)
    with torch.no_grad():
        head.hidden.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 2.0]]))
        head.hidden.bias.zero_()
        assert head.value is not None
        head.value.weight.copy_(torch.tensor([[1.0, 10.0]]))
        head.value.bias.fill_(0.5)
        head.advantage.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        head.advantage.bias.zero_()

    outputs = head(torch.tensor([[1.0, 2.0]]))  # value 1 + 20 + 0.5, advantages 3 and 4 with mean 3.5

    assert outputs.flatten().tolist() == [21.5 - 0.5, 21.5 + 0.5]


def test_a_noisy_layer_adds_factorised_noise_scaled_by_what_it_learnt() -> None:
    layer = NoisyLinear(inputs=3, outputs=2)
    layer.sample_noise(torch.Generator().manual_seed(0))
    drawn = torch.randn(3, generator=torch.Generator().manual_seed(0))  # the inputs' noise comes first

    torch.testing.assert_close(layer.noise_in, drawn.sign() * drawn.abs().sqrt())
    noise = torch.outer(layer.noise_out, layer.noise_in)
    inputs = torch.tensor([[1.0, -2.0, 0.5]])
    expected = inputs @ (layer.weight + layer.weight_scale * noise).T + layer.bias + layer.bias_scale * layer.noise_out
    torch.testing.assert_close(layer(inputs), expected)
    assert layer.weight_scale.unique().tolist() == pytest.approx([0.5 / 3**0.5])  # Fortunato et al. 2018
    torch.testing.assert_close(layer.eval()(inputs), inputs @ layer.weight.T + layer.bias)


def test_new_noise_changes_the_outputs_of_a_noisy_network_only_in_training_mode() -> None:
    network = _network((2, 24, 24), num_actions=3, noisy=True)
    pixels = torch.full((1, 2, 24, 24), 100, dtype=torch.uint8)
    generator = torch.Generator().manual_seed(0)

    def outputs() -> torch.Tensor:
        network.sample_noise(generator)
        return network(pixels).detach()

    assert not torch.equal(outputs(), outputs())
    network.eval()
    assert torch.equal(outputs(), outputs())


def test_spectral_norm_keeps_the_largest_singular_value_of_residual_blocks_at_one() -> None:
    torch.manual_seed(0)  # how soon the iteration converges depends on the weights
    network = _network((1, 36, 36), num_actions=3, recipe="desktop")
    for _ in range(50):  # each pass in training mode is a step of the power iteration
        network(torch.zeros((1, 1, 36, 36), dtype=torch.uint8), torch.full((1, 8), 0.5))

    weights = [module.weight for name, module in network.named_modules() if name.endswith((".first", ".second"))]

    assert len(weights) == 12
    for weight in weights:
        assert torch.linalg.matrix_norm(weight.flatten(1), ord=2).item() == pytest.approx(1.0, abs=0.02)


def test_iqn_gives_an_output_for_each_fraction_that_depends_on_it_alone() -> None:
    network = _network((2, 24, 24), num_actions=3, distribution="iqn")
    pixels = torch.randint(0, 256, (2, 2, 24, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    fractions = torch.tensor([[0.1, 0.9, 0.1], [0.5, 0.1, 0.9]])

    outputs = network(pixels, fractions)

    assert outputs.shape == (2, 3, 3)
    torch.testing.assert_close(outputs[0, :, 0], outputs[0, :, 2])
    assert not torch.allclose(outputs[0, :, 0], outputs[0, :, 1])
    torch.testing.assert_close(outputs[1, :, 1], network(pixels[1:], torch.tensor([[0.1]]))[0, :, 0])
