"""Dormant units of a network: those that are hardly active for any observation (Sokar et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

DORMANT_SCORE = 0.025  # of Sokar et al. 2023, The dormant neuron phenomenon in deep reinforcement learning


@contextmanager
def record_activations(network: nn.Module) -> Iterator[list[Tensor]]:
    """Yield a list that gets the output of each ReLU of ``network``, in order, while the ``with`` block runs."""
    activations: list[Tensor] = []

    def record(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        activations.append(output)

    hooks = [module.register_forward_hook(record) for module in network.modules() if isinstance(module, nn.ReLU)]
    try:
        yield activations
    finally:
        for hook in hooks:
            hook.remove()


def dormant_share(activations: Tensor) -> float:
    """Return the share of dormant units of a layer, from its outputs ``(batch, units, …)``; a kernel is a unit.

    The score of a unit is its mean absolute output over that of all units of the layer. Up to 0.025 it is dormant. If
    no unit is ever active, all are dormant.

    >>> import torch
    >>> dormant_share(torch.tensor([[0.0, 1.0, 0.0, 9.0], [0.0, 0.0, 0.1, 9.0]]))
    0.5
    """
    by_unit = activations.abs().transpose(0, 1).flatten(1).mean(dim=1)
    return float((by_unit <= DORMANT_SCORE * by_unit.mean()).float().mean())
