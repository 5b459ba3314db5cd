"""A commit is read whole, or said to be damaged, and its front is read if that is whole."""

from __future__ import annotations

from pathlib import Path

from framestow.replay.store.format import StoredCommit, commit_path, empty_commit, new_name, write_commit

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
