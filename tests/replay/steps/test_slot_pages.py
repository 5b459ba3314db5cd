"""SlotPages take memory only for stored slots."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from framestow.replay.steps.ring_steps import SlotPages

RECORD = np.dtype([("number", np.int64), ("rest", np.uint8, 5)])


@pytest.mark.parametrize("num_slots", [1, 7, 316, 1000, 5000])
def test_releasing_pages_never_changes_stored_slots(num_slots):
    random = np.random.default_rng(num_slots)
    pages = SlotPages(num_slots, RECORD)
    oldest = next_index = 0
    for _ in range(300):
        step = int(random.integers(1, max(2, num_slots // 4)))
        added = np.arange(next_index, next_index + step)
        pages.slots["number"][added % num_slots] = added
        pages.slots["rest"][added % num_slots] = added[:, None] % 251
        next_index += step
        oldest = max(oldest, next_index - num_slots)
        if random.random() < 0.5:
            oldest = int(random.integers(oldest, next_index + 1))
            pages.release(oldest, next_index)

        stored = np.arange(oldest, next_index)
        slots = pages.slots[stored % num_slots]

        np.testing.assert_array_equal(slots["number"], stored)
        np.testing.assert_array_equal(slots["rest"], np.repeat(stored[:, None] % 251, 5, axis=1))
        assert len(stored) * RECORD.itemsize <= pages.nbytes(oldest, next_index)


THREE_TIMES_AROUND = """
import numpy as np
from framestow.process import resident_bytes
from framestow.replay.steps.ring_steps import SlotPages

HELD, SLOTS, CHUNK = 100_000, 20_000_000, 50_000
pages = SlotPages(SLOTS, np.dtype("u8"))
before, most, counted = resident_bytes(), 0, 0
for next_index in range(CHUNK, 3 * SLOTS, CHUNK):
    slots = np.arange(next_index - CHUNK, next_index) % SLOTS
    pages.slots[slots[0] : slots[-1] + 1] = 1
    oldest = max(next_index - HELD, 0)
    pages.release(oldest, next_index)
    most = max(most, resident_bytes() - before)
    counted = max(counted, pages.nbytes(oldest, next_index))
print(most, counted)
"""


@pytest.mark.skipif("sys.platform != 'linux'", reason="other systems do not release written pages")
def test_a_large_ring_takes_only_the_memory_of_its_stored_slots():
    result = subprocess.run([sys.executable, "-c", THREE_TIMES_AROUND], capture_output=True, text=True, check=True)
    most, counted = map(int, result.stdout.split())

    assert 800_000 <= counted <= 800_000 + 2 * 4096
    assert most < 4_000_000  # 800,000 and the temporary arrays of a chunk
