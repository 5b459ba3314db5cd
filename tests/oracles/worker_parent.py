"""A process with worker processes, which a test ends in several ways.

    python -m oracles.worker_parent ENDING START_METHOD FOLDER

It prints a line of JSON with its processes and shared memory, and later lines with the outcome.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from framestow.envs import Recorder, WorkerVectorEnv
from framestow.replay.memory import ReplayMemory
from oracles.failing_envs import NUM_ACTIONS, SHAPE, Failure, makers
from oracles.process_watch import logged_processes, mapped_shared_memory, with_descendants

NUM_ENVS = 4
STEPS_BEFORE = 8
FAILURES = {"hang": "hang", "hang_in_c": "hang_in_c", "hang_stubbornly": "hang_stubbornly"}


def report(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def make_recorder(start_method: str, folder: Path, failure: Failure | None) -> Recorder:
    failing = {} if failure is None else {2: failure}
    vector = WorkerVectorEnv(
        makers(folder, NUM_ENVS, failing, seconds_a_step=0.01, lengths=(200,)),
        num_workers=2,
        start_method=start_method,
        seed=0,
        step_timeout=120.0,
    )
    memory = ReplayMemory(10_000, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=2, num_envs=NUM_ENVS, seed=0)
    return Recorder(vector, memory)


def play_for_ever(recorder: Recorder) -> None:
    while True:
        recorder.step(np.ones(NUM_ENVS, int))


def play_until_interrupted(recorder: Recorder, folder: Path) -> None:
    """Play until Ctrl-C, then use the memory: save it, load it, sample."""
    try:
        play_for_ever(recorder)
    except KeyboardInterrupt:
        recorder.memory.save(folder.parent / "memory")
        loaded = ReplayMemory.load(folder.parent / "memory")
        loaded.inner.parts.check()
        batch = loaded.sample(16)
        report(interrupted=True, held=len(loaded), shape=batch.observation.shape)
        recorder.close()
        recorder.close()
        report(closed=True)


def play_on_through_interrupts(recorder: Recorder) -> None:
    """Count Ctrl-C without stopping, as a training that finishes its step does."""
    interrupts: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    report(is_deaf=True)
    while len(interrupts) < 3:
        recorder.step(np.ones(NUM_ENVS, int))
    for _ in range(10):
        recorder.step(np.ones(NUM_ENVS, int))
    recorder.close()
    report(alive=len(logged_processes(Path(sys.argv[3]))))


def exit_in_a_step(recorder: Recorder) -> None:
    recorder.env.step_async(np.ones(NUM_ENVS, int))
    sys.exit(3)


def forget(recorder: Recorder) -> None:
    recorder.env = None
    del recorder
    gc.collect()


def main() -> None:
    ending, start_method, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    failure = Failure(ending, at=STEPS_BEFORE + 3) if ending in FAILURES else None
    recorder = make_recorder(start_method, folder, failure)
    recorder.reset()
    for _ in range(STEPS_BEFORE):
        recorder.step(np.zeros(NUM_ENVS, int))
    processes = logged_processes(folder) | with_descendants(os.getpid())
    report(processes=sorted(processes), shared_memory=sorted(mapped_shared_memory()))
    if ending == "interrupt":
        play_until_interrupted(recorder, folder)
    elif ending == "endure":
        play_on_through_interrupts(recorder)
    elif ending == "exit":
        exit_in_a_step(recorder)
    elif ending == "end":
        recorder.step(np.zeros(NUM_ENVS, int))
    elif ending == "abort":
        os._exit(5)
    elif ending == "raise":
        raise RuntimeError("the training failed")
    elif ending == "forget":
        forget(recorder)
    else:
        play_for_ever(recorder)


if __name__ == "__main__":
    main()
