"""Frames of ale-py games for the benchmarks, recorded once into a folder that git ignores.

    python benchmarks/atari_frames.py                  record all games, random and scripted play, and print scores
    python benchmarks/atari_frames.py --games pong     some of them

Random play: uniformly random actions of the game's minimal action set. Scripted play: scripted_players.py. Both use
sticky actions with probability 0.25 (Machado et al. 2018), frame skip 4, and a new game after each end. A frame is the
maximum of a step's last two raw grey screens, resized to 84x84 with OpenCV's INTER_AREA (Mnih et al. 2015). The same
seed gives the same frames.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import ale_py
import cv2
import numpy as np
from ale_py import roms
from numpy.typing import NDArray

from recorded_frames import NUM_FRAMES, Recording, save_recording, saved_recording
from scripted_players import SCRIPTED_PLAYERS

# The first games that packing was measured on (docs/packing.md).
GAMES = (
    "breakout",
    "pong",
    "space_invaders",
    "qbert",
    "seaquest",
    "beam_rider",
    "ms_pacman",
    "enduro",
    "riverraid",
    "freeway",
)
# Kaiser et al. 2020, "Model-Based Reinforcement Learning for Atari".
ATARI_100K = (
    "alien",
    "amidar",
    "assault",
    "asterix",
    "bank_heist",
    "battle_zone",
    "boxing",
    "breakout",
    "chopper_command",
    "crazy_climber",
    "demon_attack",
    "freeway",
    "frostbite",
    "gopher",
    "hero",
    "jamesbond",
    "kangaroo",
    "krull",
    "kung_fu_master",
    "ms_pacman",
    "pong",
    "private_eye",
    "qbert",
    "road_runner",
    "seaquest",
    "up_n_down",
)
FRAME_SIDE = 84  # pixels
FRAME_SKIP = 4  # emulator frames per agent step
STICKY_PROBABILITY = 0.25


def random_choice(ale: ale_py.ALEInterface, generator: np.random.Generator) -> Callable[[], ale_py.Action]:
    actions = ale.getMinimalActionSet()
    return lambda: actions[generator.integers(len(actions))]


def scripted_choice(game: str, ale: ale_py.ALEInterface, generator: np.random.Generator) -> Callable[[], ale_py.Action]:
    player = SCRIPTED_PLAYERS[game]()
    return lambda: player(ale.getRAM(), generator)


def record(game: str, num_frames: int, seed: int, is_scripted: bool = False) -> Recording:
    """Play ``game`` for ``num_frames`` agent steps; frames are ``(num_frames, 84, 84)``."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", STICKY_PROBABILITY)
    ale.loadROM(roms.get_rom_path(game))
    generator = np.random.default_rng(seed)
    choose = scripted_choice(game, ale, generator) if is_scripted else random_choice(ale, generator)
    height, width = ale.getScreenDims()
    screens = np.zeros((2, height, width), np.uint8)
    frames = np.empty((num_frames, FRAME_SIDE, FRAME_SIDE), np.uint8)
    episode_starts, scores, score = [0], [], 0
    for index in range(num_frames):
        if ale.game_over():
            ale.reset_game()
            episode_starts.append(index)
            scores.append(score)
            score = 0
        action = choose()
        for skip in range(FRAME_SKIP):
            score += ale.act(action)
            if skip >= FRAME_SKIP - 2:
                ale.getScreenGrayscale(screens[skip - FRAME_SKIP + 2])
        cv2.resize(screens.max(axis=0), (FRAME_SIDE, FRAME_SIDE), dst=frames[index], interpolation=cv2.INTER_AREA)
    return Recording(frames, episode_starts, scores or [score])


def recording(game: str, num_frames: int = NUM_FRAMES, seed: int = 0, is_scripted: bool = False) -> Recording:
    """Return what ``record`` returns, from the cache folder if it is there."""
    name = f"{game}-scripted" if is_scripted else game
    found = saved_recording(name, num_frames, seed)
    if found is None:
        start = time.monotonic()
        found = record(game, num_frames, seed, is_scripted)
        save_recording(name, found, seed)
        seconds = time.monotonic() - start
        print(f"recorded {name}: {num_frames:,} frames in {seconds:.0f} s", file=sys.stderr, flush=True)
    return found


def recorded(game: str, num_frames: int = NUM_FRAMES, seed: int = 0) -> NDArray[np.uint8]:
    """Return the frames of random play, ``(num_frames, 84, 84)``, from the cache folder or played now."""
    return recording(game, num_frames, seed).frames


def main() -> None:
    games = sorted({*ATARI_100K, *GAMES})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=games, default=games)
    arguments = parser.parse_args()
    print("mean score of the games played to their end")
    for game in arguments.games:
        figures = f"{game:16s} random play {recording(game).mean_score:9.1f}"
        if game in SCRIPTED_PLAYERS:
            figures += f"   scripted play {recording(game, is_scripted=True).mean_score:9.1f}"
        print(figures, flush=True)


if __name__ == "__main__":
    main()
