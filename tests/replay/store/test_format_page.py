"""The page of the store's format has every field of a commit, and of the settings that it saves."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from framestow import Summed
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.format import COMMIT_FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "store-format.md").read_text(encoding="utf-8")
OF_EVERY_MANIFEST = {"format", "version", "generation"}
# Settings that a reader of the steps and frames does not need.
OF_FRAMESTOW = {"capacity", "frames_per_segment", "labels", "max_bytes", "storage"}


def keys_of_table(number: int) -> set[str]:
    """The words in the first column of a table with the head ``| key | value |``, counted from 0."""
    table = PAGE.split("| key | value |\n")[number + 1].split("\n\n")[0]
    return {word for row in table.splitlines() for word in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_every_field_of_a_commit_is_a_row_of_the_page_and_every_row_is_a_field():
    assert COMMIT_FIELDS.keys() | OF_EVERY_MANIFEST == keys_of_table(0)


def test_every_saved_setting_that_a_reader_needs_is_a_row_of_the_page():
    saved = ReplayMemory(10, FrameSpec((2, 2)), 4, stack=4, extras={"cost": Summed(np.float32)}).inner.settings.state()

    assert saved.keys() - OF_FRAMESTOW == keys_of_table(1)
    assert saved.keys() >= OF_FRAMESTOW
