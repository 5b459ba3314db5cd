"""Measure steps of the drop-ins DummyVecEnv and SubprocVecEnv beside Stable-Baselines3's own, in turn.

    python benchmarks/drop_in_vector_environments.py      results/drop_in_vector_environments.json, about 3 minutes

Eight environments return one picture and an empty info at every step, and no episode ends. A step takes nothing, or
0.4 ms of processor time. Rates are medians over rounds in which every class takes a turn in shuffled order; ratios are
compared round by round. All candidates of a case exist at once and sleep between their turns.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common import vec_env as library

from environment_rates import ManyEnvs, idle_share, rates_of_rounds, ratio_of
from figures import publish
from framestow.integrations import stable_baselines3 as ours

NUM_ENVS, CORES = 8, 2
SHAPES = ((84, 84, 4), (210, 160, 3))
STEP_MS = (0.0, 0.4)  # milliseconds of processor time
PAIRS = {  # each drop-in with the library's class
    "DummyVecEnv": "Stable-Baselines3 DummyVecEnv",
    f"SubprocVecEnv, {NUM_ENVS} processes": "Stable-Baselines3 SubprocVecEnv",
    f"SubprocVecEnv, {CORES} processes": "Stable-Baselines3 SubprocVecEnv",
}


class Picture(gymnasium.Env[Any, Any]):
    """Returns one picture for ever; a step computes for ``step_ms``."""

    def __init__(self, shape: tuple[int, ...], step_ms: float) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(18)
        self._picture, self._step_s = np.random.default_rng(0).integers(0, 256, shape, np.uint8), step_ms / 1000

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self._picture, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        if self._step_s:
            end_s = time.thread_time() + self._step_s
            while time.thread_time() < end_s:
                pass
        return self._picture, 1.0, False, False, {}


def candidates(shape: tuple[int, ...], step_ms: float) -> dict[str, Any]:
    envs = [partial(Picture, shape, step_ms)] * NUM_ENVS
    eight, two = (f"SubprocVecEnv, {count} processes" for count in (NUM_ENVS, CORES))
    made = {
        PAIRS["DummyVecEnv"]: library.DummyVecEnv(envs),
        PAIRS[eight]: library.SubprocVecEnv(envs, start_method="fork"),
        "DummyVecEnv": ours.DummyVecEnv(envs),
        eight: ours.SubprocVecEnv(envs, start_method="fork"),
        two: ours.SubprocVecEnv(envs, start_method="fork", num_workers=CORES),
    }
    return {name: ManyEnvs(env) for name, env in made.items()}


def measured(shape: tuple[int, ...], step_ms: float, settings: argparse.Namespace) -> dict[str, Any]:
    players = candidates(shape, step_ms)
    try:
        idle = idle_share()
        rates = rates_of_rounds(players, settings.rounds, settings.steps)
    finally:
        for player in players.values():
            player.close()
    return {
        "shape": "x".join(map(str, shape)),
        "step_ms": step_ms,
        "idle_share_of_a_core": round(idle, 3),
        "steps_per_second": {name: round(float(np.median(each))) for name, each in rates.items()},
        "times_the_librarys": {
            name: [round(part, 3) for part in ratio_of(rates[name], rates[own])] for name, own in PAIRS.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--steps", type=int, default=40, help="steps of all environments in a turn")
    settings = parser.parse_args()
    cases = [measured(shape, step_ms, settings) for shape in SHAPES for step_ms in STEP_MS]
    is_usual = (settings.rounds, settings.steps) == (parser.get_default("rounds"), parser.get_default("steps"))
    publish("drop_in_vector_environments", {"num_envs": NUM_ENVS, "cases": cases}, is_usual)


if __name__ == "__main__":
    main()
