"""Shows how the run is going: a live line on a terminal, a plain one now and then elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from framestow.process_memory import resident_bytes
from framestow.replay.byte_amounts import format_bytes
from framestow.training.events import Event, Learned, StepTaken
from framestow.training.run import Run
from framestow.training.tally import NUM_RECENT

LIVE_INTERVAL_S = 0.25
PLAIN_INTERVAL_S = 10.0
TABLE_WIDTH = 124  # columns of a terminal, from which on names stand above values
RATE_WINDOW_S = 10.0  # the rate is that of about so many seconds


class Progress:
    """Tells steps and rate, episodes, mean score, loss, epsilon, memory held, process memory and time left."""

    def __init__(self, run: Run, console: Console) -> None:
        self._run = run
        self._console = console
        self._loss: Learned | None = None
        now = time.monotonic()
        self._shown_at = now
        self._marks = [(now, run.tally.agent_steps)]  # (time, steps), from which the rate is taken
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        if self._live:
            self._live.start()

    def take(self, event: Event) -> None:
        """Show the state when it is time."""
        if isinstance(event, Learned):
            self._loss = event
        elif isinstance(event, StepTaken):
            interval = LIVE_INTERVAL_S if self._live else PLAIN_INTERVAL_S
            if time.monotonic() - self._shown_at >= interval:
                self._show()

    def close(self) -> None:
        """Show the last state and leave the terminal as it was."""
        self._show()
        if self._live:
            self._live.stop()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        fields = self._fields()
        line = Text(" · ".join(f"{name} {value}" for name, value in fields.items()))
        if self._live:
            self._live.update(_table(fields) if self._console.width >= TABLE_WIDTH else line, refresh=True)
        else:
            self._console.print(line, soft_wrap=True)

    def _fields(self) -> dict[str, str]:
        run, tally = self._run, self._run.tally
        rate = self._rate()
        steps_left = max(0, run.settings.steps - tally.agent_steps)
        score = tally.mean_recent_score
        return {
            "steps": f"{tally.agent_steps:,}/{run.settings.steps:,}",
            "rate": f"{rate:,.0f}/s",
            "episodes": f"{tally.episodes:,}",
            f"score of last {NUM_RECENT}": "-" if score is None else f"{score:.2f}",
            "loss": "-" if self._loss is None else f"{float(self._loss.loss):.4f}",
            "epsilon": f"{run.agent.epsilon(tally.agent_steps):.3f}",
            "memory": f"{len(run.memory):,} in {format_bytes(run.memory.nbytes)}",
            "process": format_bytes(resident_bytes()),
            "left": _duration(steps_left / rate) if rate > 0 else "-",
        }

    def _rate(self) -> float:
        now, steps = time.monotonic(), self._run.tally.agent_steps
        self._marks.append((now, steps))
        while len(self._marks) > 2 and now - self._marks[1][0] > RATE_WINDOW_S:
            del self._marks[0]
        then, steps_then = self._marks[0]
        return (steps - steps_then) / max(now - then, 1e-9)


def _table(fields: dict[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in fields:
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*(Text(name, style="dim") for name in fields))
    table.add_row(*fields.values())
    return table


def _duration(seconds: float) -> str:
    """Write a duration for people.

    >>> [_duration(seconds) for seconds in (9, 61, 3_700, 200_000)]
    ['9 s', '1:01 min', '1:01 h', '2 d 7 h']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60}:{whole % 60:02d} min"
    if whole < 86_400:
        return f"{whole // 3_600}:{whole % 3_600 // 60:02d} h"
    return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"
