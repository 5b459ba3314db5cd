"""A training session: what ``framestow train`` does once its arguments are read."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import shlex
import shutil
import sys
import warnings
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape

from framestow.agents.dqn import trained_state_bytes
from framestow.envs.atari.games import find_rom, title
from framestow.envs.atari.presets import find_preset
from framestow.errors import InvalidSettingsError
from framestow.process_memory import resident_bytes
from framestow.replay.byte_amounts import format_bytes, parse_bytes
from framestow.training import loop
from framestow.training.checkpoint import newest_checkpoint, saved_agent_steps
from framestow.training.listeners import Checkpointing, Curves, EpisodeTable, LostEpisodes, Progress
from framestow.training.loop import Interruption
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
from framestow.training.run import Run, check_memory, choose_device, num_actions_of
from framestow.training.run_folder import RunFolder, default_run_path
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


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """What a train command has besides the settings of the run."""

    resume: Path | None
    run_dir: Path | None
    settings: Settings


def train(options: TrainOptions, console: Console) -> int:
    """Train as the options say and return the exit code."""
    settings = _checked(options)
    new_path = options.run_dir or default_run_path(settings, datetime.datetime.now())
    expected = "" if options.resume else of_new_run(settings, new_path, console)
    folder = RunFolder.open(options.resume) if options.resume else RunFolder.create(new_path, settings)
    with contextlib.ExitStack() as unless_started, folder.locked():
        if options.resume:
            _prepare_to_go_on(folder, settings)
        else:
            unless_started.callback(folder.discard)
        run = loop.start_run(folder)
        unless_started.pop_all()
        try:
            expected = expected or of_resumed_run(run, folder, console)
            console.print(_opening(run, folder), soft_wrap=True, highlight=False)
            console.print(f"memory: {expected}", soft_wrap=True, highlight=False, markup=False)
            signal_number = _train_until_stopped(run, folder, console)
            for name, told in _closing(run, folder, is_stopped=signal_number is not None).items():
                console.print(f"[bold]{name:<10}[/]  {escape(told)}", soft_wrap=True, highlight=False)
        finally:
            run.close()
            folder.remove_unfinished()
    return 0 if signal_number is None else 128 + signal_number


def _checked(options: TrainOptions) -> Settings:
    """Return the settings with the game's usual name; refuse, before anything is written, what cannot be trained."""
    settings = options.settings
    if not settings.game:
        raise InvalidSettingsError("game is missing: train needs one to train on; try: framestow train Breakout")
    if options.resume and options.run_dir:
        raise InvalidSettingsError(
            f"run_dir is {options.run_dir}: a resumed run stays in its folder {options.resume}; leave out --run-dir"
        )
    find_preset(settings.preset)
    choose_device(settings.device)
    if not options.resume:
        check_memory(settings)
        if options.run_dir:
            RunFolder.check_new(options.run_dir)
    return dataclasses.replace(settings, game=title(find_rom(settings.game)))


def _prepare_to_go_on(folder: RunFolder, settings: Settings) -> None:
    """Refuse settings of another run, or steps that are made already; else write them."""
    newest = newest_checkpoint(folder.checkpoints)
    agent_steps = saved_agent_steps(newest) if newest else 0
    loop.change_settings(folder, settings)
    if agent_steps >= settings.steps:
        raise InvalidSettingsError(
            f"steps is {settings.steps:,}: the run has made {agent_steps:,} already; give --steps a larger number"
        )


def _train_until_stopped(run: Run, folder: RunFolder, console: Console) -> int | None:
    """Train, watched and saved; return the number of the signal that stopped it, if one did."""

    def warn(message: str) -> None:
        console.print(f"warning: {message}", style="yellow", markup=False, soft_wrap=True)

    def is_stop_requested() -> bool:
        if interruption.is_requested:
            warn("stopping: saving the run; once more stops without")
        return interruption.is_requested

    with Interruption() as interruption, warnings.catch_warnings():
        # `LostEpisodes` tells of a replaced worker where the progress does not write over it.
        warnings.filterwarnings("ignore", ".*it is replaced", RuntimeWarning)
        listeners = (
            EpisodeTable(folder.episodes, run.tally.agent_steps, warn),
            Curves(run, folder.path, warn),
            Checkpointing(run, folder.checkpoints, warn),
            LostEpisodes(warn),
            Progress(run, console),
        )
        loop.train(run, folder, listeners, is_stop_requested)
    return interruption.signal_number


def _opening(run: Run, folder: RunFolder) -> str:
    settings, done = run.settings, run.tally.agent_steps
    beginning = f"going on at step {done:,} with" if done else "training on"
    return (
        f"{beginning} {settings.game} ({settings.preset}) to {settings.steps:,} agent steps, {settings.num_envs} "
        f"environments, on {run.device}, CPU threads {torch.get_num_threads()}, into {folder.path}"
    )


def _closing(run: Run, folder: RunFolder, is_stopped: bool) -> dict[str, str]:
    """Tell what came of the run and what to do next, by name."""
    tally, report = run.tally, run.memory.report()
    name, command = shlex.quote(str(folder.path)), _command()
    more = "" if is_stopped else f" --steps {2 * run.settings.steps:_}"
    score = "no game has ended yet"
    if tally.mean_recent_score is not None:
        last = f"last {len(tally.recent_scores)} games"
        score = f"mean {tally.mean_recent_score:.2f} of the {last}, best {tally.best_score:g}"
    return {
        "run folder": str(folder.path),
        "steps": f"{tally.agent_steps:,} agent steps, {tally.episodes:,} games, saved",
        "score": score,
        "memory": f"{report.transitions:,} of {report.capacity:,} transitions in {format_bytes(report.nbytes)}, "
        f"{report.bytes_per_transition:,.1f} bytes each",
        "process": f"{format_bytes(resident_bytes())} resident",
        "go on": f"{command} train --resume {name}{more}",
        "evaluate": f"{command} evaluate {name}",
        "watch": f"{command} watch {name}",
    }


def _command() -> str:
    """Give what starts framestow in the user's shell: its path where it is not on the PATH, as after ``make train``."""
    started_as = Path(sys.argv[0])
    if started_as.name != "framestow" or shutil.which("framestow"):
        return "framestow"
    return shlex.quote(os.path.relpath(started_as))
