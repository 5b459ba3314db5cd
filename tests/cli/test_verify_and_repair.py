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
from framestow.replay.store.format import Arrays, Manifest
from framestow.storage.files.writer_lock import LOCK, WriterLock
from oracles.hostile_stores import rewrite

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
    flip(saved / "frames.000001.log", 200)
    flip(saved / "steps.000001.log", 500)
    flip(saved / "steps.000001.index", 40)

    assert DAMAGED == main(["verify", "run"])

    shown = capsys.readouterr().out
    assert re.search(r"^  frames\.000001\.log, offset 64: block 0 of track 0 .* is damaged", shown, re.MULTILINE)
    assert re.search(r"^  steps\.000001\.log, offset 64: .*\(1,024 transitions lost\)$", shown, re.MULTILINE)
    assert re.search(r"^  steps\.000001\.index, offset 32: the entry .* is damaged", shown, re.MULTILINE)
    assert "damaged in 3 places: 1,076 transitions are whole, 1,024 are lost" in shown
    assert "to keep the whole ones, run: framestow repair run/memory" in shown


def test_json_has_every_finding(saved, capsys):
    flip(saved / "steps.000001.log", 500)

    assert DAMAGED == main(["verify", "run", "--json"])

    content = json.loads(capsys.readouterr().out)
    assert (False, 1_076, 1_024, [1]) == tuple(
        content[name] for name in ("is_whole", "transitions", "lost", "generations")
    )
    (finding,) = content["findings"]
    assert ("run/memory/steps.000001.log", 64, 1_024) == (finding["file"], finding["offset"], finding["transitions"])


def test_a_dry_run_prints_the_changes_that_a_repair_makes(saved, capsys):
    flip(saved / "steps.000001.log", 500)
    before = {path: path.read_bytes() for path in saved.iterdir()}

    assert DAMAGED == main(["repair", "run", "--dry-run"])
    dry = capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in saved.iterdir()}
    assert WHOLE == main(["repair", "run"])
    done = capsys.readouterr().out

    for line in (
        "steps.000001.log: 1 block is dropped, and no generation names the file any more",
        "generation 1 keeps 1,076 transitions and loses 1,024",
    ):
        assert line in dry
        assert line in done
    assert "framestow repair" not in dry + done
    assert re.search(
        r"the intact data is copied into new files: this needs up to [\d.]+ KiB of free disk$", dry, re.MULTILINE
    )
    assert "planned changes:" in dry
    assert re.search(r"the damaged files are now in run/memory/damaged-\d{8}-\d{6}$", done, re.MULTILINE)
    assert WHOLE == main(["verify", "run"])
    assert 1_076 == len(ReplayMemory.load(saved))


def test_a_memory_that_is_being_written_is_verified_and_not_repaired(saved, capsys):
    flip(saved / "steps.000001.log", 500)
    with WriterLock(saved / LOCK, "the memory", "stop it"):
        assert DAMAGED == main(["verify", "run"])
        assert REFUSED == main(["repair", "run"])

    assert "is being written by process" in " ".join(capsys.readouterr().err.split())


def test_logs_without_a_manifest_and_a_state_file_are_named(saved, capsys):
    for path in [*saved.glob("MANIFEST.*"), *saved.glob("state.*")]:
        path.unlink()
    before = {path: path.read_bytes() for path in saved.glob("*.000001.*")}

    assert DAMAGED == main(["verify", "run"])
    assert "frames.000001.index: no manifest and no state file says what memory it is of" in capsys.readouterr().out
    assert REFUSED == main(["repair", "run"])
    assert REFUSED == main(["inspect", "run"])

    shown = " ".join(capsys.readouterr().err.split())
    assert "so the settings of the memory are unknown; load an older save" in shown
    assert "keep the intact data with `framestow repair run/memory`" in shown
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


def _contradict(manifest: Manifest, arrays: Arrays) -> Manifest:
    settings = manifest.memory["settings"] | {"num_envs": 10**6, "capacity": 10**6, "labels": []}
    return manifest._replace(memory=manifest.memory | {"settings": settings})
