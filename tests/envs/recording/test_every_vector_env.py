"""The same seeds and policy save the same bytes with every vector environment and autoreset mode."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from framestow.envs import AtariEnv, Recorder, SerialVectorEnv, WorkerVectorEnv, find_preset
from framestow.envs.seeding import spawn_seeds
from framestow.replay.memory import ReplayMemory
from oracles.numbered_frames import NumberedEnv
from oracles.saved_bytes import saved_bytes

MODES = list(AutoresetMode)
NAMES = ["toys", "Breakout", pytest.param("Pong", marks=pytest.mark.exhaustive)]
SEED = 11
# Short games that end by a lost life and by the cap, with chance in them.
PRESET = replace(find_preset("nature"), name="short", max_episode_frames=140, sticky_probability=0.25)


def numbered(env_id):
    lengths, endings = [((2, 5), ("terminated", "truncated")), ((3,), ("both",)), ((1, 1, 4), ("truncated",))][env_id]
    return NumberedEnv(env_id, lengths, endings)


def toys(num_envs):
    return [partial(numbered, env_id) for env_id in range(num_envs)]


def games(game, num_envs):
    return [partial(AtariEnv, game, PRESET) for _ in range(num_envs)]


ENVS = {"toys": toys, "Breakout": partial(games, "breakout"), "Pong": partial(games, "pong")}

VECTORS = {
    "serial": SerialVectorEnv,
    "workers": lambda env_fns, mode: WorkerVectorEnv(env_fns, mode, num_workers=min(2, len(env_fns))),
    "sync": lambda env_fns, mode: SyncVectorEnv(env_fns, autoreset_mode=mode),
    "sync without copies": lambda env_fns, mode: SyncVectorEnv(env_fns, autoreset_mode=mode, copy=False),
    "async": lambda env_fns, mode: AsyncVectorEnv(env_fns, autoreset_mode=mode, context="forkserver"),
    "async without copies": lambda env_fns, mode: AsyncVectorEnv(
        env_fns, autoreset_mode=mode, context="forkserver", copy=False
    ),
}


def actions_for(observations, num_actions) -> np.ndarray:
    """Choose actions that depend on every pixel, so that a wrong pixel changes the action."""
    flat = observations.reshape(len(observations), -1).astype(np.int64)
    return (flat * (np.arange(flat.shape[1]) % 97 + 1)).sum(1) * 7919 % num_actions


def remembered(path, vector, num_steps) -> dict[str, object]:
    """Play until the memory stores ``num_steps`` transitions; return the bytes of its files."""
    space, actions = vector.single_observation_space, vector.single_action_space
    memory = ReplayMemory(1000, space, actions, stack=4, num_envs=vector.num_envs, seed=0)
    recorder = Recorder(vector, memory)
    observations, _ = recorder.reset(seed=spawn_seeds(SEED, vector.num_envs))
    while len(memory) < num_steps:
        observations, _, terminated, truncated, _ = recorder.step(actions_for(observations, int(actions.n)))
        ended = terminated | truncated
        if recorder.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            observations, _ = recorder.reset(options={"reset_mask": ended})
    recorder.close()
    batch = memory.get(memory.sampleable_indices())
    assert (batch.terminated | batch.truncated).sum() >= 3
    memory.save(path)
    return saved_bytes(path)


@pytest.mark.each_value
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_all_vector_environments_leave_the_same_bytes(name, mode, tmp_path):
    num_envs = 3 if name == "toys" else 2
    saved = {}
    for kind, make in VECTORS.items():
        if name == "toys" or kind in ("serial", "workers", "sync", "async without copies"):
            saved[kind] = remembered(tmp_path / kind, make(ENVS[name](num_envs), mode), 150)

    assert saved["serial"]
    assert [kind for kind in saved if saved[kind] != saved["serial"]] == []


@pytest.mark.parametrize("name", NAMES)
def test_all_modes_leave_the_same_bytes(name, tmp_path):
    # One environment, since those that only reset let the others go ahead; and a number of steps that ends inside
    # an episode, so that every mode has begun the same ones. The test above compares the other kinds with this one.
    num_steps = 89 if name == "toys" else 100
    saved = [remembered(tmp_path / mode.name, SerialVectorEnv(ENVS[name](1), mode), num_steps) for mode in MODES]

    assert saved[0]
    assert saved[0] == saved[1] == saved[2]
