"""The training loop."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any

from framestow.envs import finished_games, lost_episodes
from framestow.training.checkpoint import newest_checkpoint
from framestow.training.events import EpisodeEnded, EpisodesLost, Event, Learned, Listener, StepTaken
from framestow.training.run import MakeEnv, Run, make_game
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings, check_may_resume


def training_events(run: Run) -> Iterator[Event]:
    """Train ``run`` up to ``settings.steps`` agent steps, and tell what happens.

    Deep Q-learning as in algorithm 1 of Mnih et al. 2015, with several environments, which step while the agent learns
    from what was recorded before. After each :class:`~framestow.training.events.StepTaken` the run may be saved.
    """
    agent, env, memory, tally = run.agent, run.env, run.memory, run.tally
    observations = memory.observations()
    while tally.agent_steps < run.settings.steps:
        actions = agent.act(observations, tally.agent_steps)
        env.step_async(actions)

        for _ in range(_updates_due(run)):
            update = agent.learn(memory.sample(run.settings.batch_size))
            yield Learned(agent.num_updates, update.loss, update.mean_value)

        observations, _, terminated, truncated, infos = env.step_wait()  # records into the memory
        lost = lost_episodes(infos)
        tally.agent_steps += run.settings.num_envs - len(lost)  # a lost one made no step that anybody saw
        if run.resets_itself:
            tally.agent_steps -= int(run.has_ended.sum())  # these were reset instead of stepped
        run.has_ended = terminated | truncated

        yield from _episodes(run, infos)
        yield from _losses(tally.agent_steps, lost)
        yield StepTaken(tally.agent_steps)


def _updates_due(run: Run) -> int:
    """Return how many updates the steps made so far allow beyond those made."""
    settings = run.settings
    steps_after_warmup = run.tally.agent_steps - settings.warmup
    return max(0, steps_after_warmup // settings.train_every - run.agent.num_updates)


def _episodes(run: Run, infos: dict[str, Any]) -> list[EpisodeEnded]:
    """Count the games that ended; all before the first is told, so that the tally is whole whenever it is read."""
    games = finished_games(infos)
    first = run.tally.episodes + 1
    for game in games:
        run.tally.add_episode(game.score)
    return [
        EpisodeEnded(number, run.tally.agent_steps, game.env_id, game.score, game.agent_steps)
        for number, game in enumerate(games, start=first)
    ]


def _losses(agent_steps: int, lost: dict[int, str]) -> list[EpisodesLost]:
    """Tell of the episodes that were lost, those of one reason together."""
    reasons = dict.fromkeys(lost.values())
    return [
        EpisodesLost(agent_steps, tuple(stream for stream in lost if lost[stream] == reason), reason)
        for reason in reasons
    ]


STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Notes SIGINT and SIGTERM instead of dying of them, for as long as its ``with`` block runs.

    A second one has its usual effect: Ctrl-C raises ``KeyboardInterrupt``, SIGTERM ends the process. To be entered in
    the main thread. The handler only takes a note, since it may have interrupted a write to the terminal.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
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
        """Whether the run was asked to stop."""
        return self.signal_number is not None

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal_number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)


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
