"""How many bytes does the play of a trained agent take, beside random play?

    framestow train Breakout --run-dir runs/breakout
    python benchmarks/trained_play.py runs/breakout         results/trained_play.json: 5 minutes a run

The agent of each run folder plays with the preset of its training, in 8 environments, and a memory stores the play. As
`framestow evaluate` does, it takes a random action with the preset's evaluation epsilon. Random play is that of the
same environments. Bytes are the growth of the memory's own count over the second half of the play: frames, index and
steps. What does not grow with the memory, as open segments, is not in them.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch

from framestow.benchmarking.result_files import write_result
from framestow.envs import find_preset, make_atari
from framestow.training.checkpoint import read_agent_steps
from framestow.training.playing import Player
from framestow.training.run_folder import RunFolder

RESULT = Path(__file__).parent / "results" / "trained_play.json"
NUM_ENVS = 8
SEED = 1_000_000  # one that training does not use


def play(folder: RunFolder, epsilon: float, transitions: int) -> dict[str, Any]:
    """Let the agent play, and return the bytes of its play, its games and their mean score."""
    settings = folder.settings()
    preset = find_preset(settings.preset)
    env = make_atari(settings.game, NUM_ENVS, preset, SEED)
    player = Player(folder, env, epsilon, SEED, stack_padding=preset.stack_padding, capacity=transitions)
    scores: list[float] = []
    sizes: dict[int, int] = {}  # by stored transitions
    for games in player.steps():
        scores += [game.score for game in games]
        sizes[len(player.memory)] = player.memory.nbytes
        if len(player.memory) == transitions:
            break
    player.close()
    half = max(stored for stored in sizes if stored <= transitions // 2)
    return {
        "bytes_a_transition": (sizes[transitions] - sizes[half]) / (transitions - half),
        "epsilon": epsilon,
        "games": len(scores),
        "mean_score": statistics.fmean(scores) if scores else None,
    }


def plays_of(folder: RunFolder, transitions: int) -> dict[str, Any]:
    """Return the figures of random play and of the agent of one run."""
    settings = folder.settings()
    return {
        "game": settings.game,
        "recipe": settings.recipe,
        "preset": settings.preset,
        "agent_steps": read_agent_steps(folder.newest_checkpoint()),
        "random": play(folder, 1.0, transitions),
        "agent": play(folder, find_preset(settings.preset).evaluation_epsilon, transitions),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders; the pages name the agent of the first one")
    parser.add_argument("--transitions", type=int, default=100_000, help="of each play; another number is printed only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a batch of 8 is too small for two
    runs = []
    for path in arguments.runs:
        runs.append(plays_of(RunFolder.open(path), arguments.transitions))
        run, random, agent = runs[-1], runs[-1]["random"], runs[-1]["agent"]
        print(
            f"{run['game']:15s} {run['agent_steps']:10,} agent steps, mean score {agent['mean_score']}: "
            f"{agent['bytes_a_transition']:.1f} bytes a transition; random play {random['bytes_a_transition']:.1f}",
            flush=True,
        )
    if arguments.transitions == parser.get_default("transitions"):
        print("written:", write_result(RESULT, {"transitions": arguments.transitions, "runs": runs}).name)


if __name__ == "__main__":
    main()
