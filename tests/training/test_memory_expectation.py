"""What the memory of a run will take, before it takes it."""

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
from framestow.cli import training_session as expected_memory
from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.training import loop as trainer
from framestow.training.memory_expectation import (
    MemoryExpectation,
    Room,
    WantedMemory,
    check_it_fits,
    expect_from_memory,
    expect_from_play,
    told,
)
from framestow.training.run import Run
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings

MIB = 2**20
EXPECTATION = MemoryExpectation(frame_bytes=88.0, step_bytes=12.0, fixed_bytes=5 * MIB, basis="told by a test")
PLENTY = 2**50


def wanted(transitions, steps=10**9, **others):
    return WantedMemory(transitions, steps, Path("runs/new"), **others)


def random_play(num_steps, num_envs):
    env = envs.make_atari("Pong", num_envs=num_envs, seed=3)
    memory = ReplayMemory(10**6, env.single_observation_space, env.single_action_space, num_envs=num_envs)
    recorder = envs.Recorder(env, memory)
    recorder.reset(seed=3)
    random = np.random.default_rng(3)
    while len(memory) < num_steps:
        recorder.step(random.integers(0, env.single_action_space.n, num_envs))
    env.close()
    return memory


def test_a_short_play_tells_what_a_longer_one_takes():
    expectation = expect_from_play(Settings("Pong", num_envs=2), num_frames=960)

    memory = random_play(2_500, num_envs=2)

    assert expectation.ram_bytes(2_500) == pytest.approx(memory.nbytes + 3 * 32 * 5 * 7056, rel=0.25)  # batches to come
    assert "measured on 960 frames of random play" == expectation.basis


def test_raw_frames_are_known_without_a_play():
    frames_played = []

    expectation = expect_from_play(Settings("Pong", storage="raw"), on_frame=lambda *done: frames_played.append(done))

    assert (7056, 12, []) == (expectation.frame_bytes, expectation.step_bytes, frames_played)


def test_a_play_tells_how_far_it_is():
    told_so = []

    expect_from_play(Settings("Pong"), num_frames=330, on_frame=lambda done, of: told_so.append((done, of)))

    assert [(done, 330) for done in range(1, 331)] == told_so


def test_a_resumed_run_goes_by_what_its_memory_holds():
    memory = ReplayMemory(1000, FrameSpec((84, 84)), 4)
    random = np.random.default_rng(0)
    memory.begin(np.zeros((1, 84, 84), np.uint8))
    for _ in range(960):
        memory.append([0], [0.0], [False], [False], random.integers(0, 256, (1, 84, 84), np.uint8))

    expectation = expect_from_memory(memory.report())

    assert expectation.bytes_per_transition == pytest.approx(7056 + 12, rel=0.01)
    assert expectation.ram_bytes(960) == pytest.approx(memory.nbytes, abs=1)
    assert expectation.step_bytes == pytest.approx(12, abs=2)


@pytest.mark.parametrize("storage", ["packed", "raw"])
def test_frames_of_open_segments_do_not_make_a_resumed_run_look_small(storage):
    memory = ReplayMemory(10_000, FrameSpec((84, 84)), 4, num_envs=2, storage=storage)
    noise = np.random.default_rng(0).integers(0, 256, (64, 2, 84, 84), np.uint8)
    memory.begin(noise[0])
    for step in range(600):  # a segment of 320 frames sealed in each stream, and one of 281 open
        memory.append([0, 0], [0.0, 0.0], [False, False], [False, False], noise[step % 64])

    expectation = expect_from_memory(memory.report())

    assert expectation.frame_bytes == pytest.approx(7056, rel=0.01)
    assert expectation.step_bytes == pytest.approx(12, abs=2)
    assert expectation.ram_bytes(1200) == pytest.approx(memory.nbytes, abs=1)


def test_a_resumed_run_without_sealed_segments_is_measured_as_a_new_one(tmp_path):
    settings = Settings("Pong", steps=40, num_envs=2, warmup=100, threads=1, memory=1_000)
    folder = RunFolder.create(tmp_path / "run", settings)
    run = Run(settings)
    trainer.train(run, folder)

    new, resumed = (
        re.search(r"(\d+) bytes each, measured on 640 frames", line)[1]
        for line in (
            expected_memory.of_new_run(settings, tmp_path / "new", Console(quiet=True)),
            expected_memory.of_resumed_run(run, folder, Console(quiet=True)),
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
def test_a_memory_ends_with_what_its_capacity_its_steps_and_its_budget_allow(memory, final_transitions):
    assert final_transitions == memory.final_transitions(EXPECTATION)


@pytest.mark.parametrize("room", [Room(PLENTY, PLENTY), Room(105 * MIB, 100 * MIB)])
def test_what_fits_goes_on(room):
    check_it_fits(EXPECTATION, wanted(MIB), room)


def refusal(memory, room):
    with pytest.raises(InvalidSettingsError) as refused:
        check_it_fits(EXPECTATION, memory, room)
    return str(refused.value)


def test_what_does_not_fit_ram_is_refused_with_the_number_that_would_and_ways_out():
    assert refusal(wanted(10**6), Room(55 * MIB, PLENTY)) == (
        "memory is 1,000,000: the 1,000,000 transitions of this run are expected to take 100.4 MiB of RAM, where "
        "55.0 MiB are free (100 bytes each, told by a test); "
        "give --memory 470_000 or --memory-bytes 49.8MiB or --memory-on-disk"
    )


def test_a_memory_on_disk_is_not_told_to_go_there():
    told_so = refusal(wanted(10**8, is_on_disk=True), Room(500 * MIB, PLENTY))

    assert "1.1 GiB of RAM, where 500.0 MiB are free" in told_so
    assert "on-disk" not in told_so


def test_what_does_not_fit_the_disk_is_refused_too():
    told_so = refusal(wanted(10**6), Room(PLENTY, 50 * MIB))

    assert "95.4 MiB of disk at runs/new, checkpoints included, where 50.0 MiB are free" in told_so.replace("\\", "/")
    assert told_so.endswith("give --memory 470_000 or --memory-bytes 49.8MiB")


def test_the_disk_needs_room_for_two_checkpoints_besides_the_memory():
    with_checkpoints = replace(EXPECTATION, checkpoint_bytes=10 * MIB)

    check_it_fits(with_checkpoints, wanted(MIB), Room(PLENTY, 120 * MIB))
    with pytest.raises(InvalidSettingsError) as refused:
        check_it_fits(with_checkpoints, wanted(MIB), Room(PLENTY, 119 * MIB))

    assert "120.0 MiB of disk at" in str(refused.value)
    number = int(re.search(r"--memory ([0-9_]+)", str(refused.value))[1])
    check_it_fits(with_checkpoints, wanted(number), Room(PLENTY, 119 * MIB))


def test_a_new_run_counts_the_checkpoints_of_its_network(tmp_path):
    expectation = expect_from_play(Settings("Pong", storage="raw"))

    agent = DQN((4, 84, 84), 18, Settings("Pong").agent(), "cpu", seed=0)
    memory = ReplayMemory(100, FrameSpec((84, 84)), 18, storage="raw")
    memory.begin(np.zeros((1, 84, 84), np.uint8))
    memory.append([0], [0.0], [False], [False], np.zeros((1, 84, 84), np.uint8))
    agent.learn(memory.sample(1))
    torch.save(agent.state_dict(), tmp_path / "agent.pt")
    assert expectation.checkpoint_bytes == pytest.approx((tmp_path / "agent.pt").stat().st_size, rel=0.01)


def test_where_nothing_would_fit_there_is_no_option_to_give():
    assert refusal(wanted(10**6), Room(0, 0)).endswith("give it more room")


@pytest.mark.parametrize("room", [Room(55 * MIB, PLENTY), Room(PLENTY, 50 * MIB), Room(30 * MIB, 20 * MIB)])
def test_the_number_that_is_given_would_fit(room):
    number = int(re.search(r"--memory ([0-9_]+)", refusal(wanted(10**6), room))[1])

    check_it_fits(EXPECTATION, wanted(number), room)
    assert number > 0.8 * min((room.ram - 5 * MIB) / 100, room.disk / 100)


def test_a_line_tells_what_to_expect():
    assert told(EXPECTATION, wanted(10**6), Room(2**30, 2**31)) == (
        "about 100.4 MiB for 1,000,000 transitions in RAM (1.0 GiB free) and 95.4 MiB on disk, "
        "checkpoints included (2.0 GiB free): 100 bytes each, told by a test"
    )


def test_the_room_of_a_run_counts_what_its_memory_has_already(tmp_path):
    empty = Room.for_run(tmp_path)
    held = Room.for_run(tmp_path, ram_held=10 * 2**30, disk_held=2**40)

    assert 9 * 2**30 < held.ram - empty.ram < 11 * 2**30
    assert held.disk - empty.disk > 2**39
