"""Parse the command line, run the command, and print an error as one line with an exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Protocol

from framestow import __version__
from framestow.cli.commands import (
    CommandEntry,
    asks_for_help,
    describe_commands,
    describe_missing_package,
    find_command,
    is_group,
    wrap,
)
from framestow.errors import CheckpointError, DivergedError, FramestowError

if TYPE_CHECKING:
    from rich.console import Console

FAILED, REFUSED = 1, 2  # exit codes: of an error, and of wrong arguments


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
    143  stopped by SIGTERM; ``train`` saves the run first
    ==== ====================================================================
    """
    if arguments == ["--version"]:
        print(f"framestow {__version__}")
        return 0
    if not arguments or asks_for_help(arguments[:1]):
        print(describe_commands(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else REFUSED
    if is_group(arguments):
        is_help = len(arguments) > 1
        print(describe_commands(arguments[0]), file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else REFUSED
    try:
        entry, given = find_command(arguments)
    except FramestowError as error:
        return _refuse(str(error))
    try:
        return _run(entry, [_with_home_folder(argument) for argument in given])
    except ImportError as error:
        missing = describe_missing_package(error, entry)
        if missing is None and not isinstance(error, FramestowError):
            raise
        return _refuse(missing or str(error))


def _run(entry: CommandEntry, arguments: list[str]) -> int:
    command_type: type[Any] = type(None)
    try:
        factory = entry.load()
        command_type = factory if inspect.isclass(factory) else factory(arguments)
        if asks_for_help(arguments):
            _print_help(entry, command_type)
            return 0
        command = _parse(entry, command_type, arguments)
        from rich.console import Console  # noqa: PLC0415 -- needs an extra

        return command.run(Console())
    except ImportError:
        raise
    except (FramestowError, OSError, MemoryError) as error:
        message = f"out of memory: {error}" if isinstance(error, MemoryError) else str(error)
        code = _refuse(_with_option(message, command_type, arguments))
        is_refused = isinstance(error, FramestowError) and not isinstance(error, (CheckpointError, DivergedError))
        return code if is_refused else FAILED


def _print_help(entry: CommandEntry, command_type: type[Any]) -> None:
    """Print what the command does, with examples, then its options."""
    try:
        print(wrap(inspect.getdoc(command_type) or ""), end="\n\n", flush=True)
        with contextlib.suppress(SystemExit):
            _read(entry, command_type, ["--help"])
        sys.stdout.flush()
    except BrokenPipeError:  # `--help | head` has read enough
        from framestow.cli.printing import discard_output  # noqa: PLC0415 -- needs an extra

        discard_output(sys.stdout)


def _parse(entry: CommandEntry, command_type: type[Any], arguments: list[str]) -> Command:
    from framestow.cli.usage_errors import one_line_errors  # noqa: PLC0415 -- only where it is needed

    with one_line_errors(f"framestow {entry.name}"):
        return _read(entry, command_type, arguments)


def _read(entry: CommandEntry, command_type: type[Any], arguments: list[str]) -> Command:
    import tyro  # noqa: PLC0415 -- needs an extra

    from framestow.cli.numbers import NUMBERS  # noqa: PLC0415 -- likewise

    with NUMBERS:
        command: Command = tyro.cli(command_type, prog=f"framestow {entry.name}", description="", args=arguments)
    return command


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
    fields = dataclasses.fields(command_type) if dataclasses.is_dataclass(command_type) else ()
    is_option = any(field.name == name and "Positional" not in str(field.type) for field in fields)
    is_given = any(argument.partition("=")[0] == option for argument in arguments)
    return f"{option} {rest}" if (is_option or is_given) and re.match(r"(is|has)\b", rest) else message


def _refuse(message: str) -> int:
    """Print ``message`` as one line and return the exit code of a refusal."""
    print(f"error: {message}", file=sys.stderr)
    return REFUSED
