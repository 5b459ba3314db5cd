"""Measure agent steps per second of eight Atari environments on two cores, compared with other libraries.

    python benchmarks/vector_environments.py                  Breakout and Pong, results/vector_environments.json
    python benchmarks/vector_environments.py --games qbert --rounds 9   printed only

Random play with actions drawn beforehand, the same work for each (atari_libraries.py), resets included; every `step`
waits for all eight. The bare emulator runs in two processes with independent loops and reads no frame: an upper bound.
Rates are medians over rounds in which every candidate takes a turn in shuffled order; ratios are compared round by
round. All candidates exist at once and sleep between their turns; a candidate that does not sleep is named.

`recorded` is ours with `Recorder` into a packed `ReplayMemory` of 100,000 transitions: its step also stores the frames
and returns stacks of four.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2

from atari_libraries import ale_vector, envpool_vector, gymnasium_async, gymnasium_sync, stable_baselines3_subproc
from bare_emulator import BareEmulatorProcesses
from environment_rates import (
    IDLE_SHARE,
    Candidate,
    ManyEnvs,
    figures,
    idle_share,
    made,
    rates_of_rounds,
)
from figures import publish
from framestow import ReplayMemory
from framestow.envs import Recorder, make_atari
from framestow.envs.atari.games import find_rom, title

GAMES = ["breakout", "pong"]
OURS = "framestow WorkerVectorEnv"
CAPACITY = 100_000  # transitions


def candidates(rom: str, num_envs: int, cores: int) -> list[Candidate]:
    def many(make: Callable[..., Any], *arguments: Any) -> Callable[[], ManyEnvs]:
        return lambda: ManyEnvs(make(rom, num_envs, *arguments))

    return [
        Candidate("bare emulator, one process", partial(BareEmulatorProcesses, rom, num_envs, 1)),
        Candidate(f"bare emulator, {cores} processes", partial(BareEmulatorProcesses, rom, num_envs, cores)),
        Candidate("Gymnasium SyncVectorEnv", many(gymnasium_sync)),
        Candidate("Gymnasium AsyncVectorEnv", many(gymnasium_async)),
        Candidate(
            "Stable-Baselines3 SubprocVecEnv", many(stable_baselines3_subproc), "pip install stable-baselines3==2.9.2"
        ),
        Candidate("ALE AtariVectorEnv", many(ale_vector, cores)),
        Candidate("EnvPool", many(envpool_vector, cores), "pip install envpool==1.2.5"),
        Candidate("framestow SerialVectorEnv", lambda: ManyEnvs(make_atari(rom, num_envs, seed=0))),
        Candidate(OURS, lambda: ManyEnvs(_workers(rom, num_envs, cores))),
        Candidate(f"{OURS}, recorded", lambda: ManyEnvs(_recorded(rom, num_envs, cores))),
    ]


def _workers(rom: str, num_envs: int, cores: int) -> Any:
    env = make_atari(rom, num_envs, seed=0, workers=cores)
    env.copies_observations = False  # like the others' arrays, which the next step overwrites
    return env


def _recorded(rom: str, num_envs: int, cores: int) -> Recorder:
    env = make_atari(rom, num_envs, seed=0, workers=cores)
    memory = ReplayMemory(
        CAPACITY, env.single_observation_space, env.single_action_space, stack=4, num_envs=num_envs, seed=0
    )
    return Recorder(env, memory)


def measured(rom: str, settings: argparse.Namespace) -> dict[str, Any]:
    players, missing = made(candidates(rom, settings.num_envs, settings.cores))
    try:
        idle = idle_share()
        if idle > IDLE_SHARE:
            print(f"idle candidates take {idle:.0%} of a core: the rates below are of a busy machine")
        rows = figures(rates_of_rounds(players, settings.rounds, settings.steps), OURS)
    finally:
        for player in players.values():
            player.close()
    return {"idle_share_of_a_core": round(idle, 3), "missing": missing, "candidates": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--games", nargs="+", default=GAMES)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument(
        "--cores", type=int, default=2, help="processes or threads per candidate, if it has such a setting"
    )
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--steps", type=int, default=100, help="steps of all environments in a turn")
    settings = parser.parse_args()
    cv2.setNumThreads(1)
    result = {title(rom): measured(rom, settings) for rom in map(find_rom, settings.games)}
    publish("vector_environments", {"games": result}, settings.games == GAMES)


if __name__ == "__main__":
    main()
