"""The memory changes nothing: training with a plain replay of uncompressed stacks ends with the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.wrappers import TimeLimit

from framestow.envs import SerialVectorEnv
from framestow.training.run import Run
from framestow.training.settings import Settings
from oracles.catch import Catch
from oracles.plain_replay import use_plain_replay
from training.catch_runs import catch_settings

UNIFORM = {"recipe": "dqn", "double": True, "preset": "dopamine"}  # stacks begin with zeros
THREE_STEPS = {"recipe": "dqn", "n_step": 3}
PRIORITIZED = {"recipe": "laptop", "workers": 0}  # n-step returns, priorities


def _make_truncated_catch(settings: Settings) -> SerialVectorEnv:
    """Return environments whose episodes end at different steps, some of them truncated."""
    limits = [4, 7, 11]
    return SerialVectorEnv([lambda limit=limit: TimeLimit(Catch(), limit) for limit in limits], seed=settings.seed)


def _tensors(state: Any, name: str = "agent") -> dict[str, torch.Tensor]:
    """Return all tensors in nested dicts and lists, by their path."""
    if isinstance(state, torch.Tensor):
        return {name: state}
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    return {path: tensor for key, value in items for path, tensor in _tensors(value, f"{name}.{key}").items()}


def _trained(run: Run) -> Run:
    for _ in run.events():
        pass
    run.close()
    return run


@pytest.mark.parametrize("recipe", [UNIFORM, THREE_STEPS, PRIORITIZED], ids=["uniform", "3 steps", "prioritized"])
def test_training_with_a_plain_replay_ends_with_the_same_weights(recipe: dict[str, Any]) -> None:
    settings = catch_settings(**recipe, steps=400, memory=200)
    run, plain_run = Run(settings, _make_truncated_catch), Run(settings, _make_truncated_catch)
    plain = use_plain_replay(plain_run)
    initial = {name: tensor.clone() for name, tensor in _tensors(run.agent.state_dict()["online"]).items()}

    _trained(run)
    _trained(plain_run)

    tensors, plain_tensors = _tensors(run.agent.state_dict()), _tensors(plain_run.agent.state_dict())
    assert tensors.keys() == plain_tensors.keys()
    assert [name for name in tensors if not torch.equal(tensors[name], plain_tensors[name])] == []
    assert run.tally == plain_run.tally
    assert len(run.memory) == len(plain) < plain.num_steps == run.tally.agent_steps  # the ring has wrapped
    trained = _tensors(run.agent.state_dict()["online"])
    assert not any(torch.equal(initial[name], trained[name]) for name in initial)
