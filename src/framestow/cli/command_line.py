"""The commands; parse the command line, run a command, and print an error as one line with an exit code.

Needs no extra, so ``framestow --help`` works where only framestow and NumPy are installed.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from framestow import __version__
from framestow.checks import find_by_name
from framestow.cli.output import FAILED, fit, say
from framestow.errors import CheckpointError, DivergedError, FramestowError, InvalidSettingsError, MissingExtraError
from framestow.extras import check_extra
from framestow.interface import printable

if TYPE_CHECKING:
    from rich.console import Console


class CommandEntry(NamedTuple):
    """A command of ``framestow``."""

    name: str
    """What the user writes: ``inspect``, ``import minari``."""
    extra: str
    """The extra with all packages that the command needs."""
    module: str
    """The module below ``framestow.cli``."""
    factory: str
    """A dataclass with the command's arguments, or a function that returns one for the arguments given."""
    summary: str
    """What the command does, in a few words."""

    def load(self) -> Any:
        """Import the command's module and return its factory."""
        return getattr(import_module(f"framestow.cli.{self.module}"), self.factory)


COMMANDS: dict[str, CommandEntry] = {
    entry.name: entry
    for entry in (
        CommandEntry("train", "train", "train", "train_command", "train DQN on an Atari game"),
        CommandEntry("evaluate", "train", "play", "Evaluate", "play games with a trained agent, print its scores"),
        CommandEntry("watch", "train", "play", "Watch", "record a video of a trained agent"),
        CommandEntry("report", "train", "report", "Report", "write an HTML page about one run or several"),
        CommandEntry("inspect", "cli", "inspect", "Inspect", "print what a replay memory contains"),
        CommandEntry("view", "cli", "view", "View", "show a replay memory in a browser"),
        CommandEntry("verify", "cli", "check", "Verify", "check every byte of a replay memory"),
        CommandEntry("repair", "cli", "check", "Repair", "remove the damaged parts of a replay memory"),
        CommandEntry("import dqn-replay", "cli", "data", "ImportDqnReplay", "read the DQN Replay Dataset"),
        CommandEntry("import minari", "offline", "data", "ImportMinari", "read a Minari dataset"),
        CommandEntry("import memory", "cli", "data", "ImportMemory", "read saved memories into a new one"),
        CommandEntry(
            "import arrays", "offline", "data", "ImportArrays", "read files of D4RL, d3rlpy, DrQ-v2, …, or .npz"
        ),
        CommandEntry("export minari", "offline", "data", "ExportMinari", "write a Minari dataset"),
        CommandEntry("export arrays", "offline", "data", "ExportArrays", "write a file for D4RL or d3rlpy, or .npz"),
        CommandEntry("bench", "bench", "bench", "Bench", "compare replay libraries on this machine"),
    )
}
MEANT = {
    "play": "'evaluate', or 'watch' for a video",
    "test": "'evaluate'",
    "eval": "'evaluate'",
    "record": "'watch'",
    "render": "'watch'",
    "video": "'watch'",
    "show": "'view'",
    "plot": "'report'",
    "info": "'inspect'",
    "check": "'verify'",
    "convert": "'import' or 'export'",
    "load": "'import'",
    "benchmark": "'bench'",
}
"""Commands by the words that people try for them."""

EXAMPLE_RUN = "runs/Breakout-baselines-s0-20260131-174500"  # what `framestow train Breakout` would have written then


def find_command(arguments: list[str]) -> tuple[CommandEntry, list[str]]:
    """Return the command that ``arguments`` begin with, and the arguments after its name.

    Raises:
        InvalidSettingsError: there is none; the message has the one that is meant, or the nearest name.

    >>> (
    ...     find_command(["import", "minari", "--help"])[1],
    ...     find_command(["verify", "runs"])[1],
    ... )
    (['--help'], ['runs'])
    """
    if arguments[0] in MEANT:
        raise InvalidSettingsError(
            f"command is {arguments[0]!r}: no command has this name; did you mean {MEANT[arguments[0]]}?"
        )
    in_group = commands_of(arguments[0])
    num_words = 2 if in_group else 1
    return find_by_name("command", " ".join(arguments[:num_words]), in_group or COMMANDS), arguments[num_words:]


def commands_of(group: str) -> dict[str, CommandEntry]:
    """Return the commands of a group such as ``import``, by name; none for a command."""
    return {name: entry for name, entry in COMMANDS.items() if name.startswith(f"{group} ")}


def describe_commands(group: str = "") -> str:
    """Return the help of ``framestow``, or of a group of commands: a line for each."""
    entries = commands_of(group) or COMMANDS
    rows = "\n".join(f"  {name:<18} {entry.summary:<50} {entry.extra}" for name, entry in entries.items())
    return fit(
        f"usage: framestow {f'{group} FORMAT' if group else 'COMMAND'}\n\n"
        f"Replay memory for deep reinforcement learning from pixels, and a DQN trainer that uses it.\n\n{rows}\n\n"
        'The last word is the extra that a command needs: pip install "framestow[train]"\n'
        f"framestow {next(iter(entries))} --help explains a command, with examples.\n"
        "To begin: framestow train Breakout"
    )


REFUSED = 2  # exit code of wrong arguments
HELP = {"-h", "--help"}


class Command(Protocol):
    """A command with its arguments."""

    def run(self, console: Console) -> int:
        """Run the command and return the exit code."""


def run_command_line(arguments: list[str]) -> int:
    """Run the command that ``arguments`` name and return the exit code.

    ==== ====================================================================
    code meaning
    ==== ====================================================================
    0    success
    1    failed while running: a full disk, a training that diverged; ``verify`` and ``repair --dry-run``: the memory
         is damaged
    2    refused: no command, a wrong argument, setting or file, or a missing extra
    130  stopped by Ctrl-C; ``train`` saves the run first
    141  stopped because the program that read the output has ended
    143  stopped by SIGTERM; of ``train`` also because the program that read its output has ended; it saves the run
         first
    ==== ====================================================================
    """
    if arguments == ["--version"]:
        say(f"framestow {__version__}")
        return 0
    group = arguments[0] if arguments and commands_of(arguments[0]) else ""
    named = arguments[1:] if group else arguments
    if not named or named[0] in HELP:
        say(describe_commands(group), sys.stdout if named else sys.stderr)
        return 0 if named else REFUSED
    try:
        entry, given = find_command(arguments)
        return _run(entry, [_with_home_folder(argument) for argument in given])
    except ImportError as error:
        return _refuse(_describe_missing(error, entry))
    except FramestowError as error:
        return _refuse(str(error))


def _run(entry: CommandEntry, arguments: list[str]) -> int:
    command_type: type[Any] = type(None)
    try:
        # Arrays need h5py alone, also beside d3rlpy's older Gymnasium: the readers of "offline" check what they need.
        check_extra(f"framestow {entry.name}", "cli" if entry.extra == "offline" else entry.extra)
        factory = entry.load()
        from framestow.cli.arguments import help_text, read_arguments  # noqa: PLC0415 -- needs an extra
        from framestow.cli.printing import Terminal, library_messages  # noqa: PLC0415 -- likewise

        command_type = factory if inspect.isclass(factory) else factory(arguments)
        name, terminal = f"framestow {entry.name}", Terminal()
        if not HELP.isdisjoint(arguments):
            say(help_text(name, command_type))
            return 0
        command: Command = read_arguments(name, command_type, arguments)
        with library_messages(Terminal(stderr=True)):
            return command.run(terminal)
    except ImportError:
        raise
    except (FramestowError, OSError, MemoryError) as error:
        code = _refuse(_with_option(_message_of(error), command_type, arguments))
        is_refused = isinstance(error, FramestowError) and not isinstance(error, (CheckpointError, DivergedError))
        return code if is_refused else FAILED


def _describe_missing(error: ImportError, entry: CommandEntry) -> str:
    """Return which package a command lacks, with the extra that has all it needs; raise again what is no such error."""
    is_named = isinstance(error, MissingExtraError)
    of_an_option = entry.extra == "cli" or "framestow[ray]" in str(error) or "framestow[" not in str(error)
    if is_named and of_an_option:
        return str(error)
    missing = error.__cause__ if is_named else error
    package = (getattr(missing, "name", None) or "").partition(".")[0]
    if package in ("", "framestow"):
        raise error
    extra = f'pip install "framestow[{entry.extra}]"'
    return f"framestow {entry.name} needs {package}, which is not installed; run: {extra}"


def _message_of(error: Exception) -> str:
    """Return what an error says; one of the system names its file first, and not as ``PosixPath('…')``."""
    if isinstance(error, MemoryError):
        return f"out of memory: {error}"
    if isinstance(error, OSError) and error.strerror and not isinstance(error, FramestowError):
        named = [os.fsdecode(name) for name in (error.filename, error.filename2) if name]
        return ": ".join([" to ".join(named), error.strerror] if named else [error.strerror])
    return str(error)


def _with_home_folder(argument: str) -> str:
    """Replace a leading ``~/`` by the home folder. Shells do not expand it in ``--to=~/stores``."""
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    return f"{option}{equals}{os.path.expanduser(value)}" if value.startswith("~/") else argument


def _with_option(message: str, command_type: type[Any], arguments: list[str]) -> str:
    """Replace the name of an argument at the beginning of ``message`` by the option: ``--num-envs is 0: …``.

    ``arguments`` are those of the command line, whose options may be wrong before the command's type is known.
    """
    name, _, rest = message.partition(" ")
    option = f"--{name.replace('_', '-')}"
    is_option = name in _option_names(command_type)
    is_given = any(argument.partition("=")[0] == option for argument in arguments)
    return f"{option} {rest}" if (is_option or is_given) and re.match(r"(is|has)\b", rest) else message


def _option_names(command_type: type[Any]) -> Iterator[str]:
    """Yield the names of a command's options, also of those in groups."""
    for field in dataclasses.fields(command_type) if dataclasses.is_dataclass(command_type) else ():
        if dataclasses.is_dataclass(field.default):
            yield from _option_names(type(field.default))
        elif "Positional" not in str(field.type):
            yield field.name


def _refuse(message: str) -> int:
    """Print ``message`` as one line and return the exit code of a refusal."""
    say(f"error: {printable(message)}", sys.stderr)
    return REFUSED
