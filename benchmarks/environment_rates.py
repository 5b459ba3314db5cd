"""Measure several candidates' agent steps per second in rounds, so that a slow moment affects all of them."""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, NamedTuple, Protocol

import gymnasium
import psutil

from bare_emulator import drawn_actions

IDLE_SECONDS = 1.0  # duration of the idle measurement
IDLE_SHARE = 0.03  # of one core; more would slow the other candidates


class Player(Protocol):
    """A candidate that takes a turn in each round."""

    def play(self, steps: int) -> float:
        """Make ``steps`` agent steps in every game; return agent steps per second."""

    def close(self) -> None:
        """Close it and its processes."""


class Candidate(NamedTuple):
    """A candidate's constructor, and the package to install if its library is missing."""

    name: str
    make: Callable[[], Player]
    install: str = ""


class OneEnv:
    """One Gymnasium environment, reset when its episode ends."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env
        self._actions = cycle(drawn_actions(1)[:, 0].tolist())
        env.reset(seed=0)

    def play(self, steps: int) -> float:
        env = self._env
        began = time.perf_counter()
        for action in islice(self._actions, steps):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return steps / (time.perf_counter() - began)

    def close(self) -> None:
        self._env.close()


class ManyEnvs:
    """A vector environment with automatic resets and `step`, `reset` and `close`, of any library."""

    def __init__(self, env: Any) -> None:
        self._env, self._num_envs = env, int(env.num_envs)
        self._actions = cycle(list(drawn_actions(self._num_envs)))
        env.reset()

    def play(self, steps: int) -> float:
        step = self._env.step
        began = time.perf_counter()
        for actions in islice(self._actions, steps):
            step(actions)
        return steps * self._num_envs / (time.perf_counter() - began)

    def close(self) -> None:
        self._env.close()


def made(candidates: Sequence[Candidate]) -> tuple[dict[str, Player], list[str]]:
    """Make the available candidates; return also a line per missing one that says how to install it."""
    players, missing = {}, []
    for candidate in candidates:
        try:
            players[candidate.name] = candidate.make()
        except ImportError as error:
            if not candidate.install:
                raise
            missing.append(f"not installed: {candidate.name}; {candidate.install} ({error})")
    return players, missing


def idle_share(seconds: float = IDLE_SECONDS) -> float:
    """Return the share of one core that this process and its children use while idle."""
    processes = [own := psutil.Process(), *own.children(recursive=True)]
    before = sum(map(_processor_seconds, processes))
    time.sleep(seconds)
    return (sum(map(_processor_seconds, processes)) - before) / seconds


def rates_of_rounds(
    players: Mapping[str, Player], rounds: int, steps: int, warmup_rounds: int = 2
) -> dict[str, list[float]]:
    """Return every player's agent steps per second in every round; the order is shuffled each time."""
    rates: dict[str, list[float]] = {name: [] for name in players}
    order, shuffle = list(players), random.Random(0).shuffle
    gc.collect()
    gc.disable()
    try:
        for current in range(-warmup_rounds, rounds):
            shuffle(order)
            for name in order:
                rate = players[name].play(steps)
                if current >= 0:
                    rates[name].append(rate)
            print(f"\rround {max(current + 1, 0):3d} of {rounds}", end="", file=sys.stderr, flush=True)
    finally:
        gc.enable()
        print(file=sys.stderr)
    return rates


class Ratio(NamedTuple):
    """Ratio of two candidates' rates over the rounds: median, and the range of four fifths of the rounds."""

    median: float
    low: float
    high: float


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Compare round by round, so that a disturbed round does not move the median."""
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    tenths = statistics.quantiles(ratios, n=10, method="inclusive") if len(ratios) > 1 else ratios * 9
    return Ratio(statistics.median(ratios), tenths[0], tenths[-1])


def figures(rates: Mapping[str, Sequence[float]], ours: str) -> dict[str, dict[str, float]]:
    """Return each candidate's median rate, and the ratio of ``ours`` to it."""
    result = {}
    for name, of_rounds in rates.items():
        ratio = ratio_of(rates[ours], of_rounds)
        result[name] = {
            "agent_steps_per_second": round(statistics.median(of_rounds)),
            "ours_to_it": round(ratio.median, 3),
            "ours_to_it_tenth": round(ratio.low, 3),
            "ours_to_it_nine_tenths": round(ratio.high, 3),
        }
    return result


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
