"""Measure what a checkpoint costs, and what a memory in files costs a training.

    python benchmarks/checkpoints.py                     both, results/checkpoints.json
    python benchmarks/checkpoints.py --rounds 2          quicker and noisier, printed only

*Saving.* A memory of 1,000,000 transitions of Breakout (20,000 frames of sticky random play, repeated, 8 environments)
is saved to an empty folder, which is the cost of a full save. Then, five times, 10,000 steps are appended and it is
saved to the same folder. The same is measured for a whole checkpoint: agent, environments, memory.

*Training.* DQN on Breakout, 8 environments, an update of 32 every 4 agent steps, from a memory with 100,000 transitions
at the start. In turn: nothing saved; a checkpoint every 2,000 agent steps; a memory in files that flushes itself every
5 seconds; and one that never does, which shows the cost of reading from files. Each turn runs in new objects, so no
thread of one turn disturbs another. Wall time is the time that a user waits, and other work of the machine affects it.
Processor time (of all threads) excludes that work, and also waits for the disk.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from atari_frames import FRAME_SIDE, Player
from figures import publish
from framestow import ReplayMemory
from framestow.agents.dqn import DQN
from framestow.envs import Recorder, make_atari
from framestow.frames.frame_spec import FrameSpec
from framestow.training import Settings
from framestow.training.checkpoint import RunState, write_checkpoint

NUM_ENVS, NUM_ACTIONS = 8, 18
CAPACITY, NEW_STEPS, SAVES = 1_000_000, 10_000, 5
FILLED, TRAINED_STEPS, CHECKPOINT_EVERY, FLUSH_EVERY_S = 100_000, 4_000, 2_000, 5.0


def new_memory(**settings: Any) -> ReplayMemory:
    space = FrameSpec((FRAME_SIDE, FRAME_SIDE))
    return ReplayMemory(CAPACITY, space, NUM_ACTIONS, num_envs=NUM_ENVS, seed=0, **{"stack": 4} | settings)


def new_agent() -> DQN:
    settings = Settings("Breakout", recipe="dqn")
    return DQN((settings.stack, FRAME_SIDE, FRAME_SIDE), NUM_ACTIONS, settings.agent(), "cpu", 0)


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def measure_saving() -> dict[str, Any]:
    memory, agent = new_memory(), new_agent()
    player = Player(num_actions=NUM_ACTIONS)
    player.play(memory, CAPACITY)
    agent.learn(memory.sample(32))  # creates Adam's averages: half of the bytes that an agent saves
    figures: dict[str, Any] = {"transitions": len(memory), "new_steps": NEW_STEPS, "seconds": {}}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)

        def checkpoint(number: int, name: str) -> None:
            state = RunState(number, agent.state_dict(), memory, {"tally": {}})
            write_checkpoint(root / name / "checkpoints", state)

        seconds_of = figures["seconds"]
        seconds_of["memory, all of it"] = [seconds(lambda n=n: memory.save(root / f"whole-{n}")) for n in range(SAVES)]
        seconds_of["checkpoint, all of the memory"] = [
            seconds(lambda n=n: checkpoint(1, f"run-{n}")) for n in range(SAVES)
        ]
        seconds_of["memory, what is new"], seconds_of["checkpoint, what is new"] = [], []
        memory.save(root / "store")
        for _ in range(SAVES):
            player.play(memory, NEW_STEPS)
            seconds_of["memory, what is new"].append(seconds(lambda: memory.save(root / "store")))
        checkpoint(2, "run")
        for number in range(SAVES):
            player.play(memory, NEW_STEPS)
            seconds_of["checkpoint, what is new"].append(seconds(lambda number=number: checkpoint(3 + number, "run")))
        agent_file = next((root / "run").rglob("agent.safetensors"))
        figures["bytes"] = {
            "store": sum(path.stat().st_size for path in (root / "store").iterdir()),
            "agent": agent_file.stat().st_size,
        }
    return figures


class Training:
    """One turn: a separate training from a filled memory."""

    def __init__(self, folder: Path, checkpoint_every: int | None, **memory_settings: Any) -> None:
        self.memory = new_memory(**memory_settings)
        Player(num_actions=NUM_ACTIONS).play(self.memory, FILLED)
        if memory_settings:
            self.memory.flush()
        self.env = Recorder(make_atari("Breakout", NUM_ENVS, seed=0), self.memory)
        self.agent = new_agent()
        self.checkpoints, self.checkpoint_every = folder / "checkpoints", checkpoint_every
        self.num_steps = 0

    def train(self, num_steps: int) -> tuple[float, float]:
        """Return seconds of wall time and of processor time."""
        observations, _ = self.env.reset()
        self.agent.learn(self.memory.sample(32))
        end = self.num_steps + num_steps
        started = time.perf_counter(), time.process_time()
        while self.num_steps < end:
            self.env.step_async(self.agent.act(observations, self.num_steps))
            for _ in range(NUM_ENVS // 4):
                self.agent.learn(self.memory.sample(32))
            observations, *_ = self.env.step_wait()
            self.num_steps += NUM_ENVS
            if self.checkpoint_every and self.num_steps % self.checkpoint_every == 0:
                rest = {"environment": self.env.state_dict()}
                write_checkpoint(self.checkpoints, RunState(self.num_steps, self.agent.state_dict(), self.memory, rest))
        return time.perf_counter() - started[0], time.process_time() - started[1]

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def measure_training(rounds: int) -> dict[str, Any]:
    setups: dict[str, Callable[[Path], Training]] = {
        "nothing saved": lambda folder: Training(folder, None),
        f"checkpoint every {CHECKPOINT_EVERY:,} steps": lambda folder: Training(folder, CHECKPOINT_EVERY),
        f"on disk, flushed every {FLUSH_EVERY_S:g} s": lambda folder: Training(
            folder, None, directory=folder / "memory", flush_every=FLUSH_EVERY_S
        ),
        "on disk, never flushed": lambda folder: Training(folder, None, directory=folder / "memory", flush_every=None),
    }
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in setups}
    for number in range(rounds):
        for name in list(setups)[number % len(setups) :] + list(setups)[: number % len(setups)]:
            with tempfile.TemporaryDirectory() as folder:
                training = setups[name](Path(folder))
                turns[name].append(training.train(TRAINED_STEPS))
                training.close()
                training.memory.close()
            print(f"  {name:<30} {TRAINED_STEPS / turns[name][-1][0]:>6.0f} steps a second", flush=True)
    bare = np.array(turns["nothing saved"])
    figures = {}
    for name, measured in turns.items():
        times = np.array(measured)
        wall, processor = (times / bare).T
        figures[name] = {
            "steps_per_second": float(TRAINED_STEPS / np.median(times[:, 0])),
            "processor_seconds": float(np.median(times[:, 1])),
            "wall_time_to_nothing_saved": float(np.median(wall)),
            "wall_time_spread": [float(wall.min()), float(wall.max())],
            "processor_time_to_nothing_saved": float(np.median(processor)),
            "processor_time_spread": [float(processor.min()), float(processor.max())],
        }
    return {"rounds": rounds, "agent_steps_a_turn": TRAINED_STEPS, "setups": figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    figures = {"saving": measure_saving(), "training": measure_training(arguments.rounds)}
    publish("checkpoints", figures, arguments.rounds == parser.get_default("rounds"))


if __name__ == "__main__":
    main()
