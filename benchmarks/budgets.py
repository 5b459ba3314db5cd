"""Measure what a memory budget costs.

    python benchmarks/budgets.py                   Breakout, results/budgets.json
    python benchmarks/budgets.py --game pong       another game, printed only

Three memories of 84x84 frames store the same frames (atari_frames.py) in turn, with 1 and with 8 environments. One is
full at a budget of 10 MB per environment, one at a capacity of equally many transitions, and one has that capacity but
skips the comparison with the budget. A fourth stores first, so that the frames are cached for all three. A figure is
the mean of a turn's appends, which includes the work per segment (eviction, emptying sparse blocks, returning pages),
over the quickest quarter of the turns, since other work of the machine slows the rest.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from atari_frames import GAMES, recorded
from framestow import ReplayMemory
from framestow.benchmarking.result_files import write_result
from framestow.benchmarking.timing import measure_turns
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.eviction import evict_unreferenced_frames
from framestow.replay.step_checks import stage_step
from steps import NUM_FRAMES, SHAPE, appending, rows_of

RESULTS = Path(__file__).parent / "results"
BUDGET = 10_000_000  # bytes per environment
NUM_ENVS = (1, 8)
ROUNDS, CALLS = 400, 400


class Unchecked(ReplayMemory):
    """A memory that does not compare its bytes with its budget."""

    def append(self, actions, rewards, terminated, truncated, frames, env_ids=None):
        """Append without the comparison."""
        parts = self.inner.parts
        with parts.lock:
            step = env_ids, actions, rewards, terminated, truncated, frames, None
            new_frames = stage_step(parts.steps, parts.settings, step)
            if parts.steps.evict_for_staged():
                evict_unreferenced_frames(parts.storage, parts.steps)
            parts.steps.append_whole(parts.storage, parts.stacker.native, new_frames, None, None)


def microseconds(game: str, num_envs: int) -> dict[str, float]:
    """Return the microseconds of one append, by memory."""
    rows = rows_of(recorded(game, NUM_FRAMES), num_envs)
    settings = {"stack": 4, "num_envs": num_envs, "seed": 0}
    budget = ReplayMemory(100_000_000, FrameSpec(SHAPE), 4, **settings, max_bytes=BUDGET * num_envs)
    append_to_budget = appending(budget, rows, False)
    num_appended = 0
    while budget.report().share_used < 0.99:
        for _ in range(1_000):
            append_to_budget()
        num_appended += 1_000
    memories = {
        "first": Unchecked(len(budget), FrameSpec(SHAPE), 4, **settings),
        "without a look": Unchecked(len(budget), FrameSpec(SHAPE), 4, **settings),
        "full at its capacity": ReplayMemory(len(budget), FrameSpec(SHAPE), 4, **settings),
    }
    appends = {name: appending(memory, rows, False) for name, memory in memories.items()}
    enough = len(budget) // num_envs + 400
    enough += (num_appended - enough) % len(rows)  # so that all continue with the same frames
    for append in appends.values():
        for _ in range(enough):
            append()
    turns = measure_turns(appends | {"full at its budget": append_to_budget}, ROUNDS, CALLS)
    means = {name: sorted(map(statistics.fmean, times))[: ROUNDS // 4] for name, times in turns.items()}
    return {name: statistics.fmean(quickest) * 1e6 for name, quickest in means.items()} | {"transitions": len(budget)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=GAMES)
    game = parser.parse_args().game
    figures = {}
    for num_envs in NUM_ENVS:
        figures[f"{num_envs} environments"] = measured = microseconds(game or "breakout", num_envs)
        bare = measured["without a look"]
        print(f"{num_envs} environments: an append takes {bare:.2f} us")
        for name in ("full at its capacity", "full at its budget"):
            print(f"  {name}: {measured[name] / bare - 1:+.1%}")
    if game is None:
        print("written to", write_result(RESULTS / "budgets.json", {"microseconds": figures}).name)


if __name__ == "__main__":
    main()
