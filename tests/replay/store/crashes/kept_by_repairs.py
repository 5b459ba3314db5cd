"""Compare what two versions of framestow keep when they repair the same 500 damaged stores.

    cd tests
    python -m replay.store.crashes.kept_by_repairs record before.json    with one version
    python -m replay.store.crashes.kept_by_repairs record after.json     with the other one
    python -m replay.store.crashes.kept_by_repairs compare before.json after.json

The stores and damages of every kind of memory are drawn with a seed. ``compare`` fails if the second version lacks a
generation or a transition that the first one keeps.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from framestow.errors import DamagedDataError
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.repair import repair_store
from oracles.damaged_stores import RecordedStore, damages_of
from oracles.store_files import generations
from replay.store.crashes.test_repairs_that_load import KINDS

NUM_DAMAGES = 500

Kept = dict[str, dict[str, list[int]]]  # by damage and generation: the numbers of the transitions that can be drawn


def record(file: Path) -> None:
    """Repair the damaged stores; write what each of them keeps."""
    random, kept = np.random.default_rng(0), Kept()
    for number, kind in enumerate(KINDS):
        share = NUM_DAMAGES * (number + 1) // len(KINDS) - len(kept)
        with tempfile.TemporaryDirectory() as folder:
            whole, store = Path(folder) / "whole", Path(folder) / "store"
            recorded = RecordedStore(kind, whole)
            damages = damages_of(whole)
            names = np.array([*damages])
            for name in random.choice(names, share, replace=share > len(names)).tolist():
                shutil.copytree(whole, store)
                damages[name](store)
                kept[f"{len(kept)}: {kind}, {name}"] = repair(recorded, store)
                shutil.rmtree(store)
    file.write_text(json.dumps(kept))


def repair(recorded: RecordedStore, store: Path) -> dict[str, list[int]]:
    """Repair a store; return the transitions that each of its generations keeps, after a check of their content."""
    try:
        repair_store(store)
    except DamagedDataError:
        return {}
    memories = {number: ReplayMemory.load(store, generation=number) for number in generations(store)}
    return {str(number): sorted(recorded.assert_is_part(memory)) for number, memory in memories.items()}


def compare(before: Kept, after: Kept) -> None:
    """Write how much both keep; exit with an error if ``after`` lacks anything that ``before`` has."""
    assert before.keys() == after.keys(), "the damages differ"
    fewer = [
        (damage, number)
        for damage, of_damage in before.items()
        for number, numbers in of_damage.items()
        if not set(numbers) <= set(after[damage].get(number, [])) or number not in after[damage]
    ]
    num_kept = [sum(len(numbers) for one in kept.values() for numbers in one.values()) for kept in (before, after)]
    num_generations = [sum(map(len, kept.values())) for kept in (before, after)]
    num_more = sum(before[damage] != after[damage] for damage in before)
    sys.stdout.write(
        f"{len(before)} damaged stores, {num_more} with another result\n"
        f"generations kept: {num_generations[0]:,} before, {num_generations[1]:,} after\n"
        f"transitions kept: {num_kept[0]:,} before, {num_kept[1]:,} after\n"
    )
    if fewer:
        raise SystemExit("\n".join(["less is kept of:", *(f"generation {one} of {damage}" for damage, one in fewer)]))


if __name__ == "__main__":
    command, *paths = sys.argv[1], *map(Path, sys.argv[2:])
    if command == "record":
        record(paths[0])
    else:
        compare(*(json.loads(path.read_text()) for path in paths))
