"""Networks that estimate the return of every action from stacked uint8 frames.

A network is a torso of convolutions and a head of two linear layers. The head has one output per action, or several
that describe the distribution of the return (``framestow.agents.returns``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from framestow._core import write_pixel_floats
from framestow.agents.settings import AgentSettings
from framestow.errors import InvalidSettingsError

TINY_BELOW = 36  # pixels; smaller frames get the tiny network
_NUM_COSINES = 64  # of the embedding of a quantile fraction (Dabney et al. 2018b)
_NOISE = 0.5  # initial standard deviation of noisy weights, times sqrt(inputs) (Fortunato et al. 2018)


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The layers of a network: convolutions with their ReLUs, then hidden units of a linear layer."""

    convolutions: tuple[tuple[int, int, int, int], ...]  # kernels, side, stride, padding of each; () for impala
    hidden: int
    layer_norm: bool = False  # before each ReLU (Ba et al. 2016)


ARCHITECTURES = {
    # Mnih et al. 2015.
    "nature": Architecture(((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)), hidden=512),
    # Half of nature's kernels. Layer normalisation holds the values of a mean head where they grew without bound
    # (Gallici et al. 2024).
    "layernorm": Architecture(((16, 8, 4, 0), (32, 4, 2, 0), (32, 3, 1, 0)), hidden=256, layer_norm=True),
    "layernorm-nature": Architecture(((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)), hidden=512, layer_norm=True),
    # Clark et al. 2024, after Espeholt et al. 2018: three residual stages of 32, 64, 64 channels, maximum over 6x6.
    "impala": Architecture((), hidden=512),
    "tiny": Architecture(((32, 3, 2, 1), (64, 3, 2, 1)), hidden=128),
}


def network_input(pixels: Tensor) -> Tensor:
    """Return uint8 pixels ``(batch, stack, H, W)`` as float32 in [0, 1], channels last.

    Float pixels are not scaled again.
    """
    if pixels.dtype != torch.uint8:
        return pixels.to(dtype=torch.float32, memory_format=torch.channels_last)
    floats = torch.empty(pixels.shape, dtype=torch.float32, device=pixels.device, memory_format=torch.channels_last)
    if pixels.device.type != "cpu":
        return floats.copy_(pixels).mul_(1.0 / 255.0)
    has_whole_planes = pixels.stride()[2:] == (pixels.shape[3], 1)
    planes = pixels if has_whole_planes else pixels.contiguous()
    write_pixel_floats(planes.numpy(), floats.permute(0, 2, 3, 1).numpy())
    return floats


class NoisyLinear(nn.Module):
    """A linear layer with learned noise on its weights, for exploration (Fortunato et al. 2018, factorised Gaussian).

    ``sample_noise`` draws new noise. In evaluation mode the layer uses the mean weights.
    """

    noise_in: Tensor  # of the current sample, (inputs,); the noise of a weight is a product of both
    noise_out: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        # Means of the weights, then standard deviations of their noise.
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_scale = nn.Parameter(torch.full((outputs, inputs), _NOISE * bound))
        self.bias_scale = nn.Parameter(torch.full((outputs,), _NOISE * bound))
        self.register_buffer("noise_in", torch.zeros(inputs))
        self.register_buffer("noise_out", torch.zeros(outputs))

    def sample_noise(self, generator: torch.Generator) -> None:
        """Draw new noise from ``generator``, on its device."""
        for noise in (self.noise_in, self.noise_out):
            drawn = torch.randn(noise.shape, generator=generator, device=generator.device)
            noise.copy_(drawn.sign() * drawn.abs().sqrt(), non_blocking=True)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs with the current noise, or without noise in evaluation mode."""
        if not self.training:
            return functional.linear(inputs, self.weight, self.bias)
        weight = self.weight + self.weight_scale * torch.outer(self.noise_out, self.noise_in)
        return functional.linear(inputs, weight, self.bias + self.bias_scale * self.noise_out)


class Head(nn.Module):
    """Two linear layers from features to ``(batch, num_actions, num_outputs)``.

    Dueling (Wang et al. 2016): a value stream and an advantage stream, combined as V + A - mean A. The first layers of
    both streams are one matrix, which is faster. ``layer_norm`` normalises the hidden units, each stream by itself.
    """

    def __init__(
        self,
        num_features: int,
        hidden: int,
        num_actions: int,
        num_outputs: int,
        *,
        dueling: bool,
        noisy: bool,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        linear = NoisyLinear if noisy else nn.Linear
        streams = 2 if dueling else 1
        self._num_actions = num_actions
        self.hidden = linear(num_features, streams * hidden)
        # Of the hidden units before the ReLU.
        self.norm = nn.GroupNorm(streams, streams * hidden) if layer_norm else nn.Identity()
        self.relu = nn.ReLU()
        self.advantage = linear(hidden, num_actions * num_outputs)
        self.value = linear(hidden, num_outputs) if dueling else None  # None: the advantages are the values

    def forward(self, features: Tensor) -> Tensor:
        """Return the outputs of every action."""
        hidden = self.relu(self.norm(self.hidden(features)))
        if self.value is None:
            outputs: Tensor = self.advantage(hidden).unflatten(1, (self._num_actions, -1))
            return outputs
        of_value, of_advantage = hidden.chunk(2, dim=1)
        advantage = self.advantage(of_advantage).unflatten(1, (self._num_actions, -1))
        combined: Tensor = self.value(of_value).unsqueeze(1) + advantage - advantage.mean(dim=1, keepdim=True)
        return combined


class QNetwork(nn.Module):
    """Torso, head, and with ``embeds_fractions`` the cosine embedding of IQN (Dabney et al. 2018b)."""

    def __init__(
        self,
        torso: nn.Sequential,
        observation_shape: Sequence[int],
        architecture: Architecture,
        num_actions: int,
        num_outputs: int,
        settings: AgentSettings,
    ) -> None:
        super().__init__()
        self.torso = torso
        with torch.no_grad():
            num_features = torso(torch.zeros(1, *observation_shape)).numel()
        # Of the cosines of a quantile's fraction; None unless the network is of IQN.
        self.embedding = nn.Linear(_NUM_COSINES, num_features) if settings.distribution == "iqn" else None
        self.head = Head(
            num_features,
            architecture.hidden,
            num_actions,
            num_outputs,
            dueling=settings.dueling,
            noisy=settings.noisy,
            layer_norm=architecture.layer_norm,
        )
        # Empty unless settings.noisy.
        self._noisy_layers = [layer for layer in self.modules() if isinstance(layer, NoisyLinear)]
        self.torso.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def sample_noise(self, generator: torch.Generator) -> None:
        """Draw new noise for all noisy layers."""
        for layer in self._noisy_layers:
            layer.sample_noise(generator)

    def forward(self, observations: Tensor, fractions: Tensor | None = None) -> Tensor:
        """Return the outputs of every action, float32.

        Arguments:
            observations: uint8 ``(batch, stack, H, W)``, or the floats of ``network_input``, so that two networks
                can share one scaling.
            fractions: For IQN, the quantile fractions ``(batch, n)``, each in 0 … 1.

        Returns:
            ``(batch, num_actions, num_outputs)``, or ``(batch, num_actions, n)`` with ``fractions``.
        """
        floats = network_input(observations) if observations.dtype == torch.uint8 else observations
        features = self.torso(floats).flatten(1)
        if self.embedding is None:
            outputs: Tensor = self.head(features)
            return outputs
        assert fractions is not None
        frequencies = torch.arange(_NUM_COSINES, device=features.device) * math.pi
        embedded = functional.relu(self.embedding(torch.cos(fractions.unsqueeze(2) * frequencies)))
        rows = (features.unsqueeze(1) * embedded).flatten(0, 1)
        by_fraction: Tensor = self.head(rows).view(*fractions.shape, -1)
        return by_fraction.transpose(1, 2)


def build_network(
    observation_shape: Sequence[int], num_actions: int, num_outputs: int, settings: AgentSettings
) -> QNetwork:
    """Return a new network with the architecture ``settings.network``. Frames under 36 pixels get ``tiny``.

    Raises:
        InvalidSettingsError: ``observation_shape`` is not ``(stack, H, W)``.
    """
    if len(observation_shape) != 3 or min(observation_shape) < 1:
        raise InvalidSettingsError(
            f"observation shape is {tuple(observation_shape)}: a DQN network takes (stack, H, W), each at least 1; "
            "convert the frames to grey first"
        )
    stack, height, width = observation_shape
    architecture = ARCHITECTURES["tiny" if min(height, width) < TINY_BELOW else settings.network]
    if architecture.convolutions:
        torso = _convolutions(stack, architecture)
    else:
        torso = _impala_torso(stack, settings.spectral_norm)
    return QNetwork(torso, observation_shape, architecture, num_actions, num_outputs, settings)


def _convolutions(stack: int, architecture: Architecture) -> nn.Sequential:
    """Return the convolutions, each followed by its normalisation, if there is one, and a ReLU."""
    modules: list[nn.Module] = []
    channels = stack
    for kernels, side, stride, padding in architecture.convolutions:
        modules.append(nn.Conv2d(channels, kernels, side, stride, padding))
        if architecture.layer_norm:
            modules.append(nn.GroupNorm(1, kernels))  # over all kernels and pixels of a row
        modules.append(nn.ReLU())
        channels = kernels
    return nn.Sequential(*modules)


class _ResidualBlock(nn.Module):
    def __init__(self, channels: int, normed: bool) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
        self.first, self.second = (spectral_norm(each) if normed else each for each in convolutions)
        self.relu = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        change: Tensor = self.second(self.relu(self.first(self.relu(inputs))))
        return inputs + change


def _impala_torso(stack: int, normed: bool) -> nn.Sequential:
    modules: list[nn.Module] = []
    channels = stack
    for kernels in (32, 64, 64):  # twice the width of Espeholt et al. 2018
        modules += [nn.Conv2d(channels, kernels, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        modules += [_ResidualBlock(kernels, normed), _ResidualBlock(kernels, normed)]
        channels = kernels
    return nn.Sequential(*modules, nn.ReLU(), nn.AdaptiveMaxPool2d(6))
