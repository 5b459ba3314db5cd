"""Kill a training run at random moments until it is done, and check the run folder after each kill.

After a kill, the newest checkpoint must not be older than the newest complete one before the kill. It must equal the
uninterrupted run at that step, and the run must resume from it. After the resume, the folder must have no left-over
files. At the end, the run must equal the uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from framestow.training.checkpoint import newest_checkpoint, read_agent_steps
from framestow.training.settings import Settings
from training.checkpoint_states import read_checkpoint
from training.kills.killable import Training
from training.kills.run_contents import contents, differences, strangers
from training.kills.uninterrupted import Uninterrupted, uninterrupted

OPENINGS = ("training on", "resuming")
MOMENTS = {"while starting": 0.15, "while training": 0.3, "while saving": 0.35, "before a disk operation": 0.2}
MAX_OPERATION = 90  # disk operations; a start and two checkpoints make about so many
MAX_CHECKS = 20
MAX_SAVING_S = 0.05  # after the first sign of a checkpoint being written

Names = frozenset[str]


class PromiseBrokenError(AssertionError):
    """A kill cost what it must not; the message says which kill and what."""


@dataclasses.dataclass
class Count:
    """The kills and checks so far."""

    kills: Counter[str] = dataclasses.field(default_factory=Counter)  # by the moment
    found: Counter[str] = dataclasses.field(default_factory=Counter)  # left-over files after a kill
    resumed: int = 0  # checked starts from a checkpoint after a kill
    runs_finished: int = 0
    own_processes: int = 0  # kills of a new process, not of a fork

    @property
    def num_kills(self) -> int:
        """Number of kills."""
        return sum(self.kills.values())


class KilledRun:
    """One run in ``folder``, killed until it is done."""

    def __init__(
        self, settings: Settings, folder: Path, expected: Uninterrupted, random_moments: random.Random, count: Count
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._expected = expected
        self._random = random_moments
        self._count = count
        self._newest = 0  # agent steps of the newest checkpoint that was seen whole

    def train(self, max_kills: int, forked_share: float, seconds_a_step: float) -> None:
        """Train, be killed and go on; undisturbed once there were ``max_kills``. Raises ``PromiseBrokenError``.

        Where ``forked_share`` is 1 every training is a fork of this process, where it is 0 none is.
        """
        is_done = False
        while not is_done and self._count.num_kills < max_kills and self._newest < self._settings.steps:
            is_done = self._one_process(self._random.random() < forked_share, seconds_a_step)
        if not is_done and self._newest < self._settings.steps:
            training = Training(self._arguments(), self._folder, is_forked=True)
            training.await_end()
            self._check_exit(training)
            is_done = True
        self._check_end(is_cleaned=is_done)
        self._count.runs_finished += 1

    def _one_process(self, is_forked: bool, seconds_a_step: float) -> bool:
        """Start, kill at a random moment, and look; return whether the run got to its end before."""
        moment = self._random.choices(list(MOMENTS), list(MOMENTS.values()))[0]
        if not is_forked and moment == "before a disk operation":
            moment = "while saving"
        operation = self._random.randrange(MAX_OPERATION) if moment == "before a disk operation" else None
        training = Training(self._arguments(), self._folder, is_forked, operation)
        try:
            self._await_moment(training, moment, is_forked, seconds_a_step)
        finally:
            training.kill()
        if not training.was_killed:
            self._check_exit(training)
            return True
        self._count.kills[moment] += 1
        self._count.own_processes += not is_forked
        self._check_after_kill()
        return False

    def _await_moment(self, training: Training, moment: str, is_forked: bool, seconds_a_step: float) -> None:
        if moment == "while starting":
            training.await_end(self._random.uniform(0.0, 0.5 if is_forked else 4.0), self._note_newest)
            return
        opening = training.await_line(OPENINGS)
        if opening is None:
            return  # ended early: the caller checks the exit status
        self._check_opening(training, opening)
        if moment == "while training":
            training.await_end(
                self._random.uniform(0.0, 3.0 * self._settings.checkpoint_every * seconds_a_step), self._note_newest
            )
        elif moment == "while saving":
            skipped = self._random.randrange(3)  # checkpoints without a kill
            for _ in range(skipped + 1):
                before = self._names()
                training.await_end(until=lambda before=before: self._names() != before)
            training.await_end(self._random.uniform(0.0, MAX_SAVING_S))
        else:
            training.await_end(until=self._note_newest)

    def _arguments(self) -> Sequence[str]:
        if (self._folder / "settings.json").exists():
            return ["train", "--resume", str(self._folder)]
        return ["train", *command_line(self._settings), "--run-dir", str(self._folder)]

    def _names(self) -> Names:
        """Return the names of all files of the checkpoints and the memory, and note the newest checkpoint."""
        checkpoints, memory = self._folder / "checkpoints", self._folder / "memory"
        names = frozenset(path.name for part in (checkpoints, memory) if part.is_dir() for path in part.iterdir())
        whole = [int(name.removeprefix("step-")) for name in names if name[:5] == "step-" and name[5:].isdigit()]
        self._newest = max([self._newest, *whole])
        return names

    def _note_newest(self) -> bool:
        """Note the newest checkpoint, and do not end the wait."""
        self._names()
        return False

    def _check_opening(self, training: Training, opening: str) -> None:
        """Check that a started run resumes from the newest checkpoint and that its folder has no left-over files."""
        found = self._strangers_at_rest(training)
        steps = int(opening.split()[4].replace(",", "")) if opening.startswith("resuming") else 0
        if steps != self._newest:
            raise self._broken(f"it resumed at step {steps}, but step {self._newest} was saved")
        if found:
            raise self._broken(f"after the resume at step {steps} these files are left over: {found}")
        self._count.resumed += steps > 0

    def _strangers_at_rest(self, training: Training) -> list[str]:
        """Return the left-over files. A file that is being written at one check is gone at a later one."""
        found: list[str] = []
        for _ in range(MAX_CHECKS):
            training.pause()
            found = strangers(self._folder)
            training.unpause()
            if not found or training.has_ended():
                return []
            time.sleep(0.02)
        return found

    def _check_after_kill(self) -> None:
        self._names()
        found = strangers(self._folder) if self._folder.is_dir() else []
        self._count.found[_kind_of_rest(found)] += 1
        newest = newest_checkpoint(self._folder / "checkpoints")
        steps = read_agent_steps(newest) if newest else 0
        if steps < self._newest:
            raise self._broken(
                f"the newest checkpoint is of step {steps}: that of step {self._newest} was whole before"
            )
        if newest:
            self._check_content(newest)

    def _check_content(self, checkpoint: Path) -> None:
        state = read_checkpoint(checkpoint)
        if found := differences(self._expected.contents[state.agent_steps], contents(state)):
            raise self._broken(f"{checkpoint.name} is not what the uninterrupted run had at that step: {found}")

    def _check_end(self, is_cleaned: bool) -> None:
        """Look at the run's end; what a kill after the last checkpoint left is no stranger, until steps are added."""
        newest = newest_checkpoint(self._folder / "checkpoints")
        if newest is None or read_agent_steps(newest) != max(self._expected.contents):
            raise self._broken(f"the run ended, and its last checkpoint is {newest}")
        self._check_content(newest)
        if (self._folder / "episodes.csv").read_text() != self._expected.episodes:
            raise self._broken("episodes.csv is not that of the uninterrupted run")
        if is_cleaned and (found := strangers(self._folder)):
            raise self._broken(f"after the run's end there are left over: {found}")

    def _check_exit(self, training: Training) -> None:
        if training.was_killed or training.exit_code != 0:
            raise self._broken(f"the training ended with status {training.status}, and printed:\n{training.printed}")

    def _broken(self, what: str) -> PromiseBrokenError:
        return PromiseBrokenError(f"kill {self._count.num_kills} of {self._folder}: {what}")


def command_line(settings: Settings) -> list[str]:
    """Return the arguments of ``framestow train`` that give these settings."""
    arguments = [settings.game]
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        flag = "--" + field.name.replace("_", "-")
        if field.name == "game" or value == field.default:
            continue
        if isinstance(value, bool):
            arguments.append(flag if value else "--no-" + flag[2:])
        else:
            arguments += [flag, str(value)]
    return arguments


def kill_again_and_again(
    kinds: Sequence[Settings], folder: Path, num_kills: int, forked_share: float, seed: int
) -> Count:
    """Kill runs of each of ``kinds`` in turn until there were ``num_kills``, and let the last one end undisturbed.

    A run is killed at most ``num_kills / len(kinds)`` times, so that every kind has its turn on a slow machine too.
    """
    kills_a_run = -(-num_kills // len(kinds))
    count, moments = Count(), random.Random(seed)
    expected: list[tuple[Uninterrupted, float]] = []
    for number, settings in enumerate(kinds):
        started = time.monotonic()
        whole = uninterrupted(settings, folder / f"uninterrupted-{number}")
        expected.append((whole, (time.monotonic() - started) / settings.steps))
    number = 0
    while count.num_kills < num_kills:
        kind = number % len(kinds)
        path = folder / f"killed-{number}"
        whole, seconds_a_step = expected[kind]
        run = KilledRun(kinds[kind], path, whole, moments, count)
        run.train(min(num_kills, count.num_kills + kills_a_run), forked_share, seconds_a_step)
        shutil.rmtree(path)
        number += 1
    return count


def _kind_of_rest(found: Sequence[str]) -> str:
    """Say in words what a kill left lying about."""
    if any(".partial" in name for name in found):
        return "a checkpoint half written"
    if any(name.startswith("memory") for name in found):
        return "a memory ahead of the checkpoint"
    if found:
        return "a checkpoint that was replaced, or a file half written"
    return "nothing"
