"""Measure ReplayMemory.sample from a million transitions, on each of ten Atari games.

    python benchmarks/sampling.py                          all ten games, results/sampling.json
    python benchmarks/sampling.py --games Pong Enduro      some of them, printed only
    python benchmarks/sampling.py --batch-size 256 --threads 2         results/sampling_256_2_threads.json

Measures as `framestow bench GAME --libraries none --transitions 1_000_000` does, for the packed storage alone, over the
games. Bytes per transition include everything: frames, scalars, index, and the allocator's overhead.
"""

from __future__ import annotations

import argparse
import statistics

from figures import publish
from framestow.benchmarking.libraries import FRAMESTOW_SYSTEMS
from framestow.benchmarking.measurement import BenchSettings, affordable_bytes, measure
from framestow.benchmarking.play import record_play

GAMES = (
    *("Breakout", "Pong", "SpaceInvaders", "Qbert", "Seaquest"),
    *("BeamRider", "MsPacman", "Enduro", "Riverraid", "Freeway"),
)
PRESET = "machado2018"
NUM_FRAMES = 20_000  # per game


def measured(game: str, settings: BenchSettings) -> dict[str, float]:
    """Return the figures of one game."""
    play = record_play(game, NUM_FRAMES, PRESET, settings.seed)
    figures = measure(play, PRESET, settings, [], lambda *_: None, FRAMESTOW_SYSTEMS[:1])
    [ours] = figures.systems
    assert ours.append_us is not None
    return {
        "transitions": ours.transitions,
        "bytes_per_transition": ours.bytes_per_transition,
        "sample_us": ours.sample_us,
        "bare_copy_us": figures.bare_copy.sample_us,
        "sample_of_bare_copy": figures.sample_of_bare_copy(ours),
        "append_us": ours.append_us,
        "append_us_of_8_envs": figures.append_us_of_8_envs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=list(GAMES))
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="that unpack a batch")
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    settings = BenchSettings(
        transitions=arguments.transitions,
        batch_size=arguments.batch_size,
        threads=arguments.threads,
        stack=4,
        rounds=arguments.rounds,
        max_bytes=affordable_bytes(),
        fill_seconds=1.0,  # for other libraries: there are none
        seed=0,
    )
    rows = {game: measured(game, settings) for game in arguments.games}
    columns = {name: [row[name] for row in rows.values()] for name in rows[arguments.games[0]]}
    means = {name: statistics.geometric_mean(column) for name, column in columns.items()}
    is_usual = settings.batch_size == 32 and settings.threads == 1
    name = "sampling" if is_usual else f"sampling_{settings.batch_size}_{settings.threads}_threads"
    sizes = {"batch_size": settings.batch_size, "threads": settings.threads}
    is_whole = tuple(arguments.games) == GAMES and arguments.transitions == parser.get_default("transitions")
    publish(name, {**sizes, "games": rows, "geometric_mean": means}, is_whole)


if __name__ == "__main__":
    main()
