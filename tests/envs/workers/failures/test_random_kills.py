"""A long run with workers killed at random stores exactly the received steps."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from framestow.envs import Recorder
from framestow.replay.memory import ReplayMemory
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.failing_envs import NUM_ACTIONS, SHAPE, makers
from oracles.list_memory import ListMemory
from oracles.process_watch import end, eventually, logged_processes, still_running, still_there
from oracles.recorded_results import LoggedWorkers, fill

pytestmark = pytest.mark.filterwarnings("ignore:.*it is replaced:RuntimeWarning")

NUM_ENVS, CAPACITY = 6, 5_000


class Killer:
    """Kills one of the worker processes now and then, at any moment of a step; sometimes its replacement as well."""

    def __init__(self, process_folder, seed: int, mean_steps: float) -> None:
        self.process_folder, self.random, self.mean_steps = process_folder, random.Random(seed), mean_steps
        self.next_step, self.num_kills = 5, 0
        self.timers: list[threading.Timer] = []

    def look(self, step: int) -> None:
        """To be called before every step."""
        if step < self.next_step:
            return
        # Three losses of a worker without a step between them are given up, so that kills keep some steps apart.
        self.next_step = step + 4 + int(self.random.expovariate(1 / self.mean_steps))
        moments = [self.random.uniform(0, 0.004)]
        if self.random.random() < 0.25:
            moments.append(self.random.uniform(0.01, 0.1))
        self.timers += [threading.Timer(moment, self.kill, [self.random.random()]) for moment in moments]
        for timer in self.timers[-len(moments) :]:
            timer.start()

    def kill(self, which: float) -> None:
        alive = sorted(still_running(logged_processes(self.process_folder)), key=lambda process: process.started)
        if alive:
            end([alive[int(which * len(alive))]])
            self.num_kills += 1

    def stop(self) -> None:
        for timer in self.timers:
            timer.cancel()
            timer.join()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("start_method", "mode", "num_steps"),
    [
        *(("fork", mode, 3_000) for mode in AutoresetMode),
        ("forkserver", AutoresetMode.SAME_STEP, 1_000),
        ("spawn", AutoresetMode.NEXT_STEP, 300),
    ],
)
def test_a_run_survives_killed_workers_and_its_memory_stores_exactly_the_received_steps(
    start_method, mode, num_steps, process_folder
):
    vector = LoggedWorkers(
        makers(process_folder, NUM_ENVS, lengths=(1, 30, 4, 11), seconds_a_step=0.0005),
        mode,
        num_workers=3,
        start_method=start_method,
        on_worker_lost="restart",
        step_timeout=20.0,
        seed=0,
    )
    memory = ReplayMemory(
        CAPACITY, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=4, num_envs=NUM_ENVS, discount=0.9, seed=0
    )
    recorder = Recorder(vector, memory)
    killer = Killer(process_folder, seed=1, mean_steps=num_steps / 30)
    generator = np.random.default_rng(0)
    recorder.reset()
    try:
        for step in range(num_steps):
            killer.look(step)
            _, _, terminated, truncated, _ = recorder.step(generator.integers(NUM_ACTIONS, size=NUM_ENVS))
            ended = terminated | truncated
            if mode is AutoresetMode.DISABLED and ended.any():
                recorder.reset(options={"reset_mask": ended})
    finally:
        killer.stop()
        recorder.close()

    oracle = ListMemory(CAPACITY, NUM_ENVS, stack=4, discount=0.9)
    counts = fill(oracle, vector.log, mode)
    assert_memory_is_what_the_oracle_holds(memory, oracle)
    assert counts["real"] > num_steps * NUM_ENVS / 2
    assert killer.num_kills >= 10
    assert 0 < counts["lost"] <= 2 * killer.num_kills
    assert eventually(lambda: not still_there(logged_processes(process_folder)))
