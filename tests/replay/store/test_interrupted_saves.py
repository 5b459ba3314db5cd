"""Ctrl-C in a save or a flush, at any line of it: memory and folder stay usable, and nothing is left over."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.replay.memory import ReplayMemory
from framestow.replay.store.snapshot import pack_arrays
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.ctrl_c import NumberedPlaces, ctrl_c_at_line
from oracles.recorded_play import go_on, recorded

EVERY = [83, pytest.param(5, marks=pytest.mark.exhaustive)]  # lines


# A file that was just opened is closed by the collector where the interrupt comes before anybody has it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("lives_there", [False, True])
def test_a_save_that_is_interrupted_at_any_line_can_be_done_again(lives_there, every, tmp_path):
    folder = tmp_path / "memory"
    memory, oracle = recorded(400, capacity=900, **({"directory": folder, "flush_every": None} if lives_there else {}))
    save = memory.flush if lives_there else lambda: memory.save(folder)
    save()
    line, num_interrupted, was_interrupted = 1, 0, True

    while was_interrupted:
        go_on(memory, oracle, 40, seed=line)
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
    names = {file.name.partition(".")[0] for file in folder.iterdir()}
    assert {"LOCK", "MANIFEST", "state", "frames", "steps"} >= names
    assert 1 == len(list(folder.glob("MANIFEST*"))) == len(list(folder.glob("state*")))
    memory.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_while_arrays_are_packed_is_a_keyboard_interrupt():
    arrays = {"rewards": np.arange(10.0), "actions": np.arange(3)}
    counted, interrupts = NumberedPlaces(0), 0
    with counted:
        packed = pack_arrays(arrays)

    for place in range(1, counted.num_seen, 3):
        try:
            with NumberedPlaces(place):
                pack_arrays(arrays)
        except KeyboardInterrupt:  # any other error fails; what comes while an object is collected Python swallows
            interrupts += 1

    assert interrupts > 100
    assert packed == pack_arrays(arrays)
