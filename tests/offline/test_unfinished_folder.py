"""What is being made is at its place whole or not at all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.offline.transfer import bytes_of_folder, unfinished_folder

WRITES_AND_DIES = """
import os, signal, sys
from pathlib import Path
from framestow.offline.transfer import unfinished_folder
with unfinished_folder(Path(sys.argv[1])) as folder:
    folder.mkdir()
    (folder / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def fill(folder: Path) -> None:
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "whole").write_text("whole")


def test_a_folder_is_there_when_it_is_whole(tmp_path: Path):
    final = tmp_path / "deep" / "final"

    with unfinished_folder(final) as folder:
        fill(folder)
        assert not final.exists()

    assert ["final"] == [path.name for path in final.parent.iterdir()]
    assert "whole" == (final / "below" / "whole").read_text()
    assert 5 == bytes_of_folder(final)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_of_what_failed(error: type[BaseException], tmp_path: Path):
    def fail() -> None:
        with unfinished_folder(tmp_path / "deep" / "final") as folder:
            fill(folder)
            raise error

    with pytest.raises(error):
        fail()

    assert [] == list(tmp_path.iterdir())


def test_a_folder_above_that_others_filled_stays_after_a_failure(tmp_path: Path):
    def fail() -> None:
        with unfinished_folder(tmp_path / "shared" / "deep" / "final") as folder:
            fill(folder)
            (tmp_path / "shared" / "theirs").write_text("theirs")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert ["theirs"] == [path.name for path in (tmp_path / "shared").iterdir()]


@pytest.mark.parametrize("name", ["final", "./final", "final/", "deep/../final"])
def test_a_relative_path_counts_from_where_the_call_began(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path)

    with unfinished_folder(name) as folder:
        assert folder.is_absolute()
        fill(folder)
        monkeypatch.chdir(tmp_path / "deep")

    assert "whole" == (tmp_path / "final" / "below" / "whole").read_text()


def test_what_a_killed_process_left_is_no_whole_folder_and_goes_with_the_next_one(tmp_path: Path):
    final = tmp_path / "final"
    subprocess.run([sys.executable, "-c", WRITES_AND_DIES, str(final)], check=False)
    assert not final.exists()

    with unfinished_folder(final) as folder:
        fill(folder)

    assert ["final"] == [path.name for path in tmp_path.iterdir()]
    assert ["below"] == [path.name for path in final.iterdir()]


def test_nothing_is_written_over(tmp_path: Path):
    (tmp_path / "final").mkdir()

    message = f"{tmp_path / 'final'}: the path exists, and nothing is overwritten; use another folder"
    with pytest.raises(InvalidSettingsError, match=re.escape(message)), unfinished_folder(tmp_path / "final"):
        pass


def test_two_do_not_make_the_same_folder_at_once(tmp_path: Path):
    with unfinished_folder(tmp_path / "final") as folder:
        fill(folder)

        with pytest.raises(IncompatibleError, match="is being written by"), unfinished_folder(tmp_path / "final"):
            pass

    assert (tmp_path / "final" / "below" / "whole").exists()
