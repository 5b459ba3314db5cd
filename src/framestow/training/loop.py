"""The training loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from framestow.envs import finished_games, lost_episodes
from framestow.training.events import EpisodeEnded, EpisodesLost, Event, Learned, StepTaken
from framestow.training.run import Run


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
