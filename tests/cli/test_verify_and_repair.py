"""``framestow verify`` and ``framestow repair``: their output and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from framestow.cli import main
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.format import Arrays, Commit
from framestow.storage.files.writer_lock import LOCK, WriterLock
from oracles.hostile_stores import rewrite
from oracles.store_files import log_file

WHOLE, DAMAGED, REFUSED = 0, 1, 2


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A memory with two sealed segments and two sealed blocks of steps, in the folder of a run."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    memory = ReplayMemory(5_000, FrameSpec((8, 8)), 4, stack=2, label="Pong")
    memory.begin(random.integers(0, 256, (1, 8, 8), np.uint8))
    for _ in range(2_100):
        memory.append([1], [0.5], [False], [False], random.integers(0, 256, (1, 8, 8), np.uint8))
    memory.save("run/memory")
    return Path("run/memory")


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_a_whole_memory_needs_no_repair(saved, capsys):
    assert WHOLE == main(["verify", "run"])
    assert re.match(
        r"takes up to [\d.]+ MiB of memory\n(.*\n)+all 2,100 transitions are whole", capsys.readouterr().out
    )
    assert WHOLE == main(["repair", "run"])
    assert "nothing to repair" in capsys.readouterr().out


def test_each_damage_is_printed_with_file_offset_and_lost_transitions(saved, capsys):
    flip(log_file(saved, "frames"), 200)
    flip(log_file(saved, "steps"), 500)
    flip(log_file(saved, "steps", ending="index"), 40)

    assert DAMAGED == main(["verify", "run"])

    shown = capsys.readouterr().out
    assert re.search(r"^  frames-\w+\.000001\.log, offset 80: block 0 of track 0 is damaged", shown, re.MULTILINE)
    assert re.search(r"^  steps-\w+\.000001\.log, offset 80: .*\(1,024 transitions lost\)$", shown, re.MULTILINE)
    assert re.search(
        r"^  steps-\w+\.000001\.index, offset 40: its entries are not those of steps-", shown, re.MULTILINE
    )
    assert "damaged in 3 places: 1,076 transitions are whole, 1,024 are lost" in shown
    assert "to keep the whole ones, run: framestow repair run/memory" in shown


def test_json_has_every_finding(saved, capsys):
    flip(log_file(saved, "steps"), 500)

    assert DAMAGED == main(["verify", "run", "--json"])

    content = json.loads(capsys.readouterr().out)
    assert (False, 1_076, 1_024, [2]) == tuple(
        content[name] for name in ("is_whole", "transitions", "lost", "generations")
    )
    (finding,) = content["findings"]
    assert (f"run/memory/{log_file(saved, 'steps').name}", 80, 1_024) == (
        finding["file"],
        finding["offset"],
        finding["transitions"],
    )


def test_a_dry_run_prints_the_changes_that_a_repair_makes(saved, capsys):
    flip(log_file(saved, "steps"), 500)
    name = log_file(saved, "steps").name
    before = {path: path.read_bytes() for path in saved.iterdir()}

    assert DAMAGED == main(["repair", "run", "--dry-run"])
    dry = capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in saved.iterdir()}
    assert WHOLE == main(["repair", "run"])
    done = capsys.readouterr().out

    for line in (
        f"{name}: 1 block is left out, and no generation names the file any more",
        "generation 2 keeps 1,076 transitions and loses 1,024",
        "the intact data is copied into new files\n",
    ):
        assert line in dry
        assert line in done
    assert "framestow repair" not in dry + done
    assert re.search(r"^the copy needs up to [\d.]+ KiB of free disk$", dry, re.MULTILINE)
    assert "planned changes:" in dry
    assert "needs up to" not in done
    assert not re.search(r"offset (\d+)\b.*offset \1\b", dry + done)
    assert re.search(r"the damaged files are now in run/memory/damaged-\d{8}-\d{6}$", done, re.MULTILINE)
    assert WHOLE == main(["verify", "run"])
    assert 1_076 == len(ReplayMemory.load(saved))


def test_a_memory_that_is_being_written_is_verified_and_not_repaired(saved, capsys):
    flip(log_file(saved, "steps"), 500)
    with WriterLock(saved / LOCK, "the memory", "stop it"):
        assert DAMAGED == main(["verify", "run"])
        assert REFUSED == main(["repair", "run"])

    assert "is being written by process" in " ".join(capsys.readouterr().err.split())


def test_logs_without_a_whole_commit_are_refused_and_stay(saved, capsys):
    for path in saved.glob("COMMIT.*"):
        path.unlink()
    before = {path: path.read_bytes() for path in saved.glob("*.000001.*")}

    for command in ("verify", "repair", "inspect"):
        assert REFUSED == main([command, "run"])
        shown = " ".join(capsys.readouterr().err.split())
        assert "run/memory: it has files of a memory and no whole COMMIT file, which alone says what they are" in shown

    assert before == {path: path.read_bytes() for path in saved.glob("*.000001.*")}


def test_a_repair_that_can_keep_nothing_names_another_way_out(saved, capsys):
    rewrite(saved, _contradict)
    capsys.readouterr()

    assert REFUSED == main(["repair", "run"])

    shown = " ".join(capsys.readouterr().err.split())
    assert "load an older save" in shown
    assert "framestow repair" not in shown
    assert DAMAGED == main(["verify", "run"])
    assert "framestow repair" not in capsys.readouterr().out


def _contradict(commit: Commit, arrays: Arrays) -> Commit:
    settings = commit.memory["settings"] | {"num_envs": 10**6, "capacity": 10**6, "labels": []}
    return commit._replace(memory=commit.memory | {"settings": settings})
