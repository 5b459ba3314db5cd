"""Drives a run from its first step, or its last checkpoint, to a checkpoint at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from framestow.training.checkpoint import newest_checkpoint
from framestow.training.events import StepTaken
from framestow.training.listeners.listener import Listener
from framestow.training.loop import training_events
from framestow.training.run import MakeEnv, Run, make_game
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings, check_may_resume


def start_run(folder: RunFolder, make_env: MakeEnv = make_game) -> Run:
    """Build the run whose settings lie in ``folder``, from its last checkpoint if there is one.

    What a killed process left unfinished is removed. The caller holds ``folder.locked()``.
    """
    folder.remove_unfinished()
    newest = newest_checkpoint(folder.checkpoints)
    settings = folder.settings()
    return Run.resume(newest, settings, make_env) if newest else Run(settings, make_env, store=folder.memory)


def change_settings(folder: RunFolder, asked: Settings) -> None:
    """Give a run new settings of the kind that a resumed run may have.

    Raises :class:`~framestow.errors.IncompatibleError` with the differences, and changes nothing, for any other.
    """
    check_may_resume(folder.settings(), asked)
    folder.write_settings(asked)


def train(
    run: Run,
    folder: RunFolder,
    listeners: Sequence[Listener] = (),
    is_stop_requested: Callable[[], bool] = lambda: False,
) -> None:
    """Train to ``settings.steps``, or to the end of the step in which a stop was requested, then save.

    Raises :class:`~framestow.errors.CheckpointError` when the last checkpoint could not be written.
    """
    with contextlib.ExitStack() as closing:
        for listener in listeners:
            closing.callback(listener.close)
        for event in training_events(run):
            for listener in listeners:
                listener.take(event)
            if isinstance(event, StepTaken) and is_stop_requested():
                break
        run.save(folder.checkpoints)
