"""Progress bars: on a terminal of 80 columns, and with the output in a file."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from framestow.cli.check import Repair, Verify
from framestow.cli.data import ExportMinari, ImportDqnReplay
from framestow.cli.inspect import Inspect
from framestow.cli.printing import ProgressDisplay
from oracles.dopamine_memory import write_dopamine_log
from oracles.small_plays import SmallPlay


def _terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, height=24, color_system=None)


def _lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue().replace("\r", "\n")).splitlines()


@pytest.mark.parametrize(("unit", "amount"), [("bytes", "2.0/8.0 GiB"), ("items", "2147483648/8589934592")])
def test_a_bar_shows_the_amount_and_the_time_left_in_80_columns(unit: Literal["bytes", "items"], amount: str) -> None:
    console = _terminal()

    with ProgressDisplay(console, "exporting", unit) as progress:
        progress(2 << 30, 8 << 30)

    shown = [line for line in _lines(console) if amount in line]
    assert re.fullmatch(rf"exporting ━+ +{re.escape(amount)} -:--:--", shown[-1].strip())
    assert max(map(len, _lines(console))) <= 80


def test_a_part_begins_with_a_bar_of_its_own() -> None:
    console = _terminal()

    with ProgressDisplay(console, unit="items") as progress:
        progress.show_part("playing", 500, 500)
        progress.show_part("timing", 2, 20)

    assert any(re.match(r"timing .* 2/20 ", line) for line in _lines(console))


def test_without_a_terminal_nothing_is_written() -> None:
    console = Console(file=io.StringIO())

    with ProgressDisplay(console, "verifying", "bytes") as progress:
        progress(2, 8)

    assert _lines(console) == []


def test_every_command_on_a_store_shows_what_it_does_meanwhile(tmp_path: Path) -> None:
    play = SmallPlay(((5, "terminated"), (5, "terminated"))).recorded()
    play.memory.save(store := tmp_path / "store")
    logs = write_dopamine_log(play, tmp_path / "logs")
    commands = {
        "reading the memory": Inspect(store),
        "verifying": Verify(store),
        "verifying ": Repair(store),
        "exporting": ExportMinari(store, tmp_path / "datasets", "made/here-v0"),
        "importing": ImportDqnReplay(logs, tmp_path / "imported"),
    }

    for meanwhile, command in commands.items():
        console = _terminal()
        assert command.run(console) == 0
        assert any(line.startswith(meanwhile.strip()) and "━" in line for line in _lines(console)), meanwhile
