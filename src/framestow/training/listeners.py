"""Listeners of a training run: progress display, CSV tables, TensorBoard curves, checkpoints and warnings.

The command line builds them; ``train`` takes any number of them.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import itertools
import math
import os
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text
from tensorboard.compat.proto.event_pb2 import Event as Record
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from framestow.errors import ActorLostError, CheckpointError, DamagedDataError, MissingExtraError
from framestow.process import processor_seconds, resident_bytes
from framestow.replay.eviction.byte_amounts import format_bytes
from framestow.replay.reports.facts import OF_A_MEMORY, Home, shown_in
from framestow.storage.files.file_system import DISK, write_atomically
from framestow.storage.files.writer_lock import check_lock
from framestow.training.checkpoint import RUN_LOCK
from framestow.training.training_run import (
    NUM_RECENT,
    EpisodeEnded,
    EpisodesLost,
    Event,
    Learned,
    Listener,
    RunMemory,
    StepTaken,
    TrainingRun,
)

LIVE_INTERVAL_S = 0.25  # between two displays on a terminal
PLAIN_INTERVAL_S = 10.0  # between two lines elsewhere
SETTLING_S = 2.0  # a shorter time gives no rate from which to tell the time left
FILE_VERSION = "brain.Event:2"  # first record of a TensorBoard file
RATE_WINDOW_S = 10.0  # the rate is the mean over about this time


class Progress:
    """Shows a bar, steps, time left, rate, games, mean score, loss, epsilon, size of the memory, RAM of the process.

    The time left is that of the steps with updates: it begins a moment after the warm-up, whose steps are faster.
    """

    def __init__(self, run: TrainingRun, console: Console) -> None:
        self._run = run
        self._console = console
        self._last_update: Learned | None = None  # None before the first
        self._shown_at = time.monotonic()  # time of the last display
        self._begin_rate()
        # The bar on a terminal; None where lines are printed.
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        if self._live:
            self._live.start()

    def take(self, event: Event) -> None:
        """Update the display at most every 0.25 s on a terminal and every 10 s elsewhere."""
        if isinstance(event, Learned):
            if self._last_update is None:
                self._begin_rate()
            self._last_update = event
        elif isinstance(event, StepTaken):
            interval = LIVE_INTERVAL_S if self._live else PLAIN_INTERVAL_S
            if time.monotonic() - self._shown_at >= interval:
                self._show()

    def close(self) -> None:
        """Show the last state and stop the live display."""
        self._show()
        if self._live:
            self._live.stop()

    def _begin_rate(self) -> None:
        self._rate = Rate(self._run.tally.agent_steps)
        self._rate_began_at = time.monotonic()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        done, total = self._run.tally.agent_steps, self._run.settings.steps
        steps, rate = f"{done:,}/{total:,}", self._rate.update(done)
        time_left = self._time_left(rate)
        fields = [f"{name} {value}" for name, value in self._fields(rate).items()]
        if self._live:
            bar = Table.grid(Column(ratio=1), Column(no_wrap=True), Column(no_wrap=True), padding=(0, 1), expand=True)
            bar.add_row(ProgressBar(total, min(done, total)), f"steps {steps}", time_left)
            lines = join_in_lines(fields, self._console.width)
            self._live.update(Group(bar, *map(Text, lines)), refresh=True)
        else:
            self._console.print(Text(" · ".join([f"steps {steps}", *fields, time_left])), soft_wrap=True)

    def _time_left(self, rate: float) -> str:
        settings, done = self._run.settings, self._run.tally.agent_steps
        if self._last_update is None and done <= settings.warmup < settings.steps:
            return f"warm-up to {settings.warmup:,}"
        is_known = rate > 0 and time.monotonic() - self._rate_began_at >= SETTLING_S
        steps_left = max(0, settings.steps - done)
        return f"time left {format_duration(steps_left / rate) if is_known else '-'}"

    def _fields(self, rate: float) -> dict[str, str]:
        run, tally = self._run, self._run.tally
        score = tally.mean_recent_score
        return {
            "rate": f"{rate:,.0f}/s",
            "games": f"{tally.episodes:,}",
            f"score of last {NUM_RECENT}": "-" if score is None else f"{score:.2f}",
            "loss": "-" if self._last_update is None else f"{self._last_update.loss:.4f}",
            "epsilon": f"{run.agent.epsilon(tally.agent_steps):.3f}",
            "memory": _describe_memory(run.memory),
            "process": format_bytes(resident_bytes()),
            **run.other_processes(),
        }


def memory_numbers(home: Home, memory: RunMemory) -> dict[str, int]:
    """Return the numbers of the memory that ``home`` shows, by their names there; 0 of shards that do not answer."""
    try:
        report = memory.report()
    except ActorLostError:  # of shards: none answers, and they are refilled
        return {name: 0 for name, _ in shown_in(home, OF_A_MEMORY)}
    return {name: getattr(report, fact.key) for name, fact in shown_in(home, OF_A_MEMORY)}


def _describe_memory(memory: RunMemory) -> str:
    """Return the number of transitions and the bytes of the memory; of shards, of those that answer."""
    try:
        report = memory.report()
    except ActorLostError:  # they are refilled
        return f"{len(memory):,}, no shard answers"
    return f"{report.transitions:,} in {report.describe_bytes()}"


class Rate:
    """Agent steps per second over about the last 10 s; ``agent_steps`` are those of the run so far."""

    def __init__(self, agent_steps: int) -> None:
        # Times and agent steps, oldest first: the second one is at most ``RATE_WINDOW_S`` old.
        self._marks = [(time.monotonic(), agent_steps)]

    def update(self, agent_steps: int) -> float:
        """Return the rate now, after ``agent_steps``."""
        now = time.monotonic()
        self._marks.append((now, agent_steps))
        while len(self._marks) > 2 and now - self._marks[1][0] > RATE_WINDOW_S:
            del self._marks[0]
        then, steps_then = self._marks[0]
        return (agent_steps - steps_then) / max(now - then, 1e-9)


def join_in_lines(fields: Sequence[str], width: int) -> list[str]:
    """Return ``fields`` joined by dots in lines of at most ``width`` characters, without breaking a field.

    >>> join_in_lines(["games 15", "loss 0.23", "epsilon 0.85"], 24)
    ['games 15 · loss 0.23', 'epsilon 0.85']
    """
    lines: list[str] = []
    for field in fields:
        joined = f"{lines[-1]} · {field}" if lines else field
        if lines and len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(field)
    return lines


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> [format_duration(seconds) for seconds in (9, 61, 3_700, 200_000)]
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


UPDATES_BETWEEN_POINTS = 100  # of loss and mean value, in Curves
SECONDS_BETWEEN_POINTS = 10.0  # of rates and sizes, in Curves and progress.csv


class CsvTable:
    """A CSV file of a run that is appended to, one line at a time.

    A resumed run first removes the lines after its checkpoint, and a last line that a kill cut short. On a full disk
    the lines stay buffered until a later write succeeds; the first failure calls ``warn``.

    Arguments:
        path: The file; it is created if it does not exist.
        columns: Names of the columns; one of them is ``agent_steps``.
        resumed_at: Agent steps of the run so far.
        warn: Takes a message.
    """

    def __init__(self, path: Path, columns: Sequence[str], resumed_at: int, warn: Callable[[str], None]) -> None:
        self.last_row: dict[str, str] | None = None  # of the file that a resumed run found
        self._unwritten = io.StringIO(newline="")
        self._writer = csv.writer(self._unwritten)
        self._writer.writerow(columns)
        for row in read_rows(path, columns):
            if int(row["agent_steps"]) <= resumed_at:
                self._writer.writerow(row.values())
                self.last_row = row
        content = self._take_unwritten()
        write_atomically(path, content, is_durable=False)  # also in place of a file with several names
        self._file = DISK.open_at(path, len(content))
        self._warn: Callable[[str], None] | None = warn  # None after the first warning

    def append(self, row: Sequence[object]) -> None:
        """Write a line; it is in the file when this returns, unless the disk is full.

        Raises:
            IncompatibleError: the folder of the run is not there any more, or another one is in its place.
        """
        check_lock(self._file.path.with_name(RUN_LOCK))
        self._writer.writerow(row)
        content = self._take_unwritten()
        try:
            self._file.append(content)
        except OSError as error:
            self._unwritten.write(content.decode())
            if self._warn:
                self._warn(f"{self._file.path} could not be written ({error.strerror}): new lines wait for free space")
                self._warn = None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _take_unwritten(self) -> bytes:
        content = self._unwritten.getvalue().encode()
        self._unwritten.seek(0)
        self._unwritten.truncate()
        return content


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the complete rows of a ``CsvTable`` file, each by column; none if the file does not exist.

    Raises:
        DamagedDataError: it is no file, or no such table.
    """
    try:
        with io.TextIOWrapper(io.BytesIO(DISK.read(path)), "utf-8", newline="") as file:
            for cells in itertools.islice(csv.reader(file), 1, None):
                row = dict(zip(columns, cells, strict=False))
                if len(cells) == len(columns) and all(map(_is_cell, columns, cells)):
                    yield row
    except FileNotFoundError:
        return
    except (csv.Error, UnicodeDecodeError) as error:
        raise DamagedDataError(f"{path}: it is no table as framestow writes it ({error}); remove it") from error


def _is_cell(column: str, cell: str) -> bool:
    """Return whether a cell has what its column needs: whole steps, finite numbers, or any numbers of an update."""
    if column == "agent_steps":
        return re.fullmatch(r"\d{1,18}", cell, re.ASCII) is not None
    if column in ("loss", "mean_value", "dormant_units"):
        return all(map(_NUMBER.fullmatch, cell.split(" "))) or not cell
    return _NUMBER.fullmatch(cell) is not None and math.isfinite(float(cell))


_NUMBER = re.compile(r"[-+]?(\d{1,30}(\.\d{0,30})?(e[-+]?\d{1,3})?|nan|inf)", re.ASCII)
COLUMNS = ["episode", "agent_steps", "env_id", "score", "length"]


class EpisodeTable:
    """Appends a line to episodes.csv for every finished game, before the next step.

    A resumed run first removes the lines after its checkpoint, because it plays those games again.
    """

    def __init__(self, path: Path, resumed_at: int, warn: Callable[[str], None]) -> None:
        self._table = CsvTable(path, COLUMNS, resumed_at, warn)

    def take(self, event: Event) -> None:
        """Write the line of a finished game."""
        if isinstance(event, EpisodeEnded):
            self._table.append([event.episode, event.agent_steps, event.env_id, event.score, event.length])

    def close(self) -> None:
        """Close the file."""
        self._table.close()


PROGRESS_COLUMNS = [
    "agent_steps",
    "wall_s",
    "cpu_s",
    "updates",
    "loss",
    "mean_value",
    "epsilon",
    "learning_rate",
    "dormant_units",
    "steps_per_s",
    *(name for name, _ in shown_in("progress", OF_A_MEMORY)),
    "process_bytes",
]


class ProgressTable:
    """Appends a line to progress.csv about every 10 s and at the end.

    =================  =======================================================================================
    column             meaning
    =================  =======================================================================================
    agent_steps        of the run, all environments together
    wall_s             seconds of training, including earlier parts of a resumed run
    cpu_s              processor seconds, user and system, of this process and its worker processes, since the
                       training began, including earlier parts of a resumed run
    updates            of the agent
    loss, mean_value   of the last update; empty before the first
    epsilon            probability of a random action
    learning_rate      of the next update
    dormant_units      share of dormant units of each layer (Sokar et al. 2023), the layers separated by spaces
    steps_per_s        agent steps per second over about the last 10 s
    transitions        in the memory
    memory_bytes       of the memory
    process_bytes      resident set size of this process
    =================  =======================================================================================

    ``wall_s`` and ``cpu_s`` continue from the last line before the checkpoint. So they leave out what a killed run did
    after that line, the start of the process, and the time between two parts.
    """

    def __init__(self, run: TrainingRun, path: Path, warn: Callable[[str], None]) -> None:
        self._run = run
        self._table = CsvTable(path, PROGRESS_COLUMNS, run.tally.agent_steps, warn)
        before = self._table.last_row or {"wall_s": "0", "cpu_s": "0"}
        self._last_update: Learned | None = None  # None before the first
        self._rate = Rate(run.tally.agent_steps)
        self._row_time = time.monotonic()  # time of the last line
        # Time and processor seconds at which the run would have begun, had it never been interrupted.
        self._wall_start = self._row_time - float(before["wall_s"])
        self._cpu_start = processor_seconds() - float(before["cpu_s"])

    def take(self, event: Event) -> None:
        """Write a line if the last one is 10 s old."""
        if isinstance(event, Learned):
            self._last_update = event
        elif isinstance(event, StepTaken) and time.monotonic() - self._row_time >= SECONDS_BETWEEN_POINTS:
            self._append()

    def close(self) -> None:
        """Write the last line and close the file."""
        self._append()
        self._table.close()

    def _append(self) -> None:
        run, update, steps = self._run, self._last_update, self._run.tally.agent_steps
        self._row_time = time.monotonic()
        self._table.append(
            [
                steps,
                f"{self._row_time - self._wall_start:.3f}",
                f"{processor_seconds() - self._cpu_start:.3f}",
                run.agent.num_updates,
                "" if update is None else f"{update.loss:.6g}",
                "" if update is None else f"{update.mean_value:.6g}",
                f"{run.agent.epsilon(steps):.6g}",
                f"{run.agent.learning_rate:.6g}",
                " ".join(f"{share:.3g}" for share in run.dormant_units()),
                f"{self._rate.update(steps):.4g}",
                *memory_numbers("progress", run.memory).values(),
                resident_bytes(),
            ]
        )


class PointWriter(Protocol):
    """Where ``Curves`` writes its points."""

    def add(self, name: str, value: float, agent_steps: int) -> None:
        """Add a point of the curve ``name``."""

    def flush(self) -> None:
        """Write all buffered points."""

    def close(self) -> None:
        """Flush and close."""


class WandbPoints:
    """Writes points to a new Weights & Biases run of the project ``framestow``, named like the run folder.

    A resumed run gets a further Weights & Biases run, in the same group. The curves are over ``agent_steps``.
    """

    def __init__(self, run: TrainingRun, folder: Path) -> None:
        self._run = import_wandb().init(
            project="framestow",
            name=folder.resolve().name,
            group=folder.resolve().name,
            dir=str(folder),
            config=dataclasses.asdict(run.settings),
        )
        self._run.define_metric("*", step_metric="agent_steps")

    def add(self, name: str, value: float, agent_steps: int) -> None:
        """Add a point of the curve ``name``."""
        self._run.log({name: value, "agent_steps": agent_steps})

    def flush(self) -> None:
        """Do nothing: the library sends points in the background."""

    def close(self) -> None:
        """Send all points and finish the Weights & Biases run."""
        self._run.finish()


def import_wandb() -> Any:
    """Return the module ``wandb``; raises ``MissingExtraError`` if it is not installed."""
    try:
        return import_module("wandb")
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            "--wandb needs the library wandb, which is not installed; run: pip install wandb, or leave out --wandb"
        ) from missing


class Curves:
    """Writes curves over agent steps, to TensorBoard unless another ``writer`` is given.

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

    def __init__(
        self, run: TrainingRun, folder: Path, warn: Callable[[str], None], writer: PointWriter | None = None
    ) -> None:
        self._run = run
        # None once writing has failed.
        self._file: PointWriter | None = writer or EventFile(folder, run.tally.agent_steps)
        self._warn = warn
        self._rate = Rate(run.tally.agent_steps)
        self._point_time = time.monotonic()  # time of the last points of the run's state

    def take(self, event: Event) -> None:
        """Write the points of ``event``."""
        if isinstance(event, EpisodeEnded):
            self._add({"episode/score": event.score, "episode/length": event.length})
        elif isinstance(event, Learned) and event.num_updates % UPDATES_BETWEEN_POINTS == 0:
            self._add({"learner/loss": event.loss, "learner/mean_value": event.mean_value})
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
        self._point_time, steps = time.monotonic(), self._run.tally.agent_steps
        self._add(
            {
                "rate/agent_steps_per_second": self._rate.update(steps),
                "agent/epsilon": self._run.agent.epsilon(steps),
                **memory_numbers("curves", self._run.memory),
                "process/resident_bytes": resident_bytes(),
            }
        )


def last_scores(path: Path, num_games: int, agent_steps: int) -> list[float]:
    """Return the scores of the last ``num_games`` games of an episodes.csv that ended in the first ``agent_steps``."""
    played = (float(row["score"]) for row in read_rows(path, COLUMNS) if int(row["agent_steps"]) <= agent_steps)
    return list(deque(played, maxlen=num_games))


class Checkpointing(Listener):
    """Writes a checkpoint every ``checkpoint_every`` agent steps.

    After a failure it calls ``warn`` and tries again at the next multiple; the last checkpoint stays.
    """

    def __init__(self, run: TrainingRun, checkpoints: Path, warn: Callable[[str], None]) -> None:
        self._run = run
        self._checkpoints = checkpoints
        self._warn = warn
        self._is_due = _EveryCheckpoint(run)

    def take(self, event: Event) -> None:
        """Save the run if a multiple of ``checkpoint_every`` was passed."""
        if not self._is_due(event):
            return
        try:
            self._run.save(self._checkpoints)
        except CheckpointError as error:
            self._warn(f"{error}; training continues")


class InactiveLayerWarning(Listener):
    """Calls ``warn`` once if every unit of a layer is dormant.

    No gradient passes such a layer, so the network learns nothing more, while loss and weights stay finite. Looks
    every ``checkpoint_every`` agent steps.
    """

    def __init__(self, run: TrainingRun, warn: Callable[[str], None]) -> None:
        self._run = run
        self._warn = warn
        self._is_due = _EveryCheckpoint(run)
        self._has_warned = False

    def take(self, event: Event) -> None:
        """Look at all layers if a multiple of ``checkpoint_every`` was passed."""
        if self._has_warned or not self._is_due(event):
            return
        shares = self._run.dormant_units()
        if 1.0 in shares:
            self._has_warned = True
            self._warn(
                f"step {self._run.tally.agent_steps:,}: layer {shares.index(1.0) + 1} of the network is inactive for "
                "all frames, so the network learns nothing more; stop this run and start a new one with a lower "
                "--learning-rate"
            )


class _EveryCheckpoint:
    """Whether an event is the first step after another multiple of ``checkpoint_every``."""

    def __init__(self, run: TrainingRun) -> None:
        self._every = run.settings.checkpoint_every  # agent steps
        self._num_passed = run.tally.agent_steps // self._every  # multiples of checkpoint_every that the run has passed

    def __call__(self, event: Event) -> bool:
        if not isinstance(event, StepTaken):
            return False
        before, self._num_passed = self._num_passed, event.agent_steps // self._every
        return self._num_passed > before


class LostEpisodeWarnings(Listener):
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


class EventFile:
    """A file of scalars over agent steps, for ``tensorboard --logdir``.

    A full disk raises ``OSError`` in the caller. PyTorch's ``SummaryWriter`` has a writer thread instead: a full disk
    ends the thread, and ``close`` then waits forever.

    ``resumed_at`` is the agent step at which the run starts or resumes. TensorBoard hides later points of older files.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("xb")  # TensorBoard reads files in the order of their names
        self._records = RecordWriter(self._file)
        self._write(Record(wall_time=time.time(), file_version=FILE_VERSION))
        start = SessionLog(status=SessionLog.START)
        self._write(Record(wall_time=time.time(), step=resumed_at + 1, session_log=start))

    def add(self, name: str, value: float, agent_steps: int) -> None:
        """Add a point. It is in the file after the next ``flush``."""
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
        self._write(Record(wall_time=time.time(), step=agent_steps, summary=summary))

    def flush(self) -> None:
        """Write all buffered points to the file."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()

    def _write(self, record: Record) -> None:
        self._records.write(record.SerializeToString())
