"""Measure agent steps per second of one Atari environment, compared with Gymnasium's and the bare emulator.

    python benchmarks/environments.py                          Breakout and Pong, results/environments.json
    python benchmarks/environments.py --games qbert --rounds 9   printed only

One core, random play with actions drawn beforehand, the same work for each (atari_libraries.py); resets are included.
The bare emulator runs four raw frames per step and reads none of them: an upper bound. Rates are medians over rounds in
which every candidate takes a turn in shuffled order; ratios are compared round by round.
"""

from __future__ import annotations

import argparse
import os
from functools import partial

import cv2

from atari_libraries import gymnasium_env
from bare_emulator import BareEmulators
from environment_rates import Candidate, OneEnv, figures, made, rates_of_rounds
from figures import publish
from framestow.envs import make_atari
from framestow.envs.atari.games import find_rom, title

GAMES = ["breakout", "pong"]
OURS = "framestow AtariEnv"


def candidates(rom: str) -> list[Candidate]:
    return [
        Candidate("bare emulator", partial(BareEmulators, rom, 1)),
        Candidate("Gymnasium AtariPreprocessing", lambda: OneEnv(gymnasium_env(rom))),
        Candidate(OURS, lambda: OneEnv(make_atari(rom, seed=0))),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--games", nargs="+", default=GAMES)
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--steps", type=int, default=400, help="agent steps of a turn")
    settings = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cv2.setNumThreads(1)
    result = {}
    for rom in map(find_rom, settings.games):
        players, _ = made(candidates(rom))
        result[title(rom)] = figures(rates_of_rounds(players, settings.rounds, settings.steps), OURS)
        for player in players.values():
            player.close()
    publish("environments", {"games": result}, settings.games == GAMES)


if __name__ == "__main__":
    main()
