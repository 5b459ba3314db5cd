"""Measure the memory of a million real Breakout transitions, and training from them.

    python benchmarks/million.py                      record 1,000,000 transitions, then train from them
    python benchmarks/million.py --game UpNDown       of another game, results/million_upndown.json
    python benchmarks/million.py --cuda PYTHON        train also with that Python, which has PyTorch's CUDA build
    python benchmarks/million.py --keep FOLDER        and keep the memory there

PYTHON is of an environment with `pip install framestow[train]`, where pip takes PyTorch from PyPI. The result keeps the
last figure of that build where the option is not given.

Recording plays random actions with sticky actions (preset "machado2018") in 8 environments. Resident memory is read
from the operating system before the memory is built, with everything imported and the environments running, and again
when it is full. Training runs in its own process, which loads the memory and makes real updates from it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from figures import RESULTS, publish
from framestow import ReplayMemory
from framestow.benchmarking.result_files import command_line
from framestow.process import resident_bytes

NUM_ENVS = 8
TRAIN_UPDATES = 300
USUAL_TRANSITIONS = 1_000_000


def record(num_transitions: int, game: str, folder: Path) -> dict[str, Any]:
    from framestow import envs

    inner = envs.make_atari(game, num_envs=NUM_ENVS, preset="machado2018", seed=0)
    random = np.random.default_rng(0)
    space = inner.single_action_space

    def play(capacity: int) -> ReplayMemory:
        memory = ReplayMemory(capacity, inner.single_observation_space, space, stack=4, num_envs=NUM_ENVS, seed=0)
        recorder = envs.Recorder(inner, memory)
        recorder.reset(seed=0)
        start = shown = time.monotonic()
        while len(memory) < capacity:
            recorder.step(random.integers(0, space.n, NUM_ENVS))
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(f"{len(memory):>9,} transitions, {len(memory) / (shown - start):,.0f} a second", file=sys.stderr)
        return memory

    play(2_000)  # so that memory loaded by interpreter and emulator at first use is not counted
    bare = resident_bytes()
    memory = play(num_transitions)
    grown = resident_bytes() - bare
    memory.sample(32)
    print(memory.report())
    memory.save(folder)
    report = memory.report()
    return {
        "transitions": len(memory),
        "bytes_a_transition": report.bytes_per_transition,
        "memory_nbytes": report.nbytes,
        "resident_bytes_over_bare_process": grown,
        "bare_process_bytes": bare,
        "parts": report.parts,
    }


def train(folder: Path) -> tuple[str, float, int]:
    """Train from the memory in ``folder``; return PyTorch's version, updates a second and the process's bytes."""
    import torch

    from framestow.agents.dqn import DQN
    from framestow.training import Settings

    memory = ReplayMemory.load(folder)
    stack_shape = (memory.inner.settings.stack, *memory.inner.settings.frame.frame_specs[0].shape)
    settings = Settings(game="Breakout", recipe="dqn").agent()
    agent = DQN(stack_shape, memory.inner.settings.action.num_actions, settings, device="cpu", seed=0)
    start = time.perf_counter()
    for _ in range(TRAIN_UPDATES):
        agent.learn(memory.sample(32))
    return torch.__version__, TRAIN_UPDATES / (time.perf_counter() - start), resident_bytes()


def train_with(python: str, folder: Path) -> dict[str, Any]:
    """Train from the memory in ``folder`` in a process of its own, with another Python; return its figures."""
    command = [python, __file__, "--only-train", str(folder)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    torch, rate, nbytes = output.split()
    return {"torch": torch, "updates": TRAIN_UPDATES, "updates_a_second": float(rate), "process_bytes": int(nbytes)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=USUAL_TRANSITIONS, help="how many to record")
    parser.add_argument("--game", default="Breakout")
    parser.add_argument("--cuda", metavar="PYTHON", help="also train with this Python, for its process's bytes")
    parser.add_argument("--keep", type=Path, help="folder in which the memory is kept")
    parser.add_argument("--only-train", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only_train:
        print(*train(arguments.only_train))
        return
    result = RESULTS / f"million_{arguments.game.lower()}.json"
    before = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch) / "memory"
        figures = record(arguments.transitions, arguments.game, folder)
        figures["training"] = train_with(sys.executable, folder)
        if arguments.cuda:
            figures["training_with_cuda"] = train_with(arguments.cuda, folder)
        elif "training_with_cuda" in before:
            figures["training_with_cuda"] = before["training_with_cuda"]
    command = command_line(sys.argv)
    if arguments.cuda:
        command = command.replace(arguments.cuda, "PYTHON")
    publish(f"million_{arguments.game.lower()}", figures, arguments.transitions >= USUAL_TRANSITIONS, command)


if __name__ == "__main__":
    main()
