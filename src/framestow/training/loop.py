"""The training loop: start or resume a run, train it with listeners, and stop it on request."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Sequence
from types import FrameType, TracebackType
from typing import Any

from framestow.distributed.ray import start_cluster
from framestow.process import block_signals
from framestow.training.checkpoint import check_loss, newest_checkpoint
from framestow.training.distributed import DistributedRun
from framestow.training.run import Run, make_game
from framestow.training.run_folder import RunFolder
from framestow.training.training_run import Learned, Listener, MakeEnv, StepTaken, TrainingRun

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # a second one ends the process
# Sent, often twice, when the terminal closes or its SSH connection is lost; empty on Windows, which has no such signal.
HANGUP_SIGNALS = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
STOPPING_SIGNALS = (*ENDING_SIGNALS, *HANGUP_SIGNALS)


class Interruption:
    """Within its ``with`` block, records the first SIGINT, SIGTERM or SIGHUP instead of ending the process.

    A second SIGINT or SIGTERM has its usual effect: Ctrl-C raises ``KeyboardInterrupt``, SIGTERM ends the process. A
    second SIGHUP has none, and where SIGHUP is ignored, as under ``nohup``, the first has none either. Enter it in the
    main thread. The handler prints nothing, because it may interrupt a write to the terminal.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None  # the first signal; None while there was none
        self._usual: dict[int, Any] = {}  # the handlers that the signals had before, by number

    def __enter__(self) -> Interruption:
        for number in STOPPING_SIGNALS:
            usual = signal.getsignal(number)
            if number in HANGUP_SIGNALS and usual == signal.SIG_IGN:
                continue
            self._usual[number] = usual
            signal.signal(number, self._record)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore(self._usual)

    @property
    def is_requested(self) -> bool:
        """Whether the run shall stop."""
        return self.signal_number is not None

    def request(self, number: int = signal.SIGTERM) -> None:
        """Ask the run to stop, as the signal ``number`` does."""
        if self.signal_number is None:
            self.signal_number = number

    def _record(self, number: int, _frame: FrameType | None) -> None:
        self.request(number)
        if number in ENDING_SIGNALS:
            self._restore(ENDING_SIGNALS)

    def _restore(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            signal.signal(number, self._usual[number])


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
    # A closing terminal sends SIGHUP to the processes that start here too. They must not end before the run is saved.
    with block_signals(HANGUP_SIGNALS):
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
