"""What the memory says it takes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.numbered_steps import numbered_memory, play_episode


def test_the_report_counts_every_part_and_says_what_was_saved():
    memory = ReplayMemory(1000, FrameSpec((84, 84)), 4)
    memory.begin(np.zeros((1, 84, 84), np.uint8))
    for step in range(900):
        frame = np.zeros((1, 84, 84), np.uint8)
        frame[0, step % 84, step % 80 : step % 80 + 4] = 200
        memory.append([0], [0.0], [False], [False], frame)

    report = memory.report()

    assert memory.nbytes == sum(report.parts.values())
    assert 900 == report.transitions
    assert 2 * 4 * report.times_smaller_than_frames == report.times_smaller_than_stacked_pairs
    assert report.times_smaller_than_frames > 20  # a moving dot on black
    assert "900 of 1,000 transitions" in str(report)


def test_an_empty_memory_reports_without_dividing_by_nothing():
    report = numbered_memory(10).report()

    assert 0.0 == report.bytes_per_transition
    assert "0 of 10 transitions" in str(report)


def test_raw_storage_takes_a_byte_for_a_byte():
    memory = numbered_memory(10, storage="raw")
    play_episode(memory, episode=0, length=5)
    parts = memory.report().parts

    assert 0 == parts["frames"] % 6
    assert parts["frames"] >= 6 * 6


MEASURE_GROWTH = """
import numpy as np, os
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

random = np.random.default_rng(0)
frames = random.integers(0, 256, (512, 84, 84), dtype=np.uint8)  # noise: every byte is kept
def record(memory, num_steps):
    flags = np.zeros(4, bool)
    memory.begin(frames[:4])
    for step in range(num_steps):
        memory.append(flags.astype(int), flags.astype(float), flags, flags, frames[step % 128 * 4 : step % 128 * 4 + 4])

record(ReplayMemory(1000, FrameSpec((84, 84)), 4, num_streams=4), 400)  # warm up what the interpreter loads lazily
before = resident()
memory = ReplayMemory(24_000, FrameSpec((84, 84)), 4, num_streams=4)
record(memory, 9_000)  # wraps the ring
print((resident() - before) / memory.nbytes)
"""


def test_memory_is_what_nbytes_says_within_two_percent_of_what_the_system_sees():
    result = subprocess.run([sys.executable, "-c", MEASURE_GROWTH], capture_output=True, text=True, check=True)

    assert abs(float(result.stdout) - 1) < 0.02, result.stdout
