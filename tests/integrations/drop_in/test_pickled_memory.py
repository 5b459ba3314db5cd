"""A memory comes back from a pickle, a copy or arrays as it was, in little more RAM than it takes."""

from __future__ import annotations

import copy
import pickle
import random
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

from framestow import FrameSpec, ReplayMemory
from framestow.errors import DamagedDataError
from framestow.integrations.classic import ReplayBuffer
from framestow.integrations.drop_in.pickled_memory import memory_from_arrays, memory_to_arrays

COPIES = {"deep copy": copy.deepcopy, "copy": copy.copy} | {
    f"protocol {protocol}": lambda buffer, protocol=protocol: pickle.loads(pickle.dumps(buffer, protocol))
    for protocol in range(6)
}


def played(num_frames: int, side: int = 20) -> ReplayBuffer:
    buffer = ReplayBuffer(num_frames, 4)  # draws by Python's random
    frames = np.random.default_rng(0).integers(0, 256, (num_frames, side, side, 1), np.uint8)
    for number, frame in enumerate(frames):
        buffer.store_effect(buffer.store_frame(frame), number % 5, 1.0, number % 7 == 6)
    return buffer


@pytest.mark.parametrize("way", COPIES)
def test_a_buffer_comes_back_and_goes_on(way: str):
    buffer = played(300)  # 120 KB: several pieces

    other = COPIES[way](buffer)
    other.store_effect(other.store_frame(np.full((20, 20, 1), 9, np.uint8)), 1, 0.0, True)
    buffer.store_effect(buffer.store_frame(np.full((20, 20, 1), 9, np.uint8)), 1, 0.0, True)

    random.seed(0)
    expected_batch = buffer.sample(100)
    random.seed(0)
    for expected, actual in zip(expected_batch, other.sample(100), strict=True):
        np.testing.assert_array_equal(expected, actual)


def test_a_pickle_or_copy_takes_no_second_copy_of_the_memory_in_ram(tmp_path: Path):
    buffer = played(4_000, side=100)
    nbytes = buffer.memory.nbytes
    assert nbytes > 40e6
    peaks = {}
    for way in ("dump", "load", "copy"):
        with (tmp_path / "buffer").open("wb" if way == "dump" else "rb") as file:
            tracemalloc.start()  # of Python's objects; frames are outside
            if way == "dump":
                pickle.dump(buffer, file)
            else:
                pickle.load(file) if way == "load" else copy.deepcopy(buffer)
            peaks[way] = tracemalloc.get_traced_memory()[1] / nbytes
            tracemalloc.stop()

    assert max(peaks.values()) < 0.6, peaks  # a thousand pieces, once; 1 to 2.4 as bytes objects


def test_a_damaged_pickle_is_refused_or_whole_by_its_second_commit():
    buffer, messages = played(300), []
    whole = pickle.dumps(buffer)
    for place in range(2000, len(whole) - 2000, len(whole) // 9):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        try:
            with warnings.catch_warnings(action="ignore"):  # a reader says that it took the second commit
                other = pickle.loads(damaged)
        except DamagedDataError as refused:
            messages.append(str(refused))
        else:
            np.testing.assert_array_equal(*(one.memory.get(range(200)).observation for one in (buffer, other)))

    assert len(messages) >= 5
    assert {"the saved buffer is damaged; load another copy of it"} == {one.rpartition(": ")[2] for one in messages}
    assert [] == [one for one in messages if "framestow-" in one or "repair" in one]  # a folder that is gone


@pytest.mark.parametrize("name", ["../outside", "/outside", "folder/file", "..", ""])
def test_a_file_of_a_state_dict_is_named_without_a_folder(name: str):
    memory = ReplayMemory(10, FrameSpec((4, 4)), 2, seed=0)
    files = memory_to_arrays(memory)

    with pytest.raises(DamagedDataError, match="it must be a plain name"):
        memory_from_arrays({name: files.pop("LOCK"), **files})
    assert not Path("/outside").exists()
