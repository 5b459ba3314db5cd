"""A result file has the figures, and the command, the date, the commit and the machine that made them."""

import json
import re
import subprocess
from pathlib import Path

from framestow.benchmarking.result_files import write_result


def test_a_result_file_has_the_figures_and_what_made_them(tmp_path: Path):
    path = write_result(tmp_path / "new" / "pong.json", {"microseconds": 1.5}, command="framestow bench Pong")

    written = json.loads(path.read_text())
    assert {"command", "date", "machine", "microseconds"} == set(written) - {"commit"}  # if framestow is installed
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", written["date"])
    assert re.fullmatch(r"[0-9a-f]{7,}(-dirty)?", written.get("commit", "0123456"))
    assert "framestow bench Pong" == written["command"]
    assert {"processor", "cores", "memory_gib", "python", "system"} == set(written["machine"])
    assert written["machine"]["memory_gib"] > 0
    assert [path] == list(path.parent.iterdir())


def test_a_result_in_a_checkout_has_its_commit_wherever_the_package_is_installed(tmp_path: Path):
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        return subprocess.run(
            ["git", "-C", tmp_path, *who, *arguments], capture_output=True, text=True, check=True
        ).stdout

    (tmp_path / "src" / "framestow").mkdir(parents=True)
    source_file = tmp_path / "src" / "framestow" / "new.py"
    source_file.write_text("")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "First")
    commit = git("rev-parse", "--short=7", "HEAD").strip()

    path = write_result(tmp_path / "tests" / "suites.json", {}, command="make suites")
    assert commit == json.loads(path.read_text())["commit"]

    source_file.write_text("changed = True\n")
    write_result(path, {}, command="make suites")
    assert f"{commit}-dirty" == json.loads(path.read_text())["commit"]
