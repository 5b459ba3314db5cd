"""Curves for TensorBoard, and a line in episodes.csv for every finished game."""

from __future__ import annotations

import contextlib
import csv
import time
from collections.abc import Callable
from pathlib import Path

from framestow.process_memory import resident_bytes
from framestow.training.events import EpisodeEnded, Event, Learned, StepTaken
from framestow.training.listeners.event_file import EventFile
from framestow.training.run import Run

COLUMNS = ["episode", "agent_steps", "env_id", "score", "length"]
UPDATES_BETWEEN_POINTS = 100  # reading a loss waits for the device
SECONDS_BETWEEN_POINTS = 10.0


class EpisodeTable:
    """Adds a line to episodes.csv for every finished game, handed to the operating system before the next step.

    When a run is resumed, the lines after its checkpoint are dropped first: those games are played again. Lines that
    find no room on the disk wait for the next one to be written with it; ``warn`` is told the first time.
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
        """Write the line of an episode that ended."""
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
            self._warn(f"{self._file.name} could not be written ({error.strerror}): lines wait until there is room")
            self._warn = None


class Curves:
    """Writes TensorBoard events, over agent steps.

    Scores and lengths as episodes end, loss and mean value every 100 updates, and every ten seconds epsilon, rate,
    what the memory holds and what the process takes. Points after the checkpoint of a resumed run are hidden. Where
    the disk refuses a point, ``warn`` is told and the curves end: training is worth more than they are.
    """

    def __init__(self, run: Run, folder: Path, warn: Callable[[str], None]) -> None:
        self._run = run
        self._file: EventFile | None = EventFile(folder, run.tally.agent_steps)
        self._warn = warn
        self._point_time = time.monotonic()
        self._point_steps = run.tally.agent_steps

    def take(self, event: Event) -> None:
        """Add the points of ``event``."""
        if isinstance(event, EpisodeEnded):
            self._add({"episode/score": event.score, "episode/length": event.length})
        elif isinstance(event, Learned) and event.num_updates % UPDATES_BETWEEN_POINTS == 0:
            self._add({"learner/loss": float(event.loss), "learner/mean_value": float(event.mean_value)})
        elif isinstance(event, StepTaken) and time.monotonic() - self._point_time > SECONDS_BETWEEN_POINTS:
            self._add_state()

    def close(self) -> None:
        """Write what is pending and close the file."""
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
            with contextlib.suppress(OSError):  # closing tries to write what is left once more
                self._file.close()
            self._file = None
            self._warn(f"the curves could not be written ({error.strerror}): they end here")

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


def _rows_until(path: Path, agent_steps: int) -> list[list[str]]:
    """Return the whole rows up to ``agent_steps``; a kill may have cut the last one short."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return [row for row in rows if len(row) == len(COLUMNS) and row[1].isdigit() and int(row[1]) <= agent_steps]
