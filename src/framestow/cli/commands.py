"""List the commands: what each does, which extra it needs, and the text of ``framestow --help``.

This module needs no extra, so ``framestow --help`` works where only framestow and NumPy are installed.
"""

from __future__ import annotations

import textwrap
from importlib import import_module
from shutil import get_terminal_size
from typing import Any, NamedTuple

from framestow.checks import find_by_name


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
        CommandEntry("evaluate", "train", "evaluate", "Evaluate", "play games with a trained agent, print its scores"),
        CommandEntry("watch", "train", "watch", "Watch", "record a video of a trained agent"),
        CommandEntry("report", "train", "report", "Report", "write an HTML page about one run or several"),
        CommandEntry("inspect", "cli", "inspect", "Inspect", "print what a replay memory contains"),
        CommandEntry("view", "cli", "view", "View", "show a replay memory in a browser"),
        CommandEntry("verify", "cli", "verify", "Verify", "check every byte of a replay memory"),
        CommandEntry("repair", "cli", "repair", "Repair", "remove the damaged parts of a replay memory"),
        CommandEntry("import dqn-replay", "cli", "import_data", "ImportDqnReplay", "read the DQN Replay Dataset"),
        CommandEntry("import minari", "offline", "import_data", "ImportMinari", "read a Minari dataset"),
        CommandEntry("export minari", "offline", "export_data", "ExportMinari", "write a Minari dataset"),
        CommandEntry("bench", "bench", "bench", "Bench", "compare replay libraries on this machine"),
    )
}
EXAMPLE_RUN = "runs/Breakout-baselines-s0-20260131-174500"  # what `framestow train Breakout` would have written then


def find_command(arguments: list[str]) -> tuple[CommandEntry, list[str]]:
    """Return the command that ``arguments`` begin with, and the arguments after its name.

    Raises:
        InvalidSettingsError: there is none; the message has the nearest name.

    >>> find_command(["import", "minari", "--help"])[1], find_command(["verify", "runs"])[1]
    (['--help'], ['runs'])
    """
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
        f"Deep Q-learning from pixels, with a million transitions in a few hundred megabytes.\n\n{rows}\n\n"
        'The last word is the extra that a command needs: pip install "framestow[train]"\n'
        f"framestow {next(iter(entries))} --help explains a command, with examples.\n"
        "To begin: framestow train Breakout"
    )


def fit(text: str) -> str:
    """Return ``text`` with longer lines than the terminal (or ``COLUMNS``) broken between words."""
    width = get_terminal_size().columns
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join("\n".join(textwrap.wrap(line, width)) if len(line) > width else line for line in lines)
