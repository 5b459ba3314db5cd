"""Run a training session from the command line: check, start or resume, train, and print the result."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib
import os
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from framestow.cli.printing import ProgressDisplay, discard_failed_output, print_line, print_named, print_warning
from framestow.envs import Recorder, make_atari
from framestow.envs.atari.presets import find_preset
from framestow.errors import FramestowError, InvalidSettingsError
from framestow.interface import plural
from framestow.process import available_bytes, available_disk_bytes, num_cores, resident_bytes
from framestow.replay.eviction.byte_amounts import MIB, format_bytes, parse_bytes
from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.memory_report import MemoryReport
from framestow.training import loop
from framestow.training.listeners import (
    Checkpointing,
    Curves,
    EpisodeTable,
    InactiveLayerWarning,
    LostEpisodeWarnings,
    Progress,
    ProgressTable,
    WandbPoints,
    import_wandb,
)
from framestow.training.loop import Interruption
from framestow.training.report.page import write_report
from framestow.training.run import check_memory, check_spaces, choose_device, memory_arguments
from framestow.training.run_folder import RunFolder, default_run_path
from framestow.training.scores import random_and_human_scores
from framestow.training.settings import Settings
from framestow.training.training_run import Listener, TrainingRun

NAME_WIDTH = 10  # characters of the names of the closing lines


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The parsed arguments of ``framestow train``."""

    resume: Path | None  # folder of the run to resume; None starts a new one
    run_dir: Path | None  # folder of a new run; None names it by game, preset, seed and time
    settings: Settings
    wandb: bool = False
    address: str | None = None  # of a Ray cluster
    follow_links: bool = False  # of the resumed run
    listener: str | None = None  # of the user, MODULE:NAME


def train(options: TrainOptions, console: Console) -> int:
    """Start or resume a run, train it, print the result and return the exit code."""
    check_options(options)
    settings = options.settings
    new_path = options.run_dir or default_run_path(settings, datetime.datetime.now())
    expected = "" if options.resume else _expect_from_play(settings, new_path, console)
    if options.resume:
        folder = RunFolder.open(options.resume, follow_links=options.follow_links)
    else:
        folder = RunFolder.create(new_path, settings)
    with contextlib.ExitStack() as unless_started, folder.lock():
        if options.resume:
            folder.change_settings(settings)
        else:
            unless_started.callback(folder.remove_unstarted)
        run = _start(folder, options.address, console)
        unless_started.pop_all()
        try:
            expected = expected or _expect_for_resumed_run(run, folder, console)
            for line in _opening_line(run, folder), f"memory: {expected}":
                print_line(console, line)
            signal_number = _train_until_stopped(run, folder, console, options)
            for name, text in _closing_lines(run, folder, is_stopped=signal_number is not None).items():
                print_named(console, name, text, NAME_WIDTH)
            if signal_number is None:
                print_named(console, "report", _write_report(folder, console), NAME_WIDTH)
        finally:
            run.close()
            with contextlib.suppress(FramestowError):  # the next start says it; an error of the training goes first
                folder.remove_unfinished()
    return 0 if signal_number is None else 128 + signal_number


def _expect_from_play(settings: Settings, path: Path, console: Console, stored: int = 0) -> str:
    with ProgressDisplay(console, "playing to measure a transition", "items") as progress:
        report = measure_play(settings, progress)
    basis = f"{sum(report.frames.values()):,} frames of random play"
    return expect_memory(settings, report, basis, path, stored)


def _expect_for_resumed_run(run: TrainingRun, folder: RunFolder, console: Console) -> str:
    report = run.memory.report()
    if report.sealed_frames < MIN_FRAMES:
        return _expect_from_play(run.settings, folder.path, console, report.transitions)
    basis = f"{report.transitions:,} stored transitions"
    return expect_memory(run.settings, report, basis, folder.path, report.transitions)


def _start(folder: RunFolder, address: str | None, console: Console) -> TrainingRun:
    what = "starting the environments and the agent"
    if folder.settings().actors:
        where = f"joining the Ray cluster at {address}" if address else "starting a local Ray cluster"
        what = f"{where}, then its shards"
    with ProgressDisplay(console, what):
        return loop.start_run(folder, address=address)


def check_options(options: TrainOptions) -> None:
    """Raise for invalid options, before anything is written."""
    settings = options.settings
    if options.resume and options.run_dir:
        raise InvalidSettingsError(
            f"run_dir is {options.run_dir}: a resumed run stays in its folder {options.resume}; leave out --run-dir"
        )
    if options.wandb:
        import_wandb()
    if options.listener is not None:
        find_listener(options.listener)
    find_preset(settings.preset)
    choose_device(settings.device)
    if not options.resume:
        check_memory(settings)
        if options.run_dir:
            RunFolder.check_new(options.run_dir)


def _train_until_stopped(run: TrainingRun, folder: RunFolder, console: Console, options: TrainOptions) -> int | None:
    """Train with all listeners and save; return the number of the signal that stopped it, or ``None``."""

    def warn(message: str) -> None:
        print_warning(console, message)

    def is_stop_requested() -> bool:
        if interruption.is_requested:
            warn("stopping: saving the run; press Ctrl-C again to stop without saving")
        return interruption.is_requested

    with (
        Interruption() as interruption,
        discard_failed_output(console, interruption.request),
        warnings.catch_warnings(),
    ):
        # `LostEpisodeWarnings` prints the same, and the progress display does not overwrite it.
        warnings.filterwarnings("ignore", ".*it is replaced", RuntimeWarning)
        listeners: list[Listener] = [
            EpisodeTable(folder.episodes, run.tally.agent_steps, warn),
            ProgressTable(run, folder.progress, warn),
            Curves(run, folder.path, warn),
            Checkpointing(run, folder.checkpoints, warn),
            LostEpisodeWarnings(warn),
            Progress(run, console),
            InactiveLayerWarning(run, warn),
        ]
        if options.wandb:
            listeners.append(Curves(run, folder.path, warn, WandbPoints(run, folder.path)))
        if options.listener is not None:
            listeners.append(find_listener(options.listener)(run))
        loop.train(run, folder, listeners, is_stop_requested)
    return interruption.signal_number


def find_listener(name: str) -> Callable[[TrainingRun], Listener]:
    """Return the user's class or function that ``name``, ``MODULE:NAME``, imports; also from the current folder.

    Raises:
        InvalidSettingsError: there is none. An error of the module itself is raised as it is.
    """
    module, _, attribute = name.partition(":")
    if "" not in sys.path:  # that of the command has the folder of the command
        sys.path.insert(0, "")
    importlib.invalidate_caches()
    try:
        found = getattr(importlib.import_module(module), attribute) if module and attribute else None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module needs another one
        found = None
    except AttributeError:
        found = None
    if not callable(found):
        raise InvalidSettingsError(
            f"listener is {name!r}: it must be MODULE:NAME, a class or function in a module of the current folder, or "
            "in an installed one; give one such as my_listeners:StopAt21"
        )
    make: Callable[[TrainingRun], Listener] = found
    return make


def _opening_line(run: TrainingRun, folder: RunFolder) -> str:
    settings, done = run.settings, run.tally.agent_steps
    beginning = f"resuming {settings.game} at step {done:,}" if done else f"training on {settings.game}"
    return (
        f"{beginning} (recipe {settings.recipe}, preset {settings.preset}) to {settings.steps:,} agent steps, "
        f"{run.describe_players()}, on {run.device} in {run.agent.precision}, CPU threads {torch.get_num_threads()}, "
        f"cores {num_cores()}, run folder {folder.path}"
    )


def _closing_lines(run: TrainingRun, folder: RunFolder, is_stopped: bool) -> dict[str, str]:
    """Return the result of the run and the commands for the next step, by name."""
    tally, report = run.tally, run.memory.report()
    name, command = shlex.quote(str(folder.path)), shell_command()
    more = "" if is_stopped else f" --steps {2 * run.settings.steps:_}"
    score = "no game finished yet"
    if tally.mean_recent_score is not None:
        last = f"last {plural(len(tally.recent_scores), 'game')}"
        score = f"mean {tally.mean_recent_score:.2f} over the {last}, best {tally.best_score:g}"
        beside = random_and_human_scores(run.settings.game)
        score += f" ({beside})" if beside else ""
    return {
        "run folder": str(folder.path),
        "steps": f"{tally.agent_steps:,} agent steps, {plural(tally.episodes, 'game')}, saved",
        "score": score,
        "memory": f"{report.transitions:,} of {report.capacity:,} transitions in {report.describe_bytes()}",
        "process": f"{format_bytes(resident_bytes())} of RAM",
        "resume": f"{command} train --resume {name}{more}",
        "evaluate": f"{command} evaluate {name}",
        "watch": f"{command} watch {name}",
    }


def _write_report(folder: RunFolder, console: Console) -> str:
    """Write the page with the learning curve into the run folder; return its path, or why it is missing."""
    path = folder.path / "report.html"
    try:
        with ProgressDisplay(console, "drawing the learning curve"):
            write_report([folder.path], path, with_clip=False, follow_links=True)  # opened above
    except OSError as error:
        return f"{path} could not be written ({error.strerror or error})"
    return f"{path} has the learning curve; open it in a browser"


def shell_command() -> str:
    """Return how the user's shell starts framestow: its path if it is not on the PATH, as after ``make train``."""
    started_as = Path(sys.argv[0])
    if started_as.name != "framestow" or shutil.which("framestow"):
        return "framestow"
    return shlex.quote(os.path.relpath(started_as))


PLAYED_FRAMES, MIN_FRAMES = 6_400, 640  # one or two seconds; two segments, since fewer frames give no ratio
LEARNER_BYTES = 256 * MIB  # RAM of the learner beside the memory, after PyTorch is loaded


def measure_play(settings: Settings, show: Callable[[int, int], object]) -> MemoryReport:
    """Play the game at random for a tenth of the steps, at most 6,400; return the report of such a run's memory.

    ``show`` is called with the numbers of frames played and to play.
    """
    num_frames = min(PLAYED_FRAMES, max(MIN_FRAMES, settings.steps // 10))
    env = make_atari(settings.game, 1, settings.preset, settings.seed)
    small = {"capacity": num_frames, "num_envs": 1, "retention": "fifo", "sampler": settings.sampler()}
    num_actions = check_spaces(env)
    memory = ReplayMemory(
        observation_space=env.single_observation_space, action_space=num_actions, **memory_arguments(settings) | small
    )
    recorder, random = Recorder(env, memory), np.random.default_rng(settings.seed)
    try:
        recorder.reset()
        for done in range(1, num_frames):  # the first frame is that of the reset
            recorder.step(random.integers(0, num_actions, 1))
            show(done + 1, num_frames)
    finally:
        recorder.close()
    return memory.report()


def expect_memory(settings: Settings, report: MemoryReport, basis: str, folder: Path, stored: int = 0) -> str:
    """Return a line about the bytes of the full memory beside what is free.

    Arguments:
        settings: The settings of the run.
        report: That of a memory with such transitions.
        basis: What ``report`` was measured on.
        folder: The run folder; it need not exist yet.
        stored: Transitions that the run has stored and saved already.

    Raises:
        InvalidSettingsError: what is missing until the memory is full cannot fit; the message names what does.
    """
    each = report.bytes_per_transition
    full, free_ram = min(settings.memory, settings.steps), max(available_bytes() - LEARNER_BYTES, 0)
    if settings.memory_bytes is not None:
        full = min(full, int(parse_bytes(settings.memory_bytes) / each))
    in_files_alone = settings.memory_on_disk and settings.storage != "raw"  # raw frames stay in RAM too
    in_ram = each - report.sealed_bytes_per_transition if in_files_alone else each
    places = {"RAM": (in_ram, free_ram), f"disk space at {folder}": (each, available_disk_bytes(folder))}
    measured = f"{each:,.0f} bytes each, measured on {basis}"
    for place, (bytes_each, free) in places.items():
        if (full - stored) * bytes_each > free:
            fitting = stored + min(int(free / one) for one, free in places.values())
            raise InvalidSettingsError(
                f"memory is {settings.memory:,}: the {full:,} transitions of this run take about "
                f"{format_bytes(full * bytes_each)} of {place}, and only {format_bytes(free)} are free ({measured}); "
                f"give --memory {float(f'{max(0.9 * fitting, 1):.1e}'):_.0f} or less"
                + (
                    ", or --memory-on-disk"
                    if place == "RAM" and not settings.memory_on_disk and settings.storage != "raw"
                    else ""
                )
            )
    (ram_each, ram), (disk_each, disk) = places.values()
    return (
        f"about {format_bytes(full * ram_each)} in RAM ({format_bytes(ram)} free) and {format_bytes(full * disk_each)} "
        f"on disk ({format_bytes(disk)} free) for {full:,} transitions: {measured}"
    )
