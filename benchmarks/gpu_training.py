"""Measure training on a CUDA device: steps per second and the share of time in which the device waits, then curves.

    python benchmarks/gpu_training.py speed --out speed.json
    python benchmarks/gpu_training.py speed --variants rainbow-lite --out speed.json    # one variant only
    python benchmarks/gpu_training.py learn runs --minutes 9 --out learn.json
    python benchmarks/gpu_training.py learn runs --minutes 9 --out more.json            # again to go on

``speed`` trains each variant for some seconds after its first updates, with everything that ``framestow train`` does
but its listeners. The share in which the device waits is that without a running kernel or copy, over the profiled part
(PyTorch's profiler, which itself costs some CPU time). ``learn`` trains recipes on games side by side, one process each
and by default rainbow-lite on the three games of Atari-3 (Aitchison et al. 2023). It stops them after the minutes and
goes on with their checkpoints next time. ``benchmarks/learning.py`` writes their curves.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from framestow.benchmarking.result_files import write_result
from framestow.process_memory import resident_bytes
from framestow.training import RunFolder, Settings, start_run
from framestow.training.events import Event, StepTaken
from framestow.training.learner import Learner
from framestow.training.run import Run

ATARI_3 = ("BattleZone", "NameThisGame", "Phoenix")
STEPS = 2_500_000  # 10 million frames
FIRST_UPDATES = 100
PROFILED_SECONDS = 2.0

RECIPES: dict[str, dict[str, Any]] = {
    "rainbow-lite": {"recipe": "rainbow-lite", "num_envs": 16, "workers": 4, "threads": 1},
    "laptop": {"recipe": "laptop", "num_envs": 8, "workers": 4, "threads": 1},
    "desktop": {"recipe": "desktop", "num_envs": 64, "workers": 14, "threads": 1},
}
VARIANTS = {
    **RECIPES,
    "rainbow-lite, ordinary launches": RECIPES["rainbow-lite"],
    "rainbow-lite, none ahead": RECIPES["rainbow-lite"],
    "desktop, float32": {**RECIPES["desktop"], "precision": "float32"},
    "desktop, ordinary launches": RECIPES["desktop"],
    "desktop, none ahead": RECIPES["desktop"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    speed = commands.add_parser("speed")
    speed.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    speed.add_argument("--game", default="Qbert")
    speed.add_argument("--seconds", type=float, default=10.0, help="timed per variant")
    speed.add_argument("--out", type=Path, required=True)
    learn = commands.add_parser("learn")
    learn.add_argument("runs", type=Path, help="folder of the run folders")
    learn.add_argument("--games", nargs="+", default=ATARI_3)
    learn.add_argument("--recipes", nargs="+", choices=RECIPES, default=["rainbow-lite"])
    learn.add_argument("--minutes", type=float, default=9.0)
    learn.add_argument("--steps", type=int, default=STEPS)
    learn.add_argument("--workers", type=int, default=4, help="worker processes for the environments of each run")
    learn.add_argument("--out", type=Path, required=True, help="JSON of what the device did meanwhile")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("PyTorch finds no CUDA device on this machine: this benchmark needs one")
    if arguments.command == "speed":
        figures = {name: measure(name, arguments.game, arguments.seconds) for name in arguments.variants}
    else:
        figures = learn_side_by_side(arguments)
    write_result(arguments.out, {"device": torch.cuda.get_device_name(), **figures})


def measure(variant: str, game: str, seconds: float) -> dict[str, Any]:
    """Return the figures of one variant."""
    settings = Settings(game, steps=1_000_000_000, warmup=2_000, device="cuda", **VARIANTS[variant])
    with tempfile.TemporaryDirectory() as parent:
        run = start_run(RunFolder.create(Path(parent) / "run", settings))
        if "ordinary" in variant:
            run.agent._update = run.agent._compute_update
        if "none ahead" in variant:
            run.learner.close()
            run.learner = Learner(run.agent, run.memory, settings.batch_size, True, ahead=0)
        try:
            events = run.events()
            _train(events, lambda: run.agent.num_updates >= FIRST_UPDATES)
            steps, updates, start = run.tally.agent_steps, run.agent.num_updates, time.perf_counter()
            _train(events, lambda: time.perf_counter() - start >= seconds)
            elapsed = time.perf_counter() - start
            figures = {
                "settings": VARIANTS[variant],
                "steps_a_second": (run.tally.agent_steps - steps) / elapsed,
                "updates_a_second": (run.agent.num_updates - updates) / elapsed,
                "device_waits": _share_in_which_the_device_waits(events),
                "update_ms": _update_ms(run),
                "process_bytes": resident_bytes(),
                "device_bytes": torch.cuda.max_memory_allocated(),
            }
        finally:
            run.close()
    torch.cuda.reset_peak_memory_stats()
    print(variant, json.dumps(figures), flush=True)
    return figures


def _train(events: Iterator[Event], is_enough: Any) -> None:
    for event in events:
        if isinstance(event, StepTaken) and is_enough():
            return


def _share_in_which_the_device_waits(events: Iterator[Event]) -> float:
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        torch.cuda.synchronize()
        start = time.perf_counter()
        _train(events, lambda: time.perf_counter() - start >= PROFILED_SECONDS)
    result: Any = profile.profiler
    on_device = sorted(
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in result.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA
    )
    first, last = on_device[0][0], max(end for _, end in on_device)
    busy, until = 0, first
    for begin, end in on_device:
        busy += max(0, end - max(begin, until))
        until = max(until, end)
    return 1.0 - busy / (last - first)


def _update_ms(run: Run, count: int = 200) -> float:
    """Return the device's time of one update from a batch that is there already."""
    from framestow.torch.tensor_batch import to_tensors

    batch = to_tensors(run.memory.sample(run.settings.batch_size), run.agent.device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        run.agent.learn(batch)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def learn_side_by_side(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train the games for some minutes and return how busy the device was."""
    arguments.runs.mkdir(parents=True, exist_ok=True)
    runs = list(itertools.product(arguments.recipes, arguments.games))
    processes = [_train_game(arguments, recipe, game) for recipe, game in runs]
    ends = time.monotonic() + 60 * arguments.minutes
    busy: list[float] = []
    try:
        while time.monotonic() < ends and any(process.poll() is None for process in processes):
            time.sleep(2.0)
            busy.append(_nvidia_smi_utilisation())
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)  # saves a checkpoint
        codes = [process.wait() for process in processes]
    print("exit codes", dict(zip(runs, codes, strict=True)))
    return {
        "minutes": arguments.minutes,
        "runs": [f"{recipe} on {game}" for recipe, game in runs],
        "device_busy_by_nvidia_smi": statistics.mean(busy) if busy else None,
    }


def _train_game(arguments: argparse.Namespace, recipe: str, game: str) -> subprocess.Popen[bytes]:
    folder: Path = arguments.runs / f"{recipe}-{game}"
    if (folder / "settings.json").exists():
        options = ["--resume", str(folder)]
    else:
        settings = {"preset": "dopamine", "steps": arguments.steps, "checkpoint_every": 500_000, **RECIPES[recipe]}
        options = [game, "--run-dir", str(folder)]
        for name, value in (settings | {"workers": arguments.workers}).items():
            options += [f"--{name.replace('_', '-')}", str(value)]
    log = (arguments.runs / f"{recipe}-{game}.log").open("ab")
    command = [sys.executable, "-m", "framestow", "train", *options]
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def _nvidia_smi_utilisation() -> float:
    """Return the share of the last moments in which a kernel ran, as the driver counts it."""
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, check=True)
    return float(answer.stdout.split()[0]) / 100


if __name__ == "__main__":
    main()
