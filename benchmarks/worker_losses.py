"""Check that a long run stays correct and constant in size when its workers are killed again and again.

    python benchmarks/worker_losses.py

Breakout, 8 environments in 2 workers, random play, 20,000 vector steps; about every 2,000 steps one worker is killed
during a step. The memory is full after an eighth of the run. For every transition that it should store, a digest of
both its stacks is computed from the results of the vector environment alone; every 2,000 steps all of them are
compared. Resident memory, open files and processes are recorded at the same time: they must not grow after the first
comparison with a full memory.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import warnings
from collections import deque
from functools import partial
from typing import Any

import numpy as np
import psutil
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from figures import publish
from framestow import ReplayMemory
from framestow.envs import AtariEnv, Recorder, WorkerVectorEnv, find_preset
from framestow.envs.atari.games import find_rom
from framestow.process import live_bytes

NUM_ENVS, NUM_WORKERS, STACK, CAPACITY = 8, 2, 4, 20_000
STEPS_BETWEEN_LOOKS = 2_000

Transition = tuple[bytes, bytes, int, float, bool, bool]


def digest(stack: Any) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(stack).data, digest_size=16).digest()


class WatchedWorkers(WorkerVectorEnv):
    """Derives from each result which transitions a memory must store."""

    def watch(self) -> None:
        """Begin with the frames of the next reset."""
        self.expected: deque[Transition] = deque(maxlen=CAPACITY)
        self.stacks: list[deque[NDArray[np.uint8]]] = [deque(maxlen=STACK) for _ in range(self.num_envs)]
        self.num_lost = 0

    def begin(self, number: int, frame: NDArray[np.uint8]) -> None:
        """Start an episode, padded with its first frame."""
        self.stacks[number].extend([frame.copy()] * STACK)

    def step_async(self, actions: Any) -> None:
        """Record the actions."""
        super().step_async(actions)
        self.actions = np.array(actions)

    def step_wait(self, timeout: float | None = None) -> Any:
        """Process the result: with SAME_STEP the true last frame is in ``final_obs``."""
        answer = super().step_wait(timeout)
        frames, rewards, terminated, truncated, infos = answer
        is_lost = infos.get("_episode_lost", np.zeros(self.num_envs, np.bool_))
        self.num_lost += int(is_lost.sum())
        for number, stack in enumerate(self.stacks):
            ended = terminated[number] or truncated[number]
            if not is_lost[number]:
                before = digest(stack)
                stack.append((infos["final_obs"][number] if ended else frames[number]).copy())
                flags = bool(terminated[number]), bool(truncated[number])
                self.expected.append((before, digest(stack), int(self.actions[number]), float(rewards[number]), *flags))
            if ended:
                self.begin(number, frames[number])
        return answer


def compare(memory: ReplayMemory, transitions: deque[Transition]) -> None:
    """Compare every transition of the memory with the expected ones."""
    indices, expected = memory.sampleable_indices(), list(transitions)
    if len(indices) != len(expected):
        raise AssertionError(f"memory holds {len(indices)} transitions: {len(expected)} were answered")
    for first in range(0, len(indices), 512):
        batch = memory.get(indices[first : first + 512])
        for row, wanted in enumerate(expected[first : first + 512]):
            stacks = digest(batch.observation[row]), digest(batch.next_observation[row])
            flags = bool(batch.terminated[row]), bool(batch.truncated[row])
            if wanted != (*stacks, int(batch.action[row]), float(batch.reward[row]), *flags):
                raise AssertionError(f"transition {indices[first + row]} is not what was answered")


def look(step: int, memory: ReplayMemory, workers: WatchedWorkers) -> dict[str, int]:
    compare(memory, workers.expected)
    process = psutil.Process()
    return {
        "vector steps": step,
        "transitions compared": len(workers.expected),
        "episodes lost": workers.num_lost,
        "resident KiB": live_bytes() // 1024,
        "open files": process.num_fds(),
        "worker processes": sum(psutil.pid_exists(pid) for pid in workers.worker_pids if pid),
    }


def play(num_steps: int) -> list[dict[str, int]]:
    """Play, kill workers, and compare at intervals."""
    make: Any = partial(AtariEnv, find_rom("Breakout"), find_preset("machado2018"))
    workers = WatchedWorkers(
        [make] * NUM_ENVS, AutoresetMode.SAME_STEP, num_workers=NUM_WORKERS, on_worker_lost="restart", seed=0
    )
    memory = ReplayMemory(
        CAPACITY, Box(0, 255, (84, 84), np.uint8), 18, stack=STACK, num_envs=NUM_ENVS, discount=0.99, seed=0
    )
    workers.watch()
    recorder, generator, looks = Recorder(workers, memory), np.random.default_rng(0), []
    first, _ = recorder.reset()
    for number, stack in enumerate(first):
        workers.begin(number, stack[-1])
    next_kill = int(generator.exponential(STEPS_BETWEEN_LOOKS))
    for step in range(1, num_steps + 1):
        recorder.step_async(generator.integers(18, size=NUM_ENVS))
        if step >= next_kill:
            os.kill(workers.worker_pids[int(generator.integers(NUM_WORKERS))] or 0, signal.SIGKILL)
            next_kill = step + 1 + int(generator.exponential(STEPS_BETWEEN_LOOKS))
        recorder.step_wait()
        if step % STEPS_BETWEEN_LOOKS == 0:
            looks.append(look(step, memory, workers))
            print(looks[-1], flush=True)
    recorder.close()
    return looks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000, help="vector steps")
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*it is replaced")
        looks = play(arguments.steps)
    settings = {"game": "breakout", "environments": NUM_ENVS, "workers": NUM_WORKERS, "capacity": CAPACITY}
    publish("worker_losses", {**settings, "looks": looks})


if __name__ == "__main__":
    main()
