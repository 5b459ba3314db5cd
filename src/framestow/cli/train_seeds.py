"""Train one run per seed, each in its own process, and print the averages of their scores.

The parent creates the run folders with their settings. A child is ``framestow train --resume seed-N``, so each run is
the one that ``framestow train --seed N`` makes with the same number of threads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console

from framestow.argument_checks import whole_number
from framestow.cli.printing import drop_failed_output, print_line, print_named, print_warning
from framestow.cli.training_session import TrainOptions, check_options, expect_for_new_run, shell_command
from framestow.envs.atari.presets import find_preset
from framestow.errors import InvalidSettingsError
from framestow.machine_limits import num_cores
from framestow.one_line import plural
from framestow.training import loop
from framestow.training.checkpoint import newest_checkpoint, read_agent_steps
from framestow.training.listeners import last_scores
from framestow.training.loop import Interruption
from framestow.training.run_folder import RunFolder, default_run_path, seed_runs
from framestow.training.scores import (
    bootstrap_interval,
    human_normalized,
    interquartile_mean,
    mean_of_games,
    random_and_human_scores,
)
from framestow.training.settings import Settings
from framestow.training.training_run import NUM_RECENT

FAILED = 1  # exit code if any run failed
POLL_INTERVAL_S = 0.1


def train_seeds(options: TrainOptions, num_seeds: int | None, num_at_once: int | None, console: Console) -> int:
    """Train the runs of several seeds, print their scores and return the exit code.

    Arguments:
        options: As for one run; ``options.settings.seed`` is the first seed. With ``resume`` the common folder.
        num_seeds: Number of seeds; ``None`` for those of a resumed folder.
        num_at_once: Runs that train at the same time; ``None`` takes as many as the cores have room for.
        console: Shows the lines of all runs, each with its seed.
    """
    if num_at_once is not None:
        whole_number("parallel", num_at_once, 1, rule="at least 1 run trains at a time; give another --parallel")
    if options.resume:
        parent, unfinished = options.resume, _prepare_resumed_runs(options, num_seeds)
        threads = options.settings.threads or num_cores()  # as the runs began, to continue them bit for bit
        _, at_once = share_cores(len(unfinished), num_cores(), threads, num_at_once)
    else:
        if num_seeds is None:
            raise InvalidSettingsError(
                f"parallel is {num_at_once}: one run trains in one process; give --seeds too, or leave out --parallel"
            )
        whole_number("seeds", num_seeds, 1, rule="there must be at least 1 run; give another --seeds")
        settings = check_options(options)
        threads, at_once = share_cores(num_seeds, num_cores(), settings.threads, num_at_once)
        settings = dataclasses.replace(settings, threads=threads)
        parent = options.run_dir or default_run_path(settings, datetime.datetime.now(), num_seeds)
        _check_memories_fit(settings, parent, at_once, num_seeds, console)
        unfinished = [
            RunFolder.create(parent / f"seed-{seed}", dataclasses.replace(settings, seed=seed))
            for seed in range(settings.seed, settings.seed + num_seeds)
        ]
    print_line(
        console, f"training {plural(len(unfinished), 'seed')}, {at_once} at the same time, run folders in {parent}"
    )
    children = Children(unfinished, at_once, console)
    signal_number = children.train_until_stopped()
    for name, text in closing_lines(parent, children.failures).items():
        print_named(console, name, text, width=18)
    if signal_number is not None:
        return 128 + signal_number  # as a shell reports a process that the signal ended
    return FAILED if children.failures else 0


def _prepare_resumed_runs(options: TrainOptions, num_seeds: int | None) -> list[RunFolder]:
    """Write the new settings of all unfinished runs of a folder and return these runs."""
    assert options.resume is not None
    folders = seed_runs(options.resume)
    if not folders:
        raise InvalidSettingsError(
            f"{options.resume} has one run: --seeds and --parallel are for the folder of several seeds; leave them out"
        )
    if num_seeds not in (None, len(folders)):
        raise InvalidSettingsError(
            f"seeds is {num_seeds}: {options.resume} has the runs of {len(folders)} seeds; leave out --seeds"
        )
    settings = check_options(options)
    unfinished = [folder for folder in folders if _read_saved_steps(folder) < settings.steps]
    if not unfinished:
        raise InvalidSettingsError(
            f"steps is {settings.steps:,}: all {len(folders)} seeds already have these steps; give a larger --steps"
        )
    first = folders[0].settings().seed
    with contextlib.ExitStack() as locks:
        for folder in unfinished:
            locks.enter_context(folder.lock())
        for folder in unfinished:
            seed = settings.seed + folder.settings().seed - first  # another --seed differs for every run
            folder.change_settings(dataclasses.replace(settings, seed=seed))
    return unfinished


def share_cores(num_runs: int, cores: int, threads: int = 0, num_at_once: int | None = None) -> tuple[int, int]:
    """Return the CPU threads of each run, 0 for all cores, and how many runs train at the same time.

    Arguments:
        num_runs: Number of runs.
        cores: Number of cores.
        threads: Threads of each run; 0 gives runs that share the cores one thread each.
        num_at_once: Runs that train at the same time; ``None`` takes as many as the cores have room for.

    >>> share_cores(5, 4), share_cores(5, 4, threads=2), share_cores(5, 4, num_at_once=1), share_cores(1, 4)
    ((1, 4), (2, 2), (0, 1), (0, 1))
    """
    if not threads and min(num_runs, num_at_once or cores) > 1:
        threads = 1
    return threads, min(num_runs, num_at_once or max(1, cores // (threads or cores)))


def _check_memories_fit(settings: Settings, parent: Path, at_once: int, num_runs: int, console: Console) -> None:
    try:
        expect_for_new_run(settings, parent, console, at_once, num_runs)
    except InvalidSettingsError as error:
        if at_once == 1:
            raise
        raise InvalidSettingsError(f"{error}; or --parallel 1, since {at_once} runs share the RAM") from error


def _read_saved_steps(folder: RunFolder) -> int:
    newest = newest_checkpoint(folder.checkpoints)
    return read_agent_steps(newest) if newest else 0


class Children:
    """The child processes that train the runs.

    Arguments:
        folders: The runs to train, in this order.
        num_at_once: Maximum number of runs that train at the same time.
        console: Shows the lines that the children print, each with its seed.
    """

    def __init__(self, folders: Sequence[RunFolder], num_at_once: int, console: Console) -> None:
        self.failures: dict[Path, str] = {}
        """How the runs ended that neither finished nor were stopped, by run folder."""
        self._waiting = deque(folders)  # runs that were not started yet
        self._num_at_once = num_at_once
        self._console = console
        # By process: its run folder, and the thread that prints its lines.
        self._running: dict[subprocess.Popen[str], tuple[RunFolder, threading.Thread]] = {}

    def train_until_stopped(self) -> int | None:
        """Train all runs and return ``None``, or the number of the signal that stopped them.

        The first Ctrl-C, SIGTERM or SIGHUP is passed on once: each run finishes its step and saves. A second Ctrl-C is
        passed on too, and stops them without saving.
        """
        with Interruption() as interruption, drop_failed_output(self._console, interruption.request):
            try:
                is_stopping = False
                while self._running or (self._waiting and not is_stopping):
                    if interruption.signal_number is not None and not is_stopping:
                        is_stopping = True
                        self._send(interruption.signal_number)
                    while self._waiting and len(self._running) < self._num_at_once and not interruption.is_requested:
                        self._start(self._waiting.popleft())
                    self._collect(is_stopping)
                    time.sleep(POLL_INTERVAL_S)
            except BaseException:
                self._send(signal.SIGINT)
                for process in self._running:
                    process.wait()
                raise
        return interruption.signal_number

    def _start(self, folder: RunFolder) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "framestow.cli", "train", "--resume", str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            # A terminal sends Ctrl-C to its whole process group. The children get it from this process alone, because
            # a second signal would stop them without saving.
            start_new_session=True,
        )
        printing = threading.Thread(target=self._print_lines, args=(folder, process), daemon=True)
        printing.start()
        self._running[process] = (folder, printing)

    def _print_lines(self, folder: RunFolder, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                print_line(self._console, f"{folder.path.name}  {line.rstrip()}")

    def _collect(self, is_stopping: bool) -> None:
        """Forget the processes that ended, and name those that failed."""
        for process, (folder, printing) in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            printing.join()
            del self._running[process]
            if code == 0 or (is_stopping and code in _STOPPED):
                continue
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            self.failures[folder.path] = how
            others = "; the other seeds continue" if self._running or self._waiting else ""
            print_warning(
                self._console, f"{folder.path.name} ended early ({how}), its run folder is {folder.path}{others}"
            )

    def _send(self, number: int) -> None:
        if os.name == "nt":  # the console has sent Ctrl-C to the children too
            return
        for process in self._running:
            process.send_signal(number)


_STOPPED = {code for number in loop.STOPPING_SIGNALS for code in (-number, 128 + number)}


def closing_lines(parent: Path, failures: dict[Path, str]) -> dict[str, str]:
    """Return the scores of the finished runs and the commands for the next step, by name."""
    folders = seed_runs(parent)
    settings = folders[0].settings()
    saved_steps = {folder.path: _read_saved_steps(folder) for folder in folders}
    finished = [folder for folder in folders if saved_steps[folder.path] >= settings.steps]
    frames = find_preset(settings.preset).frame_skip * settings.steps
    lines = {
        "run folders": str(parent),
        "seeds": f"{len(finished)} of {len(folders)} finished, {settings.steps:,} agent steps ({frames:,} emulator "
        "frames) each",
    }
    for folder in folders:
        if folder not in finished:
            how = failures.get(folder.path, "stopped")
            lines[folder.path.name] = f"{how} after {saved_steps[folder.path]:,} saved agent steps: {folder.path}"
    lines.update(_score_lines(settings.game, finished))
    command, name = shell_command(), shlex.quote(str(parent))
    more = f" --steps {2 * settings.steps:_}" if len(finished) == len(folders) else ""
    lines["resume"] = f"{command} train --resume {name}{more}"
    lines["evaluate"] = f"{command} evaluate {shlex.quote(str(folders[0].path))}"
    return lines


def _score_lines(game: str, folders: list[RunFolder]) -> dict[str, str]:
    """Return the mean of the last games of each run, and the averages over the runs with their intervals."""
    games = {
        folder.path.name: last_scores(folder.episodes, NUM_RECENT, _read_saved_steps(folder)) for folder in folders
    }
    scores = [float(np.mean(last)) for last in games.values() if last]
    if not scores:
        return {"score": "no finished seed has a whole game"}
    each = " · ".join(
        f"{seed} {np.mean(last):.2f}{'' if len(last) == NUM_RECENT else f' ({len(last)} games)'}"
        for seed, last in games.items()
        if last
    )
    lines = {"score": f"mean of the last {NUM_RECENT} games: {each}"}
    averages = {"mean": mean_of_games, "median": _median_of_runs, "interquartile mean": interquartile_mean}
    for name, average in averages.items():
        value, (low, high) = average([scores]), bootstrap_interval(average, [scores])
        lines[name] = f"{value:.2f}, 95 % interval {low:.2f} to {high:.2f}"
        normalized = [share for score in (value, low, high) if (share := human_normalized(game, score)) is not None]
        if normalized:
            lines[name] += " · human-normalised {:.3f}, {:.3f} to {:.3f}".format(*normalized)
    if beside := random_and_human_scores(game):
        lines["beside"] = beside
    return lines


def _median_of_runs(scores: Sequence[ArrayLike]) -> float:
    return float(np.median(np.concatenate([np.asarray(row) for row in scores])))
