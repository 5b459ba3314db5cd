"""Training goes on, or stops in order, when its output cannot be printed any more."""

import errno
import io
import os
import pty
import threading
from pathlib import Path

import pytest
from rich.console import Console

from framestow.cli import main
from framestow.cli.printing import discard_failed_output, print_line
from framestow.training import listeners
from framestow.training.checkpoint import newest_checkpoint

MANY_STEPS = ["--recipe", "dqn", "--num-envs", "2", "--warmup", "40", "--train-every", "20", "--steps", "20_000"]


def test_text_for_a_closed_pipe_is_dropped_and_said_once() -> None:
    read, write = os.pipe()
    os.close(read)
    closed = []
    with open(write, "w") as pipe:
        console = Console(file=pipe)
        with discard_failed_output(console, lambda: closed.append(True)):
            print_line(console, "nobody reads this")
            print_line(console, "nor this")

    assert closed == [True]


def test_text_for_a_closed_terminal_is_dropped() -> None:
    keyboard, screen = pty.openpty()
    os.close(keyboard)
    closed = []
    with open(screen, "w") as terminal:
        with pytest.raises(OSError, match="Input/output error"):
            Console(file=terminal).print("shown by nothing")
        console = Console(file=terminal)
        with discard_failed_output(console, lambda: closed.append(True)):
            print_line(console, "nor this")
        print_line(console, "nor what follows the training")

    assert not closed


class _FillingDisk(io.StringIO):
    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_text_is_printed_again_once_the_disk_has_space() -> None:
    file = _FillingDisk()
    console = Console(file=file)
    with discard_failed_output(console, on_closed_pipe=lambda: None):
        print_line(console, "lost")
        file.is_full = False
        print_line(console, "printed")

    assert file.getvalue() == "printed\n"


@pytest.mark.slow
def test_a_run_is_saved_when_the_reader_of_its_output_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_until_the_first_steps() -> None:
        with open(read) as lines:
            next(line for line in lines if line.startswith("steps "))

    monkeypatch.setattr(listeners, "PLAIN_INTERVAL_S", 0.0)
    read, write = os.pipe()
    reader = threading.Thread(target=read_until_the_first_steps)
    reader.start()
    run = tmp_path / "run"
    with open(write, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        code = main(["train", "Breakout", *MANY_STEPS, "--memory", "1_000", "--threads", "1", "--run-dir", str(run)])
    reader.join()

    assert code == 143
    assert newest_checkpoint(run / "checkpoints") is not None
