"""The emulator alone: four raw frames per agent step and a reset after each game; no screen is read or sent.

With several processes each runs its own loop; a pipe carries only the start signal and the result.
"""

from __future__ import annotations

import multiprocessing
import time
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any

import ale_py
import numpy as np
from ale_py import roms

FRAME_SKIP, STICKY_PROBABILITY, NUM_ACTIONS = 4, 0.25, 18
MAX_EPISODE_FRAMES = 18_000  # emulator frames
NUM_DRAWN = 4096  # actions that every candidate repeats


def drawn_actions(num_envs: int, seed: int = 0) -> np.ndarray:
    """Return random actions, ``(NUM_DRAWN, num_envs)``, drawn before the timing."""
    return np.random.default_rng(seed).integers(NUM_ACTIONS, size=(NUM_DRAWN, num_envs))


class BareEmulators:
    """Several games in this process, stepped in turn."""

    def __init__(self, rom: str, num_games: int, seed: int = 0) -> None:
        self._games = [_new_game(rom, seed + number) for number in range(num_games)]
        self._actions = cycle(drawn_actions(num_games, seed).tolist())

    def play(self, steps: int) -> float:
        """Make ``steps`` agent steps in every game; return agent steps per second."""
        began = time.perf_counter()
        for actions in islice(self._actions, steps):
            for game, action in zip(self._games, actions, strict=True):
                for _ in range(FRAME_SKIP):
                    game.act(action)
                if game.game_over():
                    game.reset_game()
        return steps * len(self._games) / (time.perf_counter() - began)

    def close(self) -> None:
        """Delete the games."""
        self._games.clear()


class BareEmulatorProcesses:
    """Several games over processes with independent loops: an upper bound of the emulator's rate.

    The rates of the processes are added up, each over the time that it was running itself, so none waits for another.
    """

    def __init__(self, rom: str, num_games: int, num_processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for number in range(num_processes):
            games = num_games // num_processes + (number < num_games % num_processes)
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rom, games, 1000 * number), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def play(self, steps: int) -> float:
        """Make ``steps`` agent steps in every game; return agent steps per second over all processes."""
        for pipe in self._pipes:
            pipe.send(steps)
        return sum(pipe.recv() for pipe in self._pipes)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()


def _serve(pipe: Connection, rom: str, num_games: int, seed: int) -> None:
    games = BareEmulators(rom, num_games, seed)
    while (steps := pipe.recv()) is not None:
        pipe.send(games.play(steps))


def _new_game(rom: str, seed: int) -> ale_py.ALEInterface:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    game = ale_py.ALEInterface()
    game.setFloat("repeat_action_probability", STICKY_PROBABILITY)
    game.setInt("max_num_frames_per_episode", MAX_EPISODE_FRAMES)
    game.setInt("random_seed", seed)
    game.loadROM(roms.get_rom_path(rom))
    return game
