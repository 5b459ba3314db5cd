"""A run with actors and shards in threads: it learns from their steps, is saved and resumed as one."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from distributed.thread_calls import start_rollouts_in_threads, start_shards_in_threads
from framestow.distributed.shard import Shard
from framestow.errors import InvalidSettingsError
from framestow.training.checkpoint import newest_checkpoint
from framestow.training.distributed import ActorPolicy, DistributedRun
from framestow.training.listeners import ProgressTable
from framestow.training.loop import train
from framestow.training.report.page import write_report
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from framestow.training.training_run import EpisodeEnded, Learned
from training.catch_runs import catch_settings, make_catch

STEPS = 600


def distributed_run(folder: RunFolder, checkpoint=None, shard=Shard) -> DistributedRun:
    start = partial(start_shards_in_threads, shard=shard)
    return DistributedRun(folder.settings(), folder, make_catch, start, start_rollouts_in_threads, checkpoint)


def settings_of_run(**given) -> Settings:
    return catch_settings(steps=STEPS, num_envs=2, workers=0, actors=2, shards=2, warmup=100, **given)


def weights_of(run: DistributedRun) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in run.agent.state_dict()["online"].items()}


class Noted:
    """A listener that keeps the events."""

    def __init__(self) -> None:
        self.events = []

    def take(self, event) -> None:
        self.events.append(event)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_run_is_saved_with_its_shards_and_resumed_at_the_same_step(tmp_path, on_disk):
    folder = RunFolder.create(tmp_path / "run", settings_of_run(recipe="laptop", memory_on_disk=on_disk))
    run, noted = distributed_run(folder), Noted()
    train(run, folder, [noted])
    num_inserted, num_stored, num_updates = run.memory.counts.inserted, len(run.memory), run.agent.num_updates
    run.close()
    folder.remove_unfinished()

    resumed = distributed_run(folder, newest_checkpoint(folder.checkpoints))

    updates = [event for event in noted.events if isinstance(event, Learned)]
    games = [event for event in noted.events if isinstance(event, EpisodeEnded)]
    assert run.tally.agent_steps >= STEPS
    assert len(updates) == num_updates
    assert {0, 1, 2, 3} == {game.env_id for game in games}
    assert (num_inserted, num_stored, num_updates) == (
        resumed.tally.agent_steps,
        len(resumed.memory),
        resumed.agent.num_updates,
    )
    assert num_inserted == resumed.memory.counts.inserted
    for name, array in weights_of(run).items():
        np.testing.assert_array_equal(array, weights_of(resumed)[name])
    resumed.close()


@pytest.mark.parametrize(("pause_of_learner", "pause_of_actors"), [(0.03, 0.0), (0.0, 0.003)])
def test_samples_stay_within_the_band_if_learner_or_actors_are_slow(
    tmp_path, monkeypatch, pause_of_learner, pause_of_actors
):
    memories, moments = [], []  # at each moment: the steps that all shards have, and the rows that were sampled

    class NotedShard(Shard):
        def take(self, chunks):
            taken = super().take(chunks)
            for memory in memories:
                inserted = sum(shard.answer().inserted for shard in memory.group.calls.objects)
                moments.append((inserted, memory.counts.sampled))
            return taken

    settings = replace(settings_of_run(recipe="laptop"), steps=2_000, train_every=32)
    folder = RunFolder.create(tmp_path / "run", settings)
    monkeypatch.setattr("framestow.training.distributed.STEPS_PER_CALL", 1_000)  # writers wait, not only their calls
    run, act = distributed_run(folder, shard=NotedShard), ActorPolicy.act
    memories.append(run.memory)
    monkeypatch.setattr(ActorPolicy, "act", lambda *given: time.sleep(pause_of_actors) or act(*given))
    for event in run.events():
        if isinstance(event, Learned):
            time.sleep(pause_of_learner)
    run.close()

    limiter = run.memory.group.limiter.ratio
    ratio = limiter.samples_per_insert
    in_flight = 2 * 4 * run.memory.settings.frames_per_segment  # chunks of 4 environments
    inserted, sampled = np.array(moments).T
    difference = inserted * ratio - sampled
    assert difference.max() <= limiter.high + in_flight * ratio
    assert difference[sampled > 0].min() >= limiter.low
    assert inserted[-1] >= 2_000
    assert run.agent.num_updates * settings.batch_size >= (sampled[-1] - 3 * settings.batch_size)


def test_the_report_of_a_run_shows_transitions_of_a_shard(tmp_path):
    folder = RunFolder.create(tmp_path / "run", settings_of_run(recipe="dqn"))
    run = distributed_run(folder)
    train(run, folder, [ProgressTable(run, folder.progress, pytest.fail)])
    shown = run.other_processes()
    run.close()

    write_report([folder.path], tmp_path / "report.html", with_clip=False)

    assert "observation" in (tmp_path / "report.html").read_text()
    assert {"actors": "2/2", "shards": "2/2"} == {name: shown[name] for name in ("actors", "shards")}


@pytest.mark.parametrize("recipe", ["dqn", "laptop", "rainbow", "desktop"])
def test_an_actor_acts_greedily_with_the_learners_values(recipe, tmp_path):
    settings = catch_settings(recipe=recipe, noisy=False, spectral_norm=False, precision="float32", workers=0)
    folder = RunFolder.create(tmp_path / "run", replace(settings, actors=1))
    run = distributed_run(folder)
    frames = np.random.default_rng(0).integers(0, 256, (50, settings.stack, 24, 24), dtype=np.uint8)
    policy = ActorPolicy((settings.stack, 24, 24), 3, run.agent.settings, np.zeros(50), seed=0)

    policy.load(weights_of(run))
    step = policy.act(frames)

    values = run.agent.values(frames)
    np.testing.assert_array_equal(values.argmax(axis=1), step.actions)
    np.testing.assert_allclose(values.max(axis=1), step.best, rtol=1e-5)
    np.testing.assert_array_equal(step.best, step.chosen)
    run.close()


def test_shards_without_an_environment_are_refused():
    with pytest.raises(InvalidSettingsError, match="shards is 3: each needs an environment of --actors, which have 2"):
        Settings("Pong", recipe="dqn", actors=2, shards=3)
