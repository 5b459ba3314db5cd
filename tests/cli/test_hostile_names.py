"""No name or text in a file reaches the terminal as anything but text, whichever command reads it."""

from __future__ import annotations

import ast
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table
from rich.text import Text

import framestow
from framestow.cli import main
from framestow.cli.command_line import COMMANDS
from framestow.cli.printing import ProgressDisplay, Terminal, print_line
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from oracles.damage import damage_a_segment
from oracles.hostile_stores import rewrite
from oracles.small_plays import SmallPlay
from oracles.store_files import commit_files

HOSTILE = "\x1b]0;owned\x07\x9b31m\x7f\u202e\u200b\ufeff[red]b:boom:\n\r\u2028\udcff"
SHOWN = r"\x1b]0;owned\x07\x9b31m\x7f\u202e\u200b\ufeff[red]b:boom:\n\r\u2028\udcff"
SOURCE = Path(framestow.__file__).parent


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a hostile name, with memories, damaged ones, runs and data sets whose every text is hostile."""
    root = tmp_path_factory.mktemp("world") / HOSTILE
    root.mkdir()
    play = SmallPlay(((40, "terminated"), (60, "cut")))
    play.recorded(label="a label", frames_per_segment=10).memory.save(root / "memory")
    rewrite(root / "memory", lambda commit, _: commit._replace(memory=renamed(commit.memory, "a label")))
    for name in "damaged", "copied", "torn", "other":
        shutil.copytree(root / "memory", root / name)
    damage_a_segment(root / "damaged")
    for commit in [*commit_files(root / "copied"), *(root / "torn").glob("COMMIT.*")]:
        commit.write_bytes(b"00000000\n" + HOSTILE.encode("utf-8", "surrogatepass"))
    (root / "memory" / HOSTILE).write_text("left over")
    rewrite(root / "other", lambda commit, _: commit._replace(memory=renamed(commit.memory, "Uniform")))
    for name, changes in {"run": {"game": HOSTILE}, "recipe": {"recipe": HOSTILE}, "setting": {HOSTILE: 1}}.items():
        run = RunFolder.create(root / name, Settings("Pong")).path
        shutil.copytree(root / "memory", run / "memory")
        document = json.loads((run / "settings.json").read_text())
        document["settings"] |= changes
        (run / "settings.json").write_text(json.dumps(document))
    (root / "minari" / "data").mkdir(parents=True)
    (root / "minari" / "data" / "metadata.json").write_text(json.dumps({"dataset_id": HOSTILE, "data_format": HOSTILE}))
    np.savez(root / "steps.npz", observations=np.zeros((3, 2)), **{HOSTILE.rstrip("\udcff"): np.zeros(3)})
    (root / "steps.hdf5").write_text(HOSTILE, errors="replace")
    (root / "logs").mkdir()
    (root / "logs" / f"$store$_{HOSTILE}_ckpt.0.gz").write_bytes(b"")
    return root


def renamed(state: object, name: str) -> object:
    """Return a commit's ``state`` with every string that is ``name`` replaced."""
    if isinstance(state, dict):
        return {key: renamed(value, name) for key, value in state.items()}
    if isinstance(state, list):
        return [renamed(value, name) for value in state]
    return HOSTILE if state == name else state


CASES = {  # by command: its arguments, where {} is the folder
    "train": ["{}/run --resume", "--resume {}/run", "--resume {}/recipe --help", "--resume {}/setting", "{}"],
    "evaluate": ["{}/run", "{}/recipe", "{}/memory", "{}/run --protocol {}"],
    "watch": ["{}/run", "{}/recipe --output {}/nowhere/a.mp4", "{}/run --preset {}"],
    "report": ["{}/run --no-clip --output {}/report.html", "{}/memory", "{}/setting"],
    "inspect": [
        f"{{}}/{name}" for name in ("memory", "memory --json", "damaged", "copied", "torn", "other", "run", "logs")
    ],
    "view": [f"{{}}/{name} --output {{}}/page.html" for name in ("memory", "damaged", "torn", "other", "run")],
    "verify": [
        f"{{}}/{name}" for name in ("memory", "damaged", "damaged --json", "copied", "torn", "other", "run", "logs")
    ],
    "repair": [f"{{}}/{name}" for name in ("memory", "damaged --dry-run", "copied", "torn", "other", "run", "logs")],
    "import dqn-replay": ["{}/logs --to {}/new", "{} --to {}/memory"],
    "import minari": ["{}/minari/data --to {}/new", "{}/memory --to {}/memory"],
    "import memory": [
        f"{{}}/{name} --to {{}}/new" for name in ("memory", "damaged", "torn", "other", "run", "memory {}/damaged")
    ],
    "export minari": ["{}/memory --to {}/data --dataset-id {}-v0", "{}/memory --to {}/m --dataset-id a-v0 --author {}"],
    "import arrays": ["{}/steps.npz --to {}/new", "{}/steps.hdf5 --to {}/new", "{} --to {}/memory"],
    "export arrays": ["{}/memory --to {}/steps.npz", "{}/damaged --to {}/new.npz", "{}/other --to {}.{}"],
    "bench": ["{}", "Pong --out {}/steps.npz", "Pong --libraries {}"],
}


@pytest.mark.filterwarnings("always::RuntimeWarning")
@pytest.mark.parametrize(("command", "case"), [(command, case) for command in CASES for case in CASES[command]])
def test_no_command_prints_a_control_character(
    command: str, case: str, world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world)
    arguments = [part.replace("{}", str(world)) for part in [*command.split(), *case.split()]]

    main(arguments)

    captured = capsys.readouterr()
    printed = captured.out + captured.err
    assert printed
    assert [] == [one for one in printed if not one.isprintable() and one != "\n"]
    assert "owned" not in printed or "[red]b:boom:" in printed


def test_every_command_has_a_case() -> None:
    assert set(COMMANDS) == set(CASES)


def test_a_terminal_gets_its_own_control_sequences_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    console = Terminal()
    console.file = io.StringIO()
    table = Table("name", HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE, Text(HOSTILE))
    console.print(table, HOSTILE, Text(HOSTILE))
    print_line(console, HOSTILE, "red")
    with ProgressDisplay(console, HOSTILE, "items") as progress:
        progress.show_part(HOSTILE, 1, 2)
        console.print(HOSTILE)

    printed = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", console.file.getvalue())
    assert "\x1b[" in console.file.getvalue()
    assert [] == [one for one in printed if not one.isprintable() and one not in "\n\r"]
    assert printed.count(SHOWN) >= 6


def test_nothing_else_prints() -> None:
    allowed = {"cli/output.py"}
    found = []
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in ("print", "Console", "sys.stdout.write", "sys.stderr.write", "console.out", "console.log"):
                found.append(f"{name}:{node.lineno}: {called}")

    assert [] == [place for place in found if place.partition(":")[0] not in allowed]
