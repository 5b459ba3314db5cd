"""The replay buffer of Stable-Baselines3 as a memory: ``from_stable_baselines3``."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np

from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import map_arrays
from framestow.replay.memory import ReplayMemory
from framestow.replay.settings.action_spec import ActionSpec


def from_stable_baselines3(buffer: Any, capacity: int | None = None, **settings: Any) -> ReplayMemory:
    """Return a memory with the transitions of a replay buffer of Stable-Baselines3, oldest first.

    ::

        memory = from_stable_baselines3(
            model.replay_buffer, directory="stores/first-run"
        )

    Actions are as the buffer has them: those of a ``Box`` are scaled to -1 to 1. The oldest row of a full buffer with
    ``optimize_memory_usage`` is left out, since the buffer has overwritten its observation.

    Arguments:
        buffer: a ``ReplayBuffer`` or ``DictReplayBuffer``.
        capacity: of the memory; ``None`` takes the number of transitions.
        settings: other arguments of ``ReplayMemory``, such as ``directory``, ``seed`` and ``n_step``.

    Raises:
        InvalidSettingsError: it is another buffer, or empty; or for settings that no memory takes.
    """
    names = ("observations", "actions", "rewards", "dones", "timeouts", "pos", "full", "n_envs", "action_space")
    if any(not hasattr(buffer, name) for name in names):
        raise InvalidSettingsError(
            f"buffer is {buffer!r}: it must be a replay buffer of Stable-Baselines3; give model.replay_buffer"
        )
    size, observations = buffer.buffer_size, buffer.observations
    is_shared = getattr(buffer, "optimize_memory_usage", False) and not hasattr(buffer, "memory")
    count = buffer.size()  # with ``max_bytes``, those of a drop-in end at ``pos``, and begin anywhere
    rows = (np.arange(count) + buffer.pos - count) % size
    rows = rows[1:] if is_shared and buffer.full else rows
    if not len(rows):
        raise InvalidSettingsError("buffer is empty: there is nothing to import; call it after model.learn()")
    spec = ActionSpec.from_space(buffer.action_space)
    actions, rewards, dones, timeouts = buffer.actions, buffer.rewards, buffer.dones, buffer.timeouts
    memory = ReplayMemory(
        len(rows) * buffer.n_envs if capacity is None else capacity,
        map_arrays(lambda array: FrameSpec(array.shape[2:], array.dtype), observations),
        spec,
        num_envs=buffer.n_envs,
        **settings,
    )
    for row in rows.tolist():
        after = (row + 1) % size if is_shared else row
        truncated = (dones[row] > 0) & (timeouts[row] > 0)
        memory.add(
            map_arrays(itemgetter(row), observations),
            actions[row].reshape(buffer.n_envs, *spec.shape),
            rewards[row],
            map_arrays(itemgetter(after), observations if is_shared else buffer.next_observations),
            (dones[row] > 0) & ~truncated,
            truncated,
        )
    return memory
