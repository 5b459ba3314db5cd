"""What the memory of a run will take, said before the run goes on, and refused where it cannot fit."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from framestow.agents.dqn import trained_state_bytes
from framestow.replay.byte_amounts import parse_bytes
from framestow.training.memory_expectation import (
    PLAYED_FRAMES,
    MemoryExpectation,
    Room,
    WantedMemory,
    check_it_fits,
    expect_from_memory,
    expect_from_play,
    told,
)
from framestow.training.run import Run, num_actions_of
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings

LEAST_FRAMES = 640  # two segments; a play of fewer tells nothing


def of_new_run(settings: Settings, path: Path, console: Console) -> str:
    """Tell what the memory of a run in the folder ``path``, which need not be there, is expected to take.

    Plays a little for that, a tenth of the run's steps at most. Raises
    :class:`~framestow.errors.InvalidSettingsError`, with what would fit, where it cannot.
    """
    return _told_if_it_fits(_measured(settings, console), settings, path, Room.for_run(path))


def of_resumed_run(run: Run, folder: RunFolder, console: Console) -> str:
    """Tell what the memory of a run will take, from what it holds already; raises as :func:`of_new_run`.

    A memory with hardly any sealed segment tells nothing yet: then a little is played, as for a new run.
    """
    report = run.memory.report()
    if report.sealed_frames < LEAST_FRAMES:
        expectation = _measured(run.settings, console)
    else:
        observation_shape = run.env.single_observation_space.shape or ()
        expectation = expect_from_memory(report, trained_state_bytes(observation_shape, num_actions_of(run.env)))
    room = Room.for_run(folder.path, report.nbytes, folder.saved_bytes())
    return _told_if_it_fits(expectation, run.settings, folder.path, room)


def _measured(settings: Settings, console: Console) -> MemoryExpectation:
    num_frames = min(PLAYED_FRAMES, max(LEAST_FRAMES, settings.steps // 10))
    with console.status("playing a little, to see what a transition takes"):
        return expect_from_play(settings, num_frames)


def _told_if_it_fits(expectation: MemoryExpectation, settings: Settings, path: Path, room: Room) -> str:
    wanted = _wanted(settings, path)
    check_it_fits(expectation, wanted, room)
    return told(expectation, wanted, room)


def _wanted(settings: Settings, path: Path) -> WantedMemory:
    max_bytes = None if settings.memory_bytes is None else parse_bytes(settings.memory_bytes, "memory_bytes")
    return WantedMemory(settings.memory, settings.steps, path, max_bytes, settings.memory_on_disk)
