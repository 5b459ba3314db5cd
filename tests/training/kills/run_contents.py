"""Checksums of a run's complete state, and the left-over files in its folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from framestow.training.checkpoint import RunState, newest_checkpoint
from oracles.store_files import unaccounted

TRANSITIONS_AT_ONCE = 128
# Random in every process, and unused by a run with a seed: the generators of an environment's spaces, its next seed,
# and PyTorch's generator.
_UNUSED = {"action_space", "observation_space", "pending_seed", "torch_generator"}


Contents = dict[str, str]  # a checksum of each value, by its path


def contents(state: RunState) -> Contents:
    """Return checksums of agent, counts, environments, generators and every stored transition; sample nothing."""
    found: Contents = {}
    _add(found, "agent", state.agent)
    _add(found, "rest", state.rest)
    memory = state.memory
    stored = memory.sampleable_indices()
    for start in range(0, len(stored), TRANSITIONS_AT_ONCE):
        chosen = stored[start : start + TRANSITIONS_AT_ONCE]
        _add(found, f"transitions[{chosen[0]}:{chosen[-1] + 1}]", vars(memory.get(chosen)))
    _add(found, "observations", memory.observations())
    return found


def differences(one: Contents, other: Contents) -> list[str]:
    """Return the paths of all values that differ."""
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


def _add(found: Contents, path: str, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        for key in value.keys() - _UNUSED:
            _add(found, f"{path}.{key}", value[key])
    elif isinstance(value, (list, tuple)):
        for number, child in enumerate(value):
            _add(found, f"{path}[{number}]", child)
    elif isinstance(value, np.ndarray):
        checksum = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        found[path] = f"{value.dtype}{value.shape} {checksum[:16]}"
    else:
        found[path] = hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def strangers(run: Path) -> list[str]:
    """Return every file and folder in a run folder that a run between two checkpoints does not have there."""
    belongs = {".lock", "settings.json", "episodes.csv", "progress.csv", "report.html", "checkpoints", "memory"}
    found = [path for path in run.iterdir() if path.name not in belongs and not path.name.startswith("events.out")]
    checkpoints = run / "checkpoints"
    newest = newest_checkpoint(checkpoints)
    if checkpoints.is_dir():
        found += [path for path in checkpoints.iterdir() if path != newest]
    if newest:
        belongs = {"MANIFEST", "agent.safetensors", "state.safetensors"}
        found += [path for path in newest.iterdir() if path.name not in belongs]
    found += _strangers_in_store(run / "memory")
    return sorted(str(path.relative_to(run)) for path in found)


def _strangers_in_store(store: Path) -> list[Path]:
    """Everything but the lock, the commits that stay, and the files that they name."""
    return [store / name for name in sorted(unaccounted(store))] if store.is_dir() else []
