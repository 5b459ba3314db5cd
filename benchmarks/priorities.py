"""Measure sampling by priority, compared with cpprb and TorchRL.

    python benchmarks/priorities.py              results/priorities.json
    python benchmarks/priorities.py --rounds 20  quicker, printed only

Each memory has a million transitions of one pixel each, so that priorities take most of the time, with α = 0.6, β = 0.4
and distinct errors. A call samples a batch with its weights and then sets new errors for it, as a learner does; batches
of 32 and 256. All systems take turns in one process. Medians of single calls. Sampling alone is not timed: cpprb
returns the same batch again until priorities change.

    framestow, tree        the native Priorities alone: draws with weights, updates with their powers
    framestow, sampler     Prioritized.draw and .update_priorities: comparable with TorchRL's sampler
    framestow, memory      memory.sample and .update_priorities: with the checks and the unpacked frames
    TorchRL, sampler       PrioritizedSampler.sample and .update_priority, in single precision as by default
    TorchRL, trees         SumSegmentTree and MinSegmentTree in single precision: scanned, read, set, and NumPy powers
    TorchRL, memory        TensorDictReplayBuffer with that sampler and a LazyTensorStorage
    cpprb, memory          PrioritizedReplayBuffer.sample and .update_priorities (it has no separate sampler)

Before the timing each is checked: the mean priority of its samples must be that of proportional sampling.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from framestow import FrameSpec, Prioritized, ReplayMemory
from framestow._core import Priorities
from framestow.benchmarking.result_files import write_result
from framestow.benchmarking.timing import measure_turns

RESULTS = Path(__file__).parent / "results"
CAPACITY = 1_000_000  # transitions
ALPHA, BETA, EPSILON = 0.6, 0.4, 1e-6
BATCHES = (32, 256)
NUM_ENVS = 100  # environments of framestow's memory
CHECKED = 50_000  # draws
SLACK = 0.01  # of their mean: five standard deviations

Floats = NDArray[np.float32]
Update = Callable[[Any, Any], object]


class System(NamedTuple):
    """How one system samples and takes new errors."""

    draw: Callable[[int], Any]
    """Return the indices of a batch, as ``update`` takes them."""
    update: Update
    errors: Callable[[Floats], Any]
    """Errors as ``update`` takes them."""


def framestow_systems() -> dict[str, System]:
    sampler = Prioritized(alpha=ALPHA, beta=BETA, epsilon=EPSILON)
    memory = ReplayMemory(CAPACITY, FrameSpec((1, 1)), 2, stack=1, num_envs=NUM_ENVS, sampler=sampler, seed=0)
    memory.begin(np.zeros((NUM_ENVS, 1, 1), np.uint8))
    going = np.zeros(NUM_ENVS, np.bool_)
    actions, rewards = np.zeros(NUM_ENVS, np.int64), np.zeros(NUM_ENVS)
    for step in range(CAPACITY // NUM_ENVS):
        memory.append(actions, rewards, going, going, np.full((NUM_ENVS, 1, 1), step % 256, np.uint8))
    memory.sample(1)
    steps, generator = memory.inner.steps, np.random.default_rng(0)
    tree, slots = Priorities(ALPHA, EPSILON), np.arange(CAPACITY)
    tree.mark_changed(slots, slots)
    return {
        "framestow, tree": System(lambda size: tree.draw(generator.random(size), BETA)[0], tree.update, np.asarray),
        "framestow, sampler": System(
            lambda size: sampler.draw(size, steps, generator).indices,
            lambda indices, errors: sampler.update_priorities(indices, errors, steps),
            np.asarray,
        ),
        "framestow, memory": System(
            lambda size: memory.sample(size).index,
            memory.update_priorities,
            np.asarray,
        ),
    }


def torchrl_systems() -> dict[str, System]:
    import torch
    from tensordict import TensorDict
    from torchrl._torchrl import MinSegmentTreeFp32, SumSegmentTreeFp32
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, TensorDictReplayBuffer

    torch.set_num_threads(1)
    steps = TensorDict({"reward": torch.zeros(CAPACITY)}, batch_size=[CAPACITY])
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(CAPACITY),
        sampler=PrioritizedSampler(CAPACITY, alpha=ALPHA, beta=BETA, eps=EPSILON),
    )
    buffer.extend(steps)
    storage = LazyTensorStorage(CAPACITY)
    storage.set(range(CAPACITY), steps)
    sampler = PrioritizedSampler(CAPACITY, alpha=ALPHA, beta=BETA, eps=EPSILON)
    sampler.extend(torch.arange(CAPACITY))
    sums, minima = SumSegmentTreeFp32(CAPACITY), MinSegmentTreeFp32(CAPACITY)
    random = np.random.default_rng(0)

    def draw_from_trees(size: int) -> Any:
        total, smallest = sums.query(0, CAPACITY), minima.query(0, CAPACITY)
        indices = sums.scan_lower_bound(random.uniform(0.0, total, size).astype(np.float32))
        (sums[indices] / smallest) ** -BETA
        return indices

    def update_trees(indices: Any, errors: Floats) -> None:
        weights = (errors + np.float32(EPSILON)) ** np.float32(ALPHA)
        sums[indices] = weights
        minima[indices] = weights

    update_trees(np.arange(CAPACITY), np.ones(CAPACITY, np.float32))
    return {
        "TorchRL, sampler": System(
            lambda size: sampler.sample(storage, size)[0], sampler.update_priority, torch.from_numpy
        ),
        "TorchRL, trees": System(draw_from_trees, update_trees, np.asarray),
        "TorchRL, memory": System(
            lambda size: buffer.sample(size)["index"],
            buffer.update_priority,
            torch.from_numpy,
        ),
    }


def cpprb_systems() -> dict[str, System]:
    from cpprb import PrioritizedReplayBuffer

    buffer = PrioritizedReplayBuffer(CAPACITY, {"reward": {}}, alpha=ALPHA, eps=EPSILON)
    buffer.add(reward=np.zeros((CAPACITY, 1), np.float32))
    return {
        "cpprb, memory": System(lambda size: buffer.sample(size, BETA)["indexes"], buffer.update_priorities, np.asarray)
    }


def check(name: str, system: System) -> None:
    """Set a million errors, and raise unless the mean error of the samples is that of proportional sampling."""
    errors = (1 + np.arange(CAPACITY) % 1000).astype(np.float32)
    system.update(system.errors(np.arange(CAPACITY)), system.errors(errors))
    drawn = np.asarray(system.draw(CHECKED))
    chances = (errors.astype(np.float64) + EPSILON) ** ALPHA
    expected = float((errors * chances).sum() / chances.sum())
    mean = float(errors[drawn.astype(np.int64)].mean())
    print(f"{name:<22} mean error drawn {mean:7.2f}, expected {expected:7.2f}")
    if abs(mean - expected) > SLACK * expected:
        raise RuntimeError(f"{name} draws a mean error of {mean}: it must be {expected}")


def learning(system: System, size: int) -> Callable[[], object]:
    """Return a call that samples a batch and sets new errors for it."""
    random = np.random.default_rng(size)
    errors = cycle([system.errors(np.abs(random.normal(size=size)).astype(np.float32)) for _ in range(64)])
    return lambda: system.update(system.draw(size), next(errors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()

    systems = framestow_systems() | torchrl_systems() | cpprb_systems()
    for name, system in systems.items():
        check(name, system)
    candidates: dict[str, Callable[[], object]] = {}
    for size in BATCHES:
        for name, system in systems.items():
            candidates[f"{name}, {size}"] = learning(system, size)
    turns = measure_turns(candidates, arguments.rounds, calls=20)
    medians = {name: 1e6 * float(np.median(times)) for name, times in turns.items()}  # of single calls

    pairs = [("tree", "TorchRL, trees"), ("sampler", "TorchRL, sampler"), ("sampler", "cpprb, memory")]
    pairs += [("memory", "TorchRL, memory"), ("memory", "cpprb, memory")]
    factors = {}
    for size in BATCHES:
        for name in systems:
            print(f"{name:<22} {size:>4} {medians[f'{name}, {size}']:8.1f} µs")
        for ours, theirs in pairs:
            factor = medians[f"{theirs}, {size}"] / medians[f"framestow, {ours}, {size}"]
            factors[f"framestow, {ours}, against {theirs}, {size}"] = factor
            print(f"framestow's {ours} takes {factor:.1f} times less than {theirs} with batches of {size}")
    if arguments.rounds >= parser.get_default("rounds"):
        figures = {"transitions": CAPACITY, "microseconds": medians, "times_faster": factors}
        write_result(RESULTS / "priorities.json", figures)


if __name__ == "__main__":
    main()
