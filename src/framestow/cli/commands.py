"""List the commands: what each does, which extra it needs, and the text of ``framestow --help``.

This module needs no extra, so ``framestow --help`` works where only framestow and NumPy are installed.
"""

from __future__ import annotations

import re
import textwrap
from importlib import import_module
from typing import Any, NamedTuple

from framestow.argument_checks import find_by_name
from framestow.errors import MissingExtraError

WIDTH = 80  # characters
PURPOSE = "Deep Q-learning from pixels, with a million transitions in a few hundred megabytes."


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
        CommandEntry("export dqn-replay", "cli", "export_data", "ExportDqnReplay", "write that dataset's layout"),
        CommandEntry("import minari", "offline", "import_data", "ImportMinari", "read a Minari dataset"),
        CommandEntry("export minari", "offline", "export_data", "ExportMinari", "write a Minari dataset"),
        CommandEntry("bench", "bench", "bench", "Bench", "compare replay libraries on this machine"),
    )
}
_PACKAGES = {  # by extra: the modules that it brings
    "train": frozenset(
        {"tyro", "rich", "torch", "tensorboard", "psutil", "imageio_ffmpeg", "gymnasium", "ale_py", "cv2", "PIL"}
    ),
    "cli": frozenset({"tyro", "rich"}),
    "offline": frozenset({"tyro", "rich", "minari", "gymnasium", "h5py"}),
    "bench": frozenset({"tyro", "rich", "gymnasium", "ale_py", "cv2", "matplotlib", "psutil"}),
}

EXAMPLE_RUN = "runs/Breakout-baselines-s0-20260131-174500"  # what `framestow train Breakout` would have written then
EXAMPLES = f"""Train on Breakout for a few minutes. Then play games with the agent, record a video, and write a page
with the learning curve:

  framestow train Breakout
  framestow evaluate {EXAMPLE_RUN}
  framestow watch {EXAMPLE_RUN}
  framestow report {EXAMPLE_RUN}

Ctrl-C saves the run. Resume it and train up to a million agent steps:

  framestow train --resume {EXAMPLE_RUN} --steps 1M

Look into the replay memory of a run, in a browser:

  framestow view {EXAMPLE_RUN}

Print what it contains, check every byte of it, and repair it after disk damage:

  framestow inspect {EXAMPLE_RUN}
  framestow verify {EXAMPLE_RUN}
  framestow repair {EXAMPLE_RUN}

Convert the DQN Replay Dataset or a Minari dataset into a store, and a store into one of them:

  framestow import dqn-replay dqn/Breakout/1 --to stores/breakout
  framestow import minari atari/breakout/expert-v0 --to stores/expert
  framestow export dqn-replay stores/expert --to dqn/expert

Compare memory use and sampling speed with the other replay libraries on this machine:

  framestow bench Breakout

Options that count take 150_000, 150k, 1.5M or 1e6. framestow COMMAND --help explains a command."""


def find_command(arguments: list[str]) -> tuple[CommandEntry, list[str]]:
    """Return the command that ``arguments`` begin with, and the arguments after its name.

    Raises:
        InvalidSettingsError: there is none; the message has the nearest name.

    >>> find_command(["import", "minari", "--help"])[1], find_command(["verify", "runs"])[1]
    (['--help'], ['runs'])
    """
    is_in_group = arguments[0] in _GROUPS
    names = {name: entry for name, entry in COMMANDS.items() if not is_in_group or _group(name) == arguments[0]}
    num_words = 2 if is_in_group else 1
    return find_by_name("command", " ".join(arguments[:num_words]), names), arguments[num_words:]


def _group(name: str) -> str:
    return name.partition(" ")[0]


_GROUPS = {_group(name) for name in COMMANDS if " " in name}


def is_group(arguments: list[str]) -> bool:
    """Return whether ``arguments`` name a group of commands, such as ``import``, and none of them."""
    return arguments[0] in _GROUPS and (len(arguments) == 1 or asks_for_help(arguments[1:2]))


def asks_for_help(arguments: list[str]) -> bool:
    """Return whether ``-h`` or ``--help`` is among ``arguments``."""
    return not {"-h", "--help"}.isdisjoint(arguments)


def describe_commands(group: str = "") -> str:
    """Return the help of ``framestow``, or of a group of commands: the commands by extra, and examples."""
    entries = [entry for entry in COMMANDS.values() if not group or _group(entry.name) == group]
    by_extra = {extra: [one for one in entries if one.extra == extra] for extra in _PACKAGES}
    tables = [
        f'pip install "framestow[{extra}]" installs what these need:\n'
        + "\n".join(f"  {entry.name:<18} {entry.summary}" for entry in needing)
        for extra, needing in by_extra.items()
        if needing
    ]
    if group:
        hint = f"framestow {entries[0].name} --help explains a command."
        return "\n\n".join([f"usage: framestow {group} FORMAT", *tables, hint])
    return "\n\n".join(["usage: framestow COMMAND", wrap(PURPOSE), *tables, wrap(EXAMPLES)])


def wrap(text: str) -> str:
    """Return ``text`` with its paragraphs wrapped to 80 columns; indented paragraphs stay as they are."""
    paragraphs = re.split(r"\n{2,}", text.strip("\n"))
    return "\n\n".join(one if one.startswith(" ") else textwrap.fill(one, WIDTH) for one in paragraphs)


def describe_missing_package(error: ImportError, command: CommandEntry) -> str | None:
    """Return which package the command lacks and how to install it; ``None`` if no extra of the command has it."""
    if isinstance(error, MissingExtraError):
        cause = error.__cause__
        error = cause if isinstance(cause, ImportError) else error
    package = (error.name or "").partition(".")[0]
    if package not in _PACKAGES[command.extra]:
        return None
    return (
        f"framestow {command.name} needs {package}, which is not installed; "
        f'run: pip install "framestow[{command.extra}]"'
    )
