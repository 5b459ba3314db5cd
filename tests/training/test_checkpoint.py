"""A checkpoint is whole or not there, whatever goes wrong while it is written."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from framestow.errors import CheckpointError, DamagedDataError, IncompatibleError
from framestow.replay.memory import ReplayMemory
from framestow.training.checkpoint import (
    RunState,
    newest_checkpoint,
    read_agent,
    read_checkpoint,
    remove_unfinished,
    write_checkpoint,
)
from training.checkpoint_states import run_state
from training.full_disk import no_file_larger_than

TESTS = Path(__file__).parents[1]


def _assert_equal_states(one: RunState, other: RunState) -> None:
    assert one.agent_steps == other.agent_steps
    assert torch.equal(one.agent["weights"], other.agent["weights"])
    assert one.rest["tally"] == other.rest["tally"]
    np.testing.assert_array_equal(one.rest["environment"], other.rest["environment"])
    held = one.memory.sampleable_indices()
    np.testing.assert_array_equal(one.memory.transitions(held).observation, other.memory.transitions(held).observation)
    np.testing.assert_array_equal(one.memory.sample(50).index, other.memory.sample(50).index)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, run_state(40))

    assert newest_checkpoint(tmp_path) == path
    _assert_equal_states(run_state(40), read_checkpoint(path, "cpu"))


def test_a_new_checkpoint_replaces_the_old_one(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, run_state(40))

    write_checkpoint(tmp_path, run_state(1_000))

    assert _names(tmp_path) == ["step-000000001000"]


def test_a_folder_without_checkpoints_has_no_newest(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "nowhere") is None


def test_a_write_that_fails_at_any_stage_leaves_the_last_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_good = write_checkpoint(tmp_path, run_state(40))
    real_fsync = os.fsync
    stages_failed = 0
    while True:
        calls_left = stages_failed

        def failing_fsync(descriptor: int) -> None:
            nonlocal calls_left
            if calls_left == 0:
                calls_left = -1
                raise OSError(errno.ENOSPC, "No space left on device")
            calls_left -= 1
            real_fsync(descriptor)

        monkeypatch.setattr(os, "fsync", failing_fsync)
        try:
            write_checkpoint(tmp_path, run_state(80))
        except CheckpointError as error:
            assert "the checkpoint of step 80 could not be written (No space left on device)" in str(error)  # noqa: PT017
        else:
            break
        stages_failed += 1
        if newest_checkpoint(tmp_path) != last_good:
            break  # the last stage comes after the rename: the new one is in place
        assert _names(tmp_path) == ["step-000000000040"]
        _assert_equal_states(run_state(40), read_checkpoint(last_good, "cpu"))

    assert stages_failed >= 7  # agent, state, three files of the memory, manifest, two folders
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    _assert_equal_states(run_state(80), read_checkpoint(newest, "cpu"))


@pytest.mark.parametrize("num_bytes", [0, 1_000, 3_000])
def test_a_file_that_the_system_cuts_short_leaves_the_last_good_one(tmp_path: Path, num_bytes: int) -> None:
    last_good = write_checkpoint(tmp_path, run_state(40))

    expected = f"the checkpoint of step 80 could not be written (File too large): {last_good} is still whole; "
    with no_file_larger_than(num_bytes), pytest.raises(CheckpointError, match=re.escape(expected)):
        write_checkpoint(tmp_path, run_state(80))

    assert _names(tmp_path) == ["step-000000000040"]
    _assert_equal_states(run_state(40), read_checkpoint(last_good, "cpu"))


def test_the_first_checkpoint_that_fails_says_that_there_is_none_before_it(tmp_path: Path) -> None:
    with no_file_larger_than(0), pytest.raises(CheckpointError, match="there is none before it"):
        write_checkpoint(tmp_path, run_state(40))

    assert newest_checkpoint(tmp_path) is None


def test_a_kill_at_any_stage_leaves_the_old_checkpoint_or_the_new_one(tmp_path: Path) -> None:
    script = TESTS / "training" / "kill_while_saving.py"

    finished = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        check=False,
        timeout=120,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    outcomes = finished.stdout.split()
    assert outcomes == sorted(outcomes, key=["old", "new"].index)  # once the new one is in place, it stays
    assert outcomes.count("old") >= 15  # opens, writes and syncs of agent, state and memory
    assert outcomes.count("new") >= 2  # between the rename and the end of the removal


def test_what_a_killed_process_left_is_removed_and_the_newest_stays(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, run_state(40))
    (tmp_path / "step-000000000040").rename(tmp_path / "aside")
    write_checkpoint(tmp_path, run_state(80))
    (tmp_path / "aside").rename(tmp_path / "step-000000000040")
    (tmp_path / "step-000000000090.partial").mkdir()
    (tmp_path / "step-000000000090.partial" / "agent.pt").write_bytes(b"half")

    remove_unfinished(tmp_path)

    assert _names(tmp_path) == ["step-000000000080"]


@pytest.mark.parametrize("name", ["MANIFEST", "agent.pt", "state.npz"])
def test_a_flipped_byte_is_found_and_its_file_named(tmp_path: Path, name: str) -> None:
    checkpoint = write_checkpoint(tmp_path, run_state(40))
    path = checkpoint / name
    written = path.read_bytes()

    for place in range(0, len(written), 41):
        damaged = bytearray(written)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(DamagedDataError, match=re.escape(f"{path}: its checksum is not the one that was written")):
            read_checkpoint(checkpoint, "cpu")


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("framestow.training.checkpoint.VERSION", 99)
        checkpoint = write_checkpoint(tmp_path, run_state(40))

    with pytest.raises(IncompatibleError, match="it is version 99 of a 'framestow checkpoint'"):
        read_checkpoint(checkpoint, "cpu")


def test_loading_an_agent_unpickles_no_code(tmp_path: Path) -> None:
    state = run_state(40)
    checkpoint = write_checkpoint(tmp_path, RunState(40, {"weights": Path("/")}, state.memory, state.rest))

    with pytest.raises(Exception, match="weights_only"):
        read_agent(checkpoint, "cpu")


def test_the_memory_of_a_checkpoint_is_an_ordinary_saved_memory(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, run_state(40))

    assert len(ReplayMemory.load(checkpoint / "memory")) == len(run_state(40).memory)
