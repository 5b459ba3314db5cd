"""The training loop: start or resume a run, train it with listeners, and stop it on a signal."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any

from framestow.distributed.ray_actors import start_cluster
from framestow.training.checkpoint import check_loss, newest_checkpoint
from framestow.training.distributed import DistributedRun
from framestow.training.events import Learned, Listener, StepTaken
from framestow.training.run import Run, make_game
from framestow.training.run_folder import RunFolder
from framestow.training.training_run import MakeEnv, TrainingRun

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Within its ``with`` block, records the first SIGINT or SIGTERM instead of ending the process.

    A second signal has its usual effect: Ctrl-C raises ``KeyboardInterrupt``, SIGTERM ends the process. Enter it in
    the main thread. The handler prints nothing, because it may interrupt a write to the terminal.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None  # the first signal; None while there was none
        # The handlers that the signals had before, by number; they are back after the first signal.
        self._usual: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        for number in STOPPING_SIGNALS:
            self._usual[number] = signal.signal(number, self._record)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    @property
    def is_requested(self) -> bool:
        """Whether a signal asked the run to stop."""
        return self.signal_number is not None

    def _record(self, number: int, _frame: FrameType | None) -> None:
        self.signal_number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)


def start_run(folder: RunFolder, make_env: MakeEnv = make_game, address: str | None = None) -> TrainingRun:
    """Return the run of ``folder``, resumed from its newest checkpoint if there is one.

    Removes unfinished files of a killed process. Call it inside ``folder.lock()``.

    Arguments:
        folder: The run folder. If its settings have actors, the run is on a Ray cluster.
        make_env: Returns the environments; for a run with actors, those of one actor.
        address: Of the Ray cluster; ``None`` starts one on this machine, which ends with this process.
    """
    settings = folder.settings()
    folder.remove_unfinished()
    newest = newest_checkpoint(folder.checkpoints)
    if settings.actors:
        start_cluster(address)
        return DistributedRun(settings, folder, make_env, checkpoint=newest)
    return Run.resume(newest, settings, make_env) if newest else Run(settings, make_env, store=folder.memory)


def train(
    run: TrainingRun,
    folder: RunFolder,
    listeners: Sequence[Listener] = (),
    is_stop_requested: Callable[[], bool] = lambda: False,
) -> None:
    """Train ``run`` to ``settings.steps`` agent steps and save it.

    Arguments:
        run: The run from ``start_run``.
        folder: The run folder; the last checkpoint is written there.
        listeners: Receive every event in order, and are closed at the end.
        is_stop_requested: Called after each step; ``True`` saves and stops.

    Raises:
        CheckpointError: the last checkpoint could not be written.
        DivergedError: loss or weights are not finite. The loss is checked after every update, the weights before each
            checkpoint.
    """
    with contextlib.ExitStack() as closing:
        for listener in listeners:
            closing.callback(listener.close)
        for event in run.events():
            for listener in listeners:
                listener.take(event)
            if isinstance(event, Learned):
                check_loss(event.loss, run.tally.agent_steps, folder.checkpoints)
            if isinstance(event, StepTaken) and is_stop_requested():
                break
        run.save(folder.checkpoints)
