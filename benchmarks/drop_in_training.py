"""Measure Stable-Baselines3's DQN with framestow's buffer instead of its own.

    python benchmarks/drop_in_training.py                     10,000 steps each, results/drop_in_training.json
    python benchmarks/drop_in_training.py --steps 2_000       a trial, printed only

Trains DQN on ALE Breakout (`make_atari_env`, `VecFrameStack` of 4, the policy and settings of RL Baselines3 Zoo, except
that learning starts after 1,000 steps) with each of three buffers, each in its own process, with the same seed:

- framestow's, of 1,000,000 transitions
- Stable-Baselines3's, of as many transitions as fit into half of the free memory
- the same with ``optimize_memory_usage``, which gives up truncation

The processes train in turn, 1,000 steps each, so that other work of the machine affects all of them. Steps per second
are the median over the stretches with learning. Stable-Baselines3's arrays become resident as they are filled. So the
memory of a full process is its final memory plus the buffer's remaining growth, which the second half of the steps
gives: from framestow's own count, and from the arrays of the others. The hash covers all weights of the network and its
target: equal hashes mean weights equal to the bit. PyTorch has one thread.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from framestow.benchmarking.result_files import write_result
from framestow.process_memory import available_bytes, live_bytes

RESULT = Path(__file__).parent / "results" / "drop_in_training.json"
MILLION = 1_000_000
STACK_BYTES = 4 * 84 * 84
LEARNING_STARTS = 1_000  # steps
STRETCH = 1_000  # steps
USUAL_STEPS = 10_000
# Per buffer: stacks of frames that it reserves per transition, and what it gives up.
BUFFERS = {
    "framestow": (0, ""),
    "Stable-Baselines3": (2, ""),
    "optimize_memory_usage": (1, "truncation, and the last frame of an episode"),
}


def buffer_arguments(name: str) -> dict[str, Any]:
    """Return DQN's arguments."""
    stacks, _ = BUFFERS[name]
    if not stacks:
        from framestow.integrations.stable_baselines3 import ReplayBuffer

        return {"replay_buffer_class": ReplayBuffer, "buffer_size": MILLION}
    affordable = min(MILLION, available_bytes() // 2 // (stacks * STACK_BYTES))
    settings = {"handle_timeout_termination": False} if stacks == 1 else {}
    return {
        "buffer_size": affordable,
        "optimize_memory_usage": stacks == 1,
        "replay_buffer_kwargs": settings,
    }


def weights_hash(policy: Any) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(policy.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def train(name: str, steps: int) -> None:
    """Train in this process, one stretch per line of input, and print the figures as lines."""
    warnings.simplefilter("ignore")
    import ale_py
    import gymnasium
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    torch.set_num_threads(1)
    gymnasium.register_envs(ale_py)

    class InTurn(BaseCallback):  # type: ignore[misc]
        """Waits for its turn before each stretch."""

        def _on_training_start(self) -> None:
            self.wait()

        def wait(self) -> None:
            if not sys.stdin.readline():
                raise SystemExit("the benchmark ended: no figures")
            self.start = time.perf_counter()

        def _on_step(self) -> bool:
            if self.num_timesteps % STRETCH == 0:
                seconds = time.perf_counter() - self.start
                tell(
                    seconds=seconds, resident_bytes=live_bytes(), counted_bytes=counted_bytes(self.model.replay_buffer)
                )
                if self.num_timesteps < steps:
                    self.wait()
            return True

    env = VecFrameStack(make_atari_env("BreakoutNoFrameskip-v4", seed=0), n_stack=4)
    arguments = buffer_arguments(name)
    model = DQN(
        "CnnPolicy",
        env,
        learning_rate=1e-4,
        learning_starts=LEARNING_STARTS,
        batch_size=32,
        train_freq=4,
        target_update_interval=1_000,
        exploration_fraction=0.1,
        exploration_final_eps=0.01,
        seed=0,
        device="cpu",
        **arguments,
    )
    model.learn(steps, callback=InTurn())
    tell(buffer_size=arguments["buffer_size"], weights=weights_hash(model.policy))


def counted_bytes(buffer: Any) -> float:
    """Return a buffer's bytes: framestow's own count, or the filled part of the other buffers' arrays."""
    if hasattr(buffer, "memory"):
        return float(buffer.memory.nbytes)
    arrays = [array for array in vars(buffer).values() if isinstance(array, np.ndarray)]
    return sum(array.nbytes for array in arrays) * buffer.size() / buffer.buffer_size


def tell(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


def measure(steps: int) -> dict[str, dict[str, Any]]:
    """Let the buffers' processes train in turn."""
    processes = {
        name: subprocess.Popen(
            [sys.executable, __file__, "--train", name, "--steps", str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in BUFFERS
    }
    stretches: dict[str, list[dict[str, Any]]] = {name: [] for name in BUFFERS}
    for number in range(1, steps // STRETCH + 1):
        for name, process in processes.items():
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            stretches[name].append(answer(name, process))
        rates = "   ".join(f"{name} {STRETCH / rows[-1]['seconds']:5.0f}" for name, rows in stretches.items())
        print(f"{number * STRETCH:7,} of {steps:,} steps; steps a second: {rates}", file=sys.stderr, flush=True)
    figures = {}
    for name, process in processes.items():
        figures[name] = {"gives_up": BUFFERS[name][1], **answer(name, process), **summed_up(stretches[name])}
        process.wait()
    return figures


def summed_up(stretches: list[dict[str, Any]]) -> dict[str, float]:
    """Return rate and bytes of a process from the figures of its stretches."""
    learning = [row["seconds"] for row in stretches[LEARNING_STARTS // STRETCH :]]
    middle, end = stretches[len(stretches) // 2 - 1], stretches[-1]
    steps, half = len(stretches) * STRETCH, (len(stretches) - len(stretches) // 2) * STRETCH
    bytes_a_transition = (end["counted_bytes"] - middle["counted_bytes"]) / half
    return {
        "steps_a_second": STRETCH / statistics.median(learning),
        "resident_bytes": end["resident_bytes"],
        "bytes_a_transition": bytes_a_transition,
        "resident_bytes_of_a_million": end["resident_bytes"] + bytes_a_transition * (MILLION - steps),
    }


def answer(name: str, process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        sys.exit(f"{name}: its process ended with {process.wait()}; see above")
    answered: dict[str, Any] = json.loads(line)
    return answered


def show(figures: dict[str, dict[str, Any]], steps: int) -> None:
    print(f"\n| buffer | holds | steps a second | resident after {steps:,} steps | with a million | weights |")
    print("|---|--:|--:|--:|--:|---|")
    for name, row in figures.items():
        resident, of_a_million = row["resident_bytes"] / 2**20, row["resident_bytes_of_a_million"] / 2**30
        print(
            f"| {name} | {row['buffer_size']:,} | {row['steps_a_second']:.0f} | {resident:,.0f} MiB "
            f"| {of_a_million:,.2f} GiB | {row['weights']} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=USUAL_STEPS, help=f"of the agent, a multiple of {STRETCH:,}")
    parser.add_argument("--train", choices=BUFFERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps % STRETCH or arguments.steps <= LEARNING_STARTS:
        parser.error(f"--steps is {arguments.steps}: it must be a multiple of {STRETCH} above {LEARNING_STARTS}")
    if arguments.train:
        train(arguments.train, arguments.steps)
        return
    figures = measure(arguments.steps)
    show(figures, arguments.steps)
    if arguments.steps == USUAL_STEPS:
        import torch

        result = {
            "steps": arguments.steps,
            "versions": {"stable-baselines3": version("stable-baselines3"), "torch": torch.__version__},
        }
        print("written:", write_result(RESULT, {**result, "buffers": figures}).name)


if __name__ == "__main__":
    main()
