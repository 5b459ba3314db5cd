"""Which seeds choose a recipe, and which ones report it.

A recipe that was chosen by its scores with some seeds scores better with these seeds than with others. So the seeds
0 to 9 choose, and the reported figures are of seeds from 100 on. These are trained once for one recipe, and all of them
are reported. A game whose scores chose the recipe is marked.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

CHOOSING = range(10)
FIRST_REPORTED = 100
GAMES_THAT_CHOSE = {  # by recipe; docs/decisions/training.md has the trials
    "laptop": ("Breakout", "Pong"),
    "laptop-long": ("Breakout", "Qbert", "Seaquest", "Asterix"),
}


def refuse_chosen(parser: argparse.ArgumentParser, seeds: Iterable[int], *, chose: bool = False) -> None:
    """End the program with an error unless all seeds may be reported.

    ``chose`` reports seeds that choose: the figure then says so.
    """
    wrong = sorted({seed for seed in seeds if (seed not in CHOOSING if chose else seed < FIRST_REPORTED)})
    if wrong and chose:
        parser.error(
            f"--chose, but seeds {wrong} are not of {CHOOSING.start} to {CHOOSING.stop - 1}: leave --chose out"
        )
    if wrong:
        parser.error(
            f"seeds {wrong} cannot be reported: {CHOOSING.start} to {CHOOSING.stop - 1} choose recipes, and figures "
            f"are of seeds from {FIRST_REPORTED} on; train those, or give --chose where the program has it"
        )
