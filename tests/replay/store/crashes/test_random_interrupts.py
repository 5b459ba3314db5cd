"""Ctrl-C at random moments of any call: steps are stored completely or not at all, and saves can be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracles.crash_run import KINDS, AtPlaces, ByTimer, CrashRun

pytestmark = pytest.mark.slow  # more than two seconds

LIVES = [2, pytest.param(24, marks=pytest.mark.exhaustive)]  # for each kind of observation


# After a Ctrl-C the garbage collector closes files, and Python warns of interrupts during collection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("storage", ["packed", "raw", "on disk"])
@pytest.mark.parametrize("num_lives", LIVES)
def test_a_memory_stays_usable_after_ctrl_c_anywhere(num_lives, storage, retention, tmp_path: Path, record_property):
    num_interrupts = num_rows = 0
    for kind in KINDS:
        for seed in range(num_lives):
            folder, is_prioritized = tmp_path / f"{kind} {seed}", seed // 2 % 2 == 1
            life = CrashRun(kind, storage, retention, is_prioritized, folder, seed)
            try:
                if seed % 2:
                    life.live(AtPlaces(life.random), num_calls=100 if num_lives > 2 else 25)
                else:
                    life.live(ByTimer(life.random), num_calls=400 if num_lives > 2 else 80)
            except BaseException as error:
                error.args = (f"life {seed} of {kind}: {error}",)
                raise
            finally:
                life.memory.close()
            num_interrupts += life.num_interrupts
            num_rows += life.num_rows

    record_property("lives", num_lives * len(KINDS))
    record_property("interrupts", num_interrupts)
    record_property("rows compared", num_rows)
    assert num_interrupts > 10 * num_lives * len(KINDS)
