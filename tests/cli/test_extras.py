"""What ``framestow`` does where packages of its extras are not installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

from framestow.cli.command_line import COMMANDS
from oracles.dopamine_memory import write_dopamine_log
from oracles.small_plays import SmallPlay

CLI = ("tyro", "rich")
TRAIN = ("torch", "gymnasium", "ale_py", "cv2", "tensorboard", "psutil", "imageio_ffmpeg", "PIL", "matplotlib")
OTHERS = ("h5py", *TRAIN, "minari")
RUN_WITHOUT = """
import contextlib, io, json, sys
class Absent:
    packages = sys.argv[1].split()
    def find_spec(self, name, *_):
        if name in self.packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from framestow.cli import main
results = []
for arguments in json.loads(sys.argv[2]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(arguments)
    results.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(results))
"""
NEEDED = {  # arguments with which each command comes to what it needs
    "train": ["Pong"],
    "evaluate": ["run"],
    "watch": ["run"],
    "report": ["run"],
    "inspect": ["memory"],
    "view": ["memory"],
    "verify": ["memory"],
    "repair": ["memory"],
    "import dqn-replay": ["logs", "--to", "imported"],
    "import minari": ["memory", "--to", "imported"],
    "import memory": ["memory", "--to", "copied"],
    "export minari": ["memory", "--to", "data", "--dataset-id", "a/b-v0"],
    "import arrays": ["steps.hdf5", "--to", "imported"],
    "export arrays": ["memory", "--to", "new.hdf5"],
    "bench": ["Pong"],
}


def run_without(packages: tuple[str, ...], commands: list[list[str]], folder: Path) -> list[tuple[int, str, str]]:
    """Return exit code, output and errors of each command, all run in one process of ``folder``."""
    script = [sys.executable, "-c", RUN_WITHOUT, " ".join(packages), json.dumps(commands)]
    finished = subprocess.run(script, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert finished.returncode == 0, finished.stderr
    return [(code, out, err) for code, out, err in json.loads(finished.stdout)]


def needs(command: str, extra: str) -> str:
    """Return a regular expression of the one line about a missing package."""
    way_out = re.escape(f'which is not installed; run: pip install "framestow[{extra}]"')
    return rf"error: framestow {command} needs \w+, {way_out}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    SmallPlay(((5, "terminated"), (5, "cut"))).recorded().memory.save(tmp_path / "memory")
    (tmp_path / "steps.hdf5").touch()
    return tmp_path


def test_the_bare_wheel_prints_which_extra_each_command_needs(folder: Path) -> None:
    commands = [["--help"], ["--version"], [], ["import"], *([*name.split(), *NEEDED[name]] for name in COMMANDS)]

    helped, version, nothing, import_help, *results = run_without((*CLI, *OTHERS), commands, folder)

    assert helped[::2] == (0, "")
    shown = dict(re.findall(r"^  (\S.*?)  .* (\w+)$", helped[1], re.MULTILINE))
    assert shown == {name: command.extra for name, command in COMMANDS.items()}
    assert (version[0], version[2]) == (0, "")
    assert nothing == (2, "", helped[1])
    assert import_help[0] == 2
    for (name, command), (code, out, err) in zip(COMMANDS.items(), results, strict=True):
        assert (code, out) == (2, ""), name
        assert re.fullmatch(needs(name, command.extra), err)


def test_with_the_extra_cli_the_commands_on_a_memory_run_and_the_others_name_their_extra(folder: Path) -> None:
    write_dopamine_log(SmallPlay(((5, "terminated"),)).recorded(), folder / "logs")
    commands = [[*name.split(), *NEEDED[name]] for name in NEEDED]

    results = dict(zip(map(" ".join, commands), run_without(OTHERS, commands, folder), strict=True))

    for line, (code, out, err) in results.items():
        [command] = [COMMANDS[name] for name in COMMANDS if line.startswith(f"{name} ")]
        if command.extra == "cli":
            assert (code, err) == (0, ""), line
            assert out
        else:
            assert code == 2, line
            assert re.fullmatch(needs(command.name, command.extra), err)


def test_every_extra_that_a_command_names_exists() -> None:
    assert {command.extra for command in COMMANDS.values()} <= set(
        metadata("framestow").get_all("Provides-Extra") or []
    )
