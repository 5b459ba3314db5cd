"""The training loop: start or resume a run, train it with listeners, and stop it on a signal."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any

from framestow.envs import finished_games, lost_episodes
from framestow.training.checkpoint import check_loss, newest_checkpoint
from framestow.training.events import EpisodeEnded, EpisodesLost, Event, Learned, Listener, StepTaken
from framestow.training.run import MakeEnv, Run, make_game
from framestow.training.run_folder import RunFolder


def training_events(run: Run) -> Iterator[Event]:
    """Train ``run`` up to ``settings.steps`` agent steps and yield its events.

    Deep Q-learning as in algorithm 1 of Mnih et al. 2015, with several environments. They step while the agent learns
    from the steps stored before. The run can be saved after each ``StepTaken``.
    """
    agent, env, tally = run.agent, run.env, run.tally
    observations = run.memory.observations()
    while tally.agent_steps < run.settings.steps:
        actions = agent.act(observations, tally.agent_steps)
        env.step_async(actions)

        yield from run.learner.update(_updates_due(run))
        observations, _, terminated, truncated, infos = env.step_wait()  # stores the step in the memory
        lost = lost_episodes(infos)
        tally.agent_steps += run.settings.num_envs - len(lost)  # the step of a lost episode is not stored
        if run.resets_itself:
            tally.agent_steps -= int(run.has_ended.sum())  # these environments were reset instead of stepped
        run.has_ended = terminated | truncated

        yield from _count_finished_episodes(run, infos)
        yield from _list_lost_episodes(tally.agent_steps, lost)
        yield StepTaken(tally.agent_steps)
    yield from run.learner.finish()


def _updates_due(run: Run) -> int:
    """Return the number of updates that are due after the agent steps so far."""
    settings = run.settings
    steps_after_warmup = run.tally.agent_steps - settings.warmup
    return max(0, steps_after_warmup // settings.train_every - run.agent.num_updates)


def _count_finished_episodes(run: Run, infos: dict[str, Any]) -> list[EpisodeEnded]:
    """Count all finished games, then return their events. So each listener sees the complete tally."""
    games = finished_games(infos)
    first = run.tally.episodes + 1
    for game in games:
        run.tally.add_episode(game.score)
    return [
        EpisodeEnded(number, run.tally.agent_steps, game.env_id, game.score, game.agent_steps)
        for number, game in enumerate(games, start=first)
    ]


def _list_lost_episodes(agent_steps: int, lost: dict[int, str]) -> list[EpisodesLost]:
    """Return one event per reason for which episodes were lost."""
    reasons = dict.fromkeys(lost.values())
    return [
        EpisodesLost(agent_steps, tuple(env_id for env_id in lost if lost[env_id] == reason), reason)
        for reason in reasons
    ]


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
            self._usual[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    @property
    def is_requested(self) -> bool:
        """Whether a signal asked the run to stop."""
        return self.signal_number is not None

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal_number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)


def start_run(folder: RunFolder, make_env: MakeEnv = make_game) -> Run:
    """Return the run of ``folder``, resumed from its newest checkpoint if there is one.

    Removes unfinished files of a killed process. Call it inside ``folder.lock()``.
    """
    folder.remove_unfinished()
    newest = newest_checkpoint(folder.checkpoints)
    settings = folder.settings()
    return Run.resume(newest, settings, make_env) if newest else Run(settings, make_env, store=folder.memory)


def train(
    run: Run,
    folder: RunFolder,
    listeners: Sequence[Listener] = (),
    is_stop_requested: Callable[[], bool] = lambda: False,
    events: Callable[[Any], Iterator[Event]] = training_events,
) -> None:
    """Train ``run`` to ``settings.steps`` agent steps and save it.

    Arguments:
        run: The run from ``start_run``.
        folder: The run folder; the last checkpoint is written there.
        listeners: Receive every event in order, and are closed at the end.
        is_stop_requested: Called after each step; ``True`` saves and stops.
        events: Trains the run and yields its events; ``DistributedRun.events`` for a run on a cluster.

    Raises:
        CheckpointError: the last checkpoint could not be written.
        DivergedError: loss or weights are not finite. The loss is checked after every update, the weights before each
            checkpoint.
    """
    with contextlib.ExitStack() as closing:
        for listener in listeners:
            closing.callback(listener.close)
        for event in events(run):
            for listener in listeners:
                listener.take(event)
            if isinstance(event, Learned):
                check_loss(event.loss, run.tally.agent_steps, folder.checkpoints)
            if isinstance(event, StepTaken) and is_stop_requested():
                break
        run.save(folder.checkpoints)
