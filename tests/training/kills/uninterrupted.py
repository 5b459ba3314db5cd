"""The uninterrupted run, which every killed run must equal."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

from framestow.training.listeners import EpisodeTable
from framestow.training.loop import start_run, train
from framestow.training.run import Run
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from framestow.training.training_run import Event, StepTaken
from training.kills.run_contents import Contents, contents


@dataclasses.dataclass(frozen=True)
class Uninterrupted:
    """What the run is, by agent steps, wherever a checkpoint is due, and episodes.csv in the end."""

    contents: dict[int, Contents]
    episodes: str


class _ContentsTaken:
    """Takes the contents wherever a checkpoint is due; nothing is saved, so saving cannot hide what it breaks."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._num_passed = 0
        self.taken: dict[int, Contents] = {}

    def take(self, event: Event) -> None:
        settings = self._run.settings
        if not isinstance(event, StepTaken):
            return
        num_passed = event.agent_steps // settings.checkpoint_every
        if num_passed > self._num_passed or event.agent_steps >= settings.steps:
            self.taken[event.agent_steps] = contents(self._run.state())
        self._num_passed = num_passed

    def close(self) -> None:
        """Nothing is open."""


def uninterrupted(settings: Settings, folder: Path) -> Uninterrupted:
    """Train in ``folder`` in a child process, without a checkpoint before the end, and return the result."""
    result_file = folder.with_name(folder.name + ".json")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _train(settings, folder, result_file)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(f"the uninterrupted run ended with status {status}")
    written = json.loads(result_file.read_text())
    return Uninterrupted({int(steps): taken for steps, taken in written["contents"].items()}, written["episodes"])


def _train(settings: Settings, path: Path, result_file: Path) -> None:
    folder = RunFolder.create(path, settings)
    with folder.lock():
        run = start_run(folder)
        listener = _ContentsTaken(run)
        train(run, folder, [EpisodeTable(folder.episodes, 0, sys.stderr.write), listener])
        run.close()
    result_file.write_text(json.dumps({"contents": listener.taken, "episodes": folder.episodes.read_text()}))
