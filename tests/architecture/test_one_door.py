"""Files of stores and runs are opened, looked at, renamed and removed by ``file_system.py`` alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "framestow"
DOOR = SOURCES / "storage" / "files" / "file_system.py"
PACKAGES = "storage", "replay", "distributed"
OF_A_PATH = {
    *("chmod", "exists", "glob", "hardlink_to", "is_dir", "is_file", "iterdir", "lstat", "mkdir", "read_bytes"),
    *("read_text", "rename", "rglob", "rmdir", "stat", "symlink_to", "touch", "unlink", "write_bytes", "write_text"),
}
OF_OS = {
    *("access", "link", "listdir", "lstat", "makedirs", "mkdir", "open", "remove", "removedirs", "rename", "renames"),
    *("replace", "rmdir", "scandir", "stat", "symlink", "truncate", "unlink", "walk"),
}
EXCEPTIONS = {  # module and call, and why it is no file of a store or run
    "distributed/rollouts.py: self.calls.replace": "an actor that was lost",
    "distributed/group.py: self.calls.replace": "a shard that was lost",
}


def calls_past_the_door(source: str) -> Iterator[str]:
    """Yield the calls of ``source`` that reach files by ``os``, ``shutil``, ``open``, or methods of ``Path``."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called, owner = ast.unparse(node.func), ""
        if isinstance(node.func, ast.Attribute):
            owner, name = ast.unparse(node.func.value), node.func.attr
            is_class = owner.rpartition(".")[2][:1].isupper() or owner == "cls"
            is_of_path = name in OF_A_PATH or (name == "open" and not is_class)
            is_one_name = name == "replace" and len(node.args) == 1 and not node.keywords  # not that of a text
            is_past = (is_of_path or is_one_name) and owner != "os"
            is_past |= owner in ("os", "os.path") and name in OF_OS | {"exists", "isfile", "isdir"}
        else:
            is_past = called in ("open", "FileIO")
        if is_past or owner == "shutil":
            yield called


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_reaches_files_past_the_door(package):
    found = {
        f"{file.relative_to(SOURCES).as_posix()}: {call}"
        for file in (SOURCES / package).rglob("*.py")
        if file != DOOR
        for call in calls_past_the_door(file.read_text(encoding="utf-8"))
    }

    assert found <= EXCEPTIONS.keys(), f"call file_system.py instead: {sorted(found - EXCEPTIONS.keys())}"


def test_the_ways_past_the_door_are_known():
    past = "path.read_bytes()", "os.open(path, 0)", "new.replace(path)", "shutil.rmtree(path)", "open(path)", "p.open()"
    fine = "files.replace(old, new)", "text.replace('a', 'b')", "os.close(3)", "Reader.open(folder)", "replace(a, b=1)"

    for call in past:
        assert list(calls_past_the_door(call)), call
    for call in fine:
        assert not list(calls_past_the_door(call)), call
