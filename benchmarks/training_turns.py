"""Trainers in processes of their own that train in turn: while one trains, the others wait for their line of input."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Protocol

import psutil

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from framestow.process import live_bytes
from training_profile import profiled
from training_systems import BUFFERS, RECIPES, SYSTEMS, Trainer

Answer = dict[str, Any]


class Turns(Protocol):
    """A trainer that takes a turn when it is asked."""

    def ask(self, do: str, amount: int) -> Answer:
        """Let it do ``amount`` of ``train`` or ``profile`` (steps) or ``update`` (updates), or ask for ``weights``."""


class TrainerProcess:
    """A system of `SYSTEMS` in its own process, which waits between two calls of `ask`."""

    def __init__(self, name: str, threads: int, script: str = __file__) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, script, name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, do: str, amount: int) -> Answer:
        """Raises ``SystemExit`` if the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([do, amount]) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SystemExit(f"{self.name}: its process ended with {self._process.wait()}; see above")
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process: it sees the end of its input."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, with a line unread
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def started(names: Iterable[str], threads: int) -> Iterator[dict[str, TrainerProcess]]:
    """Start a process for each system, and end them after the ``with`` block."""
    with ExitStack() as closing:
        trainers = {}
        for name in names:
            trainers[name] = TrainerProcess(name, threads)
            closing.callback(trainers[name].close)
            tell(f"started: {name}")
        yield trainers


def tell_rates(what: str, answers: Mapping[str, Answer]) -> None:
    tell(f"{what}; steps a second: {'   '.join(f'{rate(answer):.0f}' for answer in answers.values())}")


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def look_for_other_work() -> float:
    """Return how many per cent of the processors are busy, and say so if that disturbs the figures."""
    others = psutil.cpu_percent(interval=2.0)
    if others > 10:
        tell(f"the processors are {others:.0f} % busy before the start: other work disturbs the figures")
    return float(others)


def serve(name: str, threads: int) -> None:
    """Build a system in this process and answer the lines of `TrainerProcess` until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # no library's line is taken for an answer
    trainer = {**SYSTEMS, **RECIPES, **BUFFERS}[name].make(threads)
    for line in sys.stdin:
        do, amount = json.loads(line)
        print(json.dumps(turn(trainer, do, amount)), file=answers, flush=True)
    trainer.close()


def turn(trainer: Trainer, do: str, amount: int) -> Answer:
    """Take one turn; return steps, seconds, processor seconds, what is stored and resident, and a profile's parts."""
    if do == "weights":
        return {"weights": trainer.weights()}  # type: ignore[attr-defined]
    parts: dict[str, dict[str, float]] = {}
    processor, start = _processor_seconds(), time.perf_counter()
    if do == "update":
        trainer.update(amount)
        done = amount
    elif do == "profile":
        with profiled(trainer.run) as clock:  # type: ignore[attr-defined]
            done = trainer.train(amount)
        parts = {"parts": clock.seconds, "parts_beside": clock.beside}
    else:
        done = trainer.train(amount)
    seconds = time.perf_counter() - start
    stored = trainer.stored()
    return {
        "steps": done,
        "seconds": seconds,
        "processor_seconds": _processor_seconds() - processor,
        "peak_bytes": peak_bytes(),
        "resident_bytes": live_bytes(),
        "torch_threads": sys.modules["torch"].get_num_threads(),
        "stored_transitions": stored.transitions,
        "stored_bytes": stored.nbytes,
        **parts,
    }


def peak_bytes() -> int:
    """Return the largest resident set size of this process so far, and what its child processes have now."""
    own = psutil.Process()
    if resource is None:
        peak = own.memory_info().peak_wset
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return int(peak + sum(child.memory_info().rss for child in own.children(recursive=True)))


def _processor_seconds() -> float:
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


class Rounds:
    """Lets every trainer take one turn a round, in a new order each round."""

    def __init__(self, trainers: Mapping[str, Turns]) -> None:
        self._trainers = trainers
        self._order, self._shuffle = list(trainers), random.Random(0).shuffle

    def take(self, do: str, amount: int) -> dict[str, Answer]:
        """Return the answer of each trainer, in the trainers' order."""
        self._shuffle(self._order)
        answers = {name: self._trainers[name].ask(do, amount) for name in self._order}
        return {name: answers[name] for name in self._trainers}


def rate(answer: Answer) -> float:
    """Return the steps (or updates) a second of one turn."""
    return float(answer["steps"] / answer["seconds"])


@contextmanager
def busy_process() -> Iterator[None]:
    """Keep one core busy with another process within the ``with`` block."""
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        spinner.kill()
        spinner.wait()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
