"""A checkpoint is complete or absent after any failure while it is written."""

import dataclasses
import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from framestow.errors import CheckpointError, DamagedDataError, IncompatibleError
from framestow.replay.store.format import commit_path
from framestow.training.checkpoint import (
    RunState,
    memory_store,
    newest_checkpoint,
    remove_unfinished,
    saved_memory,
    write_checkpoint,
)
from training.checkpoint_states import grown, read_checkpoint, run_state
from training.full_disk import no_file_larger_than
from training.kills.run_contents import strangers

TESTS = Path(__file__).parents[1]
PARTIAL = "step-000000000090.0123456789abcdef.partial"


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def _assert_equal_states(one: RunState, other: RunState) -> None:
    assert one.agent_steps == other.agent_steps
    assert torch.equal(one.agent["weights"], other.agent["weights"])
    assert one.rest["tally"] == other.rest["tally"]
    np.testing.assert_array_equal(one.rest["environment"], other.rest["environment"])
    stored = one.memory.sampleable_indices()
    np.testing.assert_array_equal(one.memory.get(stored).observation, other.memory.get(stored).observation)
    np.testing.assert_array_equal(one.memory.sample(50).index, other.memory.sample(50).index)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "LOCK"}


def test_a_folder_without_checkpoints_has_no_newest(checkpoints: Path) -> None:
    assert newest_checkpoint(checkpoints) is None
    assert newest_checkpoint(checkpoints / "nowhere") is None


def test_a_sync_that_fails_at_any_stage_leaves_the_previous_one_or_the_new_one(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls_left = -1
    real_fsync = os.fsync

    def failing_fsync(descriptor: int) -> None:
        nonlocal calls_left
        calls_left -= 1
        if calls_left == -1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing_fsync)
    outcomes = []
    while calls_left < 0:  # not below 0: the previous round already counted every fsync
        state = run_state(40)
        previous = write_checkpoint(checkpoints, state)
        calls_left = len(outcomes)
        try:
            write_checkpoint(checkpoints, grown(state, 80))
            outcomes.append("nothing")
        except CheckpointError as error:
            expected = f"could not be written (No space left on device): the last one, {previous}, is whole; "
            assert expected in str(error)  # noqa: PT017
            outcomes.append("an error")
        found = newest_checkpoint(checkpoints)
        assert found is not None
        assert found == previous or outcomes[-1] == "nothing" or found.name == "step-000000000080"
        expected_state = run_state(40) if found == previous else grown(run_state(40), 80)
        _assert_equal_states(expected_state, read_checkpoint(found))
        shutil.rmtree(checkpoints)
        shutil.rmtree(memory_store(checkpoints))

    assert outcomes.count("an error") >= 12  # agent, state, five of the memory, manifest, folders
    assert outcomes[-1] == "nothing"


@pytest.mark.parametrize("num_bytes", [0, 1_000, 3_000])
def test_a_file_that_the_system_cuts_short_leaves_the_previous_one(checkpoints: Path, num_bytes: int) -> None:
    previous = write_checkpoint(checkpoints, run_state(40))

    expected = f"the checkpoint of step 80 could not be written (File too large): the last one, {previous}, is whole; "
    with no_file_larger_than(num_bytes), pytest.raises(CheckpointError, match=re.escape(expected)):
        write_checkpoint(checkpoints, run_state(80))

    assert _names(checkpoints) == ["step-000000000040"]
    _assert_equal_states(run_state(40), read_checkpoint(previous))


def test_the_first_checkpoint_that_fails_says_that_the_run_has_no_other(checkpoints: Path) -> None:
    with no_file_larger_than(0), pytest.raises(CheckpointError, match="the run has no other checkpoint"):
        write_checkpoint(checkpoints, run_state(40))

    assert newest_checkpoint(checkpoints) is None


@pytest.mark.parametrize(
    ("rest", "reason"), [({"states": [0.5] * 10**6}, "keep long lists as arrays"), ({"number": 10**5_000}, "digits")]
)
def test_a_state_that_is_too_large_leaves_the_previous_one(checkpoints: Path, rest: dict, reason: str) -> None:
    state = run_state(40)
    previous = write_checkpoint(checkpoints, state)
    state = dataclasses.replace(grown(state, 80), rest=rest)

    with pytest.raises(CheckpointError, match=f"^the checkpoint of step 80 is not written: .*{reason}"):
        write_checkpoint(checkpoints, state)

    assert _names(checkpoints) == [previous.name]


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_kill_at_any_stage_leaves_the_old_checkpoint_or_the_new_one(tmp_path: Path, every: int) -> None:
    script = TESTS / "training" / "kill_while_saving.py"

    finished = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(every)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        check=False,
        timeout=300,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    in_ram, in_files = finished.stdout.replace("new\nold", "new\n\nold").split("\n\n")
    for outcomes in (in_ram.split(), in_files.split()):
        assert outcomes == sorted(outcomes, key=["old", "new"].index)  # once the new one is in place, it stays
        assert every * outcomes.count("old") >= 20  # of logs, state and manifest of the memory; agent and state
        assert every * outcomes.count("new") >= 5  # between the rename and the last removal


def test_left_over_files_of_a_killed_process_are_removed_and_the_newest_checkpoint_stays(checkpoints: Path) -> None:
    state = run_state(40)
    write_checkpoint(checkpoints, state)
    (checkpoints / "step-000000000040").rename(checkpoints / "aside")
    write_checkpoint(checkpoints, grown(state, 80))
    (checkpoints / "aside").rename(checkpoints / "step-000000000040")
    (checkpoints / PARTIAL).mkdir()
    (checkpoints / PARTIAL / "agent.safetensors").write_bytes(b"half")
    grown(state, 90).memory.save(memory_store(checkpoints), keep_previous=True)

    remove_unfinished(checkpoints)

    assert _names(checkpoints) == ["step-000000000080"]
    assert strangers(checkpoints.parent) == []
    _assert_equal_states(grown(run_state(40), 80), read_checkpoint(checkpoints / "step-000000000080"))


@pytest.mark.parametrize("name", ["MANIFEST", "agent.safetensors", "state.safetensors"])
def test_the_previous_checkpoint_stays_while_the_newest_is_damaged(checkpoints: Path, name: str) -> None:
    state = run_state(40)
    previous = write_checkpoint(checkpoints, state)
    previous.rename(checkpoints / "aside")
    newest = write_checkpoint(checkpoints, grown(state, 80))
    (checkpoints / "aside").rename(previous)
    (newest / name).write_bytes(b"damaged")
    before = _contents(checkpoints.parent)

    with pytest.raises(DamagedDataError, match=re.escape(str(newest / name))):
        remove_unfinished(checkpoints)

    assert before == _contents(checkpoints.parent)


def test_files_that_framestow_did_not_write_stay_in_an_unfinished_checkpoint(checkpoints: Path) -> None:
    write_checkpoint(checkpoints, run_state(40))
    partial = checkpoints / PARTIAL
    partial.mkdir()
    for name in ("agent.safetensors", "notes.txt"):
        (partial / name).write_bytes(b"half")

    remove_unfinished(checkpoints)

    assert ["notes.txt"] == _names(partial)


def test_the_memory_of_a_lost_checkpoint_is_not_removed(checkpoints: Path) -> None:
    shutil.rmtree(write_checkpoint(checkpoints, run_state(40)))
    before = _contents(checkpoints.parent)

    with pytest.raises(IncompatibleError, match="the memory has 500 transitions of a checkpoint that is missing"):
        remove_unfinished(checkpoints)

    assert before == _contents(checkpoints.parent)


@pytest.mark.filterwarnings("ignore:.*was not closed:RuntimeWarning")
@pytest.mark.parametrize("memory_on_disk", [False, True])
def test_a_missing_commit_of_a_checkpoint_costs_nothing(checkpoints: Path, memory_on_disk: bool, caplog) -> None:
    checkpoint = write_checkpoint(checkpoints, run_state(40))
    store, generation = saved_memory(checkpoint)

    for seed in (50, 60):
        caplog.clear()
        commit_path(store, generation).unlink()
        remove_unfinished(checkpoints)
        assert f"COMMIT.{generation:06d} was damaged or missing: it is written again from its copy" in caplog.text
        state = read_checkpoint(checkpoint, memory_on_disk)
        _assert_equal_states(run_state(40), state)
        if memory_on_disk:
            grown(state, seed).memory.close()


def test_a_run_killed_before_its_first_checkpoint_starts_again_with_an_empty_memory(checkpoints: Path) -> None:
    state = run_state(40, memory_store(checkpoints))
    state.memory.save(memory_store(checkpoints), keep_previous=True)
    state.memory.close()
    (checkpoints / PARTIAL).mkdir(parents=True)
    (memory_store(checkpoints) / "notes.txt").write_text("of somebody else")

    remove_unfinished(checkpoints)

    left = _names(memory_store(checkpoints))
    assert ([], ["LOCK", "notes.txt"]) == (_names(checkpoints), left[1:])
    assert left[0].startswith("COMMIT.")  # nothing is saved


@pytest.mark.parametrize("name", ["MANIFEST", "agent.safetensors", "state.safetensors"])
def test_a_flipped_byte_is_found_and_its_file_named(checkpoints: Path, name: str) -> None:
    checkpoint = write_checkpoint(checkpoints, run_state(40))
    path = checkpoint / name
    written = path.read_bytes()

    for offset in range(0, len(written), 41):
        damaged = bytearray(written)
        damaged[offset] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(DamagedDataError, match=re.escape(f"{path}: its checksum is wrong")):
            read_checkpoint(checkpoint)


def test_a_checkpoint_of_another_version_is_refused(checkpoints: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("framestow.training.checkpoint.VERSION", 99)
        checkpoint = write_checkpoint(checkpoints, run_state(40))

    with pytest.raises(IncompatibleError, match="it is version 99 of a 'framestow checkpoint'"):
        read_checkpoint(checkpoint)


def test_a_checkpoint_writes_only_new_steps_of_the_memory(checkpoints: Path) -> None:
    state = run_state(40)
    write_checkpoint(checkpoints, state)
    store = memory_store(checkpoints)
    before = {path.name: path.stat().st_size for path in store.glob("*.log")}
    state.memory.append([1], [0.5], [False], [False], np.zeros((1, 6, 6), np.uint8))

    write_checkpoint(checkpoints, RunState(41, state.agent, state.memory, state.rest))

    assert sum(before.values()) > 320 * 36
    assert {path.name: path.stat().st_size for path in store.glob("*.log")} == before


def test_the_next_checkpoint_removes_the_files_of_a_failed_one(checkpoints: Path) -> None:
    state = run_state(40)
    write_checkpoint(checkpoints, state)
    later = grown(state, 80)
    with no_file_larger_than(3_000), pytest.raises(CheckpointError, match="of step 80 could not be written"):
        write_checkpoint(checkpoints, later)

    path = write_checkpoint(checkpoints, grown(later, 120))

    assert strangers(checkpoints.parent) == []
    _assert_equal_states(grown(grown(run_state(40), 80), 120), read_checkpoint(path))
