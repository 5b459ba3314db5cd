"""Train with framestow's memory and with a plain NumPy replay, and compare weights, RAM and speed.

    python benchmarks/same_training.py                      20,000 steps each, results/same_training.json
    python benchmarks/same_training.py --steps 4_000        a trial, printed only

Both trainings play the same game by the same recipe with the same seed, each in its own process, one after the other,
with one thread of PyTorch. They differ in the memory only: framestow's `ReplayMemory`, or the tests' `PlainReplay`,
which stores the stacks of observation and next observation as NumPy arrays. Both rings wrap before the end.

The hash covers every tensor of both networks and of the optimizer: equal hashes mean weights equal to the bit. Peak
memory is that of the training process (VmHWM), PyTorch included, without the environments' worker process. The bytes of
a memory are its own count. Other work of the machine affects steps per second; processor seconds much less.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from figures import publish

GAME, RECIPE, USUAL_STEPS, USUAL_CAPACITY = "Breakout", "laptop", 20_000, 15_000
FRAMESTOW, PLAIN = "framestow", "plain NumPy"


def hash_of(state: Any) -> str:
    """Return a hash of all tensors in nested dicts and lists."""
    digest = hashlib.sha256()

    def add(name: str, value: Any) -> None:
        if isinstance(value, dict | list):
            for key, part in sorted(value.items()) if isinstance(value, dict) else enumerate(value):
                add(f"{name}.{key}", part)
        elif hasattr(value, "numpy"):
            digest.update(name.encode() + value.numpy().tobytes())

    add("", state)
    return digest.hexdigest()


def train(memory_name: str, steps: int, capacity: int) -> dict[str, Any]:
    """Train in this process and return its figures."""
    from framestow.training import Settings
    from framestow.training.run import Run

    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from oracles.plain_replay import use_plain_replay
    from saving import peak_bytes

    settings = Settings(GAME, recipe=RECIPE, steps=steps, memory=capacity, device="cpu", threads=1)
    run = Run(settings)
    memory: Any = use_plain_replay(run) if memory_name == PLAIN else run.memory
    start, processor_start = time.perf_counter(), time.process_time()
    for _ in run.events():
        pass
    seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor_start
    run.close()
    return {
        "memory": memory_name,
        "sha256_of_weights": hash_of(run.agent.state_dict()),
        "agent_steps": run.tally.agent_steps,
        "updates": run.agent.num_updates,
        "games": run.tally.episodes,
        "transitions": len(memory),
        "memory_bytes": memory.nbytes,
        "peak_resident_bytes": peak_bytes(),
        "steps_a_second": steps / seconds,
        "processor_seconds": processor_seconds,
    }


def train_in_process(memory_name: str, steps: int, capacity: int) -> dict[str, Any]:
    """Train in a new process, print a line, and return the figures."""
    command = [sys.executable, __file__, "--only", memory_name, "--steps", str(steps), "--capacity", str(capacity)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    figures: dict[str, Any] = json.loads(output)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=USUAL_STEPS, help="agent steps of each training")
    parser.add_argument("--capacity", type=int, default=USUAL_CAPACITY, help="transitions of each memory")
    parser.add_argument("--only", choices=(FRAMESTOW, PLAIN), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(train(arguments.only, arguments.steps, arguments.capacity)))
        return
    trainings = [train_in_process(name, arguments.steps, arguments.capacity) for name in (FRAMESTOW, PLAIN)]
    is_equal = trainings[0]["sha256_of_weights"] == trainings[1]["sha256_of_weights"]
    is_usual = (arguments.steps, arguments.capacity) == (USUAL_STEPS, USUAL_CAPACITY)
    settings = {"game": GAME, "recipe": RECIPE, "capacity": arguments.capacity, "threads": 1}
    publish("same_training", {**settings, "weights_are_equal": is_equal, "trainings": trainings}, is_usual)
    if not is_equal:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
