"""Saves the run every so many agent steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from framestow.errors import CheckpointError
from framestow.training.events import Event, StepTaken
from framestow.training.run import Run


class Checkpointing:
    """Writes a checkpoint whenever a multiple of ``checkpoint_every`` agent steps was passed.

    One that could not be written is told to ``warn`` and tried again at the next multiple: the last good one is still
    there, and a full disk may have been cleared by then.
    """

    def __init__(self, run: Run, checkpoints: Path, warn: Callable[[str], None]) -> None:
        self._run = run
        self._checkpoints = checkpoints
        self._warn = warn
        self._num_passed = run.tally.agent_steps // run.settings.checkpoint_every

    def take(self, event: Event) -> None:
        """Save when it is time."""
        if not isinstance(event, StepTaken):
            return
        num_passed = event.agent_steps // self._run.settings.checkpoint_every
        if num_passed == self._num_passed:
            return
        self._num_passed = num_passed
        try:
            self._run.save(self._checkpoints)
        except CheckpointError as error:
            self._warn(f"{error}; the run goes on")

    def close(self) -> None:
        """Nothing is open: whoever drives the loop decides about the last checkpoint."""
