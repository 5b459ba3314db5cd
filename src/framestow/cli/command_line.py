"""Reads the command line, hands over to a subcommand and turns errors into one line and an exit code."""

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
from framestow.cli.train import train_command
from framestow.cli.verify import Verify
from framestow.cli.watch import Watch
from framestow.errors import CheckpointError, FramestowError

FAILED, REFUSED = 1, 2

DESCRIPTION = """Deep Q-learning from pixels, with a million transitions in a few hundred megabytes.

Train on Breakout for a few minutes, then see what was learnt:

    framestow train Breakout
    framestow evaluate runs/Breakout-machado2018-s0-20260131-174500
    framestow watch runs/Breakout-machado2018-s0-20260131-174500

Ctrl-C saves the run. Go on with it, as if it had never stopped:

    framestow train --resume runs/Breakout-machado2018-s0-20260131-174500 --steps 1_000_000

Look at the memory that a run has kept, check every byte of it, and keep what is whole where the disk damaged it:

    framestow inspect runs/Breakout-machado2018-s0-20260131-174500
    framestow verify runs/Breakout-machado2018-s0-20260131-174500
    framestow repair runs/Breakout-machado2018-s0-20260131-174500

See what a game's transitions take on this machine, beside the other libraries that are installed:

    framestow bench Breakout

Make a store of the DQN Replay Dataset or of a Minari dataset, and the other way round:

    framestow import dqn-replay dqn/Breakout/1 --to stores/breakout
    framestow export minari stores/breakout --to datasets --dataset-id atari/breakout/logged-v0

framestow COMMAND --help tells about each."""


class Command(Protocol):
    """A subcommand with its arguments."""

    def run(self, console: Console) -> int:
        """Do it and return the exit code."""


def run_command_line(arguments: list[str]) -> int:
    """Run the subcommand that ``arguments`` name and return the exit code.

    ==== ====================================================================
    code meaning
    ==== ====================================================================
    0    done
    1    failed on the way: a full disk, a checkpoint that could not be written
    2    refused: an argument, a setting, a file or an extra is not as it must be, or no command was given
    130  stopped by Ctrl-C, after saving where there was something to save; ``framestow.cli.main`` gives it
    143  stopped by SIGTERM, after saving
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
        is_refused = isinstance(error, FramestowError) and not isinstance(error, CheckpointError)
        return REFUSED if is_refused else FAILED


def _with_home_folder(argument: str) -> str:
    """Put the home folder in the place of ``~/``, which shells leave as it is in ``--to=~/stores``."""
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    return f"{option}{equals}{os.path.expanduser(value)}" if value.startswith("~/") else argument


def _parsed(arguments: list[str]) -> Command:
    commands: dict[str, Callable[..., Any]] = {
        "train": train_command(arguments),
        "evaluate": Evaluate,
        "watch": Watch,
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
