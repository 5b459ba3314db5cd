"""Actors that play environments into a replay, in this process: what they store, and how they survive."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

from distributed.env_steps import SHAPE, frame_of, local_replay, priorities_in
from framestow import Prioritized
from framestow.distributed import PolicyStep, Rollouts
from framestow.distributed.ray import LocalCalls
from framestow.distributed.rollouts import RolloutActor
from framestow.errors import ActorLostError, InvalidSettingsError


class CountingEnv(gymnasium.Env):
    """Frame n of environment e is ``frame_of(e, n)``; the reward counts the steps; episodes have 9 steps."""

    observation_space, action_space = Box(0, 255, SHAPE, np.uint8), Discrete(4)

    def __init__(self, env_id: int) -> None:
        self._env_id, self._num_frames, self._steps = env_id, 0, 0

    def reset(self, *, seed=None, options=None):
        return self._next(), {}

    def step(self, action):
        self._steps += 1
        return self._next(), float(self._steps), self._steps % 9 == 0, False, {}

    def _next(self):
        self._num_frames += 1
        return frame_of(self._env_id, self._num_frames - 1)


def make_env(number: int, seed: int, mode=AutoresetMode.NEXT_STEP):
    return SyncVectorEnv([lambda k=k: CountingEnv(2 * number + k) for k in range(2)], autoreset_mode=mode)


class FixedPolicy:
    """Plays action ``number % 4``; notes what it was given."""

    def __init__(self, number: int, seed: int) -> None:
        self.number, self.loaded = number, []

    def load(self, weights) -> None:
        self.loaded.append(weights)

    def act(self, observations) -> PolicyStep:
        values = np.full(len(observations), 1.0, np.float32)
        return PolicyStep(np.full(len(observations), self.number % 4), values, values)


def start(settings):
    def make(one, num_restarts: int) -> RolloutActor:
        return RolloutActor(replace(one, writer=copy(one.writer)), num_restarts)  # as in a process of its own

    return LocalCalls([partial(make, one) for one in settings])


def rollouts_of(replay, num_actors=2, **settings):
    return Rollouts(replay, make_env, FixedPolicy, num_actors, steps_per_call=10, start=start, **settings)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_every_step_of_all_actors_is_stored_in_its_shard(mode):
    replay = local_replay(shards=2, num_envs=4)
    rollouts = Rollouts(
        replay, lambda number, seed: make_env(number, seed, mode), FixedPolicy, 2, steps_per_call=10, start=start
    )

    reports = [report for _ in range(6) for report in rollouts.poll()[0]]
    rollouts.flush()
    replay.group.refresh()

    stored = [shard.memory for shard in replay.group.calls.objects]
    assert sum(report.steps for report in reports) == 12 * 20 - (12 * 2 if mode is AutoresetMode.NEXT_STEP else 0)
    for memory in stored:
        memory.inner.parts.check()
    by_action = {}
    for memory in stored:
        batch = memory.get(memory.sampleable_indices())
        for reward, action in zip(batch.reward.astype(int).tolist(), batch.action.tolist(), strict=True):
            by_action.setdefault(action, []).append(reward)
    assert {0, 1} == set(by_action)
    for rewards in by_action.values():
        assert rewards.count(1) == rewards.count(30) == 2  # two environments of each actor


class SaysNothing(VectorWrapper):
    """Resets in the step of an end, gives no last frame, and declares no mode."""

    metadata: ClassVar = {}
    unwrapped = None

    def step(self, actions):
        *results, infos = super().step(actions)
        return *results, {key: value for key, value in infos.items() if "final" not in key}


def test_actors_take_environments_that_declare_no_mode_and_keep_their_last_frames():
    replay = local_replay(shards=1, num_envs=2)
    rollouts = Rollouts(
        replay,
        lambda number, seed: SaysNothing(make_env(number, seed, AutoresetMode.SAME_STEP)),
        FixedPolicy,
        1,
        steps_per_call=20,
        start=start,
        autoreset_mode="SameStep",
        last_frame="missing",
    )

    (report,), _ = rollouts.poll()
    rollouts.flush()

    assert report.steps == 40
    memory = replay.group.calls.objects[0].memory
    ended = [episode for episode in memory.episodes() if episode.has_end]
    assert [9, 9, 9, 9] == [len(episode) for episode in ended]
    for episode in ended:
        frames = episode.frames()
        assert np.array_equal(frames[-2], frames[-1])
        assert not np.array_equal(frames[-3], frames[-2])


def test_actors_load_new_weights_with_their_next_call_and_only_then():
    policies: list[FixedPolicy] = []

    def make_policy(number: int, seed: int) -> FixedPolicy:
        policies.append(FixedPolicy(number, seed))
        return policies[-1]

    replay = local_replay(num_envs=4)
    rollouts = Rollouts(replay, make_env, make_policy, 2, steps_per_call=10, start=start, weights="first")
    rollouts.poll()
    rollouts.poll()
    rollouts.set_weights("second")
    rollouts.poll()
    rollouts.poll()

    assert [["first", "second"], ["first", "second"]] == [policy.loaded for policy in policies]


def test_a_lost_actor_is_counted_and_its_next_episode_closes_the_open_one():
    replay = local_replay(num_envs=4)
    rollouts = rollouts_of(replay)
    rollouts.poll()
    rollouts.flush()
    rollouts.calls.down.add(1)

    lost = [number for _ in range(2) for number in rollouts.poll()[1]]
    rollouts.calls.down.clear()
    rollouts.calls.replace(1)
    for _ in range(3):
        rollouts.poll()
    rollouts.flush()
    replay.group.refresh()

    memory = replay.group.calls.objects[0].memory
    memory.inner.parts.check()
    batch = memory.get(memory.sampleable_indices())
    of_lost = batch.reward[batch.action == 1].astype(int).tolist()
    assert {1} == set(lost)
    assert rollouts.num_lost == len(lost)
    assert of_lost.count(1) == 4  # the restarted environments count from 1 again


def test_values_of_the_policy_become_initial_priorities():
    replay = local_replay(num_envs=4, sampler=Prioritized(alpha=1.0, epsilon=0.0), frames_per_segment=5)
    rollouts = rollouts_of(replay, priority=np.square)

    rollouts.poll()
    rollouts.flush()

    memory = replay.group.calls.objects[0].memory
    indices = memory.sampleable_indices()
    masses = priorities_in(memory)
    reward = memory.get(indices).reward
    first = reward == 1.0  # error: 1 + 0.5 * 1 - 1, squared
    np.testing.assert_allclose(0.25, masses[first])


def test_actors_have_equal_parts_of_the_environments():
    with pytest.raises(InvalidSettingsError, match="num_actors is 5: each actor has an equal part of the 4 env"):
        rollouts_of(local_replay(num_envs=4), num_actors=5)
    with pytest.raises(InvalidSettingsError, match="num_actors is 3"):
        rollouts_of(local_replay(num_envs=4), num_actors=3)


class PolicyWithALostShard(FixedPolicy):
    """Raises in its 15th step, as the writer does when a shard does not come back."""

    def act(self, observations) -> PolicyStep:
        self.loaded.append("step")
        if self.loaded.count("step") == 15:
            raise ActorLostError("shard 0 did not come back within 600 s")
        return super().act(observations)


def test_an_actor_that_gave_up_a_shard_plays_on_with_new_episodes():
    replay = local_replay(num_envs=4)
    rollouts = Rollouts(replay, make_env, PolicyWithALostShard, 2, steps_per_call=10, start=start)

    lost = [len(rollouts.poll()[1]) for _ in range(5)]
    rollouts.flush()
    replay.group.refresh()

    memory = replay.group.calls.objects[0].memory
    memory.inner.parts.check()
    assert [0, 2, 0, 0, 0] == lost
    assert replay.counts.inserted == memory.get(memory.sampleable_indices()).reward.size
    assert replay.counts.inserted > 4 * 35


def test_an_actor_that_waits_for_a_lost_shard_is_not_taken_for_a_silent_one(monkeypatch):
    replay = local_replay(num_envs=4)
    rollouts = rollouts_of(replay, silent_s=0.0)
    rollouts.poll()
    monkeypatch.setattr(rollouts.calls, "wait", lambda handles, timeout_s=0.0: [])
    replaced = []
    monkeypatch.setattr(rollouts.calls, "replace", replaced.append)
    replay.group.calls.down.add(0)
    replay.group.refresh()

    rollouts.poll()
    rollouts.poll()
    while_down = list(replaced)
    replay.group.calls.down.clear()
    replay.group.refresh()
    rollouts.poll()

    assert ([], [0, 1]) == (while_down, replaced)
