"""A result file has the figures, the command and the machine."""

import json
from pathlib import Path

from framestow.benchmarking.result_files import write_result


def test_a_result_file_has_the_command_the_machine_and_the_figures(tmp_path: Path):
    path = write_result(tmp_path / "new" / "pong.json", {"microseconds": 1.5}, command="framestow bench Pong")

    written = json.loads(path.read_text())
    assert {"command", "machine", "microseconds"} == set(written)
    assert "framestow bench Pong" == written["command"]
    assert {"processor", "cores", "memory_gib", "python", "system"} == set(written["machine"])
    assert written["machine"]["memory_gib"] > 0
    assert [path] == list(path.parent.iterdir())
