"""Save memories to a folder that another process saves to as well.

A separate process, whose memories have more than ``first`` steps. Prints how often it saved and how often it was
refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

from framestow.errors import IncompatibleError
from oracles.fixed_play import FixedPlay, memory_of_play
from oracles.store_files import log_files_of


def main(folder: Path, first: int, num_saves: int) -> None:
    play, memory = FixedPlay(first + 20 * num_saves), memory_of_play(1000)
    play.record(memory, 0, first)
    saved = refused = 0
    for at in range(first, first + 20 * num_saves, 20):
        play.record(memory, at, at + 20)
        try:
            memory.save(folder)
            saved += 1
        except IncompatibleError as error:
            if "is being written by" not in str(error):
                raise
            refused += 1
    sys.stdout.write(f"{saved} {refused}\n")


if __name__ == "__main__":
    with log_files_of(5000):
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
