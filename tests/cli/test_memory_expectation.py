"""What a run's memory will take when it is full, and the refusal of a memory that cannot fit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from framestow import ReplayMemory, envs
from framestow.cli.training_session import expect_memory, measure_play
from framestow.errors import InvalidSettingsError
from framestow.replay.reports.memory_report import MemoryReport
from framestow.training.settings import Settings

HUNDRED_BYTES_EACH = MemoryReport(10, 10, {"frames": 880, "steps": 120, "open segments": 10**6}, 7056, 56_448)
GIGABYTES_EACH = MemoryReport(10, 10, {"frames": 10**11, "steps": 10**10}, 7056, 56_448)


def expected(tmp_path: Path, stored: int = 0, report: MemoryReport = HUNDRED_BYTES_EACH, **settings) -> str:
    asked = Settings("Pong", num_envs=1, **{"steps": 10**10, "memory": 1_000_000} | settings)
    return expect_memory(asked, report, "1,000 frames", tmp_path / "run", stored)


@pytest.mark.parametrize("storage", ["packed", "raw"])
def test_a_short_play_predicts_the_size_of_a_longer_one(storage):
    env = envs.make_atari("Pong", num_envs=2, seed=3)
    memory = ReplayMemory(
        5_000, env.single_observation_space, env.single_action_space, stack=4, num_envs=2, storage=storage
    )
    recorder, random = envs.Recorder(env, memory), np.random.default_rng(3)
    recorder.reset(seed=3)
    while len(memory) < 1_600:
        recorder.step(random.integers(0, env.single_action_space.n, 2))
    env.close()
    shown = []

    report = measure_play(Settings("Pong", steps=9_600, storage=storage), lambda *done: shown.append(done))

    assert report.bytes_per_transition == pytest.approx(memory.report().bytes_per_transition, rel=0.25)
    assert (960, 960) == shown[-1]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, r"about 95.4 MiB in RAM \(.+ free\) and 95.4 MiB on disk \(.+ free\) for 1,000,000 transitions"),
        ({"steps": 1_000}, r"about 97.7 KiB in RAM .+ for 1,000 transitions"),
        ({"memory_on_disk": True}, r"about 11.4 MiB in RAM .+ and 95.4 MiB on disk"),
        ({"memory_on_disk": True, "storage": "raw"}, r"about 95.4 MiB in RAM .+ and 95.4 MiB on disk"),
        ({"memory_bytes": "1 MB"}, r".+ for 10,000 transitions: 100 bytes each, measured on 1,000 frames"),
    ],
)
def test_what_a_full_memory_takes_stands_beside_what_is_free(settings, line, tmp_path):
    assert re.match(line, expected(tmp_path, **settings))


@pytest.mark.parametrize(
    ("settings", "place", "way_out"),
    [
        ({}, "RAM", r"give --memory [\d_]+ or less, or --memory-on-disk"),
        ({"memory_on_disk": True}, "(RAM|disk space at .*run)", r"give --memory [\d_]+ or less"),
    ],
)
def test_a_memory_that_cannot_fit_is_refused_with_one_that_does(settings, place, way_out, tmp_path):
    with pytest.raises(
        InvalidSettingsError, match=rf"memory is 1[,0]+: .* of {place}, .* free .*; {way_out}"
    ) as refused:
        expected(tmp_path, report=GIGABYTES_EACH, **{"memory": 10**9} | settings)

    fitting = int(re.search(r"--memory ([\d_]+)", str(refused.value))[1])
    assert expected(tmp_path, report=GIGABYTES_EACH, **settings | {"memory": max(fitting, 1)})


def test_what_is_stored_already_needs_no_room(tmp_path):
    assert expected(tmp_path, stored=10**9 - 1, report=GIGABYTES_EACH, memory=10**9)
