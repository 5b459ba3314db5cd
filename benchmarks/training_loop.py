"""How much processor time does the trainer's loop take beside a device that learns?

    python benchmarks/training_loop.py                    results/training_loop.json
    python benchmarks/training_loop.py --quick            a trial, printed only

rainbow-lite plays Qbert with 16 environments in 4 worker processes, nearly always greedily as late in a training, and
makes an update every four steps. No GPU is needed: another thread waits 0.6 ms for each update, as long as an update
takes on an H100. All figures are processor time of the thread that runs the loop, in milliseconds for four steps and
their update, so they do not depend on how much else the machine does, except through its caches.

========== ===================================================================================================
part       calls in the loop's thread
========== ===================================================================================================
acting     one forward pass for all environments: a copy of the observations, as to pinned memory, and the
           network's operations on one observation of 36 x 36, which has little arithmetic, as a GPU would be
           sent them
stepping   of the worker processes: messages, and waiting for their answers
storing    of the steps in the memory, by the recorder
drawing    of a batch, which another thread unpacks
launching  of an update: copies to the tensors of a graph, of one row each, and the message
giving     of the new priorities to the memory
the rest   the loop, its events, and waiting for the update before the last one
========== ===================================================================================================

The total is measured without the clocks between the parts.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from figures import publish
from framestow.agents.captured_update import INPUTS, clone_inputs, copy_inputs
from framestow.agents.dqn import DQN, Update
from framestow.agents.networks import build_network
from framestow.agents.returns import returns_of
from framestow.agents.settings import EpsilonGreedy
from framestow.envs import make_atari
from framestow.torch.batch_loader import BatchLoader
from framestow.torch.tensor_batch import TensorBatch
from framestow.training import RunFolder, Settings, start_run
from framestow.training.run import BATCHES_AHEAD_ON_CUDA, Learner
from framestow.training.training_run import Event, StepTaken
from training_profile import REST, PartClock

RAINBOW = {"recipe": "rainbow-lite", "num_envs": 16, "workers": 4, "threads": 1, "epsilon_start": 0.01}
UPDATE_S = 0.6e-3
UPDATES_BEFORE = 400  # before the first measurement
PER_ROUND = 400  # updates
ACTING, STEPPING, STORING, DRAWING = "acting", "stepping", "storing", "drawing"
LAUNCHING, GIVING = "launching", "giving priorities"


class WaitingDevice:
    """A thread that takes ``UPDATE_S`` for each update, one after another."""

    def __init__(self) -> None:
        self._begun: queue.SimpleQueue[np.ndarray[Any, Any] | None] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[np.ndarray[Any, Any]] = queue.SimpleQueue()
        """The numbers of each update, in their order."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def begin(self, numbers: np.ndarray[Any, Any]) -> None:
        """Begin an update that gives these numbers."""
        self._begun.put(numbers)

    def close(self) -> None:
        """Complete all updates and end the thread."""
        self._begun.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (numbers := self._begun.get()) is not None:
            time.sleep(UPDATE_S)
            self.done.put(numbers)


class WaitingUpdate(Update):
    """An update of a ``WaitingDevice``."""

    def __init__(self, device: WaitingDevice) -> None:
        self._device = device

    def fetch(self) -> Callable[[], Any]:
        """Return a function that waits for the update."""
        return self._device.done.get


class WaitingAgent:
    """Has the calls of a ``DQN`` that the loop makes; nothing is computed, and a ``WaitingDevice`` learns."""

    def __init__(self, agent: DQN, num_envs: int) -> None:
        settings = self.settings = agent.settings
        self.device, self.num_updates = agent.device, 0
        self._returns = returns_of(settings, agent.device)
        shape = agent.observation_shape[0], 36, 36
        self._network = build_network(shape, agent.num_actions, self._returns.num_outputs, settings)
        self._pixels = torch.zeros((1, *shape), dtype=torch.uint8)
        self._exploration = EpsilonGreedy(settings.exploration, agent.num_actions, 0)
        self._greedy = np.zeros(num_envs, np.int64)
        # One row of the first batch, and the tensors that it is copied to; None before the first batch.
        self._row: TensorBatch | None = None
        self._inputs: TensorBatch | None = None
        self._numbers = np.random.default_rng(0).exponential(size=2 + 32).astype(np.float32)
        self.waiting = WaitingDevice()

    def act(self, observations: Any, agent_steps: int) -> Any:
        """Return random and zero actions, after a small forward pass."""
        return self._exploration.act(observations, agent_steps, self._choose, every_row=True)

    @torch.inference_mode()
    def _choose(self, observations: Any) -> Any:
        torch.from_numpy(observations).clone()
        self._returns.values(self._network(self._pixels, None).float()).argmax(dim=1)
        return self._greedy

    def learn(self, batch: TensorBatch) -> Update:
        """Begin an update, as a captured one is launched."""
        if self._row is None:
            first = {name: getattr(batch, name)[:1] for name in INPUTS}
            self._row = clone_inputs(replace(batch, **first))
            self._inputs = clone_inputs(self._row)
        copy_inputs(self._row, self._inputs)
        self.num_updates += 1
        self.waiting.begin(self._numbers)
        return WaitingUpdate(self.waiting)


def make_forked(settings: Settings) -> Any:
    """Return the environments of ``settings`` in forked workers, which do not import this script and PyTorch."""
    return make_atari(
        settings.game, settings.num_envs, settings.preset, settings.seed, workers=settings.workers, start_method="fork"
    )


def measure(rounds: int) -> dict[str, Any]:
    """Return the figures of the loop."""
    settings = Settings("Qbert", steps=1_000_000_000, warmup=2_000, memory=100_000, device="cpu", **RAINBOW)
    with tempfile.TemporaryDirectory() as parent, ExitStack() as closing:
        run: Any = start_run(RunFolder.create(Path(parent) / "run", settings), make_forked)
        closing.callback(run.close)
        run.learner.close()
        run.agent = WaitingAgent(run.agent, settings.num_envs)
        closing.callback(run.agent.waiting.close)
        run.learner = Learner(run.agent, run.memory, settings.batch_size, True, ahead=BATCHES_AHEAD_ON_CUDA)
        events = run.events()
        train(events, run, UPDATES_BEFORE)
        totals = []
        for _ in range(rounds):
            before = time.thread_time()
            train(events, run, PER_ROUND)
            totals.append((time.thread_time() - before) / PER_ROUND * 1e3)
        parts = timed_parts(events, run, rounds * PER_ROUND)
    return {
        "settings": {**RAINBOW, "update_ms": UPDATE_S * 1e3},
        "ms_for_four_steps": statistics.median(totals),
        "ms_of_all_rounds": totals,
        "parts_ms": parts,
    }


def train(events: Iterator[Event], run: Any, num_updates: int) -> None:
    """Train until this many more updates were begun."""
    until = run.agent.num_updates + num_updates
    for event in events:
        if isinstance(event, StepTaken) and run.agent.num_updates >= until:
            return


def timed_parts(events: Iterator[Event], run: Any, num_updates: int) -> dict[str, float]:
    """Return the milliseconds of each part for an update."""
    clock = PartClock(time.thread_time)
    calls = [
        (type(run.agent), "act", ACTING),
        (type(run.agent), "learn", LAUNCHING),
        (type(run.env), "step_async", STORING),
        (type(run.env), "step_wait", STORING),
        (type(run.env.env), "step_async", STEPPING),
        (type(run.env.env), "step_wait", STEPPING),
        (type(run.memory), "update_priorities", GIVING),
        (BatchLoader, "__next__", DRAWING),
    ]
    with ExitStack() as wrapped:
        for owner, name, part in calls:
            wrapped.enter_context(patch.object(owner, name, clock.around(part, getattr(owner, name))))
        before = time.thread_time()
        train(events, run, num_updates)
        total = time.thread_time() - before
    parts = {**clock.seconds, REST: total - sum(clock.seconds.values())}
    return {part: seconds / num_updates * 1e3 for part, seconds in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help=f"of {PER_ROUND} updates each")
    parser.add_argument("--quick", action="store_true", help="3 rounds, printed only")
    arguments = parser.parse_args()
    figures = measure(3 if arguments.quick else arguments.rounds)
    publish("training_loop", figures, not arguments.quick)


if __name__ == "__main__":
    main()
