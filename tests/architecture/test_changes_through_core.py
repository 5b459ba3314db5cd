"""Frames and steps of a memory change through ``Core`` alone."""

from __future__ import annotations

import re
from pathlib import Path

from framestow._core import Core, StepStore

SOURCE = Path(__file__).parents[2] / "src/framestow"
OF_CORE_ALONE = {"append", "begin", "clear", "close_episode", "close_episodes", "evict_next", "forget", "overwrite"}
CALL = re.compile(
    r"\b(?:storage|inner\.frames|parts\.frames)\.(?:append|begin_at|evict|restore|restore_in_file)\("
    r"|\bsteps\.(?:forget_lost|lose|lose_indices|restore)\("
)
STAND_ALONE = {
    "distributed/shard.py": "unpacks a chunk into frames of its own",
    "replay/store/reader.py": "fills a memory before it takes a step",
    "replay/store/verify.py": "fills steps and frames of its own",
}


def test_a_step_store_has_no_call_for_the_changes_that_core_makes():
    assert set() == OF_CORE_ALONE & set(dir(StepStore))
    assert OF_CORE_ALONE - {"append", "begin"} <= set(dir(Core))  # it plans those, and applies the plan


def test_frames_and_steps_change_past_core_only_where_they_are_filled_or_stand_alone():
    files = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if CALL.search(path.read_text(encoding="utf-8"))
    }

    assert set(STAND_ALONE) == files
