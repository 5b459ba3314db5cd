"""The expected size of a run's memory, and the refusal of a memory that cannot fit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from framestow import ReplayMemory, envs
from framestow.agents.dqn import DQN
from framestow.cli import training_session
from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.training import loop as training_loop
from framestow.training.memory_expectation import (
    FreeSpace,
    MemoryExpectation,
    WantedMemory,
    check_memory_fits,
    describe_expectation,
    expect_from_memory,
    expect_from_play,
)
from framestow.training.run import Run
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings

MIB = 2**20
EXPECTATION = MemoryExpectation(frame_bytes=88.0, step_bytes=12.0, fixed_bytes=5 * MIB, basis="set by a test")
PLENTY = 2**50


def wanted(transitions, steps=10**9, **others):
    return WantedMemory(transitions, steps, Path("runs/new"), **others)


def random_play(num_steps, num_envs):
    env = envs.make_atari("Pong", num_envs=num_envs, seed=3)
    memory = ReplayMemory(10**6, env.single_observation_space, env.single_action_space, stack=4, num_envs=num_envs)
    recorder = envs.Recorder(env, memory)
    recorder.reset(seed=3)
    random = np.random.default_rng(3)
    while len(memory) < num_steps:
        recorder.step(random.integers(0, env.single_action_space.n, num_envs))
    env.close()
    return memory


def test_a_short_play_predicts_the_size_of_a_longer_one():
    expectation = expect_from_play(Settings("Pong", num_envs=2), num_frames=960)

    memory = random_play(2_500, num_envs=2)

    assert expectation.ram_bytes(2_500) == pytest.approx(memory.nbytes + 3 * 32 * 5 * 7056, rel=0.25)  # output batches
    assert "measured on 960 frames of random play" == expectation.basis


def test_the_size_of_raw_frames_needs_no_play():
    frames_played = []

    expectation = expect_from_play(
        Settings("Pong", "dqn", storage="raw"), on_frame=lambda *done: frames_played.append(done)
    )

    assert (7056, 12, []) == (expectation.frame_bytes, expectation.step_bytes, frames_played)


def test_priorities_are_counted_with_the_steps():
    uniform, prioritized = (expect_from_play(Settings("Pong", recipe, storage="raw")) for recipe in ("dqn", "laptop"))

    assert prioritized.step_bytes - uniform.step_bytes == pytest.approx(4.8, abs=0.1)


def test_a_play_reports_its_progress():
    message = []

    expect_from_play(Settings("Pong"), num_frames=330, on_frame=lambda done, of: message.append((done, of)))

    assert [(done, 330) for done in range(1, 331)] == message


@pytest.mark.parametrize("storage", ["packed", "raw"])
def test_frames_of_open_segments_do_not_make_a_resumed_run_look_small(storage):
    memory = ReplayMemory(10_000, FrameSpec((84, 84)), 4, num_envs=2, storage=storage)
    noise = np.random.default_rng(0).integers(0, 256, (64, 2, 84, 84), np.uint8)
    memory.begin(noise[0])
    for step in range(600):  # a segment of 320 frames sealed for each environment, and one of 281 open
        memory.append([0, 0], [0.0, 0.0], [False, False], [False, False], noise[step % 64])

    expectation = expect_from_memory(memory.report())

    assert expectation.frame_bytes == pytest.approx(7056, rel=0.01)
    assert expectation.step_bytes == pytest.approx(12, abs=3)  # with the index, of so few transitions
    assert expectation.ram_bytes(1200) == pytest.approx(memory.nbytes, abs=1)


def test_a_resumed_run_without_sealed_segments_is_measured_by_a_play(tmp_path):
    settings = Settings("Pong", steps=40, num_envs=2, warmup=100, threads=1, memory=1_000)
    folder = RunFolder.create(tmp_path / "run", settings)
    run = Run(settings)
    training_loop.train(run, folder)

    new, resumed = (
        re.search(r"(\d+) bytes each, measured on 640 frames", line)[1]
        for line in (
            training_session.expect_for_new_run(settings, tmp_path / "new", Console(quiet=True)),
            training_session.expect_for_resumed_run(run, folder, Console(quiet=True)),
        )
    )

    run.close()
    assert new == resumed


@pytest.mark.parametrize(
    ("memory", "final_transitions"),
    [
        (wanted(1000), 1000),
        (wanted(10**6, steps=20_000), 20_000),
        (wanted(10**6, max_bytes=5 * MIB + 4_200), 42),
        (wanted(10**6, max_bytes=MIB), 0),
        (wanted(10, max_bytes=PLENTY), 10),
    ],
)
def test_capacity_steps_and_byte_limit_bound_the_final_transitions(memory, final_transitions):
    assert final_transitions == memory.final_transitions(EXPECTATION)


@pytest.mark.parametrize("space", [FreeSpace(PLENTY, PLENTY), FreeSpace(105 * MIB, 100 * MIB)])
def test_a_memory_that_fits_is_accepted(space):
    check_memory_fits(EXPECTATION, wanted(MIB), space)


def refusal(memory, space):
    with pytest.raises(InvalidSettingsError) as refused:
        check_memory_fits(EXPECTATION, memory, space)
    return str(refused.value)


def test_a_memory_larger_than_ram_is_refused_with_options_that_fit():
    assert refusal(wanted(10**6), FreeSpace(55 * MIB, PLENTY)) == (
        "memory is 1,000,000: the 1,000,000 transitions of this run are expected to take 100.4 MiB of RAM, but only "
        "55.0 MiB are free (100 bytes each, set by a test); "
        "give --memory 470_000 or --memory-bytes 49.8MiB or --memory-on-disk"
    )


def test_the_error_of_a_memory_on_disk_does_not_offer_the_disk():
    message = refusal(wanted(10**8, is_on_disk=True), FreeSpace(500 * MIB, PLENTY))

    assert "1.1 GiB of RAM, but only 500.0 MiB are free" in message
    assert "on-disk" not in message


def test_a_memory_larger_than_the_disk_is_refused():
    message = refusal(wanted(10**6), FreeSpace(PLENTY, 50 * MIB))

    assert "95.4 MiB of disk space at runs/new with checkpoints, but only 50.0 MiB are free" in message.replace(
        "\\", "/"
    )
    assert message.endswith("give --memory 470_000 or --memory-bytes 49.8MiB")


def test_the_disk_needs_space_for_two_checkpoints_besides_the_memory():
    with_checkpoints = replace(EXPECTATION, checkpoint_bytes=10 * MIB)

    check_memory_fits(with_checkpoints, wanted(MIB), FreeSpace(PLENTY, 120 * MIB))
    with pytest.raises(InvalidSettingsError) as refused:
        check_memory_fits(with_checkpoints, wanted(MIB), FreeSpace(PLENTY, 119 * MIB))

    assert "120.0 MiB of disk space at" in str(refused.value)
    number = int(re.search(r"--memory ([0-9_]+)", str(refused.value))[1])
    check_memory_fits(with_checkpoints, wanted(number), FreeSpace(PLENTY, 119 * MIB))


def test_a_new_run_counts_the_checkpoints_of_its_network(tmp_path):
    expectation = expect_from_play(Settings("Pong", storage="raw"))

    agent = DQN((4, 84, 84), 6, Settings("Pong").agent(), "cpu", seed=0)
    memory = ReplayMemory(100, FrameSpec((84, 84)), 6, stack=4, storage="raw")
    memory.begin(np.zeros((1, 84, 84), np.uint8))
    memory.append([0], [0.0], [False], [False], np.zeros((1, 84, 84), np.uint8))
    agent.learn(memory.sample(1))
    torch.save(agent.state_dict(), tmp_path / "agent.pt")
    assert expectation.checkpoint_bytes == pytest.approx((tmp_path / "agent.pt").stat().st_size, rel=0.01)


def test_without_free_space_the_error_offers_no_option():
    assert refusal(wanted(10**6), FreeSpace(0, 0)).endswith("give it more RAM or disk space")


@pytest.mark.parametrize(
    "space", [FreeSpace(55 * MIB, PLENTY), FreeSpace(PLENTY, 50 * MIB), FreeSpace(30 * MIB, 20 * MIB)]
)
def test_the_offered_capacity_fits(space):
    number = int(re.search(r"--memory ([0-9_]+)", refusal(wanted(10**6), space))[1])

    check_memory_fits(EXPECTATION, wanted(number), space)
    assert number > 0.8 * min((space.ram - 5 * MIB) / 100, space.disk / 100)


def test_the_expectation_is_described_in_one_line():
    assert describe_expectation(EXPECTATION, wanted(10**6), FreeSpace(2**30, 2**31)) == (
        "about 100.4 MiB in RAM (1.0 GiB free) and 95.4 MiB on disk with checkpoints (2.0 GiB free) "
        "for 1,000,000 transitions: 100 bytes each, set by a test"
    )


def test_the_free_space_of_a_run_includes_its_memory(tmp_path):
    empty = FreeSpace.for_run(tmp_path)
    with_memory = FreeSpace.for_run(tmp_path, ram_in_use=10 * 2**30, disk_in_use=2**40)

    assert 9 * 2**30 < with_memory.ram - empty.ram < 11 * 2**30
    assert with_memory.disk - empty.disk > 2**39


def test_runs_at_the_same_time_share_the_ram_and_all_runs_share_the_disk() -> None:
    space = FreeSpace(ram=4096 * MIB, disk=5000 * MIB)

    assert space.share(num_at_once=1, num_runs=1) == space
    # One learner is counted already; the second takes its 256 MiB from the RAM of both.
    assert space.share(num_at_once=2, num_runs=5) == FreeSpace(ram=1920 * MIB, disk=1000 * MIB)
    assert space.share(num_at_once=50, num_runs=50).ram == 0
