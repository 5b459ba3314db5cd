"""A commit is read whole, or said to be damaged, and its front is read if that is whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from framestow.errors import IncompatibleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.format import (
    FolderContents,
    StoredCommit,
    commit_path,
    empty_commit,
    new_name,
    write_commit,
)

STATE = b"state" * 50


def commit_of(folder: Path) -> Path:
    commit = empty_commit([new_name()])._replace(generation=7, num_transitions=3)
    assert len(STATE) == write_commit(folder, commit, STATE).state_bytes
    return commit_path(folder, 7)


def test_a_commit_has_its_fields_and_its_state(tmp_path: Path) -> None:
    path = commit_of(tmp_path)

    found = StoredCommit.read(tmp_path, 7)

    assert (3, STATE, "") == (found.whole().num_transitions, found.state, found.problem)
    assert [path] == list(tmp_path.iterdir())


def test_every_changed_missing_or_added_byte_of_a_commit_is_found_and_its_front_is_read_if_whole(
    tmp_path: Path,
) -> None:
    path = commit_of(tmp_path)
    whole = path.read_bytes()
    front = 18 + int(whole[9:17], 16)

    changed = [
        (offset, whole[:offset] + bytes([whole[offset] ^ 4]) + whole[offset + 1 :]) for offset in range(len(whole))
    ]
    cut = [(offset, whole[:offset]) for offset in range(len(whole))]
    for offset, damaged in [*changed, *cut, (len(whole), whole + b"x")]:
        path.write_bytes(damaged)
        found = StoredCommit.read(tmp_path, 7)
        assert (True, b"") == (bool(found.problem), found.state), offset
        assert (found.commit is None) == (offset < front), offset


def test_a_commit_that_announces_more_than_it_has_is_read_no_further(tmp_path: Path) -> None:
    commit_path(tmp_path, 7).write_bytes(b"00000000 ffffffff\n{}")

    assert "its checksum is wrong" == StoredCommit.read(tmp_path, 7).problem


HIGHEST = 999_999_999_999_999


def memory_with_steps(**settings) -> ReplayMemory:
    memory = ReplayMemory(100, FrameSpec((6, 6)), 3, **settings)
    memory.begin(np.zeros((1, 6, 6), np.uint8))
    memory.append([1], [0.5], [False], [False], np.zeros((1, 6, 6), np.uint8))
    return memory


def test_a_number_that_no_commit_can_have_is_refused_before_any_file_is_written(tmp_path: Path) -> None:
    memory = memory_with_steps(directory=tmp_path, flush_every=None)
    memory.flush()
    commit = StoredCommit.read(tmp_path, 2).whole()
    write_commit(tmp_path, commit._replace(generation=HIGHEST), b"state")
    before = sorted(path.name for path in tmp_path.iterdir())

    with pytest.raises(IncompatibleError, match=rf"^{tmp_path}/COMMIT.{HIGHEST}: its number is too high for another"):
        memory.flush()
    with pytest.raises(IncompatibleError, match="; load the memory, and save it to another folder"):
        memory.close()
    with pytest.raises(IncompatibleError, match=rf"COMMIT.{HIGHEST}: "):
        memory_with_steps().save(tmp_path)

    assert before == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", [f"COMMIT.{HIGHEST}.bak", f"COMMIT.{HIGHEST}0", f"COMMIT.{HIGHEST}.new"])
def test_a_file_that_no_commit_can_be_does_not_count(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("not a commit")
    memory = memory_with_steps()

    numbers = [memory.save(tmp_path) for _ in range(3)]

    assert numbers == sorted(numbers)
    assert numbers[-1] < 20
    assert 1 == len(ReplayMemory.load(tmp_path))
    assert "not a commit" == (tmp_path / name).read_text()


def test_a_log_file_with_a_number_that_none_can_have_is_refused(tmp_path: Path) -> None:
    memory = memory_with_steps(directory=tmp_path, flush_every=None)
    memory.close()
    number = FolderContents(tmp_path).numbers[-1]
    commit_path(tmp_path, number, is_copy=True).unlink()
    commit = StoredCommit.read(tmp_path, number)
    too_many = commit.whole().frames | {"next_file": HIGHEST + 1}
    write_commit(tmp_path, commit.whole()._replace(frames=too_many), commit.state)

    with pytest.raises(IncompatibleError, match=rf"frames-\w+\.{HIGHEST}\.log: its number is too high"):
        ReplayMemory.open(tmp_path, read_only=False)
