"""A new folder appears complete or not at all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.offline.transfer import bytes_of, fill_path

WRITES_AND_DIES = """
import os, signal, sys
from pathlib import Path
from framestow.offline.transfer import fill_path
with fill_path(Path(sys.argv[1])) as folder:
    folder.mkdir()
    (folder / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def fill(folder: Path) -> None:
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "whole").write_text("whole")


def test_a_folder_appears_when_it_is_complete(tmp_path: Path):
    final = tmp_path / "deep" / "final"

    with fill_path(final) as folder:
        fill(folder)
        assert not final.exists()

    assert ["final"] == [path.name for path in final.parent.iterdir()]
    assert "whole" == (final / "below" / "whole").read_text()
    assert 5 == bytes_of(final)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_remains_after_a_failure(error: type[BaseException], tmp_path: Path):
    def fail() -> None:
        with fill_path(tmp_path / "deep" / "final") as folder:
            fill(folder)
            raise error

    with pytest.raises(error):
        fail()

    assert [] == list(tmp_path.iterdir())


def test_a_parent_folder_that_others_filled_remains_after_a_failure(tmp_path: Path):
    def fail() -> None:
        with fill_path(tmp_path / "shared" / "deep" / "final") as folder:
            fill(folder)
            (tmp_path / "shared" / "theirs").write_text("theirs")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert ["theirs"] == [path.name for path in (tmp_path / "shared").iterdir()]


@pytest.mark.parametrize("name", ["final", "./final", "final/", "deep/../final"])
def test_a_relative_path_is_resolved_at_the_call(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path)

    with fill_path(name) as folder:
        assert folder.is_absolute()
        fill(folder)
        monkeypatch.chdir(tmp_path / "deep")

    assert "whole" == (tmp_path / "final" / "below" / "whole").read_text()


def test_the_next_call_removes_the_remains_of_a_killed_process(tmp_path: Path):
    final = tmp_path / "final"
    subprocess.run([sys.executable, "-c", WRITES_AND_DIES, str(final)], check=False)
    assert not final.exists()

    with fill_path(final) as folder:
        fill(folder)

    assert ["final"] == [path.name for path in tmp_path.iterdir()]
    assert ["below"] == [path.name for path in final.iterdir()]


def test_an_existing_path_is_not_overwritten(tmp_path: Path):
    (tmp_path / "final").mkdir()

    message = f"{tmp_path / 'final'}: the path exists, and nothing is overwritten; give another one"
    with pytest.raises(InvalidSettingsError, match=re.escape(message)), fill_path(tmp_path / "final"):
        pass


def test_a_path_below_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(InvalidSettingsError, match="it must be a folder"), fill_path(tmp_path / "file" / "final"):
        pass


def test_two_processes_cannot_write_the_same_folder(tmp_path: Path):
    with fill_path(tmp_path / "final") as folder:
        fill(folder)

        with pytest.raises(IncompatibleError, match="is being written by"), fill_path(tmp_path / "final"):
            pass

    assert (tmp_path / "final" / "below" / "whole").exists()


@pytest.mark.skipif(os.name != "posix", reason="a link needs rights on Windows")
def test_remains_behind_a_link_are_not_removed(tmp_path: Path):
    fill(tmp_path / "elsewhere" / "final")
    (tmp_path / ".final.unfinished").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(DamagedDataError, match="unfinished: it is a link to"), fill_path(tmp_path / "final"):
        pass

    assert "whole" == (tmp_path / "elsewhere" / "final" / "below" / "whole").read_text()
