"""Only files are opened, nothing is followed, and new files have names that nobody can guess."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.storage.files.file_system import (
    DISK,
    FileSystem,
    finished_name,
    remove_unfinished,
    temporary_path,
    write_atomically,
    write_durably,
)
from oracles.hostile_folders import NO_FILES, Outside

OPERATIONS = {
    "create": lambda path: DISK.create(path).close(),
    "append": lambda path: DISK.open_at(path, 0).close(),
    "open to read": lambda path: DISK.open_to_read(path).close(),
    "read": DISK.read,
    "size": DISK.size,
    "write durably": lambda path: write_durably(path, b"ours"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_refused_by_what_it_is(kind, operation, tmp_path: Path) -> None:
    outside, path = Outside(tmp_path / "outside"), tmp_path / "folder" / "frames.000001.log"
    path.parent.mkdir()
    outside.plant(kind, path)

    with pytest.raises(DamagedDataError, match=rf"{path}: it is a (link to '|pipe|folder).*; put the file itself"):
        OPERATIONS[operation](path)

    outside.check()
    assert os.path.lexists(path), "what stood there is gone"


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_replaced_or_removed_name_changes_nothing_elsewhere(kind, tmp_path: Path) -> None:
    outside, path = Outside(tmp_path / "outside"), tmp_path / "folder" / "MANIFEST"
    path.parent.mkdir()
    for operation in (DISK.remove, lambda path: write_atomically(path, b"ours")):
        outside.plant(kind, path)
        if path.is_dir() and not path.is_symlink():
            with pytest.raises(DamagedDataError, match="it is a folder"):
                operation(path)
        else:
            operation(path)
        outside.check()

    assert [path.name] == os.listdir(path.parent), "a temporary file stayed"


def test_a_file_of_several_names_is_read_and_replaced_but_never_changed(tmp_path: Path) -> None:
    outside, path = Outside(tmp_path / "outside"), tmp_path / "LOCK"
    outside.plant("second name", path)

    assert not DISK.has_one_name(path)
    assert DISK.read(path) == outside.file.read_bytes()
    with pytest.raises(IncompatibleError, match=rf"{path}: the file has 2 names.*; replace this one by a copy"):
        DISK.open_at(path, 0)
    for create in (DISK.create, lambda path: write_durably(path, b"ours")):
        with pytest.raises(FileExistsError, match=str(path)):
            create(path)
    outside.check()
    write_atomically(path, b"ours")

    outside.check()
    assert DISK.has_one_name(path)


def test_no_more_is_read_than_belongs_there(tmp_path: Path) -> None:
    path = tmp_path / "MANIFEST"
    with path.open("wb") as file:
        file.truncate(2**40)  # a file of holes: it takes no room on the disk

    with pytest.raises(DamagedDataError, match="it has 1,099,511,627,776 bytes: at most 67,108,864 belong there"):
        DISK.read(path)
    path.write_bytes(b"frames")
    assert DISK.read(path, 6) == b"frames"
    with DISK.open_to_read(path) as read:
        assert read.read_at(2, 2**62) == b"ames"
        assert read.read_at(2**62, 1) == b""


@pytest.mark.skipif(os.name != "posix", reason="a link needs rights on Windows")
def test_a_subfolder_that_is_a_link_is_entered_only_if_the_caller_says_so(tmp_path: Path) -> None:
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "run" / "memory"
    for folder in (elsewhere, link.parent):
        folder.mkdir()
    assert not DISK.is_folder(link)
    assert DISK.is_folder(elsewhere)
    link.symlink_to(elsewhere)

    with pytest.raises(DamagedDataError, match=rf"memory: it is a link to '{elsewhere}'.*; give --follow-links"):
        DISK.is_folder(link, way_out="give --follow-links")

    assert DISK.is_folder(link, follow_links=True)
    elsewhere.rmdir()
    with pytest.raises(DamagedDataError, match="it is a link to"):
        DISK.is_folder(link, follow_links=True)


def test_a_killed_process_leaves_new_versions_that_the_next_one_removes(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    write_atomically(path, b"first")
    left = [temporary_path(path) for _ in range(2)]
    others = [temporary_path(tmp_path / "report.html"), tmp_path / "settings.json.new"]
    for file in (*left, *others):
        file.touch()

    assert {finished_name(file.name) for file in left} == {path.name}
    remove_unfinished(path)

    assert sorted(tmp_path.iterdir()) == sorted([path, *others])
    assert path.read_bytes() == b"first"


def test_a_failed_write_leaves_the_former_content_alone(tmp_path: Path) -> None:
    class FullDisk(FileSystem):
        def replace(self, old: Path, new: Path) -> None:
            raise OSError(28, "No space left on device", str(old), None, str(new))

    path = tmp_path / "settings.json"
    write_atomically(path, b"first", is_durable=False)

    with pytest.raises(OSError, match=rf"No space left on device: '{path}'$"):
        write_atomically(path, b"second", FullDisk())

    assert [path] == list(tmp_path.iterdir())
    assert path.read_bytes() == b"first"


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no such device")
def test_a_device_is_no_file() -> None:
    with pytest.raises(DamagedDataError, match="/dev/zero: it is a device"):
        DISK.read(Path("/dev/zero"))


@pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="Windows syncs no folders")
def test_a_folder_that_its_file_system_cannot_sync_is_used_and_other_errors_are_raised(tmp_path, monkeypatch) -> None:
    answers = [errno.EINVAL, errno.EIO]

    def refuse(_: int) -> None:
        raise OSError(answers[0], os.strerror(answers[0]))

    monkeypatch.setattr(os, "fsync", refuse)
    DISK.sync_folder(tmp_path)

    del answers[0]
    with pytest.raises(OSError, match=str(tmp_path)):
        DISK.sync_folder(tmp_path)
