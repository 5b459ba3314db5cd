"""``framestow report``: write what runs did as one HTML page."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from framestow.cli.arguments import check_output
from framestow.cli.printing import ProgressDisplay, print_line
from framestow.errors import InvalidSettingsError


@dataclasses.dataclass(frozen=True)
class Report:
    """Write one HTML page about a run: its learning curve, scores, loss, rate, bytes, a clip and its settings.

      framestow report runs/Breakout-baselines-s0-20260131-174500
      framestow report runs/Pong-baselines-* --output pong.html

    Several runs of one game are compared. Of those that differ only in the seed it prints mean, median and
    interquartile mean, each with a 95 % interval. The page is one file without scripts, which needs no network. Works
    while the runs are still training.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of the runs."""

    output: Path | None = None
    """HTML file; None takes report.html in the run folder, or in the current folder for several runs."""

    clip: bool = True
    """Show a video of the agent of the first run: the newest GAME-*.mp4 in its folder, else one recorded now."""

    follow_links: bool = False
    """Follow checkpoints or a memory in the run folder that are links to folders elsewhere. Only for runs you trust."""

    def run(self, console: Console) -> int:
        """Write the page and return the exit code."""
        if not self.runs:
            raise InvalidSettingsError("there are no runs: a report needs at least 1; give the folder of a run")
        output = self.output or (self.runs[0] if len(self.runs) == 1 else Path()) / "report.html"
        if self.output or output.parent.is_dir():  # else it is no run, which is the better reason
            check_output("output", output)
        with ProgressDisplay(console, "writing the report"):
            from framestow.training.report.page import AVERAGE_COLUMNS, write_report  # noqa: PLC0415 -- imports PyTorch

            averages = write_report(self.runs, output, self.clip, follow_links=self.follow_links)
        if averages:
            table = Table(*AVERAGE_COLUMNS, box=SIMPLE_HEAD, show_edge=False)
            for row in averages:
                table.add_row(*row)
            console.print(table)
        print_line(console, f"report written to {output}")
        return 0
