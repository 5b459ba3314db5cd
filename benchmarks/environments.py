"""How many agent steps a second do the Atari environments make, beside Gymnasium's and the bare emulator?

    python benchmarks/environments.py --game Breakout

One core, random play, frame skip 4, sticky actions 0.25, all 18 actions, 84x84 by the area's mean; resets included.
Gymnasium is at its best setting: no environment checker, no no-ops. The bare emulator runs four raw frames a step and
reads none of them: it is the ceiling. Every figure is a median over rounds in which each candidate takes its turn.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import ale_py
import cv2
import gymnasium
import numpy as np
from ale_py import roms

from framestow.benchmarking.interleaved import interleaved_medians
from framestow.benchmarking.result_files import write_result
from framestow.envs import make_atari
from framestow.envs.atari.games import find_rom, title

RESULTS = Path(__file__).parent / "results"

NUM_ACTIONS, FRAME_SKIP, STICKY_PROBABILITY = 18, 4, 0.25


def bare_emulator(rom: str) -> Callable[[], object]:
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", STICKY_PROBABILITY)
    ale.loadROM(roms.get_rom_path(rom))
    actions = action_source(1)

    def step() -> None:
        action = int(actions()[0])
        for _ in range(FRAME_SKIP):
            ale.act(action)
        if ale.game_over():
            ale.reset_game()

    return step


def action_source(num_envs: int) -> Callable[[], np.ndarray]:
    """The same random actions for every candidate, drawn beforehand."""
    drawn = np.random.default_rng(0).integers(NUM_ACTIONS, size=(4096, num_envs))
    state = {"next": 0}

    def draw() -> np.ndarray:
        state["next"] = (state["next"] + 1) % len(drawn)
        return drawn[state["next"]]

    return draw


def gymnasiums(rom: str) -> gymnasium.Env:
    env = gymnasium.make(
        f"ALE/{title(rom)}-v5",
        frameskip=1,
        repeat_action_probability=STICKY_PROBABILITY,
        full_action_space=True,
        disable_env_checker=True,
    )
    return gymnasium.wrappers.AtariPreprocessing(env, noop_max=0, frame_skip=FRAME_SKIP)


def single(env: gymnasium.Env) -> Callable[[], object]:
    actions = action_source(1)
    env.reset(seed=0)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(int(actions()[0]))
        if terminated or truncated:
            env.reset()

    return step


def vector(env: gymnasium.vector.VectorEnv) -> Callable[[], object]:
    actions = action_source(env.num_envs)
    env.reset(seed=0)
    return lambda: env.step(actions())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("--game", default="Breakout")
    arguments.add_argument("--num-envs", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=41)
    settings = arguments.parse_args()
    rom, num_envs = find_rom(settings.game), settings.num_envs
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cv2.setNumThreads(1)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    candidates = {
        "bare emulator, four raw frames": (1, bare_emulator(rom)),
        "Gymnasium AtariPreprocessing": (1, single(gymnasiums(rom))),
        "framestow make_atari": (1, single(make_atari(rom, seed=0))),
        f"Gymnasium SyncVectorEnv, {num_envs}": (
            num_envs,
            vector(gymnasium.vector.SyncVectorEnv([lambda: gymnasiums(rom)] * num_envs)),
        ),
        f"framestow make_atari, {num_envs}": (num_envs, vector(make_atari(rom, num_envs, seed=0))),
    }
    steps = {name: step for name, (_, step) in candidates.items()}
    medians = interleaved_medians(steps, rounds=settings.rounds, calls=20)
    rates = {name: round(candidates[name][0] / medians[name] * 1e6) for name in candidates}
    print(f"{title(rom)}, agent steps a second on one core")
    for name, rate in rates.items():
        print(f"  {name:34s} {rate:7d}")
    path = write_result(RESULTS / f"environments_{rom}.json", {"game": title(rom), "agent_steps_per_second": rates})
    print(path)


if __name__ == "__main__":
    main()
