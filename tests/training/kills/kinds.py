"""The short runs of a real game that are killed."""

from __future__ import annotations

import dataclasses

from framestow.training.settings import Settings

# Every part of the loop within seconds: updates, target copies, ends of games, the memory's wrap, ten checkpoints.
_SHORT = Settings(
    "Breakout",
    recipe="dqn",
    preset="machado2018",
    double=True,
    steps=1_500,
    num_envs=1,
    memory=700,
    warmup=50,
    train_every=50,
    target_every=5,
    batch_size=4,
    epsilon_end=0.7,  # so few steps wait for the network
    checkpoint_every=150,
    threads=1,
    device="cpu",
)

KINDS = {
    "shortest": dataclasses.replace(_SHORT, steps=240, memory=100, warmup=40, checkpoint_every=60),
    "packed": _SHORT,
    "raw, two environments": dataclasses.replace(_SHORT, storage="raw", num_envs=2),
    "on disk": dataclasses.replace(_SHORT, memory_on_disk=True),
    "on disk, random retention, two environments": dataclasses.replace(
        _SHORT, memory_on_disk=True, retention="random", num_envs=2
    ),
    "laptop, two environments": dataclasses.replace(
        _SHORT, recipe="laptop", network="small", distribution="qr", n_step=3, priority_exponent=0.5, num_envs=2
    ),
    "raw, a budget": dataclasses.replace(_SHORT, storage="raw", memory=1_500, memory_bytes="6 MiB"),  # of 10 in the end
}
