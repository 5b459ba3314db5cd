"""Train on a Ray cluster as Ape-X does: actors with their own epsilons, replay shards, and one learner.

Horgan et al. 2018, Distributed prioritized experience replay. The learner is this process: it draws batches from the
shards, and gives the actors new weights. It has the same run folder, listeners and checkpoints as a run in one process.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv

from framestow.agents.dqn import DQN, fixed_fractions
from framestow.agents.networks import build_network
from framestow.agents.returns import Returns, returns_of
from framestow.agents.settings import AgentSettings, EpsilonGreedy, LinearSchedule
from framestow.distributed.limiter import SampleToInsertRatio
from framestow.distributed.replay import ShardedReplay
from framestow.distributed.rollouts import PolicyStep, Rollouts, StartRollouts
from framestow.distributed.shard import StartShards
from framestow.errors import NothingToSampleError
from framestow.frames.observation_spec import observation_spec
from framestow.interface import plural
from framestow.storage.frame_storage import usual_frames_per_segment
from framestow.torch.tensor_batch import pixels_to_device
from framestow.training.checkpoint import (
    STATE,
    RunState,
    read_rest,
    reading,
    restore_agent,
    saved_memory,
    write_checkpoint,
)
from framestow.training.run import Learner, check_spaces, choose_device, make_game, memory_arguments, set_up_learning
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from framestow.training.training_run import Event, MakeEnv, StepTaken, Tally

WEIGHTS_EVERY = 25  # updates between two versions of the actors' weights
STEPS_PER_CALL = 50  # of each environment; an actor loads new weights between two calls
BATCHES_AHEAD = 2  # that a loader's thread asks the shards for
MIN_CHUNK_FRAMES = 16  # shortest chunk, however short the warm-up is


def actor_epsilons(num_envs: int) -> npt.NDArray[np.float64]:
    """Return the constant epsilon of each environment of all actors: 0.4^(1 + 7 i / (N - 1)) (Horgan et al. 2018).

    >>> actor_epsilons(3).round(4).tolist()
    [0.4, 0.0162, 0.0007]
    """
    exponents = 1.0 + 7.0 * np.arange(num_envs) / max(1, num_envs - 1)
    epsilons: npt.NDArray[np.float64] = 0.4**exponents
    return epsilons


class ActorPolicy:
    """Acts epsilon-greedily with the learner's network on the CPU, with a constant epsilon for each environment."""

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        num_actions: int,
        settings: AgentSettings,
        epsilons: npt.NDArray[np.float64],
        seed: int,
    ) -> None:
        torch.set_num_threads(1)
        self._settings = settings
        self._returns = returns_of(settings, torch.device("cpu"))
        self._network = build_network(observation_shape, num_actions, self._returns.num_outputs, settings)
        self._noise = torch.Generator().manual_seed(seed)  # of noisy layers
        self._exploration = EpsilonGreedy(epsilons, num_actions, seed)

    def load(self, weights: dict[str, npt.NDArray[Any]]) -> None:
        """Copy the learner's weights."""
        self._network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})

    @torch.inference_mode()
    def act(self, observations: npt.NDArray[np.uint8]) -> PolicyStep:
        """Return epsilon-greedy actions and their values."""
        self._network.sample_noise(self._noise)
        pixels = pixels_to_device(observations, torch.device("cpu"))
        outputs = self._network(pixels, fixed_fractions(self._settings, len(pixels), pixels.device))
        values = self._returns.values(outputs).numpy()  # of all rows: they give initial priorities
        actions = self._exploration.act(observations, 0, lambda _: values.argmax(axis=1), every_row=True)
        return PolicyStep(actions, values[np.arange(len(values)), actions], values.max(axis=1))


def _compute_priorities(returns: Returns, errors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return ``Returns.priority`` of TD errors that actors computed."""
    priorities: npt.NDArray[np.float32] = returns.priority(torch.from_numpy(errors)).numpy()
    return priorities


class DistributedRun:
    """Learner, replay shards, actors and counts of a training run on a cluster: a ``TrainingRun``.

    A step counts when a shard has stored it. So a checkpoint covers shards and learner at the same step. Steps that are
    still in an actor when the run stops are lost, and played again. Shards take steps while the checkpoint is written,
    so a resumed run may begin some steps after the one that names the checkpoint.

    Arguments:
        settings: The settings of the run, with at least one actor. ``num_envs`` is the number of each actor.
        folder: The run folder.
        make_env: Returns the environments of one actor.
        start_shards, start_rollouts: Start the actors; on Ray by default.
        checkpoint: The checkpoint to resume from; ``None`` starts a new run.
    """

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        make_env: MakeEnv = make_game,
        start_shards: StartShards | None = None,
        start_rollouts: StartRollouts | None = None,
        checkpoint: Path | None = None,
    ) -> None:
        self.settings, self.device = settings, choose_device(settings.device)
        set_up_learning(settings)
        one_env = make_env(dataclasses.replace(settings, num_envs=1, workers=0))
        frame_space, action_space = one_env.single_observation_space, one_env.single_action_space
        num_actions, mode = check_spaces(one_env), one_env.metadata.get("autoreset_mode")
        one_env.close()
        assert mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP), mode
        epsilons = actor_epsilons(settings.actors * settings.num_envs)
        exploration = LinearSchedule(float(epsilons.mean()), float(epsilons.mean()), 0)
        agent_settings = dataclasses.replace(settings.agent(), exploration=exploration)
        shape = settings.stack, *(frame_space.shape or ())
        self.agent = DQN(shape, num_actions, agent_settings, self.device, settings.seed)
        self.tally = Tally()
        if checkpoint is not None:
            restore_agent(checkpoint, self.agent)
            rest = read_rest(checkpoint)
            with reading(checkpoint / STATE):
                self.tally = Tally.from_state(rest["tally"])
        saved = None if checkpoint is None else saved_memory(checkpoint)
        self.memory = _make_replay(settings, folder, frame_space, action_space, start_shards, saved)
        self.tally.agent_steps = self.memory.counts.inserted  # shards stored steps while the agent was saved
        with contextlib.ExitStack() as unless_built:
            unless_built.callback(self.memory.close)
            returns = returns_of(agent_settings, torch.device("cpu"))
            self.rollouts = Rollouts(
                self.memory,
                partial(_make_actor_env, make_env, settings),
                partial(_make_policy, shape, num_actions, agent_settings, epsilons, settings.num_envs),
                settings.actors,
                steps_per_call=STEPS_PER_CALL,
                weights=self._weights(),
                seed=settings.seed + self.tally.agent_steps,  # a resumed run plays new episodes
                reward_limit=settings.reward_limit,
                priority=partial(_compute_priorities, returns) if settings.gives_priorities else None,
                start=start_rollouts,
            )
            unless_built.pop_all()
        self.learner = Learner(self.agent, self.memory, settings.batch_size, settings.gives_priorities, BATCHES_AHEAD)
        # Updates of the weights that the actors have.
        self._published = self.agent.num_updates

    def events(self) -> Iterator[Event]:
        """Train up to ``settings.steps`` agent steps and yield the events; the run can be saved after a StepTaken."""
        tally, rollouts = self.tally, self.rollouts
        while tally.agent_steps < self.settings.steps:
            updates_due = self._updates_due()
            with contextlib.suppress(NothingToSampleError):  # all shards died meanwhile; they are refilled
                yield from self.learner.update(updates_due)
            self._publish_weights()
            reports, died = rollouts.poll(0.0 if updates_due else 0.05)
            tally.agent_steps = self.memory.counts.inserted

            lost = {env_id: why for report in reports for env_id, why in report.lost.items()}
            for actor in died:
                lost |= dict.fromkeys(rollouts.env_ids(actor), f"actor {actor} died; it is restarted")
            yield from tally.count_games([game for report in reports for game in report.games])
            yield from tally.list_lost_episodes(lost)
            yield StepTaken(tally.agent_steps)
        yield from self.learner.finish()

    def _updates_due(self) -> int:
        """Return 1 if the rate limiter allows all batches that the loader may draw for an update, otherwise 0.

        This process must not wait for actors that wait for it.
        """
        return int(self.memory.may_sample(self.settings.batch_size * (BATCHES_AHEAD + 1)))

    def _publish_weights(self) -> None:
        if self.agent.num_updates - self._published >= WEIGHTS_EVERY:
            self._published = self.agent.num_updates
            self.rollouts.set_weights(self._weights())

    def _weights(self) -> dict[str, npt.NDArray[Any]]:
        return {name: tensor.cpu().numpy() for name, tensor in self.agent.state_dict()["online"].items()}

    def describe_players(self) -> str:
        """Return the numbers of actors, of their environments, and of shards."""
        settings = self.settings
        actors, envs = plural(settings.actors, "actor"), plural(settings.num_envs, "environment")
        return f"{actors} of {envs}, {plural(settings.shards, 'shard')}"

    def other_processes(self) -> dict[str, str]:
        """Return how many actors and shards are alive, and who waits for whom, for the display of the progress."""
        shards = self.settings.shards
        return {
            "actors": f"{self.rollouts.num_playing}/{self.settings.actors}",
            "shards": f"{shards - self.memory.group.num_lost}/{shards}",
            "waiting": self.memory.who_waits,
        }

    def dormant_units(self) -> list[float]:
        """Return nothing: the learner has no stored observations beside its batches."""
        return []

    def state(self) -> RunState[ShardedReplay]:
        """Return the state that a checkpoint saves; the device completes the updates that were begun."""
        self.learner.settle()
        rest = {"tally": self.tally.state_dict()}
        return RunState(self.tally.agent_steps, self.agent.state_dict(), self.memory, rest)

    def save(self, checkpoints: Path) -> Path:
        """Write a checkpoint and return its path; raises ``CheckpointError`` if it could not, or a shard is lost."""
        return write_checkpoint(checkpoints, self.state())

    def close(self) -> None:
        """End actors and shards, also if some of them raise."""
        with contextlib.ExitStack() as closing:
            closing.callback(self.memory.close)
            closing.callback(self.learner.close)
            closing.callback(self.rollouts.close)


def _make_replay(
    settings: Settings,
    folder: RunFolder,
    frame_space: Space[Any],
    action_space: Space[Any],
    start: StartShards | None,
    saved: tuple[Path, int] | None = None,
) -> ShardedReplay:
    num_envs = settings.actors * settings.num_envs
    usual = usual_frames_per_segment(observation_spec(frame_space))
    # Each environment sends its first chunk before the warm-up ends.
    length = max(MIN_CHUNK_FRAMES, min(usual, settings.warmup // num_envs))
    per_insert = settings.batch_size / settings.train_every
    # Steps come in chunks of all environments, and rows in batches: the band is wide enough for two of each.
    error = max(0.1 * per_insert * settings.warmup, 2 * per_insert * num_envs * length, 4 * settings.batch_size)
    return ShardedReplay(
        observation_space=frame_space,
        action_space=action_space,
        **memory_arguments(settings) | {"num_envs": num_envs},
        shards=settings.shards,
        sampler=settings.sampler(),
        seed=settings.seed,
        max_bytes=settings.memory_bytes,
        label=settings.game,
        frames_per_segment=length if settings.memory_bytes is None and settings.retention == "fifo" else None,
        directory=folder.memory if settings.memory_on_disk else None,
        rate_limiter=SampleToInsertRatio(per_insert, settings.warmup, error),
        start=start,
        saved=saved,
    )


def _make_actor_env(make_env: MakeEnv, settings: Settings, number: int, seed: int) -> VectorEnv[Any, Any, Any]:
    del number
    return make_env(dataclasses.replace(settings, seed=seed, workers=0))


def _make_policy(
    shape: tuple[int, ...],
    num_actions: int,
    settings: AgentSettings,
    epsilons: npt.NDArray[np.float64],
    envs_per_actor: int,
    number: int,
    seed: int,
) -> ActorPolicy:
    mine = epsilons[number * envs_per_actor : (number + 1) * envs_per_actor]
    return ActorPolicy(shape, num_actions, settings, mine, seed)
