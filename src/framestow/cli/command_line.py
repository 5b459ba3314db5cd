"""Parse the command line, run the subcommand, and print an error as one line with an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

import tyro
from rich.console import Console
from rich.markup import escape

from framestow import __version__
from framestow.cli.bench import Bench
from framestow.cli.evaluate import Evaluate
from framestow.cli.export_data import Export
from framestow.cli.import_data import Import
from framestow.cli.inspect import Inspect
from framestow.cli.repair import Repair
from framestow.cli.report import Report
from framestow.cli.train import train_command
from framestow.cli.verify import Verify
from framestow.cli.watch import Watch
from framestow.errors import CheckpointError, DivergedError, FramestowError

FAILED, REFUSED = 1, 2

DESCRIPTION = """Deep Q-learning from pixels, with a million transitions in a few hundred megabytes.

Train on Breakout for a few minutes, then evaluate the agent and record a video:

    framestow train Breakout
    framestow evaluate runs/Breakout-machado2018-s0-20260131-174500
    framestow watch runs/Breakout-machado2018-s0-20260131-174500

Write a page with the learning curve and the scores of one run, or of several seeds:

    framestow report runs/Breakout-machado2018-s0-20260131-174500

Ctrl-C saves the run. Resume it and train up to a million agent steps:

    framestow train --resume runs/Breakout-machado2018-s0-20260131-174500 --steps 1_000_000

Print what the replay memory of a run contains, check every byte of it, and repair it after disk damage:

    framestow inspect runs/Breakout-machado2018-s0-20260131-174500
    framestow verify runs/Breakout-machado2018-s0-20260131-174500
    framestow repair runs/Breakout-machado2018-s0-20260131-174500

Compare memory use and sampling speed with the other replay libraries on this machine:

    framestow bench Breakout

Convert the DQN Replay Dataset or a Minari dataset into a store, and a store into one of them:

    framestow import dqn-replay dqn/Breakout/1 --to stores/breakout
    framestow export minari stores/breakout --to datasets --dataset-id atari/breakout/logged-v0

framestow COMMAND --help explains each command."""


class Command(Protocol):
    """A subcommand with its arguments."""

    def run(self, console: Console) -> int:
        """Run the command and return the exit code."""


def run_command_line(arguments: list[str]) -> int:
    """Run the subcommand that ``arguments`` name and return the exit code.

    ==== ====================================================================
    code meaning
    ==== ====================================================================
    0    success
    1    failed while running: a full disk, a training that diverged; ``verify`` and ``repair --dry-run``: the memory
         is damaged
    2    refused: no command, a wrong argument, setting or file, or a missing extra
    130  stopped by Ctrl-C; ``train`` saves the run first
    143  stopped by SIGTERM; ``train`` saves the run first
    ==== ====================================================================
    """
    if arguments == ["--version"]:
        print(f"framestow {__version__}")
        return 0
    if not arguments:
        with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
            _parsed(["--help"])
        return REFUSED
    errors = Console(stderr=True)
    try:
        return _parsed([_with_home_folder(argument) for argument in arguments]).run(Console())
    except (FramestowError, OSError) as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        is_refused = isinstance(error, FramestowError) and not isinstance(error, (CheckpointError, DivergedError))
        return REFUSED if is_refused else FAILED


def _with_home_folder(argument: str) -> str:
    """Replace a leading ``~/`` by the home folder. Shells do not expand it in ``--to=~/stores``."""
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    return f"{option}{equals}{os.path.expanduser(value)}" if value.startswith("~/") else argument


def _parsed(arguments: list[str]) -> Command:
    commands: dict[str, Callable[..., Any]] = {
        "train": train_command(arguments),
        "evaluate": Evaluate,
        "watch": Watch,
        "report": Report,
        "inspect": Inspect,
        "verify": Verify,
        "repair": Repair,
        "bench": Bench,
        "import": Import,
        "export": Export,
    }
    command: Command = tyro.extras.subcommand_cli_from_dict(
        commands, prog="framestow", description=DESCRIPTION, args=arguments
    )
    return command
