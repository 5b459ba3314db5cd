"""The short runs of a real game that are killed."""

from __future__ import annotations

import dataclasses

from framestow.training.settings import Settings

# Every part of the loop within seconds: updates, target copies, ends of games, the memory's wrap, ten checkpoints.
_SHORT = {
    "preset": "machado2018",
    "steps": 1_500,
    "memory": 700,
    "workers": 0,
    "warmup": 50,
    "train_every": 50,
    "target_every": 5,
    "batch_size": 4,
    "epsilon_end": 0.7,  # so few steps wait for the network
    "checkpoint_every": 150,
    "threads": 1,
    "device": "cpu",
}
_PACKED = Settings("Breakout", recipe="dqn", double=True, **_SHORT)

KINDS = {
    "shortest": dataclasses.replace(_PACKED, steps=240, memory=100, warmup=40, checkpoint_every=60),
    "packed": _PACKED,
    "raw, two environments": dataclasses.replace(_PACKED, storage="raw", num_envs=2),
    "on disk": dataclasses.replace(_PACKED, memory_on_disk=True),
    "on disk, random retention, two environments": dataclasses.replace(
        _PACKED, memory_on_disk=True, retention="random", num_envs=2
    ),
    "laptop, two environments": Settings("Breakout", num_envs=2, learning_rate_falls_after=300, **_SHORT),
    # Without the budget it would take 10 MiB.
    "raw, a budget": dataclasses.replace(_PACKED, storage="raw", memory=1_500, memory_bytes="6 MiB"),
}
