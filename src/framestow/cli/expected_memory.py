"""What the memory of a run will take, said before the run goes on, and refused where it cannot fit."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from framestow.replay.keeping.byte_amounts import parse_bytes
from framestow.training.memory_expectation import (
    PLAYED_FRAMES,
    Room,
    WantedMemory,
    check_it_fits,
    expect_from_memory,
    expect_from_play,
    told,
)
from framestow.training.run import Run
from framestow.training.settings import Settings

LEAST_FRAMES = 640  # two segments; a play of fewer tells nothing


def of_new_run(settings: Settings, path: Path, console: Console) -> str:
    """Tell what the memory of a run in the folder ``path``, which need not be there, is expected to take.

    Plays a little for that, a tenth of the run's steps at most. Raises
    :class:`~framestow.errors.InvalidSettingsError`, with what would fit, where it cannot.
    """
    num_frames = min(PLAYED_FRAMES, max(LEAST_FRAMES, settings.steps // 10))
    with console.status("playing a little, to see what a transition takes"):
        expectation = expect_from_play(settings, num_frames)
    wanted, room = _wanted(settings, path), Room.for_run(path)
    check_it_fits(expectation, wanted, room)
    return told(expectation, wanted, room)


def of_resumed_run(run: Run, path: Path, console: Console) -> str:
    """Tell what the memory of a run will take, from what it holds already; raises as :func:`of_new_run`."""
    report = run.memory.report()
    if not report.transitions:  # it was stopped before its first checkpoint
        return of_new_run(run.settings, path, console)
    expectation = expect_from_memory(report)
    wanted, room = _wanted(run.settings, path), Room.for_run(path, report.nbytes, report.disk_bytes)
    check_it_fits(expectation, wanted, room)
    return told(expectation, wanted, room)


def _wanted(settings: Settings, path: Path) -> WantedMemory:
    max_bytes = None if settings.memory_bytes is None else parse_bytes(settings.memory_bytes, "memory_bytes")
    return WantedMemory(settings.memory, settings.steps, path, max_bytes, settings.memory_on_disk)
