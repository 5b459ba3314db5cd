"""The report of a memory's size."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.ensemble import ReplayEnsemble
from framestow.replay.eviction.byte_amounts import format_bytes
from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.memory_report import MemoryReport
from oracles.heap_layouts import HEAP_LAYOUTS
from oracles.numbered_steps import numbered_memory, play_episode
from oracles.own_pages import figures_of


def test_the_report_counts_every_part_and_the_compression_ratio():
    memory = ReplayMemory(1000, FrameSpec((84, 84)), 4, stack=4)
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


def test_a_printed_report_lists_every_part_and_fits_80_columns():
    report = MemoryReport(
        transitions=12_345_678,
        capacity=50_000_000,
        parts={"frames": 400 << 20, "open segments": 3 << 20, "index": 5 << 20, "steps": 141 << 20, "stacks": 9000},
        frame_bytes=7056,
        stacked_pair_bytes=56_448,
        frames={"k/255, as uint8": 12_300_000, "other floats, exact": 100_000},
        disk_bytes=600 << 20,
        max_bytes=2 << 30,
        share_used=0.55,
    )

    lines = str(report).splitlines()
    assert [
        "12,345,678 of 50,000,000 transitions",
        "1.1 GiB, of which 600.0 MiB in files and 3.0 MiB work space that does not grow",
        "97.3 bytes for each further one",
    ] == lines[:3]
    assert {"frames", "index", "steps", "in files", "open segments", "stacks"} == {
        line[2:17].strip() for line in lines if line.startswith("  ")
    }
    assert {"12,300,000 frames k/255, as uint8", "budget 2.0 GiB"} < set(lines)
    assert max(map(len, lines)) <= 80


def test_every_line_about_the_size_of_a_memory_says_all_bytes_and_the_work_space(tmp_path):
    with numbered_memory(1000, directory=tmp_path, frames_per_segment=16) as memory:
        play_episode(memory, 0, length=40)
        memory.flush()
        report = memory.report()
        size = format_bytes(report.all_bytes)
        in_files, work_space = format_bytes(report.disk_bytes), format_bytes(report.work_space_bytes)

        shown = {
            "the report": str(report),
            "its repr": repr(report),
            "an ensemble": str(ReplayEnsemble([memory], [1.0]).report()),
        }

        headline = f"{size}, of which {in_files} in files and {work_space} work space"
        assert dict.fromkeys(shown, True) == {name: headline in text for name, text in shown.items()}
        assert f"{size}, of which {in_files} in files of {tmp_path} and {work_space} work space" in repr(memory)
        assert report.work_space_bytes + report.disk_bytes < report.all_bytes == memory.nbytes + report.disk_bytes


def test_the_bytes_of_each_key_are_those_of_the_parts_that_the_report_names():
    memory = ReplayMemory(100, {"camera": FrameSpec((8, 8)), "arm": FrameSpec((3,), np.float32)}, 4, stack=2)
    memory.begin({"camera": np.zeros((1, 8, 8), np.uint8), "arm": np.zeros((1, 3), np.float32)})

    report = memory.report()

    named = "frames, open segments and index"
    assert f"\n{named}, by key\n" in str(report)
    assert sum(report.frame_bytes_by_key.values()) == sum(report.parts[part] for part in re.split(", | and ", named))


@pytest.mark.parametrize(
    ("max_bytes", "share_used", "expected_capacity", "expected_bytes"),
    [
        (None, 0.0, 1000, 5_000 + 900 * 30),  # what there is, and 900 transitions more
        (10_000, 0.4, 250, 5_000 + 150 * 30),
        (10**9, 0.01, 1000, 5_000 + 900 * 30),  # the capacity comes first
        (4_000, 1.1, 100, 5_000),  # more than is allowed: what it holds is all that it will
    ],
)
def test_the_expected_capacity_follows_from_the_ratio_so_far(max_bytes, share_used, expected_capacity, expected_bytes):
    parts = {"frames": 1_800, "index": 200, "steps": 1_000, "stacks": 500, "open segments": 1_500}

    report = MemoryReport(100, 1000, parts, 7056, 56_448, max_bytes=max_bytes, share_used=share_used)

    assert expected_capacity == report.expected_capacity
    assert expected_bytes == report.expected_bytes


def test_open_segments_do_not_count_in_the_size_of_later_transitions():
    parts = {"frames": 1_800, "index": 200, "steps": 1_000, "open segments": 40_000}

    report = MemoryReport(100, 1000, parts, 7056, 56_448, frames={"packed": 100}, open_frames=40)

    assert 60 == report.sealed_frames
    assert 1_800 / 60 == pytest.approx(report.sealed_bytes_per_transition)
    assert 1_800 / 60 + 12 == pytest.approx(report.bytes_per_transition)
    assert 40_000 == report.work_space_bytes
    assert "when full" in str(report)


def test_a_ratio_below_two_is_not_printed():
    report = MemoryReport(100, 1000, {"frames": 60_000, "open segments": 10**6}, 1_000, 8_000)

    assert str(report).startswith(
        "100 of 1,000 transitions\n1.0 MiB, of which 976.6 KiB work space that does not grow\n600.0 bytes for each "
    )
    assert "13 times smaller than stacked pairs" in str(report).splitlines()
    assert "than frames" not in str(report)


def test_a_report_has_no_expected_size_before_a_segment_is_sealed():
    report = MemoryReport(100, 1000, {"steps": 1_000}, 7056, 56_448, frames={"packed": 100}, open_frames=100)

    assert 0 == report.sealed_bytes_per_transition
    assert "when full" not in str(report)


def test_a_report_has_no_ratio_before_a_segment_is_sealed():
    memory = ReplayMemory(10_000, FrameSpec((84, 84)), 4, stack=4)
    memory.begin(np.zeros((1, 84, 84), np.uint8))

    shown = {}
    for step in range(1, 321):
        memory.append([0], [0.0], [False], [False], np.zeros((1, 84, 84), np.uint8))
        report = memory.report()
        shown[step] = ("times smaller" in str(report), "further one" in str(report), "further one" in repr(report))

    assert {step: (step >= 319,) * 3 for step in range(1, 321)} == shown  # a segment has 320 frames


def test_an_empty_memory_reports_without_dividing_by_zero():
    report = numbered_memory(10).report()

    assert 0.0 == report.bytes_per_transition
    assert "0 of 10 transitions" in str(report)


def test_raw_storage_has_a_ratio_of_one():
    memory = numbered_memory(30_000, storage="raw")
    for episode in range(240):
        play_episode(memory, episode, length=124)
    parts = memory.report().parts

    frame_bytes = 30_000 * 6
    assert frame_bytes <= parts["frames"] + parts["open segments"] <= 1.07 * frame_bytes + 2731 * 6 + 2 * 4096


MEASURE_GROWTH = """
import numpy as np
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.own_pages import own_bytes, own_live_bytes

random = np.random.default_rng(0)
frames = random.integers(0, 256, (512, 84, 84), dtype=np.uint8)  # noise: every byte is kept
def record(memory, num_steps):
    flags = np.zeros(4, bool)
    memory.begin(frames[:4])
    for step in range(num_steps):
        memory.append(flags.astype(int), flags.astype(float), flags, flags, frames[step % 128 * 4 : step % 128 * 4 + 4])

record(ReplayMemory(1000, FrameSpec((84, 84)), 4, stack=4, num_envs=4), 400)  # loads what the interpreter loads late
before = own_live_bytes()  # without freed memory, which the memory would reuse
memory = ReplayMemory(12_000, FrameSpec((84, 84)), 4, stack=4, num_envs=4)
record(memory, 4_500)  # wraps the ring
nbytes = memory.nbytes
print((own_bytes() - before) / nbytes)
del memory
print((own_bytes() - before) / nbytes, (own_live_bytes() - before) / 2**20)
"""


@pytest.mark.parametrize("variables", HEAP_LAYOUTS)
def test_nbytes_is_within_two_percent_of_the_resident_memory_and_a_deleted_memory_gives_it_back(variables):
    ratio, ratio_after_it, live_mib_after_it = figures_of(MEASURE_GROWTH, variables=variables)

    assert abs(ratio - 1) < 0.02
    assert ratio_after_it < 0.05  # the C library keeps small freed buffers for later
    assert live_mib_after_it < 0.5
