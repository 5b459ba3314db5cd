"""Measure the memory of a million real Breakout transitions, and training from them.

    python benchmarks/million.py                  record 1,000,000 transitions, then train from them
    python benchmarks/million.py --keep FOLDER    and keep the memory there

Recording plays random actions with sticky actions (preset "machado2018") in 8 environments. Resident memory is read
from the operating system before the memory is built, with everything imported and the environments running, and again
when it is full. Training runs in its own process, which loads the memory and makes real updates from it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from framestow import ReplayMemory
from framestow.benchmarking.result_files import write_result
from framestow.process_memory import resident_bytes

RESULTS = Path(__file__).parent / "results"

MIB = 2**20
NUM_ENVS = 8
TRAIN_UPDATES = 300


def record(num_transitions: int, game: str, folder: Path) -> dict[str, float]:
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


def train(folder: Path) -> tuple[float, int]:
    """Return updates per second from the memory in ``folder``, and the resident bytes of their process."""
    from framestow.agents.dqn import DQN
    from framestow.training import Settings

    memory = ReplayMemory.load(folder)
    stack_shape = (memory.inner.settings.stack, *memory.inner.settings.frame.shape)
    settings = Settings(game="Breakout", recipe="dqn").agent()
    agent = DQN(stack_shape, memory.inner.settings.action.num_actions, settings, device="cpu", seed=0)
    start = time.perf_counter()
    for _ in range(TRAIN_UPDATES):
        agent.learn(memory.sample(32))
    return TRAIN_UPDATES / (time.perf_counter() - start), resident_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=1_000_000, help="how many to record")
    parser.add_argument("--game", default="Breakout")
    parser.add_argument("--keep", type=Path, help="folder in which the memory is kept")
    parser.add_argument("--only-train", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only_train:
        print(*train(arguments.only_train))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch) / "memory"
        figures = record(arguments.transitions, arguments.game, folder)
        output = subprocess.run(
            [sys.executable, __file__, "--only-train", str(folder)], capture_output=True, text=True, check=True
        ).stdout
    rate, peak = (float(value) for value in output.split())
    figures |= {"updates": TRAIN_UPDATES, "updates_a_second": rate, "training_process_bytes": peak}
    print(
        f"{figures['transitions']:,} transitions: {figures['bytes_a_transition']:.1f} bytes each, "
        f"{figures['resident_bytes_over_bare_process'] / MIB:.0f} MiB over the bare process; "
        f"a process that trains from them takes {peak / MIB:.0f} MiB with PyTorch"
    )
    print("written to", write_result(RESULTS / f"million_{arguments.game.lower()}.json", figures).name)


if __name__ == "__main__":
    main()
