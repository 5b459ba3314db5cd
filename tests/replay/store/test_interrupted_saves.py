"""Ctrl-C at any line of a save or a flush: memory and folder stay usable, without leftover files."""

from __future__ import annotations

import re

import pytest

from framestow.replay.memory import ReplayMemory
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.ctrl_c import ctrl_c_at_line
from oracles.recorded_play import play_on, recorded
from oracles.store_files import commit_files, unaccounted

EVERY = [83, pytest.param(5, marks=pytest.mark.exhaustive)]  # lines


# If the interrupt comes right after a file is opened, the garbage collector closes it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("lives_there", [False, True])
def test_a_save_interrupted_at_any_line_can_be_repeated(lives_there, every, tmp_path):
    folder = tmp_path / "memory"
    memory, oracle = recorded(400, capacity=900, **({"directory": folder, "flush_every": None} if lives_there else {}))
    save = memory.flush if lives_there else lambda: memory.save(folder)
    save()
    line, num_interrupted, was_interrupted = 1, 0, True

    while was_interrupted:
        play_on(memory, oracle, 40, seed=line)
        try:
            with ctrl_c_at_line(line):
                save()
        except KeyboardInterrupt:
            num_interrupted += 1
        else:
            was_interrupted = False
        line += every
        if num_interrupted % 5 == 0:
            save()
            assert_memory_is_what_the_oracle_holds(ReplayMemory.load(folder), oracle)

    assert 10 <= num_interrupted
    save()
    assert_memory_is_what_the_oracle_holds(memory, oracle)
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(folder), oracle)
    names = {re.split("[.-]", file.name)[0] for file in folder.iterdir()}
    assert {"LOCK", "COMMIT", "frames", "steps"} >= names
    assert not unaccounted(folder)
    assert (2 if lives_there else 1) == len(commit_files(folder))  # a flush keeps the one before, a save has a copy
    memory.close()
