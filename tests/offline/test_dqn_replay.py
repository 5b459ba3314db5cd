"""Imports of the DQN Replay Dataset have the played transitions, and count skipped steps."""

from __future__ import annotations

import gzip
import itertools
import pickle
import re
import shutil
import struct
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow import ReplayMemory
from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.offline.dqn_replay import NO_BEGINNING, DqnReplay
from framestow.offline.transfer import Transferred
from oracles.dopamine_memory import DopamineLog, Slot
from oracles.hostile_folders import NO_FILES, Outside

SHAPE = (5, 3)


def imported(folder: Path, stack: int = 4, capacity: int | None = None, **choice) -> tuple[ReplayMemory, Transferred]:
    replay = DqnReplay.open(folder, **choice)
    memory = ReplayMemory(
        capacity or max(1, replay.num_slots),
        replay.frame,
        replay.num_actions,
        stack=stack,
        stack_padding="zeros",
        seed=0,
    )
    return memory, replay.import_into(memory)


def logged(folder: Path, lengths: list[int], capacity: int, seed: int = 0, *, is_finished: bool = True) -> DopamineLog:
    """Play episodes of these lengths; the reward of each step is its number."""
    log, rng, step = DopamineLog(folder, capacity, SHAPE), np.random.default_rng(seed), 0
    for length in lengths:
        for place in range(length):
            frame = rng.integers(1, 100, SHAPE).astype(np.uint8)
            log.add(frame, int(rng.integers(6)), float(step), place == length - 1, step)
            step += 1
    if is_finished:
        log.log_at_the_end()
    return log


def whole_steps(slots: list[Slot], at_reset: bool) -> list[tuple[int, list[np.ndarray], np.ndarray | None]]:
    """Return (step, frames of its episode so far, next frame) for the slots where both exist."""
    found, episode, has_begun = [], [], at_reset
    for slot, following in itertools.zip_longest(slots, slots[1:]):
        if slot.step >= 0 and has_begun:
            episode = [*episode, slot.observation]
            if slot.terminal or following is not None:
                found.append((slot.step, episode, None if slot.terminal else following.observation))
        if slot.terminal:
            episode, has_begun = [], True
    return found


def stretches_of(log: DopamineLog) -> list[tuple[int, int]]:
    """Return the slots of all logs, joined where a log directly follows the previous one."""
    joined: list[tuple[int, int]] = []
    for first, stop in log.logged:
        goes_on = bool(joined) and joined[-1][1] == first
        joined.append((joined.pop()[0] if goes_on else first, stop))
    return joined


@settings(max_examples=15)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=14), st.integers(9, 60), st.integers(0, 99))
def test_all_rings_of_a_run_together_give_every_step_with_a_beginning_and_a_next_frame(lengths, capacity, seed):
    with tempfile.TemporaryDirectory() as scratch:
        log = logged(Path(scratch), lengths, capacity, seed)

        memory, _ = imported(log.folder, padding=3)

        expected = [
            step for first, stop in stretches_of(log) for step in whole_steps(log.added[first:stop], first == 0)
        ]
        # The last ring does not directly follow another one: only blank slots mark a beginning.
        last_ring = log.added[len(log.added) // capacity * capacity :]
        begins_blank = [slot.step < 0 for slot in last_ring[:3]] == [True] * 3
        expected += whole_steps(last_ring, begins_blank)
        assert_holds(memory, log, expected)


def assert_holds(memory: ReplayMemory, log: DopamineLog, expected: list) -> None:
    memory.inner.parts.check()
    assert len(expected) == len(memory)
    batch = memory.get(memory.sampleable_indices()) if expected else None
    actions = {slot.step: slot.action for slot in log.added}
    for row, (step, frames, following) in enumerate(expected):
        black = np.zeros(SHAPE, np.uint8)
        seen = [black] * 4 + frames
        after = [*seen, black if following is None else following]
        assert (step, actions[step]) == (batch.reward[row], batch.action[row])
        assert (following is None) == batch.terminated[row] == (batch.discount[row] == 0)
        assert not batch.truncated[row]
        np.testing.assert_array_equal(seen[-4:], batch.observation[row])
        np.testing.assert_array_equal(after[-4:], batch.next_observation[row])


def test_an_episode_that_ended_without_a_terminal_is_refused(tmp_path: Path):
    log = DopamineLog(tmp_path, 50, SHAPE)
    for step in range(12):
        log.add(np.full(SHAPE, 1 + step, np.uint8), 2, 0.0, step == 11, step, is_reset=step == 5)
    log.log_at_the_end()
    ends = log.folder / "episode_end_indices_ckpt.0.gz"
    ends.write_bytes(gzip.compress(pickle.dumps({7, 17})))

    with pytest.raises(IncompatibleError, match="checkpoint 0 has a blank slot inside an episode"):
        imported(log.folder)


def test_selected_checkpoints_are_read_in_ascending_order(tmp_path: Path):
    log = logged(tmp_path, [10] * 12, capacity=50)

    memory, transferred = imported(log.folder, checkpoints=[2, 1], padding=3)

    expected = whole_steps(log.added[49:149], at_reset=False)
    assert_holds(memory, log, expected)
    assert sum(slot.step >= 0 for slot in log.added[49:149]) == len(expected) + sum(transferred.left_out.values())


def test_blank_slots_before_episodes_are_detected(tmp_path: Path):
    assert 3 == DqnReplay.open(logged(tmp_path / "dopamine", [10] * 3, 20).folder).padding
    without = DopamineLog(tmp_path / "without", 20, SHAPE, stack=1)
    for step in range(15):
        without.add(np.full(SHAPE, step, np.uint8), 0, 0.0, step % 5 == 4, step)
    without.log_at_the_end()
    assert 0 == DqnReplay.open(without.folder).padding


def test_repr_of_a_dataset_counts_its_checkpoints_slots_and_actions(tmp_path: Path):
    logged(tmp_path, [5, 4], capacity=100)

    replay = DqnReplay.open(tmp_path)

    assert f"DqnReplay(1 checkpoint, {replay.num_slots} slots, {replay.num_actions} actions)" == repr(replay)


def test_black_first_frames_are_not_counted_as_blank_slots(tmp_path: Path):
    log = DopamineLog(tmp_path, 100, SHAPE)
    for step in range(30):
        is_black = step in (0, 1, 12)
        frame = np.zeros(SHAPE, np.uint8) if is_black else np.full(SHAPE, 1 + step, np.uint8)
        log.add(frame, 0, 0.0 if is_black else float(step), step % 6 == 5, step)
    log.log_at_the_end()

    memory, _ = imported(log.folder)

    assert 30 == len(memory)


def test_black_frames_inside_an_episode_are_not_its_beginning(tmp_path: Path):
    log = DopamineLog(tmp_path, 100, SHAPE)
    bright, black = np.full(SHAPE, 9, np.uint8), np.zeros(SHAPE, np.uint8)
    frames = [bright, black, black, black, bright, bright]
    log.added = [Slot(frame, 0, 0.0, step == 5, step) for step, frame in enumerate(frames)]
    log.add(bright, 1, 2.0, True, 6)
    log.log_at_the_end()

    memory, transferred = imported(log.folder, padding=3)

    assert (1, {NO_BEGINNING: 6}) == (len(memory), transferred.left_out)
    assert [2.0] == memory.get([0]).reward.tolist()


def test_without_add_count_the_last_slot_is_ignored(tmp_path: Path):
    log = logged(tmp_path, [10] * 12, capacity=50)
    for path in tmp_path.glob("add_count*"):
        path.unlink()

    memory, _ = imported(log.folder, checkpoints=[0], padding=3)

    assert_holds(memory, log, whole_steps(log.added[:49], at_reset=True))


def test_the_parent_folder_of_the_logs_can_be_given(tmp_path: Path):
    logged(tmp_path / "1" / "replay_logs", [10], capacity=100)

    assert 10 == len(imported(tmp_path / "1")[0])


def test_two_states_of_the_same_ring_are_refused(tmp_path: Path):
    log = logged(tmp_path, [10] * 4, capacity=1000, is_finished=False)
    log.log(len(log.added))
    log.log(len(log.added) + 5)

    with pytest.raises(InvalidSettingsError, match="checkpoints 0 and 1 are the same ring after 52 and 57 steps"):
        DqnReplay.open(tmp_path)
    assert 40 == len(imported(tmp_path, checkpoints=[0])[0])


def test_frames_are_not_all_in_memory_at_once(tmp_path: Path):
    arrays = {"action": np.int32, "reward": np.float32, "terminal": np.uint8}
    arrays = {name: np.zeros(10_000, kind) for name, kind in arrays.items()}
    arrays["observation"] = np.zeros((10_000, 84, 84), np.uint8)  # 71 MB
    arrays["observation"][:, :2] = np.arange(10_000)[:, None, None] % 251
    for name, array in arrays.items():
        with gzip.open(tmp_path / f"$store$_{name}_ckpt.0.gz", "wb", 1) as file:
            np.save(file, array)
    del arrays, array
    tracemalloc.start()
    try:
        memory, _ = imported(tmp_path, padding=0)

        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()
    assert 9_998 == len(memory)


def test_progress_counts_the_bytes_of_the_files(tmp_path: Path):
    log = logged(tmp_path, [10] * 12, capacity=50)
    replay, progress = DqnReplay.open(log.folder), []

    replay.import_into(
        ReplayMemory(1000, replay.frame, replay.num_actions, stack=4, seed=0),
        lambda done, total: progress.append((done, total)),
    )

    assert sorted(progress) == progress
    assert progress[-1][0] == progress[-1][1] >= replay.file_bytes


@pytest.mark.parametrize("element", ["observation", "action", "reward", "terminal", "add_count"])
def test_a_flipped_or_missing_byte_is_detected_and_the_file_named(element: str, tmp_path: Path):
    logged(tmp_path / "whole", [10] * 3, capacity=100)
    [file] = (tmp_path / "whole").glob(f"*{element}*")
    whole = file.read_bytes()
    for place in range(10, len(whole), max(1, len(whole) // 8)):  # after gzip's header, which has a time
        flipped = bytearray(whole)
        flipped[place] ^= 0x10
        for damaged in (bytes(flipped), whole[:place]):
            shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
            shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
            (tmp_path / "damaged" / file.name).write_bytes(damaged)

            with pytest.raises((DamagedDataError, InvalidSettingsError), match=re.escape(str(tmp_path / "damaged"))):
                imported(tmp_path / "damaged")


def test_missing_files_are_named(tmp_path: Path):
    logged(tmp_path, [10] * 3, capacity=100)
    with pytest.raises(InvalidSettingsError, match=re.escape("there is no checkpoint 5")):
        DqnReplay.open(tmp_path, [5])
    (tmp_path / "$store$_reward_ckpt.0.gz").unlink()
    with pytest.raises(InvalidSettingsError, match=re.escape("has no file $store$_reward_ckpt.0.gz")):
        DqnReplay.open(tmp_path)
    with pytest.raises(InvalidSettingsError, match="the folder does not exist"):
        DqnReplay.open(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidSettingsError, match="there is no checkpoint at all"):
        DqnReplay.open(tmp_path / "empty")


def test_arrays_of_objects_are_not_unpickled(tmp_path: Path):
    logged(tmp_path, [10] * 3, capacity=100)
    with gzip.open(tmp_path / "$store$_action_ckpt.0.gz", "wb") as file:
        np.save(file, np.array([{"a": 1}] * 100, object), allow_pickle=True)

    with pytest.raises(DamagedDataError, match=re.escape("$store$_action_ckpt.0.gz: it is not a complete NumPy array")):
        DqnReplay.open(tmp_path)


def header_of(shape: str, descr: str = "'|u1'") -> bytes:
    """Return the beginning of a file of ``numpy.save`` with this shape as text."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin-1")


HOSTILE = {
    "digits without an end": header_of("(" + "1" * 60 + "x"),
    "digits and commas": header_of("(" + "1," * 4000 + ")"),
    "nested": header_of("(" * 5000),
    "a long number": header_of("(" + "9" * 5000 + ",)"),
    "a side below 0": header_of("(-1,)"),
    "objects": header_of("(3,)", "'|O'"),
    "a structured dtype": header_of("(3,)", "[('a', '<i4')]"),
    "a call": header_of("(3,)", "__import__('os')"),
    "other digits": header_of("(\u00b2,)"),
    "a terabyte": header_of("(1000000000000,)"),
    "many small": header_of("(99999999999, 99999999999, 99999999999, 0)"),
    "a bomb": header_of("(300,)") + bytes(20_000_000),
    "no numbers": header_of("(100,)", "'<f8'") + b"\xff" * 800,
    "no gzip": b"",
}


@pytest.mark.parametrize("element", ["observation", "action", "reward", "terminal", "add_count"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_arrays_are_refused_at_once_and_in_little_memory(element: str, hostile: str, tmp_path: Path):
    logged(tmp_path, [10] * 3, capacity=100)
    [path] = tmp_path.glob(f"*{element}*")
    path.write_bytes(gzip.compress(HOSTILE[hostile]) if HOSTILE[hostile] else b"1234")
    tracemalloc.start()
    try:
        with pytest.raises(DamagedDataError, match=re.escape(str(tmp_path))):
            imported(tmp_path)

        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_an_action_below_0_is_refused(tmp_path: Path):
    log = logged(tmp_path, [10] * 3, capacity=100)
    log.num_logs = 0
    log.write("$store$_action", np.full(100, -1))

    with pytest.raises(DamagedDataError, match="it has values from -1 to -1: they must be from 0 to 2147483647"):
        DqnReplay.open(tmp_path)


def test_a_ring_of_more_slots_than_are_read_is_refused_before_its_arrays_are(tmp_path: Path):
    for name, kind in (("action", "<i4"), ("reward", "<f4"), ("terminal", "|u1"), ("observation", "|u1")):
        shape = "(20000000, 1, 1)" if name == "observation" else "(20000000,)"
        with gzip.open(tmp_path / f"$store$_{name}_ckpt.0.gz", "wb") as file:
            file.write(header_of(shape, f"'{kind}'") + np.random.default_rng(0).bytes(100_000))

    with pytest.raises(DamagedDataError, match="has 20,000,000 slots with frames of 1 bytes: at most 10,000,000"):
        DqnReplay.open(tmp_path)


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("element", ["observation", "action", "add_count"])
def test_what_is_no_file_is_not_opened(element: str, kind: str, tmp_path: Path):
    logged(tmp_path / "logs", [10] * 3, capacity=100)
    outside = Outside(tmp_path / "outside")
    [path] = (tmp_path / "logs").glob(f"*{element}*")
    outside.plant(kind, path)

    with pytest.raises(DamagedDataError, match=re.escape(path.name)):
        imported(tmp_path / "logs")
    outside.check()


def test_arrays_of_different_lengths_are_refused(tmp_path: Path):
    log = logged(tmp_path, [10] * 3, capacity=100)
    log.num_logs = 0
    log.write("$store$_reward", np.zeros(99, np.float32))

    with pytest.raises(DamagedDataError, match=re.escape("reward float32 (99,)")):
        DqnReplay.open(tmp_path)
