"""Listeners of a training run: progress display, episodes.csv, TensorBoard curves, checkpoints and warnings.

The command line builds them; :func:`framestow.training.train` takes any number of them.
"""

from __future__ import annotations

import contextlib
import csv
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from framestow.errors import CheckpointError
from framestow.process_memory import resident_bytes
from framestow.replay.byte_amounts import format_bytes
from framestow.training.event_file import EventFile
from framestow.training.events import EpisodeEnded, EpisodesLost, Event, Learned, StepTaken
from framestow.training.run import NUM_RECENT, Run

LIVE_INTERVAL_S = 0.25
PLAIN_INTERVAL_S = 10.0
TABLE_WIDTH = 124  # characters; a narrower terminal gets one line instead of a table
RATE_WINDOW_S = 10.0  # the rate is the mean over about this time


class Progress:
    """Shows steps, rate, games, mean score, loss, epsilon, size of the memory, RAM of the process and time left."""

    def __init__(self, run: Run, console: Console) -> None:
        self._run = run
        self._console = console
        self._loss: Learned | None = None
        now = time.monotonic()
        self._shown_at = now
        self._marks = [(now, run.tally.agent_steps)]  # (time in s, agent steps) for the rate
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        if self._live:
            self._live.start()

    def take(self, event: Event) -> None:
        """Update the display at most every 0.25 s on a terminal and every 10 s elsewhere."""
        if isinstance(event, Learned):
            self._loss = event
        elif isinstance(event, StepTaken):
            interval = LIVE_INTERVAL_S if self._live else PLAIN_INTERVAL_S
            if time.monotonic() - self._shown_at >= interval:
                self._show()

    def close(self) -> None:
        """Show the last state and stop the live display."""
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
            "games": f"{tally.episodes:,}",
            f"score of last {NUM_RECENT}": "-" if score is None else f"{score:.2f}",
            "loss": "-" if self._loss is None else f"{float(self._loss.loss):.4f}",
            "epsilon": f"{run.agent.epsilon(tally.agent_steps):.3f}",
            "memory": f"{len(run.memory):,} in {format_bytes(run.memory.nbytes)}",
            "process": format_bytes(resident_bytes()),
            "time left": _duration(steps_left / rate) if rate > 0 else "-",
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
    """Format a duration.

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


COLUMNS = ["episode", "agent_steps", "env_id", "score", "length"]
UPDATES_BETWEEN_POINTS = 100  # reading a loss waits for the device
SECONDS_BETWEEN_POINTS = 10.0


class EpisodeTable:
    """Appends a line to episodes.csv for every finished game, before the next step.

    A resumed run first removes the lines after its checkpoint, because it plays those games again. On a full disk the
    lines stay buffered until a later write succeeds; the first failure calls ``warn``.
    """

    def __init__(self, path: Path, resumed_at: int, warn: Callable[[str], None]) -> None:
        kept = _rows_until(path, resumed_at) if path.exists() else []
        new = path.with_name(path.name + ".new")
        with new.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *kept])
        new.replace(path)
        self._file = path.open("a", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        self._warn: Callable[[str], None] | None = warn

    def take(self, event: Event) -> None:
        """Write the line of a finished game."""
        if not isinstance(event, EpisodeEnded):
            return
        self._writer.writerow([event.episode, event.agent_steps, event.env_id, event.score, event.length])
        try:
            self._file.flush()
        except OSError as error:
            self._warn_once(error)

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError as error:
            self._warn_once(error)

    def _warn_once(self, error: OSError) -> None:
        if self._warn:
            self._warn(f"{self._file.name} could not be written ({error.strerror}): new lines wait for free space")
            self._warn = None


class Curves:
    """Writes TensorBoard curves over agent steps.

    ====================================================  ==================
    curves                                                written
    ====================================================  ==================
    score and length                                      after each game
    loss and mean value                                   every 100 updates
    rate, epsilon, size of the memory and of the process  every 10 s
    ====================================================  ==================

    For a resumed run TensorBoard hides points after the checkpoint. If a point cannot be written, the listener calls
    ``warn`` and stops writing; training continues.
    """

    def __init__(self, run: Run, folder: Path, warn: Callable[[str], None]) -> None:
        self._run = run
        self._file: EventFile | None = EventFile(folder, run.tally.agent_steps)
        self._warn = warn
        self._point_time = time.monotonic()
        self._point_steps = run.tally.agent_steps

    def take(self, event: Event) -> None:
        """Write the points of ``event``."""
        if isinstance(event, EpisodeEnded):
            self._add({"episode/score": event.score, "episode/length": event.length})
        elif isinstance(event, Learned) and event.num_updates % UPDATES_BETWEEN_POINTS == 0:
            self._add({"learner/loss": float(event.loss), "learner/mean_value": float(event.mean_value)})
        elif isinstance(event, StepTaken) and time.monotonic() - self._point_time > SECONDS_BETWEEN_POINTS:
            self._add_state()

    def close(self) -> None:
        """Write the last points and close the file."""
        self._add_state()
        if self._file:
            self._file.close()

    def _add(self, points: dict[str, float]) -> None:
        if not self._file:
            return
        try:
            for name, value in points.items():
                self._file.add(name, value, self._run.tally.agent_steps)
            self._file.flush()
        except OSError as error:
            with contextlib.suppress(OSError):  # close() writes the buffered points again and fails again
                self._file.close()
            self._file = None
            self._warn(f"the TensorBoard curves could not be written ({error.strerror}): the run writes no more points")

    def _add_state(self) -> None:
        now, steps = time.monotonic(), self._run.tally.agent_steps
        self._add(
            {
                "rate/agent_steps_per_second": (steps - self._point_steps) / max(now - self._point_time, 1e-9),
                "agent/epsilon": self._run.agent.epsilon(steps),
                "memory/transitions": len(self._run.memory),
                "memory/bytes": self._run.memory.nbytes,
                "process/resident_bytes": resident_bytes(),
            }
        )
        self._point_time, self._point_steps = now, steps


def last_scores(path: Path, num_games: int, agent_steps: int) -> list[float]:
    """Return the scores of the last ``num_games`` games of an episodes.csv that ended in the first ``agent_steps``."""
    rows = _rows_until(path, agent_steps) if path.exists() else []
    return [float(row[COLUMNS.index("score")]) for row in rows[-num_games:]]


def _rows_until(path: Path, agent_steps: int) -> list[list[str]]:
    """Return the rows up to ``agent_steps``. A last row that a kill cut short is dropped."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return [row for row in rows if len(row) == len(COLUMNS) and row[1].isdigit() and int(row[1]) <= agent_steps]


class Checkpointing:
    """Writes a checkpoint every ``checkpoint_every`` agent steps.

    After a failure it calls ``warn`` and tries again at the next multiple; the last checkpoint stays.
    """

    def __init__(self, run: Run, checkpoints: Path, warn: Callable[[str], None]) -> None:
        self._run = run
        self._checkpoints = checkpoints
        self._warn = warn
        self._num_passed = run.tally.agent_steps // run.settings.checkpoint_every

    def take(self, event: Event) -> None:
        """Save the run if a multiple of ``checkpoint_every`` was passed."""
        if not isinstance(event, StepTaken):
            return
        num_passed = event.agent_steps // self._run.settings.checkpoint_every
        if num_passed == self._num_passed:
            return
        self._num_passed = num_passed
        try:
            self._run.save(self._checkpoints)
        except CheckpointError as error:
            self._warn(f"{error}; training continues")

    def close(self) -> None:
        """Do nothing: :func:`framestow.training.train` writes the last checkpoint."""


class LostEpisodeWarnings:
    """Calls ``warn`` when episodes are lost with their worker process, or on resuming."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn

    def take(self, event: Event) -> None:
        """Call ``warn`` if ``event`` reports lost episodes."""
        if isinstance(event, EpisodesLost):
            self._warn(
                f"step {event.agent_steps:,}: {event.reason}; the episodes of environments "
                f"{', '.join(map(str, event.env_ids))} end there; their stored steps stay, training continues"
            )

    def close(self) -> None:
        """Do nothing: no file is open."""
