"""The ``framestow`` command: one-line errors, help, training, evaluation and signals."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from framestow.cli import main
from framestow.cli.command_line import COMMANDS, EXAMPLE_RUN
from framestow.training.checkpoint import newest_checkpoint
from framestow.training.playing import PROTOCOLS
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from oracles.numbered_steps import numbered_memory

SHORT = ["--recipe", "dqn", "--num-envs", "2", "--warmup", "40", "--train-every", "20", "--threads", "1"]
SHORT += ["--memory", "1_000"]


def _refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return captured.err


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "framestow", *arguments]


def test_train_without_a_game_says_how_to_give_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "try: framestow train Breakout" in _refusal(["train"], capsys)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            ["--epsilon-end", "2"],
            "error: --epsilon-end is 2.0: it must be a probability from 0 to 1; give another --epsilon-end",
        ),
        (["--steps", "0"], "error: --steps is 0: it must be from 1 to 1,000,000,000,000"),
        (["--retention", "random", "--memory", "100"], "--memory is 100: retention='random' with 8"),
        (["--memory-bytes", "1 KiB"], "--memory-bytes is 1.0 KiB: 8 "),
        (["--stack", "300"], "--stack is 300: it must be from 1 to 256"),
    ],
)
def test_an_invalid_setting_is_refused_before_a_folder_is_made(
    option: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    error = _refusal(["train", "Pong", "--run-dir", str(tmp_path / "run"), *option], capsys)

    assert message in error
    assert not (tmp_path / "run").exists()


def test_a_memory_that_cannot_fit_is_refused_with_a_size_that_fits_before_a_folder_is_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("framestow.cli.training_session.PLAYED_FRAMES", 640)
    asked = ["--memory", "1_000_000_000", "--steps", "1_000_000_000", "--storage", "raw"]

    assert main(["train", "breakout", *asked, "--run-dir", str(tmp_path / "run")]) == 2

    assert re.search(r"memory is 1,000,000,000: .* give --memory [0-9_]+ or", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_after_a_refused_start_the_corrected_command_trains_in_the_same_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "run"
    command = ["train", "Pong", "--steps", "8", "--run-dir", str(run), *SHORT]

    refused = _refusal([*command, "--memory-bytes", "1 KiB"], capsys)
    enough = re.search(r"give at least ([0-9_]+)", refused)
    assert enough is not None
    assert list(tmp_path.iterdir()) == []
    assert main([*command, "--memory-bytes", enough[1]]) == 0

    assert newest_checkpoint(run / "checkpoints") is not None


@pytest.mark.parametrize("exists", [False, True])
def test_a_start_that_fails_removes_the_files_and_folders_it_made(
    exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(torch.optim, "Adam", fail)
    run = tmp_path / "runs" / "run"
    if exists:
        run.mkdir(parents=True)

    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        main(["train", "Pong", "--steps", "8", "--memory-on-disk", "--run-dir", str(run), *SHORT])

    assert list(tmp_path.rglob("*")) == ([run.parent, run] if exists else [])


def test_report_writes_the_page_into_the_folder_of_the_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", Settings("Pong"))

    assert main(["report", str(tmp_path / "run"), "--no-clip"]) == 0

    assert str(tmp_path / "run" / "report.html") in capsys.readouterr().out.replace("\n", "")
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a report needs at least 1"),
        (["run", "--output", "missing/report.html"], "the folder missing does not exist"),
        (["run", "--output", "run"], "output is run: it is a folder"),
        (["run", "--output", "pipe"], "output is pipe: it is a device or a pipe, which a file would replace"),
        (["."], "is not a run folder"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    RunFolder.create(tmp_path / "run", Settings("Pong"))
    os.mkfifo("pipe")

    assert message in _refusal(["report", *arguments], capsys)


def test_wandb_without_its_library_is_refused_before_a_folder_is_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed

    error = _refusal(["train", "Pong", "--wandb", "--run-dir", str(tmp_path / "run"), *SHORT], capsys)

    assert "run: pip install wandb, or leave out --wandb" in error
    assert not (tmp_path / "run").exists()


OWN_LISTENER = """
import signal

class StopAt(list):
    def __init__(self, run):
        self.run = run

    def take(self, event):
        self.append(type(event).__name__)
        if self.run.tally.agent_steps >= 60:
            signal.raise_signal(signal.SIGINT)

    def close(self):
        print(f"took {len(self)} events, {self.count('StepTaken')} of them steps, and was closed")
"""


def test_a_listener_of_the_users_own_takes_every_event_and_can_stop_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_listeners.py").write_text(OWN_LISTENER)
    arguments = ["train", "Breakout", "--steps", "10_000", "--run-dir", "run", *SHORT]

    assert 130 == main([*arguments, "--listener", "own_listeners:StopAt"])

    assert re.search(r"took \d+ events, 30 of them steps, and was closed", capsys.readouterr().out)
    assert newest_checkpoint(tmp_path / "run" / "checkpoints") is not None


@pytest.mark.parametrize("name", ["own_listeners", "no_module:StopAt", ":StopAt", "json:nothing", "json:__name__"])
def test_a_listener_that_cannot_be_imported_is_refused_before_a_folder_is_made(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    error = _refusal(["train", "Pong", "--listener", name, "--run-dir", "run", *SHORT], capsys)

    assert f"--listener is '{name}': it must be MODULE:NAME" in error
    assert not Path("run").exists()


@pytest.mark.parametrize("below", ["", "run"])
def test_a_run_folder_that_would_be_a_file_is_refused(
    below: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("all of it")

    error = _refusal(["train", "Pong", "--run-dir", str(thesis / below)], capsys)

    assert f"{thesis} is a file" in error
    assert "give another --run-dir" in error
    assert thesis.read_text() == "all of it"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Breakout"], "game: run has 'Pong', given 'Breakout'"),
        (
            ["--optimizer-epsilon", "0.5", "--stack", "2"],
            "stack: run has 4, given 2; optimizer_epsilon: run has 3e-06, given 0.5",
        ),
        (["--run-dir", "elsewhere"], "a resumed run stays in its folder"),
    ],
)
def test_resuming_with_other_settings_is_refused_with_the_differences(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    RunFolder.create(tmp_path / "run", Settings("Pong"))

    error = _refusal(["train", *arguments, "--resume", str(tmp_path / "run")], capsys)

    assert message in error
    assert RunFolder.open(tmp_path / "run").settings() == Settings("Pong")


@pytest.mark.parametrize("game", [[], ["Pong"], ["ALE/Pong-v5"]])
def test_a_run_that_python_started_may_have_another_spelling_of_its_game(
    game: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    RunFolder.create(tmp_path / "run", Settings("pong"))

    error = _refusal(["train", *game, "--stack", "2", "--resume", str(tmp_path / "run")], capsys)

    assert "with other settings: stack: run has 4, given 2;" in error


@pytest.mark.parametrize("command", ["train --resume", "evaluate", "watch", "report"])
def test_each_command_refuses_what_is_no_folder_of_a_run(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    for path in (tmp_path, tmp_path / "file", tmp_path / "missing"):
        assert "is not a run folder" in _refusal([*command.split(), str(path)], capsys)


@pytest.mark.parametrize("command", ["evaluate", "watch"])
def test_a_run_without_a_checkpoint_cannot_be_played(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    RunFolder.create(tmp_path / "run", Settings("Pong"))

    assert "has no checkpoint yet" in _refusal([command, str(tmp_path / "run")], capsys)


def test_help_has_examples_and_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "framestow train Breakout" in capsys.readouterr().out

    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for name in vars(Settings("Pong")).keys() - {"game"}:
        assert f"--{name.replace('_', '-')}" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_has_an_example_before_the_options_in_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert main([*name.split(), "--help"]) == 0

    lines = capsys.readouterr().out.splitlines()
    options = lines.index(" options")
    assert any(line.startswith(f"  framestow {name} ") for line in lines[:options])
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_help_are_arguments_that_the_command_takes(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RunFolder.create(tmp_path / EXAMPLE_RUN, Settings("Breakout"))  # the one that an example resumes
    main([*name.split(), "--help"])
    examples = set(re.findall(rf"^  framestow ({name} .+)$", capsys.readouterr().out, re.MULTILINE))
    monkeypatch.setattr("framestow.cli.training_session.train", lambda *_: 7)
    if name != "train":
        monkeypatch.setattr(COMMANDS[name].load(), "run", lambda *_: 7)

    assert {example: main(example.split()) for example in examples} == dict.fromkeys(examples, 7)


@pytest.mark.parametrize(
    ("group", "formats"), [("import", ["dqn-replay", "minari", "memory", "arrays"]), ("export", ["minari", "arrays"])]
)
def test_a_group_of_commands_lists_them(group: str, formats: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([group, "--help"]) == 0
    shown = capsys.readouterr().out
    assert main([group]) == 2

    assert capsys.readouterr().err == shown
    assert re.findall(rf"^  {group} (\S+)", shown, re.MULTILINE) == formats


@pytest.mark.parametrize(
    ("written", "steps"),
    [("1e6", 1_000_000), ("150k", 150_000), ("1.5M", 1_500_000), ("20_000", 20_000), ("2K", 2_000), ("7", 7)],
)
def test_a_count_may_be_written_with_a_unit_or_an_exponent(
    written: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Settings] = []
    monkeypatch.setattr("framestow.cli.training_session.train", lambda options, _: given.append(options.settings) or 0)

    options = ["--steps", written, f"--memory={written}", "--warmup", written, "--epsilon-steps", written]
    assert main(["train", "Pong", "--num-envs", "1", "--workers", "0", *options]) == 0

    [settings] = given
    assert (settings.steps, settings.memory, settings.warmup, settings.epsilon_steps) == (steps,) * 4


@pytest.mark.parametrize(
    "arguments",
    [
        "train Pong --steps",
        "train Pong --memory",
        "train Pong --priority-beta-steps",  # a count or None
        "evaluate run --episodes",
        "watch run --max-steps",
        "bench Pong --transitions",
        "import dqn-replay dqn --to store --capacity",
        "import dqn-replay dqn --to store --checkpoints 1",  # several counts
    ],
)
def test_a_wrong_count_says_which_ones_work(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    option = re.findall(r"--\S+", arguments)[-1]

    for written in "1.5", "abc", "1,5M":
        assert _refusal([*arguments.split(), written], capsys) == (
            f"error: {option} is {written!r}: it must be a whole number; write it as 150_000, 150k, 1.5M or 1e6\n"
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("evalute runs/x", "command is 'evalute': no command has this name; did you mean 'evaluate'?"),
        ("play Pong", "command is 'play': no command has this name; did you mean 'evaluate', or 'watch' for a video?"),
        ("train Pong --step 9", "--step, 9: framestow train has no such option or argument; did you mean --steps?"),
        ("export mianri", "command is 'export mianri': no command has this name; did you mean 'export minari'?"),
        ("train Pong --num-env 3", "--num-env, 3: framestow train has no such option or argument; did you mean --num-"),
        ("verify a b", "b: framestow verify has no such option or argument; framestow verify --help lists all"),
        ("verify", "missing: PATH; framestow verify --help explains all arguments"),
        ("export minari a", "missing: --to PATH, --dataset-id STR; framestow export minari --help explains"),
        ("train Pong --steps", "--steps has no value: it needs one"),
        ("train Pong --learning-rate fast", "--learning-rate is 'fast': it must be a number; write it as 0.25 or"),
        (
            "import minari a --to b --stacked-on x",
            "--stacked-on is 'x': it must be one of 'no', 'first_axis', 'last",
        ),
        ("bench Pong --batch-size 0", "--batch-size is 0: it must be above 0"),
        ("train Pong --recipe rainbov", "--recipe is 'rainbov': no recipe has this name; did you mean 'rainbow'?"),
        ("train Pong --address host", "--address is host: only a distributed run uses a cluster"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_the_option(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    assert _refusal(arguments.split(), capsys).startswith(f"error: {message}")
    assert os.environ["COLUMNS"] == "60"


INTERRUPT_ON_IMPORT = """
import os, signal, sys
class Interrupter:
    module = sys.argv.pop(1)
    def find_spec(self, name, *_):
        if name == self.module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupter())
from framestow.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["framestow.cli.command_line", "numpy", "numpy.linalg", "tyro", "torch"])
def test_ctrl_c_while_the_libraries_load_stops_without_a_traceback(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPT_ON_IMPORT, module, "evaluate", str(tmp_path)]

    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (finished.returncode, finished.stderr) == (130, "stopped\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "."], "--output is .: the name of a video must end in one of"),
        (["--scale", "33"], "--scale is 33: it must be from 1 to 32"),
        (["--max-steps", "0"], "--max-steps is 0: it must be at least 1"),
    ],
)
def test_a_video_that_cannot_be_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    RunFolder.create(tmp_path / "run", Settings("Pong"))

    assert message in _refusal(["watch", str(tmp_path / "run"), *arguments], capsys)


@pytest.mark.parametrize("command", ["evaluate", "watch"])
@pytest.mark.parametrize("epsilon", ["7", "nan"])
def test_an_epsilon_that_is_no_probability_is_refused_by_the_name_of_its_option(
    command: str, epsilon: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    RunFolder.create(tmp_path / "run", Settings("Pong"))

    error = _refusal([command, str(tmp_path / "run"), "--epsilon", epsilon], capsys)

    assert re.search(r"epsilon is (7\.0|nan): it must be a probability from 0 to 1; give another --epsilon", error)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            "game.txt",
            "must end in one of .avi .flv .gif .m4v .mkv .mov .mp4 .mpg .ts .wmv; give --output {tmp_path}/game.mp4",
        ),
        ("game", "give --output {tmp_path}/game.mp4"),
        ("nowhere/game.mp4", "the folder {tmp_path}/nowhere does not exist; create it, or give another --output"),
        ("folder.mp4", "it is a folder; give the name of a file in it with --output"),
    ],
)
def test_an_output_that_cannot_be_a_video_is_refused_before_the_game_is_played(
    output: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    RunFolder.create(tmp_path / "run", Settings("Pong"))  # has no checkpoint: playing would fail for that
    (tmp_path / "folder.mp4").mkdir()

    error = _refusal(["watch", str(tmp_path / "run"), "--output", str(tmp_path / output)], capsys)

    assert f"output is {tmp_path / output}: " in error
    assert message.format(tmp_path=tmp_path) in error


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0

    assert re.fullmatch(r"framestow \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("arguments", ["--help", "verify --help", "verify memory", "verify memory --json"])
def test_output_into_a_pipe_that_has_been_closed_ends_the_command_silently(arguments: str, tmp_path: Path) -> None:
    numbered_memory(10).save(tmp_path / "memory")
    read_end, write_end = os.pipe()
    os.close(read_end)
    command, where = _command(*arguments.split()), {"stdout": write_end, "stderr": subprocess.PIPE, "cwd": tmp_path}
    finished = subprocess.run(command, **where, text=True, check=False, timeout=60)

    os.close(write_end)
    assert (finished.returncode, finished.stderr) == (141, "")


@pytest.mark.parametrize("arguments", ["--help", "verify --help", "verify memory", "verify memory --json"])
def test_output_that_finds_the_disk_full_ends_the_command_with_one_line(arguments: str, tmp_path: Path) -> None:
    numbered_memory(10).save(tmp_path / "memory")
    with open("/dev/full", "w") as full:
        command, where = _command(*arguments.split()), {"stdout": full, "stderr": subprocess.PIPE, "cwd": tmp_path}
        finished = subprocess.run(command, **where, text=True, check=False, timeout=60)

    assert finished.returncode == 1
    assert re.fullmatch("error: (the output cannot be written: )?No space left on device\n", finished.stderr)


def test_an_encoding_without_a_character_shows_its_escape(tmp_path: Path) -> None:
    numbered_memory(10).save(tmp_path / "gedächtnis")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = _command("verify", "gedächtnis")
    printed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    assert "ged\\xe4chtnis" in printed


def test_help_and_a_wrong_game_do_not_wait_for_pytorch_and_tables_not_for_the_emulator(tmp_path: Path) -> None:
    numbered_memory(10).save(tmp_path / "memory")
    script = (
        "import sys; from framestow.cli import main\n"
        "for command in (['--help'], *([*name.split(), '--help'] for name in sys.argv[1:]), ['verify', 'memory']):\n"
        "    assert 0 == main(command), command\n"
        "assert {'torch', 'ale_py', 'matplotlib'}.isdisjoint(sys.modules)\n"
        "assert 2 == main(['train', 'Brekout']) == main(['bench', 'Brekout'])\n"
        "assert {'torch', 'matplotlib'}.isdisjoint(sys.modules)\n"
    )

    command = [sys.executable, "-c", script, *COMMANDS]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)

    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count("did you mean Breakout") == 2


@pytest.mark.parametrize("arguments", ["--help", "import --help", "verify --help"])
def test_help_is_as_wide_as_the_terminal(
    arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = {}
    for columns in (50, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(arguments.split()) == 0
        longest[columns] = max(map(len, capsys.readouterr().out.splitlines()))

    assert longest[50] <= 50 < longest[120] <= 120


WRITING = {  # by command: what it writes, where {} is a folder that cannot be written
    "view memory --output {}/page.html": "output",
    "report run --output {}/page.html": "output",
    "watch run --output {}/game.mp4": "output",
    "train Pong --run-dir {}/run": "run-dir",
    "import dqn-replay nothing --to {}/store": "to",
    "import minari nothing --to {}/store": "to",
    "import memory nothing --to {}/store": "to",
    "export minari nothing --to {}/data --dataset-id a-v0": "to",
    "bench Pong --out {}/bench": "out",
}


@pytest.mark.parametrize("command", WRITING)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    numbered_memory(10).save(tmp_path / "memory")
    RunFolder.create(tmp_path / "run", Settings("Pong"))
    closed = tmp_path / "closed"
    closed.mkdir()
    access = os.access  # root may write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode, **rest: Path(path) != closed and access(path, mode, **rest))

    error = _refusal(command.format(closed).split(), capsys)

    option = WRITING[command]
    assert re.fullmatch(
        rf"error: (--)?{option} is {closed}/\S+: the folder {closed} cannot be written; give another --{option}\n",
        error,
    )
    assert list(closed.iterdir()) == []


@pytest.mark.parametrize("closed", ["run", "run/memory"])
def test_a_folder_that_cannot_be_read_is_named(
    closed: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered_memory(10).save(tmp_path / "run" / "memory")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / closed)  # root may read everywhere

    assert f"{tmp_path / closed} cannot be read: " in _refusal(["inspect", str(tmp_path / "run")], capsys)


def test_an_error_of_the_system_names_its_file_as_a_path(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        (tmp_path / "missing").open()

    monkeypatch.setattr(COMMANDS["verify"].load(), "run", fail)

    assert main(["verify", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/missing: No such file or directory\n"


@pytest.mark.parametrize("command", ["evaluate", "watch"])
def test_playing_with_another_preset_warns_and_names_what_differs(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    RunFolder.create(tmp_path / "run", Settings(game="Breakout", preset="nature"))

    assert main([command, str(tmp_path / "run"), "--preset", "baselines"]) == 2  # there is no checkpoint yet

    printed = capsys.readouterr()
    assert "warning: trained with preset nature, played with preset baselines: do not compare the scores" in printed.out
    assert "life_loss 'terminates' against 'terminates_after_step'" in printed.out
    assert "checkpoint" in printed.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--episodes", "10"], "episodes is 10: protocol 'nature' has 30; leave out --episodes or --protocol"),
        (["--preset", "envpool"], "preset is envpool: protocol 'nature' has nature; leave out --preset or --protocol"),
        (["--epsilon", "0.01"], "epsilon is 0.01: protocol 'nature' has 0.05; leave out --epsilon or --protocol"),
        (["--protocol", "natur"], "protocol is 'natur': no protocol has this name; did you mean 'nature'?"),
        (["--protocol", "xyz"], "protocol is 'xyz': no protocol has this name; choose one of 'machado2018', 'nature'"),
    ],
)
def test_options_that_contradict_the_protocol_are_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    RunFolder.create(tmp_path / "run", Settings(game="Pong", preset="nature"))

    assert message in _refusal(["evaluate", str(tmp_path / "run"), "--protocol", "nature", *options], capsys)


def test_options_that_agree_with_the_protocol_are_accepted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", Settings(game="Pong", preset="nature"))
    options = ["--episodes", "30", "--preset", "nature", "--epsilon", "0.05"]

    error = _refusal(["evaluate", str(tmp_path / "run"), "--protocol", "nature", *options], capsys)

    assert "has no checkpoint yet" in error


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_evaluation_names_its_protocol_and_compares_with_human_play(
    protocol: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    assert main(["train", "Skiing", "--preset", protocol, "--steps", "60", "--run-dir", str(run), *SHORT]) == 0
    with (run / "episodes.csv").open("a") as file:
        file.writelines(f"{number},{10 * number},0,{-100.0 * number},9\n" for number in range(1, 9))
    short_games = dataclasses.replace(PROTOCOLS[protocol].preset, max_episode_frames=200)
    short = dataclasses.replace(PROTOCOLS[protocol], preset=short_games, episodes=2)
    monkeypatch.setitem(PROTOCOLS, protocol, short)
    capsys.readouterr()

    assert main(["evaluate", str(run), "--protocol", protocol]) == 0

    printed = capsys.readouterr().out
    written = json.loads((run / "evaluation.json").read_text())
    normalized = (written["mean"] + 17098.1) / 12761.2
    assert printed.startswith(f"{short}\n")
    assert f"human-normalised mean {normalized:.3f} (random play -17098.1, human -4336.9)" in printed
    assert (written["protocol"], written["human_normalized_mean"]) == (protocol, pytest.approx(normalized))
    is_training_reported = protocol == "machado2018"
    assert ("mean -550.00 of the last 2 training games" in printed) == is_training_reported  # at 50 and 60
    assert written["training_mean"] == (-550.0 if is_training_reported else None)


@pytest.mark.slow
def test_a_run_is_trained_resumed_evaluated_and_watched(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = str(tmp_path / "run")

    assert main(["train", "breakout", "--preset", "machado2018", "--steps", "120", "--run-dir", run, *SHORT]) == 0
    first = capsys.readouterr().out
    assert main(["train", "--resume", run, "--steps", "1_60"]) == 0
    second = capsys.readouterr().out
    assert main(["evaluate", run, "--episodes", "3", "--epsilon", "1"]) == 0
    evaluated = capsys.readouterr().out
    assert main(["watch", run, "--max-steps", "15", "--epsilon", "1"]) == 0
    watched = capsys.readouterr().out
    assert main(["train", "breakout", "--preset", "nature", "--steps", "8", "--run-dir", run + "2", *SHORT]) == 0
    capsys.readouterr()
    assert main(["evaluate", run + "2", "--episodes", "1", "--preset", "baselines"]) == 0
    evaluated_with_other = capsys.readouterr().out

    assert f"framestow train --resume {run} --steps 240" in first
    assert re.search(
        r"memory: about .* in RAM .* for 120 transitions: .*, measured on 640 frames of random play", first
    )
    assert re.search(r"(?m)^memory +120 of 1,000 transitions in [\d.]+ MiB, of which [\d.]+ [KM]iB work space$", first)
    assert f"report      {run}/report.html has the learning curve" in first
    assert "<svg" in (tmp_path / "run" / "report.html").read_text()
    assert "resuming Breakout at step 120 (recipe dqn, preset machado2018) to 160 agent steps" in second
    assert re.search(r"memory: about .* in RAM .* for 160 transitions: .*, measured on 640 frames", second)
    assert RunFolder.open(Path(run)).settings().steps == 160
    stored = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert len(stored["scores"]) == 3
    assert stored["agent_steps"] == 160
    assert f"mean {stored['mean']:.2f} · median {stored['median']:g}" in evaluated
    assert "trained with preset machado2018 for 160 agent steps" in evaluated
    other = json.loads((tmp_path / "run2" / "evaluation.json").read_text())
    assert (stored["preset"], stored["played_preset"]) == ("machado2018", "machado2018")
    assert (other["preset"], other["played_preset"], other["epsilon"]) == ("nature", "baselines", 0.01)
    assert "1 game played with preset baselines at epsilon 0.01" in evaluated_with_other
    assert "warning" not in evaluated + watched
    assert "15 steps at epsilon 1, stopped before the game ended" in watched
    assert (tmp_path / "run" / "Breakout-160.mp4").read_bytes()[4:8] == b"ftyp"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "send", "code"),
    [
        (signal.SIGHUP, os.killpg, 129),  # to its workers too, as a terminal that closes does
        pytest.param(signal.SIGINT, os.killpg, 130, marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGTERM, os.kill, 143, marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGTERM, os.killpg, 143, marks=pytest.mark.exhaustive),  # ends its workers
    ],
)
def test_a_signal_saves_the_run_and_prints_the_command_that_resumes_it(
    number: signal.Signals, send: Callable[[int, int], None], code: int, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    long = ["--steps", "4_000", "--storage", "raw", "--workers", "1"]
    training = subprocess.Popen(
        _command("train", "Breakout", *long, "--run-dir", str(run), *SHORT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "300"},
        start_new_session=True,
    )
    try:
        assert training.stdout is not None
        while "memory: about" not in (line := training.stdout.readline()):
            assert line
        time.sleep(0.5)  # the first steps
        send(training.pid, number)
        output, _ = training.communicate(timeout=60)
    finally:
        training.kill()

    assert training.returncode == code
    assert "stopping: saving the run" in output
    if (number, send) != (signal.SIGTERM, os.killpg):
        assert "the episodes of environments" not in output, "no worker was lost"
    assert re.search(rf"resume\s+framestow train --resume {re.escape(str(run))}\s*\n", output)
    newest = newest_checkpoint(run / "checkpoints")
    assert newest is not None
    saved_steps = int(newest.name.removeprefix("step-"))
    assert saved_steps > 0
    assert main(["train", "--resume", str(run), "--steps", str(saved_steps + 4)]) == 0
