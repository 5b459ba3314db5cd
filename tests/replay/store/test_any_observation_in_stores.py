"""Stores of a memory that was shown any observations: resumed, loaded, read beside a writer, damaged and repaired."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framestow import FrameSpec, ReplayMemory
from framestow.errors import DamagedDataError
from framestow.replay.settings.observation_layout import ObservationLayout
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from oracles.any_play import DISCOUNT, EXTRAS, NUM_ACTIONS, SMALL, AnyPlay, assert_same, row_of
from oracles.damaged_stores import blocks_of, damages_of, flip
from oracles.store_files import log_file

pytestmark = pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")  # most steps are unusual

quick = settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SEEDS = st.integers(0, 2**32)
DICT = {"camera": FrameSpec((4, 3, 5)), "joints": FrameSpec((3,), np.float32)}
SPACES = {"a stack": (SMALL, 0), "a dict with one stack": (DICT, {"camera": 0}), "a last axis": (SMALL, -1)}


def begun(seed, name="a stack", capacity=300, **others) -> AnyPlay:
    space, stack_axis = SPACES[name]
    given_settings = {"num_envs": 2, "discount": DISCOUNT, "extras": EXTRAS, "seed": 0} | others
    memory = ReplayMemory(capacity, space, NUM_ACTIONS, stack_axis=stack_axis, **given_settings)
    return AnyPlay(memory, ObservationLayout.of_space(space, stack_axis), seed, mixes=True)


def assert_all_transitions(play, memory, n_step=1):
    memory.inner.parts.check()
    numbers = play.sampleable(memory.capacity, n_step)
    assert numbers == memory.sampleable_indices().tolist()
    if numbers:
        play.assert_batch(memory.get(numbers), n_step)
    observations = memory.observations()
    for env_id, current in enumerate(play.current):
        if current is not None:
            assert_same(current, row_of(observations, env_id))


@pytest.mark.parametrize("name", SPACES)
@quick
@given(
    seed=SEEDS,
    n_step=st.integers(1, 5),
    storage=st.sampled_from(["packed", "raw"]),
    padding=st.sampled_from(["first_frame", "zeros"]),
    frames_per_segment=st.sampled_from([1, 8, None]),
)
def test_a_saved_memory_is_loaded_and_goes_on(name, seed, n_step, storage, padding, frames_per_segment, tmp_path):
    play = begun(
        seed, name, n_step=n_step, storage=storage, stack_padding=padding, frames_per_segment=frames_per_segment
    )
    for _ in range(3):
        play.play(20)
        play.memory.save(tmp_path)

        with ReplayMemory.open(tmp_path) as read:
            assert_all_transitions(play, read, n_step)
        loaded = ReplayMemory.load(tmp_path)
        if len(loaded):
            assert play.memory.sample(8).index.tolist() == loaded.sample(8).index.tolist()
        play.memory = loaded
        assert_all_transitions(play, play.memory, n_step)


@pytest.mark.parametrize("name", SPACES)
@quick
@given(
    seed=SEEDS,
    n_step=st.integers(1, 5),
    frames_per_segment=st.sampled_from([1, 8, None]),
    capacity=st.sampled_from([20, 300]),
)
def test_a_memory_in_a_directory_is_resumed_in_the_middle_of_a_stack(
    name, seed, n_step, frames_per_segment, capacity, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("memory")
    play = begun(
        seed, name, capacity, n_step=n_step, frames_per_segment=frames_per_segment, directory=folder, flush_every=None
    )
    for _ in range(4):
        for _ in range(2):
            play.play(5)
            play.memory.flush()
            with ReplayMemory.open(folder) as read:
                assert_all_transitions(play, read, n_step)
        play.memory.close()
        play.memory = ReplayMemory.open(folder, read_only=False, flush_every=None)
        assert_all_transitions(play, play.memory, n_step)
    play.memory.close()


def test_a_memory_built_in_its_directory_again_has_new_episodes(tmp_path):
    play = begun(0, directory=tmp_path, n_step=3, flush_every=None).play(40)
    play.memory.close()

    play.memory = begun(0, directory=tmp_path, n_step=3, flush_every=None).memory
    play.current = [None, None]

    assert_all_transitions(play, play.memory, 3)
    play.mixes = False
    play.play(40)
    assert_all_transitions(play, play.memory, 3)
    play.memory.close()


def test_steps_after_the_last_flush_of_a_copied_folder_are_lost_and_no_others(tmp_path):
    """A copy of the folder is what a killed process leaves."""
    play = begun(1, directory=tmp_path / "memory", frames_per_segment=8, flush_every=None, n_step=2)
    for life in range(10):
        play.play(10)
        play.memory.flush()
        expected = play.sampleable(300, 2)
        play.play(3)
        folder = tmp_path / f"copy {life}"
        shutil.copytree(tmp_path / "memory", folder, ignore=shutil.ignore_patterns("LOCK"))

        left = ReplayMemory.load(folder)

        left.inner.parts.check()
        assert expected == left.sampleable_indices().tolist()
        if expected:
            play.assert_batch(left.get(expected), 2)
    play.memory.close()


@pytest.mark.parametrize("frames_per_segment", [8, 14])
def test_random_retention_in_a_directory_keeps_what_was_given(frames_per_segment, tmp_path):
    play = begun(
        2,
        capacity=300,
        retention="random",
        frames_per_segment=frames_per_segment,
        n_step=3,
        directory=tmp_path,
        flush_every=None,
    )
    for _ in range(4):
        play.play(150)
        play.memory.close()
        play.memory = ReplayMemory.open(tmp_path, read_only=False, flush_every=None)
        play.memory.inner.parts.check()
        play.assert_batch(play.memory.get(play.memory.sampleable_indices()), 3, lost=True)
    play.memory.close()


def saved_twice(folder: Path, name: str, retention: str, num_calls=(500, 250), **others) -> tuple[AnyPlay, list[int]]:
    """Save two generations of a memory; return the play and the newest generation's transitions."""
    is_random = retention == "random"
    given_settings = {"frames_per_segment": 14 if is_random else 8, "retention": retention, "n_step": 2} | others
    play = begun(3, name, 600 if is_random else 2_500, **given_settings)
    play.kinds = 20
    for number in num_calls:
        play.play(number)
        play.memory.save(folder, keep_previous=True)
    return play, play.memory.get(play.memory.sampleable_indices()).extras["number"].tolist()


@pytest.mark.each_value
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("most", [4, pytest.param(None, marks=pytest.mark.exhaustive)])
def test_what_a_repair_keeps_is_what_was_given(most, name, retention, tmp_path):
    whole = tmp_path / "whole"
    play, numbers = saved_twice(whole, name, retention, num_calls=(400, 200))
    damages = damages_of(whole)
    chosen = list(damages)
    if most is not None:
        chosen = np.random.default_rng(0).choice(chosen, min(most, len(chosen)), replace=False).tolist()
    num_kept = []
    for label in chosen:
        folder = tmp_path / "damaged"
        shutil.copytree(whole, folder)
        damages[label](folder)
        try:
            repair_store(folder)
        except DamagedDataError:
            shutil.rmtree(folder)
            continue
        assert verify_store(folder).is_intact, label
        memory = ReplayMemory.load(folder)
        memory.inner.parts.check()
        if len(memory):
            batch = memory.get(memory.sampleable_indices())
            kept = batch.extras["number"].tolist()
            assert len(set(kept)) == len(kept), label
            play.assert_batch(batch, 2, lost=True)
            num_kept.append(len(kept))
        shutil.rmtree(folder)

    assert len(num_kept) > len(chosen) // 2
    assert max(num_kept) >= len(numbers) // 2


def test_a_damaged_lead_in_costs_its_segment_and_nothing_else(tmp_path):
    play, numbers = saved_twice(tmp_path, "a stack", "fifo", num_calls=(200,), n_step=1)
    content = log_file(tmp_path, "frames").read_bytes()
    blocks = blocks_of(tmp_path, "frames")
    # Segments with stretches begin with a checksum and "run1"; the lead-ins are at their end, before the next block.
    key, ((name, offset),) = next(
        item for item in blocks.items() if item[0][1] > 2 and content[item[1][0][1] + 4 :].startswith(b"run1")
    )
    size = min(other[0][1] for other in [*blocks.values(), [("", len(content))]] if other[0][1] > offset) - offset
    segment = content[offset : offset + size]
    assert int.from_bytes(segment[8:12], "little") + 16 < size
    flip(name, offset + int.from_bytes(segment[8:12], "little") + 16 + 20)(tmp_path)

    assert not verify_store(tmp_path).is_intact
    repair_store(tmp_path)

    memory = ReplayMemory.load(tmp_path)
    memory.inner.parts.check()
    batch = memory.get(memory.sampleable_indices())
    play.assert_batch(batch, 1, lost=True)
    lost = set(numbers) - set(batch.extras["number"].tolist())
    of_env = {number for number in lost if play.steps[number].env_id == key[0]}
    assert of_env
    assert lost == of_env
    assert len(lost) <= 8 + 4  # the segment's, and those of which a stack reaches into it
