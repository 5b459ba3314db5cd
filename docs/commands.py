"""Write ``docs/commands.md``: what each command of ``framestow`` prints with ``--help``.

python docs/commands.py

Needs ``pip install "framestow[train,bench,offline]"``. A test compares the page with what the commands print.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from unittest.mock import patch

from framestow.cli import main
from framestow.cli.command_line import COMMANDS

PAGE = Path(__file__).with_name("commands.md")
COLUMNS = "80"  # the width of the texts
HEAD = """# Commands

What each command of `framestow` prints with `--help`; `python docs/commands.py` writes this page.

| command | does | needs |
|---|---|---|
"""


def page() -> str:
    """Return the page: a table of all commands, then the help of each."""
    anchors = {name: f"framestow-{name.replace(' ', '-')}" for name in COMMANDS}
    rows = "".join(
        f"| [`framestow {name}`](#{anchors[name]}) | {entry.summary} | `framestow[{entry.extra}]` |\n"
        for name, entry in COMMANDS.items()
    )
    sections = "".join(f"\n## framestow {name}\n\n```text\n{help_of(name)}\n```\n" for name in COMMANDS)
    return f"{HEAD}{rows}{sections}"


def help_of(name: str) -> str:
    """Return what the command prints with ``--help``."""
    printed = io.StringIO()
    # Two cores, since the number of cores decides some defaults.
    with contextlib.redirect_stdout(printed), patch("framestow.training.settings.num_cores", lambda: 2):
        main([*name.split(), "--help"])
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


if __name__ == "__main__":
    os.environ["COLUMNS"] = COLUMNS
    PAGE.write_text(page(), encoding="utf-8")
